//! By which names a server may be asked for: a web page whose owner points a name of his at this
//! machine must not be able to read what is served here.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Status;

/// The names that a request's `Host` may have, beside `localhost` and addresses: a browser puts
/// neither in the place of a name that a stranger owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// `localhost`, addresses and these, in lower case.
    pub fn with(names: &[String]) -> Self {
        Self(names.to_vec())
    }

    /// Judges a request of HTTP/1.`minor` with these headers.
    pub(super) fn judge(
        &self,
        minor: u8,
        headers: &[httparse::Header<'_>],
    ) -> Result<(), (Status, &'static str)> {
        let mut hosts = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
        match (hosts.next(), hosts.next()) {
            // Browsers, which this is about, speak HTTP/1.1.
            (None, _) if minor == 0 => Ok(()),
            (None, _) => Err((Status::BadRequest, "HTTP/1.1 wants a Host")),
            (Some(_), Some(_)) => Err((Status::BadRequest, "more than one Host")),
            (Some(host), None) => {
                let text = std::str::from_utf8(host.value).map_err(|_| NO_HOST)?;
                let name = name(text.trim_matches([' ', '\t'])).ok_or(NO_HOST)?;
                if self.allows(name) { Ok(()) } else { Err((Status::Misdirected, NOT_OURS)) }
            }
        }
    }

    fn allows(&self, name: Name<'_>) -> bool {
        match name {
            Name::Address => true,
            Name::Text(text) => {
                let text = text.strip_suffix('.').unwrap_or(text);
                text.eq_ignore_ascii_case("localhost")
                    || self.0.iter().any(|known| text.eq_ignore_ascii_case(known))
            }
        }
    }
}

/// A host as it is written in a request.
#[derive(Clone, Copy)]
enum Name<'a> {
    Address,
    Text(&'a str),
}

/// What `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT` names.
fn name(text: &str) -> Option<Name<'_>> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (address.parse::<Ipv6Addr>().ok().map(|_| Name::Address)?, port)
        }
        None => {
            let end = text.find(':').unwrap_or(text.len());
            let (host, port) = text.split_at(end);
            let is_name = !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            let address = host.parse::<Ipv4Addr>().ok().map(|_| Name::Address);
            (address.or(is_name.then_some(Name::Text(host)))?, port)
        }
    };
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

const NO_HOST: (Status, &str) = (Status::BadRequest, "the Host is no name or address");
const NOT_OURS: &str = "this server is not asked for by that name; use localhost, an address, or \
                        a name that its configuration has in [admin] hosts";

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(minor: u8, hosts: &[&str]) -> Option<Status> {
        let names = ["metrics.example.com".to_owned()];
        let headers: Vec<_> = hosts
            .iter()
            .map(|host| httparse::Header { name: "HOST", value: host.as_bytes() })
            .collect();
        Hosts::with(&names).judge(minor, &headers).err().map(|(status, _)| status)
    }

    #[test]
    fn addresses_localhost_and_known_names_pass() {
        for host in [
            "localhost",
            "LocalHost:9180",
            "localhost.:1",
            "127.0.0.1",
            "127.0.0.1:9180",
            "192.0.2.1:80",
            "[::1]",
            "[::1]:9180",
            "[::ffff:192.0.2.1]:1",
            "metrics.example.com",
            "Metrics.Example.com.:9180",
            " localhost\t",
            "localhost:",
        ] {
            assert_eq!(judged(1, &[host]), None, "{host:?}");
        }
    }

    #[test]
    fn other_names_do_not() {
        for host in [
            "evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "127.0.0.1.evil.example",
            "metrics.example.com.evil.example",
            "0x7f.1",
            "127.1",
            "2130706433",
            "admin",
            "localhost..",
        ] {
            assert_eq!(judged(1, &[host]), Some(Status::Misdirected), "{host:?}");
        }
    }

    #[test]
    fn what_is_no_host_is_a_bad_request() {
        for host in [
            "",
            ":80",
            "[::1",
            "[::1]x",
            "[evil.example]",
            "a b",
            "localhost:80:80",
            "localhost:x",
            "localhost:123456",
            "localhost@evil.example",
            "local\u{e9}",
            "localhost, evil.example",
        ] {
            assert_eq!(judged(1, &[host]), Some(Status::BadRequest), "{host:?}");
        }
        assert_eq!(judged(1, &[]), Some(Status::BadRequest));
        assert_eq!(judged(0, &[]), None, "HTTP/1.0 knows no Host");
        assert_eq!(judged(0, &["evil.example"]), Some(Status::Misdirected));
        assert_eq!(judged(1, &["localhost", "localhost"]), Some(Status::BadRequest));
    }
}
