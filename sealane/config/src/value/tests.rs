//! Values as people write them, in order and not.

use std::time::Duration;

use super::*;

#[test]
fn durations() {
    let s = Duration::from_secs;
    for (text, expected) in [
        ("500ms", Some(Duration::from_millis(500))),
        ("10s", Some(s(10))),
        ("2m", Some(s(120))),
        ("12h", Some(s(43_200))),
        ("7 d", Some(s(604_800))),
        ("0s", Some(s(0))),
        ("10", None),
        ("s", None),
        ("", None),
        ("1.5h", None),
        ("-1s", None),
        ("10S", None),
        ("1h30m", None),
        ("99999999999999999999s", None),
        ("18446744073709551615d", None),
    ] {
        assert_eq!(duration(text).ok(), expected, "{text:?}");
    }
}

#[test]
fn sizes() {
    for (text, expected) in [
        ("16KiB", Some(16_384)),
        ("1MiB", Some(1 << 20)),
        ("3B", Some(3)),
        ("1GiB", Some(1 << 30)),
        ("16kb", None),
        ("16", None),
        ("18446744073709551615KiB", None),
    ] {
        assert_eq!(size_bytes(text).ok(), expected, "{text:?}");
    }
}

#[test]
fn what_is_written_reads_back() {
    for ms in [0, 1, 999, 1000, 61_000, 120_000, 86_400_000, 90_000_000] {
        let value = Duration::from_millis(ms);
        assert_eq!(duration(&duration_text(value)), Ok(value));
    }
    for bytes in [0, 1, 1023, 1024, 16_384, 1 << 20, (1 << 20) + 1] {
        assert_eq!(size_bytes(&size_text(bytes)), Ok(bytes));
    }
    assert_eq!(duration_text(Duration::from_secs(7200)), "2h");
}

#[test]
fn what_is_listened_on() {
    for (text, expected) in [
        ("0.0.0.0:443", Ok("0.0.0.0:443")),
        ("[::]:443", Ok("[::]:443")),
        (":443", Ok("0.0.0.0:443 [::]:443")),
        ("*:443", Ok("0.0.0.0:443 [::]:443")),
        ("unix:/run/tls.sock", Ok("unix:/run/tls.sock")),
        ("unix:run/tls.sock", Err("no absolute path")),
        (":66000", Err("port 66000 is above 65535")),
        ("127.0.0.1:99999", Err("port 99999 is above 65535; write a port from 1 to 65535")),
        ("[::1]:99999", Err("port 99999 is above 65535")),
        ("127.0.0.1:", Err("write ADDRESS:PORT")),
        (":::443", Err("write \"[::]:443\"")),
        ("127.0.0.1", Err("add a port: \"127.0.0.1:PORT\"")),
        ("::1", Err("add a port: \"[::1]:PORT\"")),
        ("localhost:443", Err("numeric address")),
        ("", Err("numeric address")),
    ] {
        match (listen_addresses(text), expected) {
            (Ok(read), Ok(expected)) => {
                let read: Vec<_> = read.0.iter().map(ToString::to_string).collect();
                assert_eq!(read.join(" "), expected);
            }
            (Err(problem), Err(part)) => {
                assert!(problem.to_string().contains(part), "{text:?}: {problem}");
            }
            (read, _) => panic!("{text:?}: {read:?}"),
        }
    }
}

#[test]
fn backends() {
    for (text, expected) in [
        ("127.0.0.1:8080", Ok("127.0.0.1:8080")),
        ("[::1]:8080", Ok("[::1]:8080")),
        ("LocalHost:8080", Ok("localhost:8080")),
        ("app_1.internal:80", Ok("app_1.internal:80")),
        ("unix:/run/app.sock", Ok("unix:/run/app.sock")),
        ("tls://App.internal:8443", Ok("tls://app.internal:8443")),
        ("tls://[::1]:8443", Ok("tls://[::1]:8443")),
        ("tls://unix:/run/app.sock", Ok("tls://unix:/run/app.sock")),
        ("tls://127.0.0.1", Err("has no port")),
        ("tls://tls://a:1", Err("is a URL")),
        ("https://a:1", Err("write HOST:PORT, or tls://HOST:PORT")),
        ("unix:run/app.sock", Err("no absolute path")),
        ("127.0.0.1:0", Err("port 0")),
        ("127.0.0.1", Err("has no port; add one: \"127.0.0.1:PORT\"")),
        ("localhost", Err("has no port")),
        ("localhost:0", Err("from 1 to 65535")),
        ("localhost:65536", Err("port 65536 is above 65535")),
        ("127.0.0.1:99999", Err("port 99999 is above 65535")),
        ("[::1]:99999", Err("port 99999 is above 65535")),
        ("300.1.1.1:80", Err("looks like an IPv4 address")),
        ("0x7F000001:80", Err("looks like an IPv4 address")),
        ("127.0.0.0x1.:80", Err("looks like an IPv4 address")),
        ("0xyz:80", Ok("0xyz:80")),
        ("*.example.com:80", Err("host name")),
        ("http://localhost:80", Err("is a URL")),
        ("a b:80", Err("host name")),
        ("::1:x", Err("host name")),
    ] {
        match (backend(text), expected) {
            (Ok(read), Ok(expected)) => assert_eq!(read.to_string(), expected),
            (Err(problem), Err(part)) => {
                assert!(problem.to_string().contains(part), "{text:?}: {problem}");
            }
            (read, _) => panic!("{text:?}: {read:?}"),
        }
    }
    let long = format!("unix:/{}", "x".repeat(UNIX_PATH_BYTES_MAX));
    assert!(backend(&long).is_err());
    assert!(backend(&long[..long.len() - 1]).is_ok());
}

#[test]
fn only_loopback_and_sockets_are_local() {
    for (text, local) in [
        ("127.0.0.1:9180", true),
        ("127.8.8.8:1", true),
        ("[::1]:9180", true),
        ("[::ffff:127.0.0.1]:9180", true),
        ("unix:/run/sealane/admin.sock", true),
        ("0.0.0.0:9180", false),
        ("[::]:9180", false),
        ("10.0.0.1:9180", false),
    ] {
        let address = admin_address(text).unwrap();
        assert_eq!(check_admin_is_local(&address, "").is_ok(), local, "{text}");
    }
    assert!(admin_address("localhost:9180").is_err());
    let problem = admin_address("127.0.0.1:99999").unwrap_err().to_string();
    assert!(problem.contains("port 99999 is above 65535"), "{problem}");
}

#[test]
fn host_names() {
    let long_label = "x".repeat(64);
    for (text, expected) in [
        ("www.Example.com.", Some("www.example.com")),
        ("*.example.com", Some("*.example.com")),
        ("localhost", Some("localhost")),
        ("*", None),
        ("a.*.com", None),
        ("", None),
        (".", None),
        ("a..b", None),
        ("-a.com", None),
        ("bücher.example", None),
        (long_label.as_str(), None),
    ] {
        assert_eq!(host_name(text).ok().as_deref(), expected, "{text:?}");
    }
}
