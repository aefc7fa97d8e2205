//! What a PROXY header announced of a connection.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::Link;

use super::encode::Announced;
use super::header::{Header, Origin};
use super::malformed::Malformed;
use super::values::Values;
use super::{TYPE_AUTHORITY, TYPE_UNIQUE_ID};

/// What a PROXY header announced of a connection, beside its client's address.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// Whether the client was let in, and so has to leave.
    pub is_admitted: bool,
    /// Whether the connection is the sender's own, such as a health check.
    pub is_own: bool,
    /// The address that the client connected to, if it was told.
    local: Option<CompactAddress>,
    /// Who sent the header; it has no address on a unix socket.
    pub peer: Option<SocketAddr>,
    /// Whole values that are shown or passed on.
    values: Box<[u8]>,
}

/// An address that a header told, which has no zone: in 20 bytes instead of 32, because idle
/// connections keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompactAddress {
    V4(Ipv4Addr, u16),
    V6(Ipv6Addr, u16),
}

impl Source {
    /// Keeps of `header`, which `peer` sent, what is needed later: every value if `passes_all`, or
    /// those of the types in `passed` among it.
    pub fn of(
        header: &Header<'_>,
        peer: Option<SocketAddr>,
        passes_all: bool,
        passed: &[u8],
    ) -> Self {
        let is_kept = |kind| {
            passes_all || [TYPE_AUTHORITY, TYPE_UNIQUE_ID].contains(&kind) || passed.contains(&kind)
        };
        let kept = header.values().filter(|value| is_kept(value.kind));
        let values: Vec<u8> = kept.flat_map(|value| value.whole).copied().collect();
        Self {
            is_admitted: false,
            is_own: header.origin == Origin::Sender,
            local: header.local().map(CompactAddress::from),
            peer,
            values: values.into(),
        }
    }

    /// The address that the client connected to, if it was told.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local.map(SocketAddr::from)
    }

    /// Whether the header told the client's address; else it is that of the connection itself.
    pub fn has_client(&self) -> bool {
        // One is told with the other.
        self.local.is_some()
    }

    /// The host name that the client asked for, as the sender has it.
    pub fn authority(&self) -> Option<&[u8]> {
        self.value(TYPE_AUTHORITY)
    }

    /// What tells the connection from all others, on every hop.
    pub fn unique_id(&self) -> Option<&[u8]> {
        self.value(TYPE_UNIQUE_ID)
    }

    /// What backends are told of it, with the values of the types in `passed` in any case.
    pub fn announced<'a, K: Kernel>(
        &'a self,
        link: &Link<'_, K>,
        passed: &'a [u8],
    ) -> Announced<'a> {
        Announced {
            addresses: link.client_address().zip(self.local()),
            passed: &self.values,
            passed_types: passed,
            unique_id: self.unique_id(),
        }
    }

    fn value(&self, kind: u8) -> Option<&[u8]> {
        Values::from(&*self.values).find(|value| value.kind == kind).map(|value| value.bytes)
    }
}

impl From<SocketAddr> for CompactAddress {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::V4(*v4.ip(), v4.port()),
            SocketAddr::V6(v6) => Self::V6(*v6.ip(), v6.port()),
        }
    }
}

impl From<CompactAddress> for SocketAddr {
    fn from(told: CompactAddress) -> Self {
        match told {
            CompactAddress::V4(ip, port) => (ip, port).into(),
            CompactAddress::V6(ip, port) => (ip, port).into(),
        }
    }
}

/// What an operator is told of somebody who may not announce clients.
pub fn untrusted(listener: &str, peer: Option<SocketAddr>) -> String {
    let who = who(peer);
    format!(
        "listener {listener:?}: {who} is not in proxy_from, and was reset; if it is a balancer of \
         yours, name its network there"
    )
}

/// What an operator is told of bytes that are no header.
pub fn refused(listener: &str, peer: Option<SocketAddr>, why: Malformed, bytes: &[u8]) -> String {
    let (who, shown) = (who(peer), &bytes[..bytes.len().min(SHOWN_BYTES_MAX)]);
    let dots = if shown.len() < bytes.len() { "..." } else { "" };
    let shown = shown.escape_ascii();
    match why {
        Malformed::NotProxy => format!(
            "listener {listener:?}: {who} sent no PROXY header (\"{shown}\"{dots}); is it set to \
             send one?"
        ),
        _ => format!("listener {listener:?}: {who} (\"{shown}\"{dots}): {why}"),
    }
}

fn who(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "whoever uses the unix socket".to_owned(), |peer| peer.ip().to_string())
}

/// Bytes of a stranger that are shown to an operator.
const SHOWN_BYTES_MAX: usize = 16;
