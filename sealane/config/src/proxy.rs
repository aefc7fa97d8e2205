//! Whose PROXY header is believed.

use std::net::IpAddr;

use super::network::Network;

/// Who announces clients to a listener by a PROXY header, and what of it is passed on. Everybody
/// who connects has to send one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptProxy {
    /// Networks of those who are believed.
    pub from: Vec<Network>,
    /// Whether those are believed who come by a unix socket.
    pub from_unix: bool,
    /// Types of values that go on to the backend, where it gets a header too.
    pub passed_values: Vec<u8>,
}

impl AcceptProxy {
    /// Whether `peer` is believed; who comes by a unix socket has no address.
    pub fn believes(&self, peer: Option<IpAddr>) -> bool {
        match peer {
            Some(peer) => self.from.iter().any(|network| network.contains(peer)),
            None => self.from_unix,
        }
    }

    /// Who is believed, as it is written.
    pub fn sources(&self) -> Vec<String> {
        let networks = self.from.iter().map(ToString::to_string);
        networks.chain(self.from_unix.then(|| UNIX.to_owned())).collect()
    }
}

/// Everybody who may open the unix sockets of the listener.
pub(super) const UNIX: &str = "unix";
/// Networks of those who are believed by one listener.
pub(super) const PROXY_NETWORKS_MAX: usize = 256;
/// Types of values that one listener passes on.
pub(super) const PASSED_VALUES_MAX: usize = 8;
