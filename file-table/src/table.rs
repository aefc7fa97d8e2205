//! The system calls about tables: a thread's own, and growth.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::event::epoll;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

/// The owner of a thread's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTable {
    /// A table of the thread's own.
    Own,
    /// That of the thread which started it, and of all others that share it.
    Shared,
}

/// Whether this thread may have its own table. Old kernels (before Linux 5.9), and filters of
/// system calls that do not know close_range(2), refuse.
///
/// # Errors
/// The kernel's error.
pub fn can_be_own() -> io::Result<()> {
    // In a thread that ends at once, so that no other table changes.
    let tried = std::thread::Builder::new().spawn(own_copy)?;
    tried.join().map_err(|_| io::Error::other("the thread that tried it panicked"))?
}

/// Gives this thread its own table, with a copy of all that is open. An earlier number names the
/// copy from now on, and a later one means nothing elsewhere: a thread must close the files that it
/// opens.
///
/// # Errors
/// As [`can_be_own`].
pub fn own_copy() -> io::Result<()> {
    close_range(NONE, NONE, UNSHARE)
}

/// Gives this thread its own table. Open in it are only the standard streams, for messages of
/// panics, and `kept`, under the number that it has. Returns `kept` as the new table's.
///
/// `kept` stays open in the table that this thread had, without an owner there.
///
/// # Errors
/// The kernel refuses. Then nothing has changed, and `kept` comes back.
pub(crate) fn make_own(kept: OwnedFd) -> Result<(OwnedFd, RawFd), (io::Error, OwnedFd)> {
    let number = kept.as_raw_fd();
    // No number is negative, and the greatest is far from the end.
    let at = number.unsigned_abs();
    // The copy is made, and all behind it closed in it, in one call.
    if let Err(error) = close_range(at + 1, u32::MAX, UNSHARE) {
        return Err((error, kept));
    }
    if at > FIRST_OWN {
        // It fails for arguments out of order alone, and these are in order.
        let _ = close_range(FIRST_OWN, at - 1, 0);
    }
    // The value named the number in the table that was left; here it names the copy.
    Ok((kept, number))
}

/// Lets no handler of a signal run on this thread; those of faults, which a thread can only have
/// itself, still do.
pub(crate) fn block_signals() {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: sigfillset(3) makes the set whole, and only then it is read. The others write the
    // set, and the mask of this thread.
    unsafe {
        libc::sigfillset(signals.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(signals.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, signals.as_ptr(), std::ptr::null_mut());
    }
}

/// Closes `number`, which has no owner in this thread's table.
pub(crate) fn close_unowned(number: RawFd) {
    // SAFETY: by the contract of [`make_own`] it is open here and has no owner.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
}

/// The kernel's memory for each descriptor that a table has room for: a pointer, and three bits
/// that are not counted.
pub const DESCRIPTOR_BYTES: u64 = 8;
/// Descriptors that a table is grown for at most; they take 8 MiB.
pub const TABLE_DESCRIPTORS_MAX: u64 = 1 << 20;

/// Grows this thread's table for `wanted` descriptors, within the process's limit and
/// [`TABLE_DESCRIPTORS_MAX`]. It never shrinks again.
///
/// For a table of one thread the kernel waits for nothing. For a shared one it waits for every
/// processor at each doubling: some milliseconds, in which each thread that needs a descriptor is
/// blocked.
///
/// # Errors
/// The kernel has no memory for the table, or no descriptor is left.
pub fn grow(wanted: u64) -> io::Result<()> {
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let descriptors = wanted.min(allowed).min(TABLE_DESCRIPTORS_MAX);
    let Some(last) = descriptors.checked_sub(1) else { return Ok(()) };
    // It fits by the bound.
    let last = i32::try_from(last).map_err(|_| Errno::INVAL)?;
    let any: OwnedFd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // The lowest free number from there on: the table must hold it, and keeps its size afterwards.
    drop(fcntl_dupfd_cloexec(&any, last)?);
    Ok(())
}

/// Closes the numbers from `first` to `last` in this thread's table, or in a copy of it that is
/// then this thread's. By number rather than by libc's function, which not every libc has.
fn close_range(first: u32, last: u32, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: it takes numbers alone. Descriptors that it closes have no owner except in the table
    // that the copy was made of, which goes on as it is. Only `make_own` calls this with numbers
    // that are open, and always for a copy.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Signals that a thread causes itself.
const FAULTS: [libc::c_int; 5] =
    [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGTRAP];
/// The number behind the standard streams.
const FIRST_OWN: u32 = 3;
/// A number that no descriptor has.
const NONE: u32 = u32::MAX;
/// From linux/close_range.h.
const UNSHARE: libc::c_uint = 1 << 1;
