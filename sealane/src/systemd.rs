//! What is told to a service manager that asked to be told, as systemd does, and what it keeps for
//! the process that comes after this one. Without one, nothing is done here.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sd_notify::NotifyState;

/// Tells it `state`.
pub fn tell(state: &[NotifyState<'_>]) {
    // If the manager does not listen, the work goes on.
    let _ = sd_notify::notify(state);
}

/// Tells it that the process ends, and how long that may take: it waits so long, if its own
/// patience is less.
pub fn tell_end(within: Duration) {
    let wait_us = within.saturating_add(SPARE).as_micros();
    tell(&[NotifyState::Stopping, NotifyState::Custom(&format!("EXTEND_TIMEOUT_USEC={wait_us}"))]);
}

/// Lets it keep `descriptor` under `name`: it passes it to the next process, after a restart or a
/// crash, and closes it when the service is stopped.
pub fn keep(name: &str, descriptor: BorrowedFd<'_>) {
    // If the manager does not listen, the next process opens its own.
    let _ = try_keep(name, descriptor);
}

/// Lets it close what it keeps under `name`.
pub fn forget(name: &str) {
    tell(&[NotifyState::Custom("FDSTOREREMOVE=1"), NotifyState::Custom(&format!("FDNAME={name}"))]);
}

fn try_keep(name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    let text = format!("FDSTORE=1\nFDNAME={name}\n");
    let passed = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    // There is room for it.
    let _ = rights.push(SendAncillaryMessage::ScmRights(&passed));
    sendmsg(&socket, &[IoSlice::new(text.as_bytes())], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Between the last connection and the end of the process.
const SPARE: Duration = Duration::from_secs(10);
