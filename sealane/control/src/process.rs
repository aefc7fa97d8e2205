//! What the process of `sealane serve` is, before it starts a thread: which user, who may look into
//! it, whether its memory can get to a disk, and what it may open. What its lanes may call holds
//! for them alone: [`filter`].

mod account;
pub mod filter;
pub mod landlock;
pub mod locked;

use rustix::process::{DumpableBehavior, dumpable_behavior, geteuid};
use rustix::thread::set_no_new_privs;
use sealane_config::Process;
use sealane_operator::memory::set_core_dumps;
use tracing::{info, warn};

pub use account::{Account, AccountError};
pub use sealane_operator::memory::hide_memory;

/// Makes this process what `wanted` says. It must be called while there is no other thread: the
/// system changes a thread at a time. Returns the user that it has become, if it is another.
///
/// # Errors
/// It cannot become that user.
pub fn settle(wanted: &Process) -> Result<Option<Account>, AccountError> {
    let account = Account::named(wanted)?;
    // While this may be root.
    locked::raise_limit();
    let is_another = match &account {
        Some(account) => account.take_rights()?,
        None => false,
    };
    // After the above, by which the kernel shuts the process whatever is wanted.
    if let Err(error) = set_core_dumps(wanted.allow_core_dump) {
        warn!("cannot decide who may look into memory: {error}");
    }
    // No program that it starts has more rights than it has itself.
    if let Err(error) = set_no_new_privs(true) {
        warn!("cannot give up what other programs grant: {error}");
    }
    locked::lock();
    let account = account.filter(|_| is_another);
    if let Some(account) = &account {
        info!("runs as the user {account}");
    }
    Ok(account)
}

/// Says if this process may do everything.
pub fn warning() -> Option<&'static str> {
    geteuid().is_root().then_some(
        "running as root: name a user in [process], or let the service manager start Sealane as \
         one (packaging/sealane.service)",
    )
}

/// Whether this process may leave a core dump, and others of its user may look into it.
pub fn has_core_dumps() -> bool {
    // What cannot be asked for was not changed.
    dumpable_behavior().is_ok_and(|behavior| behavior == DumpableBehavior::Dumpable)
}
