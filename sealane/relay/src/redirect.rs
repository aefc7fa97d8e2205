//! Requests of plain HTTP that are sent to HTTPS, but for challenges of ACME.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use sealane_config::value;
use sealane_lanes::cause::Cause;
use sealane_lanes::service::{PREAMBLE_BYTES_MAX, Preamble};
use sealane_traffic::challenges;

use super::relayed::Relayed;

/// What comes of a client's first `bytes`, where HTTPS is served on `port`. A request for a
/// challenge, if those are answered, is left in `relayed` for the responder.
pub(super) fn preamble(
    bytes: &[u8],
    relayed: &mut Option<Relayed>,
    port: u16,
    answers_challenges: bool,
) -> Preamble {
    let all_len = bytes.len();
    // More may have come at once, and is no more of a head for that.
    let bytes = &bytes[..all_len.min(PREAMBLE_BYTES_MAX)];
    let searched = relayed.as_ref().map_or(0, Relayed::searched);
    let blank_len = blank_len(bytes);
    if blank_len > 0 {
        // At most a carriage return was searched.
        if let Some(relayed) = relayed {
            relayed.note_searched(0);
        }
        let answer = Cow::default();
        return Preamble::Read { len: blank_len, answer, is_through: false, is_probe: false };
    }
    if !is_to_be_parsed(bytes, searched) {
        relayed.get_or_insert_default().note_searched(bytes.len());
        return Preamble::Unfinished;
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < PREAMBLE_BYTES_MAX => {
            relayed.get_or_insert_default().note_searched(bytes.len());
            Preamble::Unfinished
        }
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            refused(Cause::ProtocolError, "431 Request Header Fields Too Large", "")
        }
        Err(_) => refused(Cause::ProtocolError, "400 Bad Request", ""),
        Ok(httparse::Status::Complete(_)) => match challenge(&request) {
            Some((_, token)) if answers_challenges && !challenges::is_token(token) => {
                refused(Cause::ProtocolError, "404 Not Found", "")
            }
            Some((method, token)) if answers_challenges => {
                // Written anew: of what a stranger sent, nothing but the token goes on.
                let request = format!("{method} {}{token} HTTP/1.0\r\n\r\n", challenges::PREFIX);
                relayed.get_or_insert_default().set_header(request.into_bytes());
                Preamble::through(all_len)
            }
            _ => redirected(&request, port),
        },
    }
}

/// Empty lines before a request, which mean nothing.
fn blank_len(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some(behind) = rest.strip_prefix(b"\n").or_else(|| rest.strip_prefix(b"\r\n")) {
        rest = behind;
    }
    bytes.len() - rest.len()
}

/// Whether more can be known of `bytes` than when the first `searched` of them were all: the parser
/// begins anew each time, and bytes may come one by one. So it is asked about a whole head, and
/// before that, to refuse early what is no HTTP, whenever there are about twice as many bytes.
fn is_to_be_parsed(bytes: &[u8], searched: usize) -> bool {
    bytes.len().checked_ilog2() > searched.checked_ilog2() || has_end(bytes, searched)
}

/// Whether a head ends in `bytes` behind the first `searched` of them.
fn has_end(bytes: &[u8], searched: usize) -> bool {
    (searched..bytes.len()).any(|end| {
        let head = &bytes[..=end];
        head.ends_with(b"\n\n") || head.ends_with(b"\n\r\n")
    })
}

/// The method and the token of a request for a challenge, if it is one.
fn challenge<'r>(request: &httparse::Request<'_, 'r>) -> Option<(&'r str, &'r str)> {
    let method = request.method.filter(|method| ["GET", "HEAD"].contains(method))?;
    Some((method, request.path?.strip_prefix(challenges::PREFIX)?))
}

