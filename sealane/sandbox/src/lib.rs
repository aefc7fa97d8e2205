//! The rights of this process: the files that the kernel lets it open (Landlock), and its user.
#![forbid(unsafe_code)]

mod landlock;
mod need;
mod user;

pub use landlock::{Look, close_around, leave_open, look, outside, outside_for, version};
pub use need::{KEPT, Need, READ, STORE, folders};
pub use user::become_user;
