//! What clients get that ask for certain names: other backends and settings, or their own TLS
//! passed on, beside nginx that does the same.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::version::{TLS12, TLS13};
use sealane_reserved_port::ReservedPort;

use crate::harness::PATIENCE;
use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind};
use crate::harness::client::Connector;
use crate::harness::peers::{listening, stream_module};
use crate::harness::sealane::{ListenerSettings, Sealane, Settings, replace};
use crate::harness::tools::required;

/// A backend that says `name` to whoever comes, and ends.
fn teller(name: &'static str) -> SocketAddr {
    Backend::start(move |mut stream| stream.write_all(name.as_bytes()).unwrap()).address
}

/// Sealane with one listener for names under `test`, whose own backend says "own".
struct Rig {
    address: SocketAddr,
    authority: Authority,
    folder: tempfile::TempDir,
    sealane: Sealane,
}

impl Rig {
    fn start(keys: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        let names = ["a.test", "b.test", "c.test", "*.a.test", "x.y.a.test"];
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &names)).unwrap();
        let settings = ListenerSettings::new("web", &certificate, &teller("own")).with(keys);
        let address = settings.address;
        let sealane = Sealane::start(folder.path(), &Settings::new(vec![settings]));
        Self { address, authority, folder, sealane }
    }

    fn connector(&self, name: &str) -> Connector {
        Connector::new(self.authority.der(), &TLS13).with_name(name)
    }

    /// Which backend a client reaches.
    fn reached(&self, connector: &Connector) -> io::Result<String> {
        let mut client = connector.connect(self.address)?;
        let told = String::from_utf8(client.read_rest()?).unwrap();
        client.end(true)?;
        Ok(told)
    }
}

#[test]
fn names_lead_to_backends_whatever_the_order_of_routes() {
    let [exact, wild] =
        [("[\"a.test\"]", "exact"), ("[\"*.a.test\"]", "wild")].map(|(names, name)| {
            format!("[[listener.route]]\nnames = {names}\nbackends = [\"{}\"]\n", teller(name))
        });
    for keys in [format!("{exact}{wild}"), format!("{wild}{exact}")] {
        let rig = Rig::start(&keys);
        for (name, expected) in [
            ("a.test", "exact"),
            ("A.TEST", "exact"),
            ("b.a.test", "wild"),
            ("x.y.a.test", "own"),
            ("b.test", "own"),
        ] {
            assert_eq!(rig.reached(&rig.connector(name)).unwrap(), expected, "{name}");
        }
        assert_eq!(rig.sealane.stop(), Some(0));
    }
}

