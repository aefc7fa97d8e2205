//! Listening sockets that a new generation brings: bound before anything is published.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use sealane_lanes::generation::{Generation, ListenerKey};
use sealane_lanes::listener::{Bind, bind_as};

use crate::backends::RelaySettings;
use crate::listener::said_of;

/// Freshly bound sockets, one per lane for each address.
pub(super) struct NewSockets {
    /// Each new key with the address that was bound for it.
    pub(super) bound: Vec<(ListenerKey, SocketAddr)>,
    by_lane: Vec<Vec<(ListenerKey, OwnedFd)>>,
}

impl NewSockets {
    /// Takes the sockets of lane number `lane`.
    pub(super) fn of_lane(&mut self, lane: usize) -> Vec<(ListenerKey, OwnedFd)> {
        self.by_lane.get_mut(lane).map(std::mem::take).unwrap_or_default()
    }
}

/// Binds every address of `generation` that is not among `known`.
///
/// # Errors
/// A line for each address that cannot be bound; nothing is left bound then.
pub(super) fn open_new(
    generation: &Generation<RelaySettings>,
    known: &HashSet<ListenerKey>,
    lanes: usize,
) -> Result<NewSockets, Vec<String>> {
    let mut sockets = NewSockets { bound: Vec::new(), by_lane: Vec::new() };
    sockets.by_lane.resize_with(lanes, Vec::new);
    let mut problems = Vec::new();
    for listener in &generation.listeners {
        for key in listener.keys.iter().filter(|key| !known.contains(key)) {
            // Whoever else is at an address that overlaps cannot be told from ourselves.
            let reuse_port = overlaps(*key, generation, known);
            let wanted = Bind {
                reuse_port,
                liveness: listener.liveness,
                steer: listener.steer,
                ..Bind::to(*key)
            };
            let bound = bind_patiently(&wanted, lanes);
            match bound {
                Ok((fds, bound)) => {
                    sockets.bound.push((*key, bound));
                    for (fd, of_lane) in fds.into_iter().zip(&mut sockets.by_lane) {
                        of_lane.push((*key, fd));
                    }
                }
                Err(error) => problems.push(said_of(
                    &listener.settings.listener,
                    &format!(
                        "cannot listen on {key}: {error}; is another program using it, or is the \
                         address not of this machine?"
                    ),
                )),
            }
        }
    }
    if problems.is_empty() { Ok(sockets) } else { Err(problems) }
}

/// Whether an address that we listen on already, or will, takes connections to `key` too: an
/// address and every address of its family, with one port. The more exact one gets them.
fn overlaps(
    key: SocketAddr,
    generation: &Generation<RelaySettings>,
    known: &HashSet<ListenerKey>,
) -> bool {
    let listeners = generation.listeners.iter();
    listeners.flat_map(|listener| &listener.keys).chain(known).any(|other| {
        *other != key
            && other.port() == key.port()
            && other.is_ipv4() == key.is_ipv4()
            && (other.ip().is_unspecified() || key.ip().is_unspecified())
    })
}

/// Binds it, and waits a moment if it is in use: an address that the generation before has
/// dropped is closed by the lanes between two events.
fn bind_patiently(wanted: &Bind, lanes: usize) -> io::Result<(Vec<OwnedFd>, SocketAddr)> {
    for _ in 1..BIND_TRIES {
        match bind_as(wanted, lanes) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                std::thread::sleep(BIND_PAUSE);
            }
            other => return other,
        }
    }
    bind_as(wanted, lanes)
}

const BIND_TRIES: usize = 20;
const BIND_PAUSE: Duration = Duration::from_millis(10);
