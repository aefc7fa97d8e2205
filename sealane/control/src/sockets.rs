//! Listening sockets that a new generation brings: bound before anything is published.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use sealane_config::Config;
use sealane_config::unix_socket::{self, SocketFile};
use sealane_file_table::Descriptor;
use sealane_lanes::generation::Generation;
use sealane_lanes::handover::Parcel;
use sealane_lanes::kernel::Address;
use sealane_lanes::listener::{BACKLOG, Bind, adopt, bind_among, bind_as};
use sealane_lanes::mailbox::Mail;
use sealane_lanes::start::LaneHandle;
use sealane_listeners::{Fault, said_of};
use sealane_sandbox::{self as sandbox, Need};
use sealane_traffic::backends::RelaySettings;
use tracing::warn;

use super::kept::{self, KeptSockets};

/// An address that is listened on; the file of a unix socket goes with this value.
struct Bound {
    /// The address as it is written.
    key: Address,
    /// With the port that was chosen for port 0.
    local: Address,
    file: Option<SocketFile>,
}

impl Bound {
    /// Whether whoever looks for it finds it: the file of a unix socket may have been removed.
    fn is_found(&self) -> bool {
        self.file.as_ref().is_none_or(SocketFile::is_in_place)
    }

    /// Lets in whoever `config` says, which may have changed since it was bound.
    fn permit(&self, config: &Config) -> Result<(), String> {
        let owner = config.listeners.iter().find(|each| each.addresses.contains(&self.key));
        let file = self.file.as_ref().filter(|_| self.is_found());
        let Some((file, owner)) = file.zip(owner) else { return Ok(()) };
        file.permit(owner.socket_mode).map_err(|error| {
            said_of(&owner.name, &format!("socket_mode: {} keeps its own: {error}", self.key))
        })
    }
}

/// Freshly bound sockets, one per lane for each address.
pub(super) struct NewSockets {
    /// What was bound.
    bound: Vec<Bound>,
    /// Sockets that cannot be made again after their files went away.
    pub(super) faults: Vec<Fault>,
    by_lane: Vec<Vec<(Address, Descriptor)>>,
}

impl NewSockets {
    /// Takes the sockets of lane number `lane`.
    pub(super) fn of_lane(&mut self, lane: usize) -> Vec<(Address, Descriptor)> {
        self.by_lane.get_mut(lane).map(std::mem::take).unwrap_or_default()
    }

    /// Lets the service manager keep them.
    pub(super) fn keep(&self) {
        for (lane, sockets) in self.by_lane.iter().enumerate() {
            for (key, socket) in sockets {
                kept::keep(key, lane, socket.as_fd());
            }
        }
    }

    /// Lets the service manager close them again.
    pub(super) fn forget(&self) {
        kept::forget(self.bound.iter().map(|bound| &bound.key), self.by_lane.len());
    }

    /// Hands each lane its sockets; they take connections once they are published.
    ///
    /// # Errors
    /// A line for the first lane that cannot take them; no lane has any then.
    pub(super) fn hand_over(
        &mut self,
        lanes: &mut [LaneHandle<RelaySettings>],
    ) -> Result<Vec<Parcel>, Vec<String>> {
        let give = |lane: &mut LaneHandle<RelaySettings>| {
            let given = lane.hand_over(&self.of_lane(lane.number));
            given
                .map_err(|error| format!("lane {} does not take its sockets: {error}", lane.number))
        };
        let given: Result<Vec<_>, _> = lanes.iter_mut().map(give).collect();
        given.map_err(|problem| {
            for lane in lanes {
                lane.post(Mail::Discard);
            }
            vec![problem]
        })
    }
}

/// The addresses that are listened on.
#[derive(Default)]
pub(super) struct BoundAddresses(Vec<Bound>);

impl BoundAddresses {
    /// The addresses, with the ports that were chosen for port 0.
    pub(super) fn local(&self) -> impl Iterator<Item = &Address> {
        self.0.iter().map(|bound| &bound.local)
    }