#[test]
fn a_route_has_settings_of_its_own_and_a_reload_changes_them() {
    let keys = "[[listener.route]]\nnames = [\"a.test\"]\nversions = [\"1.3\"]\n";
    let mut rig = Rig::start(keys);
    let old = |name| Connector::new(rig.authority.der(), &TLS12).with_name(name);
    let [named, other] = ["a.test", "b.test"].map(old);
    assert!(rig.reached(&named).is_err(), "TLS 1.2 for a name of the route");
    assert_eq!(rig.reached(&other).unwrap(), "own");
    assert_eq!(rig.reached(&rig.connector("a.test")).unwrap(), "own", "its backend is not its own");
    let path = rig.folder.path().join("sealane.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    replace(&path, &text.replace(keys, &keys.replace("1.3", "1.2")));
    rig.sealane.wait_until_reloaded(1);
    assert_eq!(rig.reached(&named).unwrap(), "own");
    assert!(rig.reached(&rig.connector("a.test")).is_err(), "TLS 1.3");
    assert_eq!(rig.sealane.stop(), Some(0));
}

#[test]
fn what_was_agreed_on_leads_to_a_backend() {
    for (mismatch, of_strangers) in [("refuse", None), ("none", Some("rest"))] {
        let rig = Rig::start(&format!(
            "alpn = [\"http/1.1\"]\nalpn_mismatch = \"{mismatch}\"\n\
             [[listener.route]]\nnames = [\"a.test\"]\nalpn = [\"h2\"]\nbackends = [\"{}\"]\n\
             [[listener.route]]\nnames = [\"a.test\"]\nbackends = [\"{}\"]\n",
            teller("h2"),
            teller("rest")
        ));
        for (name, offered, expected) in [
            ("a.test", &["h2", "http/1.1"][..], Some("h2")),
            ("a.test", &["http/1.1", "h2"], Some("h2")),
            ("a.test", &["http/1.1"], Some("rest")),
            ("a.test", &[], Some("rest")),
            ("a.test", &["smtp"], of_strangers),
            // The listener itself offers no h2.
            ("b.test", &["h2", "http/1.1"], Some("own")),
        ] {
            let connector = rig.connector(name).with_alpn(offered);
            let reached = rig.reached(&connector).ok();
            assert_eq!(reached.as_deref(), expected, "{mismatch}: {name} {offered:?}");
        }
        // A client has its alert before the connection is counted.
        let refused = u64::from(of_strangers.is_none());
        rig.sealane
            .wait_for_metrics("the refusal", |metrics| metrics.ended("no_common_alpn") == refused);
        assert_eq!(rig.sealane.stop(), Some(0));
    }
}

/// A backend behind a passthrough that the terminator cannot look into: another Sealane.
#[test]
fn tls_is_passed_on_and_ended_by_who_has_the_key() {
    let behind = Rig::start("");
    let rig = Rig::start(&format!(
        "[[listener.route]]\nnames = [\"c.test\"]\npassthrough = true\nbackends = [\"{}\"]\n",
        behind.address
    ));
    let connector = Connector::new(behind.authority.der(), &TLS13).with_name("c.test");
    assert_eq!(rig.reached(&connector).unwrap(), "own");
    behind.sealane.wait_for_metrics("its end", |metrics| metrics.ended("clean") == 1);
    let metrics = rig.sealane.wait_for_metrics("its end", |metrics| metrics.ended("clean") == 1);
    assert_eq!(metrics.handshakes(0) + metrics.handshakes(1), 0, "none of ours");
    // Another name's certificate is ours.
    assert!(rig.reached(&connector.with_name("b.test")).is_err());
    for rig in [rig, behind] {
        assert_eq!(rig.sealane.stop(), Some(0));
    }
}

/// The client's bytes begin with a header that it made up: the backend must not take it for ours.
#[test]
fn route_inherits_proxy_header_of_listener() {
    let rig = Rig::start(&format!(
        "proxy_header = \"v1\"\n\
         [[listener.route]]\nnames = [\"a.test\"]\nbackends = [\"{}\"]\n\
         [[listener.route]]\nnames = [\"b.test\"]\nproxy_header = false\nbackends = [\"{}\"]\n\
         [[listener.route]]\nnames = [\"c.test\"]\npassthrough = true\nbackends = [\"{}\"]\n",
        mirror("a"),
        mirror("b"),
        mirror("c")
    ));
    let forged: &[u8] = b"PROXY TCP4 192.0.2.66 192.0.2.1 6666 443\r\nGET / HTTP/1.1\r\n";
    let sent = [forged, TAIL].concat();
    let ours = |client: SocketAddr| {
        let (from, to) = (client.port(), rig.address.port());
        format!("PROXY TCP4 127.0.0.1 127.0.0.1 {from} {to}\r\n").into_bytes()
    };
    for (name, is_told) in [("a", true), ("b", false)] {
        let mut client = rig.connector(&format!("{name}.test")).connect(rig.address).unwrap();
        client.write_all(&sent).unwrap();
        let own = client.stream.local_addr().unwrap();
        let header = if is_told { ours(own) } else { Vec::new() };
        let expected = [name.as_bytes(), b":", &header, &sent].concat();
        assert_eq!(client.read_rest().unwrap(), expected, "{name}");
    }
    let hello = rig.connector("c.test").hello();
    let (name, got) = pass(rig.address, &[&hello]).unwrap();
    assert_eq!(name, "c");
    assert!(got.starts_with(b"PROXY TCP4 127.0.0.1 127.0.0.1 "), "{}", got.escape_ascii());
    assert!(got.ends_with(&[&hello, TAIL].concat()));
    assert_eq!(rig.sealane.stop(), Some(0));
}

#[test]
fn alpn_route_without_names_serves_all_names() {
    let rig = Rig::start(&format!(
        "alpn = [\"http/1.1\"]\n\
         [[listener.route]]\nalpn = [\"h2\"]\nbackends = [\"{}\"]\n\
         [[listener.route]]\nnames = [\"a.test\"]\nbackends = [\"{}\"]\n\
         [[listener.route]]\nnames = [\"c.test\"]\nalpn = [\"smtp\"]\nbackends = [\"{}\"]\n",
        teller("h2"),
        teller("a"),
        teller("mail")
    ));
    for (name, offered, expected) in [
        ("b.test", &["h2", "http/1.1"][..], "h2"),
        ("b.test", &["http/1.1", "h2"], "h2"),
        ("b.test", &["http/1.1"], "own"),
        ("b.test", &[], "own"),
        // A name with a route has nothing of it, and is not offered h2.
        ("a.test", &["h2", "http/1.1"], "a"),
        ("c.test", &["smtp"], "mail"),
        ("c.test", &["h2"], "h2"),
        ("c.test", &[], "own"),
    ] {
        let connector = rig.connector(name).with_alpn(offered);
        assert_eq!(rig.reached(&connector).unwrap(), expected, "{name} {offered:?}");
    }
    assert_eq!(rig.sealane.stop(), Some(0));
}

/// What ends each message of a test, so that a backend knows that it has all of it.
const TAIL: &[u8] = b"-tail-";

/// A backend that answers with `name` and all that it got.
fn mirror(name: &'static str) -> SocketAddr {
    let serve = move |mut stream: TcpStream| {
        let (mut got, mut piece) = (Vec::new(), [0; 4096]);
        while !got.ends_with(TAIL) {
            match stream.read(&mut piece) {
                Ok(len @ 1..) => got.extend_from_slice(&piece[..len]),
                Ok(0) | Err(_) => return,
            }
        }
        stream.write_all(&[name.as_bytes(), b":", &got].concat()).unwrap();
    };
    Backend::start(serve).address
}

/// What comes of `parts`, sent one by one: the backend's name, and whether it got every byte.
fn pass(address: SocketAddr, parts: &[&[u8]]) -> Option<(String, Vec<u8>)> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_nodelay(true).unwrap();
    for part in parts {
        // It may be refused before all of it was sent.
        let _ = socket.write_all(part);
    }
    let _ = socket.write_all(TAIL);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let _ = socket.shutdown(Shutdown::Both);
    let colon = answer.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(answer[..colon].to_vec()).unwrap();
    Some((name, answer[colon + 1..].to_vec()))
}

