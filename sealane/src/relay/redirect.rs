//! Requests of plain HTTP that are sent to HTTPS.

use std::net::{Ipv4Addr, Ipv6Addr};

use sealane_lanes::cause::Cause;
use sealane_lanes::service::{PREAMBLE_BYTES_MAX, Preamble};

use crate::config::value;

/// What comes of a client's first `bytes`, where HTTPS is served on `port`.
pub(super) fn preamble(bytes: &[u8], port: u16) -> Preamble {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < PREAMBLE_BYTES_MAX => Preamble::Unfinished,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            refused(Cause::ProtocolError, "431 Request Header Fields Too Large", "")
        }
        Err(_) => refused(Cause::ProtocolError, "400 Bad Request", ""),
        Ok(httparse::Status::Complete(_)) => match location(&request, port) {
            Some(location) => refused(
                Cause::Redirected,
                "308 Permanent Redirect",
                &format!("Location: {location}\r\n"),
            ),
            None => refused(Cause::ProtocolError, "400 Bad Request", ""),
        },
    }
}

/// Where the request goes; none if it does not say whom it asks, or not what.
fn location(request: &httparse::Request<'_, '_>, port: u16) -> Option<String> {
    let mut hosts = request.headers.iter().filter(|each| each.name.eq_ignore_ascii_case("host"));
    let host = std::str::from_utf8(hosts.next()?.value).ok()?.trim_matches([' ', '\t']);
    if hosts.next().is_some() {
        return None;
    }
    let name = match host.rsplit_once(':') {
        Some((name, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_address = match name.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok()),
        None => name.parse::<Ipv4Addr>().is_ok(),
    };
    let is_name = value::host_name(name).is_ok_and(|name| !name.starts_with('*'));
    // A target in another form than a path is for proxies.
    let path = request.path.filter(|path| path.starts_with('/'))?;
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    (is_address || is_name).then(|| format!("https://{name}{port}{path}"))
}

fn refused(cause: Cause, status: &str, header: &str) -> Preamble {
    let text =
        format!("HTTP/1.1 {status}\r\n{header}Content-Length: 0\r\nConnection: close\r\n\r\n");
    Preamble::Refused { cause, answer: text.into_bytes().into() }
}

/// Headers of one request.
const HEADERS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(request: &str, port: u16) -> (Cause, String) {
        match preamble(request.as_bytes(), port) {
            Preamble::Refused { cause, answer } => {
                (cause, String::from_utf8(answer.into_owned()).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_goes_to_its_own_name_and_path() {
        for (host, path, port, expected) in [
            ("a.test", "/", 443, "https://a.test/"),
            ("a.test:80", "/b?c=d", 443, "https://a.test/b?c=d"),
            ("a.test", "/", 8443, "https://a.test:8443/"),
            ("192.0.2.1:8080", "/x", 443, "https://192.0.2.1/x"),
            ("[2001:db8::1]:80", "/x", 443, "https://[2001:db8::1]/x"),
        ] {
            let (cause, answer) =
                answer(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"), port);
            assert_eq!(cause, Cause::Redirected);
            assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
            assert!(answer.contains(&format!("\r\nLocation: {expected}\r\n")), "{answer}");
        }
    }

    #[test]
    fn what_names_nobody_or_is_no_request_is_refused() {
        for request in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.test/@b.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: *.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: ]192.0.2.1[\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: ::1\r\n\r\n",
            "GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "\x16\x03\x01 no HTTP\r\n\r\n",
        ] {
            let (cause, answer) = answer(request, 443);
            assert_eq!(cause, Cause::ProtocolError, "{request:?}");
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
        let long = format!("GET / HTTP/1.1\r\nHost: {}", "a".repeat(PREAMBLE_BYTES_MAX));
        assert!(answer(&long, 443).1.starts_with("HTTP/1.1 431 "));
        assert_eq!(preamble(&long.as_bytes()[..PREAMBLE_BYTES_MAX - 1], 443), Preamble::Unfinished);
    }
}