    /// Whether the files of all unix sockets are in their places.
    pub(super) fn are_found(&self) -> bool {
        self.0.iter().all(Bound::is_found)
    }

    /// Removes the files of unix sockets.
    pub(super) fn close(&mut self) {
        self.0.clear();
    }

    /// Takes what was bound for `generation`, made of `config`, and drops what it does not listen
    /// on any more.
    pub(super) fn follow(
        &mut self,
        generation: &Generation<RelaySettings>,
        config: &Config,
        sockets: &mut NewSockets,
    ) {
        let is_kept = |bound: &Bound| {
            generation.listeners.iter().any(|listener| listener.keys.contains(&bound.key))
                && !sockets.bound.iter().any(|new| new.key == bound.key)
        };
        let gone: Vec<Bound> = self.0.extract_if(.., |bound| !is_kept(bound)).collect();
        kept::forget(gone.iter().map(|bound| &bound.key), config.lanes.get());
        drop(gone);
        for kept in &self.0 {
            kept.permit(config).unwrap_or_else(|problem| warn!("{problem}"));
        }
        self.0.append(&mut sockets.bound);
    }

    /// Binds every address of `generation`, which was made of `config`, that is not listened on;
    /// what was `kept` of such an address goes on.
    ///
    /// # Errors
    /// A line for each new address that cannot be bound; nothing is left bound then.
    pub(super) fn open_new(
        &self,
        generation: &Generation<RelaySettings>,
        config: &Config,
        kept: &mut KeptSockets,
    ) -> Result<NewSockets, Vec<String>> {
        open_new(generation, config, &self.0, kept)
    }
}

/// Binds every address of `generation`, which was made of `config`, that is not found among
/// `known`; what was `kept` of such an address goes on.
///
/// # Errors
/// A line for each new address that cannot be bound; nothing is left bound then.
fn open_new(
    generation: &Generation<RelaySettings>,
    config: &Config,
    known: &[Bound],
    kept: &mut KeptSockets,
) -> Result<NewSockets, Vec<String>> {
    let lanes = config.lanes.get();
    let mut sockets = NewSockets { bound: Vec::new(), faults: Vec::new(), by_lane: Vec::new() };
    sockets.by_lane.resize_with(lanes, Vec::new);
    let is_known =
        |key: &&Address| known.iter().any(|bound| bound.key == **key && bound.is_found());
    let (mut problems, mut pauses) = (Vec::new(), BIND_PAUSES);
    for (listener, written) in generation.listeners.iter().zip(&config.listeners) {
        for key in listener.keys.iter().filter(|key| !is_known(key)) {
            let opened = match key {
                Address::Tcp(address) => {
                    let wanted = Bind {
                        // Whoever else is at one that overlaps cannot be told from ourselves.
                        reuse_port: overlaps(*address, generation, known)
                            || kept.overlaps(*address),
                        liveness: listener.liveness,
                        steer: listener.steer,
                        ..Bind::to(*address)
                    };
                    let bound = bind_patiently(&wanted, kept.take(*address, lanes), &mut pauses);
                    bound.map(|(fds, local)| (fds, Address::Tcp(local), None))
                }
                Address::Unix(path) => listen_at_path(path, written.socket_mode, lanes)
                    .map(|(fds, file)| (fds, key.clone(), Some(file))),
            };
            match opened {
                Ok((fds, local, file)) => {
                    sockets.bound.push(Bound { key: key.clone(), local, file });
                    for (fd, of_lane) in fds.into_iter().zip(&mut sockets.by_lane) {
                        of_lane.push((key.clone(), fd));
                    }
                }
                Err(error) => match fault_of(key, &error, known, &written.name) {
                    Some(fault) => sockets.faults.push(fault),
                    None => problems.push(said_of(&written.name, &refused(key, &error))),
                },
            }
        }
    }
    if problems.is_empty() { Ok(sockets) } else { Err(problems) }
}

