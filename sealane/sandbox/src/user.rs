//! The user that this thread is: [`become_user`].

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Makes this thread one of `user` and these groups alone, for good.
///
/// # Errors
/// The system's.
pub fn become_user(user: Uid, group: Gid, groups: &[Gid]) -> rustix::io::Result<()> {
    set_thread_groups(groups)?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)
}