fn redirected(request: &httparse::Request<'_, '_>, port: u16) -> Preamble {
    match location(request, port) {
        Some(location) => {
            let header = format!("Location: {location}\r\n");
            refused(Cause::Redirected, "308 Permanent Redirect", &header)
        }
        None => refused(Cause::ProtocolError, "400 Bad Request", ""),
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
// When no more may come, the parser is asked.
const _: () = assert!(PREAMBLE_BYTES_MAX.is_power_of_two());

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(request: &str, port: u16) -> (Cause, String) {
        answer_of(preamble(request.as_bytes(), &mut None, port, false))
    }

    fn answer_of(preamble: Preamble) -> (Cause, String) {
        match preamble {
            Preamble::Refused { cause, answer } => {
                (cause, String::from_utf8(answer.into_owned()).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    /// What comes of `request` in reads of `len` bytes, where challenges are answered; what the
    /// responder gets; and how many bytes were parsed and searched meanwhile.
    fn in_pieces(request: &[u8], len: usize) -> (Preamble, String, usize) {
        let (mut relayed, mut shown, mut looked_at) = (None, Vec::new(), 0);
        let mut last = Preamble::Unfinished;
        for piece in request.chunks(len) {
            shown.extend_from_slice(piece);
            while !shown.is_empty() {
                let searched = relayed.as_ref().map_or(0, Relayed::searched);
                if blank_len(&shown) == 0 {
                    let parsed = is_to_be_parsed(&shown, searched);
                    looked_at += shown.len() - searched + if parsed { shown.len() } else { 0 };
                }
                last = preamble(&shown, &mut relayed, 443, true);
                match last {
                    Preamble::Read { len, is_through: false, .. } => drop(shown.drain(..len)),
                    _ => break,
                }
            }
            if !matches!(last, Preamble::Unfinished | Preamble::Read { is_through: false, .. }) {
                break;
            }
        }
        let passed_on = relayed.map(|mut relayed| relayed.take_header()).unwrap_or_default();
        (last, String::from_utf8(passed_on).unwrap(), looked_at)
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
        let unfinished = &long.as_bytes()[..PREAMBLE_BYTES_MAX - 1];
        assert_eq!(preamble(unfinished, &mut None, 443, false), Preamble::Unfinished);
    }

    #[test]
    fn a_challenge_goes_to_the_responder_and_nothing_else_does() {
        let headers = "Host: a.test\r\nX: y\r\n\r\nGET /more";
        let ask = |line: &str| in_pieces(format!("{line} HTTP/1.1\r\n{headers}").as_bytes(), 4096);
        for method in ["GET", "HEAD"] {
            let (last, passed_on, _) = ask(&format!("{method} /.well-known/acme-challenge/a-Z_9"));
            let expected = format!("{method} /.well-known/acme-challenge/a-Z_9 HTTP/1.0\r\n\r\n");
            assert_eq!(passed_on, expected);
            assert!(matches!(last, Preamble::Read { is_through: true, .. }), "{last:?}");
        }
        for (line, status) in [
            ("GET /.well-known/acme-challenge/", "404"),
            ("GET /.well-known/acme-challenge/a/../b", "404"),
            ("GET /.well-known/acme-challenge/..", "404"),
            ("GET /.well-known/acme-challenge/a%2fb", "404"),
            ("GET /.well-known/acme-challenge/a?b", "404"),
            ("GET /.well-known/acme-challenge", "308"),
            ("GET /.well-known/acme-Challenge/a", "308"),
            ("GET //.well-known/acme-challenge/a", "308"),
            ("POST /.well-known/acme-challenge/a", "308"),
            ("GET http://a.test/.well-known/acme-challenge/a", "400"),
        ] {
            let (last, passed_on, _) = ask(line);
            assert_eq!(passed_on, "", "{line}");
            let (_, answer) = answer_of(last);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
        }
        // Without a responder it is a request as any other.
        let (cause, _) =
            answer("GET /.well-known/acme-challenge/a HTTP/1.1\r\nHost: a.test\r\n\r\n", 443);
        assert_eq!(cause, Cause::Redirected);
    }

    #[test]
    fn it_matters_to_no_request_how_its_bytes_come() {
        let long = |len| format!("GET /{} HTTP/1.1\r\nHost: a.test\r\n\r\n", "a".repeat(len));
        let (long, too_long) = (long(5_000), long(PREAMBLE_BYTES_MAX));
        for request in [
            "GET /.well-known/acme-challenge/token HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET / HTTP/1.1\nHost: a.test\n\n",
            "\r\n\n\r\nGET / HTTP/1.1\nHost: a.test\r\n\n",
            "\r\rGET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            &long,
            &too_long,
        ] {
            let (whole, passed_on, _) = in_pieces(request.as_bytes(), request.len());
            assert_ne!(whole, Preamble::Unfinished, "{request:.100}");
            for len in 1..request.len().min(100) {
                let (last, passed_on_so, _) = in_pieces(request.as_bytes(), len);
                assert_eq!(passed_on_so, passed_on, "{request:.100} by {len}");
                match (last, &whole) {
                    (Preamble::Read { .. }, Preamble::Read { .. }) => {}
                    (last, whole) => assert_eq!(last, *whole, "{request:.100} by {len}"),
                }
            }
        }
        let (last, ..) = in_pieces(b"\x16\x03\x01", 1);
        assert_eq!(answer_of(last).0, Cause::ProtocolError, "what is no HTTP is not waited for");
    }

    /// Each byte is searched once, and parsed a few times however it comes.
    #[test]
    fn what_comes_byte_by_byte_costs_little_more_than_what_comes_at_once() {
        let endless = format!("GET / HTTP/1.1\r\nHost: {}", "a".repeat(PREAMBLE_BYTES_MAX));
        let lines = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(90));
        let blank = "\n".repeat(PREAMBLE_BYTES_MAX);
        for request in [endless, lines, blank] {
            let (_, _, looked_at) = in_pieces(request.as_bytes(), 1);
            assert!(looked_at <= 4 * request.len(), "{looked_at} bytes for {}", request.len());
        }
        // The parser would refuse the first NUL, and is not asked before there is twice as much.
        let nuls = [&b"GET / HTTP/1.1\r\nA: "[..], &[0; 20]].concat();
        let mut relayed = None;
        let mut outcomes = (1..=nuls.len()).map(|len| {
            let outcome = preamble(&nuls[..len], &mut relayed, 443, true);
            (len, outcome == Preamble::Unfinished)
        });
        assert_eq!(outcomes.find(|(_, is_unfinished)| !is_unfinished), Some((32, false)));
    }

    proptest! {
        #[test]
        fn any_bytes_end_the_same_however_they_come(
            bytes in "(\r?\n){0,2}(GET|HEAD|POST|G\0) \
                      /(\\.well-known/acme-challenge/)?[a-z .]{0,3} HTTP/1\\.[01]\r?\n\
                      (Host: a\\.test\r?\n|[A-Z]{1,3}: [ -~]{0,9}\r?\n|\
                      [ -~]{0,3}\r?\n){0,4}(\r?\n)?[ -~]{0,9}",
            len in 1..50_usize,
        ) {
            let (whole, passed_on, _) = in_pieces(bytes.as_bytes(), bytes.len().max(1));
            let (last, passed_on_so, _) = in_pieces(bytes.as_bytes(), len);
            prop_assert_eq!(passed_on_so, passed_on);
            let is_read = |preamble: &Preamble| matches!(preamble, Preamble::Read { .. });
            // For what the parser refuses to be noticed before a head ends, more has to come.
            let is_unnoticed = last == Preamble::Unfinished
                && !has_end(&bytes.as_bytes()[blank_len(bytes.as_bytes())..], 0)
                && matches!(whole, Preamble::Refused { cause: Cause::ProtocolError, .. });
            prop_assert!(last == whole || is_read(&last) && is_read(&whole) || is_unnoticed);
        }
    }
}
