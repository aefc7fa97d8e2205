//! Whom clients talk to: a [`Target`] on the command line, and the [`Peer`] that it is found to be.

use std::{
    fmt,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    str::FromStr,
    time::Duration,
};

use sealane_lab_model::error::Error;
use serde::{Deserialize, Serialize};

/// A TLS server that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// What it speaks.
    pub protocol: Protocol,
    /// The target's name, which must stand in its certificate.
    pub host: String,
    /// The target's port.
    pub port: u16,
}

/// What is spoken inside of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// MongoDB's wire protocol.
    Mongodb,
    /// Redis' protocol.
    Redis,
    /// Nothing that is known: there is a handshake and no ping.
    Tls,
}

impl Protocol {
    /// The protocol's name in front of `://`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mongodb => "mongodb",
            Self::Redis => "redis",
            Self::Tls => "tls",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, host, port } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}://{open}{host}{close}:{port}", protocol.name())
    }
}

/// What stands behind `--target`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// One that is there.
    There(Target),
    /// One that the lab starts and ends.
    Own(Protocol),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "mongodb" => return Ok(Self::Own(Protocol::Mongodb)),
            "redis" => return Ok(Self::Own(Protocol::Redis)),
            _ => {}
        }
        let form = "write redis, mongodb, or redis://, mongodb:// or tls:// with HOST:PORT";
        let known = [Protocol::Mongodb, Protocol::Redis, Protocol::Tls];
        let (word, address) = text.split_once("://").ok_or(form)?;
        let protocol = known.into_iter().find(|known| known.name() == word).ok_or(form)?;
        let (host, port) = address.rsplit_once(':').ok_or(form)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(form)?;
        if host.is_empty() {
            return Err(form.to_owned());
        }
        Ok(Self::There(Target { protocol, host: host.to_owned(), port }))
    }
}

/// A target whose address answers, looked up once.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// What is spoken.
    pub(super) protocol: Protocol,
    /// What the certificate must be valid for.
    pub(super) name: String,
    /// The first of the name's addresses where somebody listens.
    pub(super) address: SocketAddr,
}

impl Peer {
    /// Looks `target` up.
    ///
    /// # Errors
    /// The name is unknown, or nobody listens there.
    pub(super) fn find(target: &Target) -> Result<Self, Error> {
        let Target { protocol, host, port } = target;
        let failed = || format!("connect to {target}");
        let mut refusal = None;
        for address in (host.as_str(), *port).to_socket_addrs().map_err(Error::io(failed()))? {
            match TcpStream::connect_timeout(&address, CONNECT_TIME_MAX) {
                Ok(_) => return Ok(Self { protocol: *protocol, name: host.clone(), address }),
                Err(error) => refusal = Some(error),
            }
        }
        let none = || Error::Check(format!("{}: the name has no address", failed()));
        Err(refusal.map_or_else(none, Error::io(failed())))
    }
}

/// A server on the same network answers in milliseconds.
pub(super) const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_as_it_is_shown() {
        for text in ["redis://localhost:6379", "mongodb://10.0.0.1:27017", "tls://[::1]:443"] {
            let Ok(Choice::There(target)) = text.parse() else { panic!("{text}") };
            assert_eq!(target.to_string(), text);
        }
        assert_eq!("redis".parse(), Ok(Choice::Own(Protocol::Redis)));
        for text in ["", "localhost:1", "http://a:1", "tls://a", "tls://:1", "tls://a:0", "tls"] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
    }
}
