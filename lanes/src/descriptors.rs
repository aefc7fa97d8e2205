//! The process's table of open files, grown before lanes share it.
//!
//! When threads share the table, the kernel lets every processor pass through a quiet state before
//! it replaces the table by a larger one, and whoever needs the descriptor waits for that: some
//! milliseconds in which a lane's other connections stand still, at each doubling.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

/// Descriptors that the table is grown for at most. Each costs the kernel 8 bytes and some bits, so
/// this many take 8 MiB.
pub const TABLE_DESCRIPTORS_MAX: u64 = 1 << 20;

/// Grows the table for `wanted` descriptors, as far as the process may have so many, and at most
/// for [`TABLE_DESCRIPTORS_MAX`]. It never shrinks again. Called before there is a second thread it
/// waits for nothing.
///
/// Returns for how many there is room now.
///
/// # Errors
/// The kernel has no memory for the table, or no descriptor is left.
pub fn grow_table(wanted: u64) -> io::Result<u64> {
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = wanted.min(allowed).min(TABLE_DESCRIPTORS_MAX);
    let Some(last) = count.checked_sub(1) else { return Ok(0) };
    // It fits by the bound.
    let last = i32::try_from(last).map_err(|_| Errno::INVAL)?;
    let any: OwnedFd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // The lowest free number from there on: the table must hold it, and keeps its size afterwards.
    drop(fcntl_dupfd_cloexec(&any, last)?);
    Ok(count)
}