/// An extension that means nothing, before all others, as browsers send it (RFC 8701).
fn with_grease(hello: &[u8]) -> Vec<u8> {
    let mut bytes = hello.to_vec();
    let session_id = 5 + 4 + 2 + 32;
    let suites = session_id + 1 + usize::from(bytes[session_id]);
    let suites_len = usize::from(u16::from_be_bytes([bytes[suites], bytes[suites + 1]]));
    let compression = suites + 2 + suites_len;
    let extensions = compression + 1 + usize::from(bytes[compression]);
    bytes.splice(extensions + 2..extensions + 2, [0x0a, 0x0a, 0, 1, 0]);
    for at in [3, 7, extensions] {
        let len = u16::from_be_bytes([bytes[at], bytes[at + 1]]) + 5;
        bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }
    bytes
}

/// Thirty ways to say hello: what each is, whether nginx takes it too, and its parts.
fn hellos(authority: &Authority) -> Vec<(String, Vec<Vec<u8>>)> {
    let connectors = [
        ("1.2", Connector::new(authority.der(), &TLS12)),
        ("1.3", Connector::with_suite(authority.der(), TLS13_AES_128_GCM_SHA256)),
        ("hybrid", Connector::new(authority.der(), &TLS13).with_alpn(&["h2", "http/1.1"])),
    ];
    let mut all = Vec::new();
    for name in ["a.test", "b.w.test", "c.test", "127.0.0.1"] {
        for (kind, connector) in &connectors {
            let hello = connector.clone().with_name(name).hello();
            all.push((format!("{kind} for {name}"), vec![hello]));
        }
    }
    let hybrid = connectors[2].1.clone().with_name("a.test").hello();
    assert!(hybrid.len() > 1_200, "no hybrid: {}", hybrid.len());
    for at in [1, 3, 5, 6, 9, 44, 100, 600, 1_199, hybrid.len() - 1] {
        let (first, second) = hybrid.split_at(at);
        all.push((format!("split at {at}"), vec![first.to_vec(), second.to_vec()]));
    }
    for name in ["a.test", "b.w.test", "c.test", "127.0.0.1"] {
        let hello = connectors[1].1.clone().with_name(name).hello();
        all.push((format!("grease for {name}"), vec![with_grease(&hello)]));
    }
    let every_byte = hybrid.iter().map(|byte| vec![*byte]).collect();
    all.push(("byte by byte".into(), every_byte));
    let mut shouted = hybrid.clone();
    let at = shouted.windows(6).position(|window| window == b"a.test").unwrap();
    shouted[at..at + 6].copy_from_slice(b"A.TEST");
    all.push(("in capitals".into(), vec![shouted]));
    all.push((
        "with more behind".into(),
        vec![hybrid.clone(), b"\x17\x03\x03\0\x05early".to_vec()],
    ));
    let short = connectors[0].1.clone().with_name("b.w.test").hello();
    all.push(("1.2 in two".into(), vec![short[..50].to_vec(), short[50..].to_vec()]));
    assert_eq!(all.len(), 30);
    all
}