/// The fault of a unix socket that Sealane listens on, if its file cannot be made again.
fn fault_of(key: &Address, error: &io::Error, known: &[Bound], listener: &str) -> Option<Fault> {
    let Address::Unix(path) = key else { return None };
    known.iter().find(|bound| bound.key == *key)?;
    let outside = sandbox::outside_for(path, Need::Socket);
    let text = outside.map_or_else(|| refused(key, error), |problem| problem.to_string());
    let (listener, path) = (Some(listener.to_owned()), path.clone());
    Some(Fault { listener, path, text, without: Some(WITHOUT_SOCKET) })
}

/// The line for an address that cannot be bound, with the remedy.
pub fn refused(key: &Address, error: &io::Error) -> String {
    let remedy = match (key, error.kind()) {
        // There is no other reason: the kernel binds any port from a certain one on for everybody.
        (Address::Tcp(_), io::ErrorKind::PermissionDenied) => {
            "low ports are for root, who may start it and name a user in [process], and for a \
             process with CAP_NET_BIND_SERVICE (AmbientCapabilities= in a unit); this one gets \
             neither while it runs: start it so, or choose another port"
        }
        (Address::Tcp(_), _) => {
            "is another program using it, or is the address not of this machine?"
        }
        (Address::Unix(_), _) => "is its folder there, and may this user write to it?",
    };
    format!("cannot listen on {key}: {error}; {remedy}")
}

/// Whether an address that we listen on already, or will, takes connections to `key` too: an
/// address and every address of its family, with one port. The more exact one gets them.
fn overlaps(key: SocketAddr, generation: &Generation<RelaySettings>, known: &[Bound]) -> bool {
    let wanted = generation.listeners.iter().flat_map(|listener| &listener.keys);
    wanted.chain(known.iter().map(|bound| &bound.key)).any(|other| match other {
        Address::Tcp(other) => {
            *other != key
                && other.port() == key.port()
                && other.is_ipv4() == key.is_ipv4()
                && (other.ip().is_unspecified() || key.ip().is_unspecified())
        }
        Address::Unix(_) => false,
    })
}

/// Binds it, and waits a moment if it is in use, while there are `pauses` left: an address that the
/// generation before has dropped is closed by the lanes between two events. What was kept at an
/// address is in the way of nobody who may be there, and whoever may not does not go away in a
/// moment.
fn bind_patiently(
    wanted: &Bind,
    kept: Vec<Option<OwnedFd>>,
    pauses: &mut u32,
) -> io::Result<(Vec<Descriptor>, SocketAddr)> {
    if kept.iter().any(Option::is_some) {
        return bind_among(wanted, kept);
    }
    loop {
        match bind_as(wanted, kept.len()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && *pauses > 0 => {
                *pauses -= 1;
                std::thread::sleep(BIND_PAUSE);
            }
            other => return other,
        }
    }
}

/// One socket that all lanes take from: the kernel spreads nobody over several of one path.
fn listen_at_path(
    path: &Path,
    mode: u32,
    lanes: usize,
) -> io::Result<(Vec<Descriptor>, SocketFile)> {
    let (socket, file) = unix_socket::bind(path, mode, i32::try_from(BACKLOG).unwrap_or(i32::MAX))?;
    let (sockets, _) = adopt(socket.as_fd(), BACKLOG, lanes)?;
    Ok((sockets, file))
}

/// Pauses of all addresses together: whoever waits here feeds no watchdog.
const BIND_PAUSES: u32 = 20;
const BIND_PAUSE: Duration = Duration::from_millis(10);
const WITHOUT_SOCKET: &str = "clients cannot connect to it";

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn all_addresses_that_are_in_use_wait_once() {
        let in_use = TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = Bind::to(in_use.local_addr().unwrap());
        let mut pauses = 2;
        for _ in 0..3 {
            let refusal = bind_patiently(&wanted, vec![None], &mut pauses).err().unwrap();
            assert_eq!((refusal.kind(), pauses), (io::ErrorKind::AddrInUse, 0));
        }
    }
}
