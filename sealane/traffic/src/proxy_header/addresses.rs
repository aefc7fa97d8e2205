//! The addresses of a header that is written, in one family: [`Ips`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Two addresses of one family.
pub(super) enum Ips {
    /// The client's, and the one that it connected to.
    V4(Ipv4Addr, Ipv4Addr),
    /// The same.
    V6(Ipv6Addr, Ipv6Addr),
}

impl Ips {
    /// Where the families differ, IPv4 stands within IPv6.
    pub(super) fn of(client: SocketAddr, local: SocketAddr) -> Self {
        let wide = |ip| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        match (client.ip(), local.ip()) {
            (IpAddr::V4(client), IpAddr::V4(local)) => Self::V4(client, local),
            (client, local) => Self::V6(wide(client), wide(local)),
        }
    }
}
