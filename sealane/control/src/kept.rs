//! Listening sockets that outlive the process: a service manager keeps them over a restart, and
//! whoever connects meanwhile waits in their queues.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use sealane_file_table::passed;
use sealane_lanes::kernel::Address;
use sealane_lanes::listener::{address_of, is_bound_at};
use tracing::info;

use crate::systemd;

/// Sockets that the process before has left with the service manager.
#[derive(Default)]
pub(super) struct KeptSockets(Vec<(String, OwnedFd)>);

impl KeptSockets {
    /// What was passed to this process.
    pub(super) fn of_this_process() -> Self {
        Self(passed())
    }

    /// Takes the sockets of `lanes` lanes at `key`, as far as there are any.
    pub(super) fn take(&mut self, key: SocketAddr, lanes: usize) -> Vec<Option<OwnedFd>> {
        let take = |lane| {
            let wanted = name(key, lane);
            let is_it =
                |(name, fd): &(String, OwnedFd)| *name == wanted && is_bound_at(fd.as_fd(), key);
            let at = self.0.iter().position(is_it)?;
            Some(self.0.swap_remove(at).1)
        };
        (0..lanes).map(take).collect()
    }

    /// Whether one is bound at `key`, or where it takes connections to `key` too or the other way
    /// round: an address looks in use then.
    pub(super) fn overlaps(&self, key: SocketAddr) -> bool {
        self.0.iter().filter_map(|(_, fd)| address_of(fd.as_fd())).any(|at| {
            at.is_ipv4() == key.is_ipv4()
                && (at.port() == key.port() || key.port() == 0)
                && (at.ip() == key.ip() || at.ip().is_unspecified() || key.ip().is_unspecified())
        })
    }

    /// Lets go of what nobody has taken: a lane or an address that is no more.
    pub(super) fn let_go(self) {
        for (name, _) in &self.0 {
            info!("the socket {name:?} of the process before is not needed any more");
        }
        systemd::forget(self.0.into_iter().map(|(name, _)| name));
    }
}

/// Lets the service manager keep the socket of `lane` at `key`. That of a unix socket stays with
/// this process: its file goes with it.
pub(super) fn keep(key: &Address, lane: usize, socket: BorrowedFd<'_>) {
    if let Address::Tcp(address) = key {
        systemd::keep(&name(*address, lane), socket);
    }
}

/// Lets the service manager close the sockets of `lanes` lanes at `keys`.
pub(super) fn forget<'k>(keys: impl IntoIterator<Item = &'k Address>, lanes: usize) {
    let names = keys.into_iter().flat_map(|key| {
        let address = match key {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        };
        address.into_iter().flat_map(move |address| (0..lanes).map(move |lane| name(address, lane)))
    });
    systemd::forget(names);
}

/// The name under which it is kept, in which there can be no colon.
fn name(key: SocketAddr, lane: usize) -> String {
    format!("lane{lane}@{key}").replace(':', "_")
}