#[test]
fn thirty_hellos_are_passed_on_as_nginx_does() {
    let Some(program) = required("nginx") else { return };
    let Some(module) = stream_module() else { return };
    let [a, w, other] = ["a", "w", "other"].map(mirror);
    let keys = format!(
        "passthrough = true\n\
         [[listener.route]]\nnames = [\"a.test\"]\npassthrough = true\nbackends = [\"{a}\"]\n\
         [[listener.route]]\nnames = [\"*.w.test\"]\npassthrough = true\nbackends = [\"{w}\"]\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let mut settings =
        ListenerSettings::new("web", &folder.path().join("none"), &other).with(&keys);
    settings.certificates = None;
    let address = settings.address;
    let sealane = Sealane::start(folder.path(), &Settings::new(vec![settings]));

    let port = ReservedPort::on_loopback().unwrap();
    let config = folder.path().join("nginx.conf");
    let text = format!(
        "{module}\ndaemon off;\nmaster_process off;\npid {}/nginx.pid;\nerror_log stderr;\n\
         events {{ worker_connections 64; }}\n\
         stream {{\n map $ssl_preread_server_name $backend {{\n hostnames;\n a.test {a};\n \
         *.w.test {w};\n default {other};\n }}\n\
         server {{ listen {}; ssl_preread on; proxy_pass $backend; }}\n}}\n",
        folder.path().display(),
        port.address()
    );
    let _nginx = listening(&program, &["-e", "stderr", "-c"], &config, &text, &[&port]);

    let authority = Authority::new();
    for (what, parts) in hellos(&authority) {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let [ours, theirs] = [address, port.address()].map(|address| pass(address, &parts));
        let (name, got) = ours.unwrap_or_else(|| panic!("{what}: nobody got it"));
        assert_eq!(got, [&parts.concat(), TAIL].concat(), "{what}");
        assert_eq!(theirs, Some((name, got)), "{what}");
    }
    // In many records the message is whole, and its records are fewer; nginx looks into the first.
    let hello = Connector::new(authority.der(), &TLS13).with_name("a.test").hello();
    let records: Vec<Vec<u8>> = hello[5..]
        .chunks(200)
        .map(|part| [&[22, 3, 1, 0, u8::try_from(part.len()).unwrap()][..], part].concat())
        .collect();
    let parts: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    let (name, got) = pass(address, &parts).unwrap();
    assert_eq!((&*name, &got[5..]), ("a", &[&hello[5..], TAIL].concat()[..]));
    assert_eq!(sealane.stop(), Some(0));
}
