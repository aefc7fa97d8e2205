//! The place that a server listens at: an address, a path, or a socket that was opened elsewhere.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use sealane_file_table::Descriptor;
use sealane_lanes::listener::{Bind, adopt, bind_as, bind_unix};

/// JavaScript's options for it.
#[derive(Clone, Debug, Default)]
pub struct Where {
    /// An address; none: every one of this machine.
    pub host: Option<String>,
    /// 0: any that is free.
    pub port: u16,
    /// The path of a unix socket; with a zero byte in front an abstract one.
    pub path: Option<String>,
    /// A socket that this process has, by its number.
    pub fd: Option<i32>,
    /// Connections that may wait to be accepted.
    pub backlog: Option<u32>,
    /// Whether `::` leaves IPv4 to others.
    pub ipv6_only: bool,
    /// Whether other processes may listen on the same port.
    pub reuse_port: bool,
}

impl Where {
    /// Sockets for this number of lanes, and the address, if there is one.
    ///
    /// # Errors
    /// The system refuses.
    pub fn open(&self, lanes: usize) -> io::Result<(Vec<OwnedFd>, Option<SocketAddr>)> {
        let (sockets, address) = self.open_here(lanes)?;
        // All threads of Node, and lanes, share one table.
        Ok((sockets.into_iter().map(Descriptor::into_shared).collect(), address))
    }

    fn open_here(&self, lanes: usize) -> io::Result<(Vec<Descriptor>, Option<SocketAddr>)> {
        let backlog = self.backlog.filter(|backlog| *backlog > 0).unwrap_or(BACKLOG);
        if let Some(path) = &self.path {
            return bind_unix(Path::new(path), backlog, lanes).map(|sockets| (sockets, None));
        }
        if let Some(fd) = self.fd {
            return adopt(crate::memory::borrowed(fd)?.as_fd(), backlog, lanes);
        }
        let bind = |ip: IpAddr| {
            let address = SocketAddr::new(ip, self.port);
            let (ipv6_only, reuse_port) = (self.ipv6_only, self.reuse_port);
            bind_as(&Bind { backlog, ipv6_only, reuse_port, ..Bind::to(address) }, lanes)
        };
        let opened = match &self.host {
            Some(host) => bind(parse(host)?),
            // As Node does: IPv6 takes IPv4 along where there is IPv6.
            None => match bind(Ipv6Addr::UNSPECIFIED.into()) {
                Err(error) if lacks_ipv6(&error) => bind(Ipv4Addr::UNSPECIFIED.into()),
                opened => opened,
            },
        };
        opened.map(|(sockets, address)| (sockets, Some(address)))
    }
}

/// Node's own.
const BACKLOG: u32 = 511;

fn parse(host: &str) -> io::Result<IpAddr> {
    host.parse().map_err(|_| {
        io::Error::new(ErrorKind::InvalidInput, "the host is no IP address; look its name up")
    })
}

fn lacks_ipv6(error: &io::Error) -> bool {
    !matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied)
}
