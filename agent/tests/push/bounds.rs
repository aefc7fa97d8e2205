//! What a client can cost the others.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};

use super::harness::wait_for;
use super::site::{Site, authority, server};

const ROLES: &str = "
[[push.role]]
client = \"slow.test\"
names = [\"*\"]
[[push.role]]
client = \"good.test\"
names = [\"*\"]
";

/// 400 that say nothing, and 100 of a client that never asks.
#[test]
fn silent_connections_keep_nobody_out_and_are_bounded() {
    let site = Site::start(ROLES);
    for name in ["slow.test", "good.test"] {
        site.client(name);
    }
    let silent: Vec<_> = (0..400).map(|_| TcpStream::connect(site.address()).unwrap()).collect();
    let mut known: Vec<_> = (0..100).map(|_| connect(&site, "slow.test")).collect();
    for stream in &mut known {
        // Half a request.
        stream.write_all(b"GET /certificates HTTP/1.1\r\nhost: x\r\n").unwrap();
    }
    let said = site.put("good.test", server(&["a.test"]).as_bytes());
    assert_eq!(said.status, 200, "{said:?}");
    let open = site.open_sockets();
    assert!(open < 300, "{open} sockets are open");
    drop((silent, known));
    let said = site.put("slow.test", server(&["b.test"]).as_bytes());
    assert_eq!(said.status, 200, "its room is its own again: {said:?}");
}

#[test]
fn a_hundred_at_once_are_all_answered() {
    let site = Site::start(ROLES);
    site.client("good.test");
    site.put("good.test", server(&["a.test"]).as_bytes());
    let path = "/certificates?name=a.test";
    let children: Vec<_> =
        (0..100).map(|_| site.spawn_curl(Some("good.test"), &[], path)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.ends_with("\n200\n"), "{text}");
    }
}

/// The others end when they have not asked in time.
#[test]
fn whoever_has_all_its_connections_is_answered_on_the_next_once_one_ends() {
    let site = Site::start(ROLES);
    site.client("good.test");
    let mut held: Vec<_> = (0..16).map(|_| connect(&site, "good.test")).collect();
    for stream in &mut held {
        stream.write_all(b"GET /certificates HTTP/1.1\r\n").unwrap();
    }
    let said = site.curl(Some("good.test"), &[], "/certificates");
    assert_eq!(said.status, 200, "{said:?}");
}

#[test]
fn heads_that_are_too_slow_or_too_large_end_and_so_does_what_is_no_http() {
    let site = Site::start(ROLES);
    site.client("slow.test");
    let mut silent = TcpStream::connect(site.address()).unwrap();
    let mut slow = connect(&site, "slow.test");
    slow.write_all(b"GET /certificates HTTP/1.1\r\nx: ").unwrap();
    let mut large = connect(&site, "slow.test");
    let head = format!("GET /certificates HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    // It may be closed before all is written.
    let _ = large.write_all(head.as_bytes());
    let mut text = String::new();
    let _ = large.read_to_string(&mut text);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    let mut other = connect(&site, "slow.test");
    other.write_all(b"\0\0\0\0 hello\r\n\r\n").unwrap();
    let mut text = String::new();
    let _ = other.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
    // Ends by itself.
    let mut text = String::new();
    let _ = slow.read_to_string(&mut text);
    site.wait_until_said("\"slow.test\" (127.0.0.1:");
    let _ = silent.read_to_string(&mut text);
    site.wait_until_said("no handshake within 10 s");
    // That is for whoever takes its time with all else.
    assert!(!site.said().contains("took too long"), "{}", site.said());
    let long = "Content-Length: 99999999999999";
    let said = site.curl(
        Some("slow.test"),
        &["-X", "PUT", "-H", long, "-H", "Expect: 100-continue", "-d", "x"],
        "/certificates",
    );
    assert_eq!(said.status, 413, "{said:?}");
}

#[test]
fn a_connection_has_one_answer_and_the_next_is_no_resumption() {
    let site = Site::start(ROLES);
    site.client("good.test");
    let config = config(&site, &[], "good.test");
    for _ in 0..2 {
        let mut stream = connect_with(&site, &config);
        assert_eq!(stream.conn.handshake_kind(), Some(HandshakeKind::Full));
        let request = "GET /certificates HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(request.repeat(2).as_bytes()).unwrap();
        let mut text = String::new();
        // It may end without a word of farewell.
        let _ = stream.read_to_string(&mut text);
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
    }
}

/// Path building without bounds takes 10 s of processor time for this chain of 15 KB.
#[test]
fn chain_bomb_is_refused_before_path_building() {
    let site = Site::start(ROLES);
    site.client("good.test");
    let authorities: Vec<_> = (0..10).map(|_| authority("rung")).collect();
    site.issue_by(&authorities[0].0, "bomb", |_| {});
    let pem = authorities.iter().map(|(_, pem)| CertificateDer::from_pem_slice(pem.as_bytes()));
    let mut chain: Vec<_> = pem.map(Result::unwrap).collect();
    chain.extend((0..1_400).map(|_| CertificateDer::from(vec![0x30, 3, 2, 1, 0])));
    let mut bomb = connect_with(&site, &config(&site, &chain, "bomb"));
    let refusal = bomb.read(&mut [0]).unwrap_err().to_string();
    assert!(refusal.contains("CertificateUnknown"), "{refusal}");
    site.wait_until_said("its chain has 1411 certificates, and at most 7 are read");
    assert_eq!(site.curl(Some("good.test"), &[], "/certificates").status, 200);
}

#[test]
fn what_is_refused_again_and_again_does_not_fill_the_journal() {
    let site = Site::start(ROLES);
    site.client("stranger.test");
    let ask = |_| site.spawn_curl(Some("stranger.test"), &[], "/certificates");
    let children: Vec<_> = (0..100).map(ask).collect();
    for child in children {
        let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert!(text.ends_with("\n403\n"), "{text}");
    }
    let said = site.said().matches("has no role here").count();
    assert!((1..100).contains(&said), "{said} lines");
}

pub fn connect(site: &Site, client: &str) -> StreamOwned<ClientConnection, TcpStream> {
    connect_with(site, &config(site, &[], client))
}

/// A client that sends `more` behind its own certificate.
fn config(site: &Site, more: &[CertificateDer<'static>], client: &str) -> Arc<ClientConfig> {
    let provider = Arc::new(lane_provider(ProviderChoice::Auto, &Group::ALL).unwrap().crypto);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(site.path("ca.pem")).unwrap()).unwrap();
    let file = |kind: &str| site.path(&format!("{client}.{kind}"));
    let own = CertificateDer::from_pem_file(file("pem")).unwrap();
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            [&[own], more].concat(),
            PrivateKeyDer::from_pem_file(file("key")).unwrap(),
        );
    Arc::new(config.unwrap())
}

fn connect_with(
    site: &Site,
    config: &Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let session = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut stream = StreamOwned::new(session, TcpStream::connect(site.address()).unwrap());
    wait_for("a handshake", || {
        let stream = &mut stream;
        stream.conn.complete_io(&mut stream.sock).unwrap();
        (!stream.conn.is_handshaking()).then_some(())
    });
    stream
}
