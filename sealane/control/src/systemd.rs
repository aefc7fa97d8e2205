//! Notifications to a service manager that asks for them, such as systemd, and descriptors that it
//! keeps for the next process. Without a manager, nothing is done here.

use std::env;
use std::fmt::Write as _;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use sd_notify::NotifyState;

/// Sends `state` to the manager.
pub fn tell(state: &[NotifyState<'_>]) {
    // If the manager does not listen, the work goes on.
    let _ = send(state, None);
}

/// Reports that the process ends, and how long that may take: the manager extends its timeout, if
/// it is shorter.
pub fn tell_end(within: Duration) {
    let wait_us = within.saturating_add(SPARE).as_micros();
    tell(&[NotifyState::Stopping, NotifyState::Custom(&format!("EXTEND_TIMEOUT_USEC={wait_us}"))]);
}

/// Reports that a start or a reload goes on, and may take as long again for its next step.
pub fn tell_progress() {
    let wait_us = STEP_MAX.as_micros();
    tell(&[NotifyState::Custom(&format!("EXTEND_TIMEOUT_USEC={wait_us}"))]);
}

/// Stores `descriptor` in the manager under `name`: it passes it to the next process, after a
/// restart or a crash, and closes it when the service is stopped.
pub fn keep(name: &str, descriptor: BorrowedFd<'_>) {
    let state = ["FDSTORE=1".to_owned(), format!("FDNAME={name}")];
    let state = state.each_ref().map(|line| NotifyState::Custom(line));
    // If the manager does not listen, the next process opens its own.
    let _ = send(&state, Some(descriptor));
}

/// Makes the manager close the descriptors under `names`, and waits until it has: otherwise the
/// next bind to their address would find it in use.
pub fn forget(names: impl IntoIterator<Item = String>) {
    let mut told = false;
    for name in names {
        let name = format!("FDNAME={name}");
        tell(&[NotifyState::Custom("FDSTOREREMOVE=1"), NotifyState::Custom(&name)]);
        told = true;
    }
    if told {
        // Whoever does not answer is not waited for any longer.
        let _ = wait_until_done();
    }
}

/// Lets it close what it has passed to this process.
pub fn forget_passed() {
    let is_ours = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    forget(names.split(':').filter(|name| is_ours && !name.is_empty()).map(str::to_owned));
}

/// Waits until it has done what it was told so far, and says so by closing what it is given.
fn wait_until_done() -> io::Result<()> {
    let (held, given) = pipe_with(PipeFlags::CLOEXEC)?;
    send(&[NotifyState::Custom("BARRIER=1")], Some(given.as_fd()))?;
    drop(given);
    let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
    poll(&mut [PollFd::new(&held, PollFlags::empty())], Some(&patience))?;
    Ok(())
}

fn send(state: &[NotifyState<'_>], passed: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    match path.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(path)?,
    }
    let mut text = String::new();
    for line in state {
        writeln!(text, "{line}").map_err(io::Error::other)?;
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let passed = passed.as_slice();
    if !passed.is_empty() {
        // There is room for it.
        let _ = rights.push(SendAncillaryMessage::ScmRights(passed));
    }
    sendmsg(&socket, &[IoSlice::new(text.as_bytes())], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// How long the manager may take for what it was told.
const PATIENCE: Duration = Duration::from_secs(5);
/// One step of a start: a listener that is read, or a lane that makes all of its contexts.
const STEP_MAX: Duration = Duration::from_secs(60);
/// Between the last connection and the end of the process.
const SPARE: Duration = Duration::from_secs(10);
