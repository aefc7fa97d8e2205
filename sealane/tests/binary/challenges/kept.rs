//! Challenges that are answered out of a store, as whoever fills it leaves them there.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};
use sealane_store::{HTTP_01, KeyedStore, SealingKeys, Store, TLS_ALPN_01};

use super::*;
use crate::harness::certificates::KeyKind;
use crate::harness::client::Connector;
use crate::harness::site;

/// What a challenge is answered with by the name of its entry; none takes it back.
fn keep(site: &site::Site, changes: &[(&str, Option<&str>)]) {
    let keys = SealingKeys::from_text(&std::fs::read_to_string(site.key_file()).unwrap()).unwrap();
    let store = Store::open(&site.path().join("store")).unwrap();
    let store = KeyedStore::new(Arc::new(store), keys).unwrap();
    let changes: Vec<_> =
        changes.iter().map(|(name, value)| (*name, value.map(str::as_bytes))).collect();
    store.keep(&[], 0, &changes).unwrap();
}

#[test]
fn what_a_store_keeps_for_a_token_is_served_at_once_and_no_longer_than_it_is_kept() {
    let mut site = site::Site::new();
    let responder = format!("acme_responder = \"store:{}\"", site.path().join("store").display());
    let http = redirecting(&responder);
    let address = http.address;
    site.settings.listeners.push(http);
    let mut sealane = Sealane::start(site.path(), &site.settings);
    let text = format!("token.{THUMBPRINT}");
    let (name, path) = (format!("{HTTP_01}token"), format!("{PREFIX}token"));
    for _ in 0..3 {
        assert_eq!(get(address, &path).0, 404);
        keep(&site, &[(&name, Some(&text))]);
        assert_eq!(get(address, &path), (200, text.clone()));
        keep(&site, &[(&name, None)]);
    }
    // Nothing else that is kept there leaves, nor is a certificate of it served there.
    keep(&site, &[("acme/account", Some("secret")), (&name, Some("other.x"))]);
    for token in ["token", "..%2f..%2facme%2faccount", "../../acme/account"] {
        let (status, body) = get(address, &format!("{PREFIX}{token}"));
        assert_eq!((status, body.contains("secret")), (404, false), "{token}: {body}");
    }
    assert_eq!(get(address, "/").0, 308);
    let metrics = sealane.metrics();
    assert_eq!(metrics.sum("sealane_store_certificates", &[("listener", "http")]), 0);
    sealane.wait_until_said("no key authorization, and is not served");

    // A reload goes on with the keys that it has read, and in the same thread.
    keep(&site, &[(&name, Some(&text))]);
    let key = std::fs::read_to_string(site.key_file()).unwrap();
    let made = output(Command::new("openssl").args(["rand", "-base64", "32"]));
    std::fs::write(site.key_file(), format!("{made}{key}")).unwrap();
    sealane.signal(Signal::HUP);
    sealane.wait_until_reloaded(1);
    site.run(&["reseal"]);
    assert_eq!(get(address, &path), (200, text));
    assert_eq!(sealane.process.threads("acme-responder").len(), 1);
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn an_authority_that_asks_in_tls_is_shown_the_certificate_that_is_kept_for_the_name() {
    let mut site = site::Site::new();
    let listener = site.settings.listeners.remove(0).with("alpn = [\"h2\"]");
    site.settings.listeners.push(listener);
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    let asking = |name: &str, version, protocols: &[&str]| {
        let connector = Connector::new(site.authority.der(), version).with_name(name);
        connector.with_alpn(protocols).connect(site.address())
    };
    let only = &["acme-tls/1"];
    for version in [&TLS12, &TLS13] {
        assert!(asking("new.test", version, only).is_err(), "nobody has an order for it");
        let pem = site.authority.leaf(KeyKind::P256, &["new.test"]);
        let entry = format!("{TLS_ALPN_01}new.test");
        keep(&site, &[(&entry, Some(&pem))]);
        let mut client = asking("new.test", version, only).unwrap();
        let kept = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(client.tls.peer_certificates().unwrap()[0], kept);
        assert_eq!(client.tls.alpn_protocol(), Some(&b"acme-tls/1"[..]));
        assert_eq!(client.read_rest().unwrap(), b"", "the end, in order");
        assert_eq!(client.tls.tls13_tickets_received(), 0);
        assert!(
            asking("new.test", version, &["acme-tls/1", "h2"]).is_err(),
            "a client like others"
        );
        assert!(asking("kept.test", version, only).is_err(), "a name without an order");
        asking("kept.test", version, &["h2"]).unwrap().echo(b"as ever").unwrap();
        keep(&site, &[(&entry, None)]);
    }
    let metrics = site.sealane().wait_for_metrics("all have ended", |metrics| metrics.open() == 0);
    assert_eq!(metrics.ended("acme_challenge"), 2, "{}", metrics.ends());
    assert_eq!(metrics.sum("sealane_backend_connected_total", &[]), 2, "only who is served");
    // What is sent behind the handshake reaches nobody either.
    let pem = site.authority.leaf(KeyKind::P256, &["new.test"]);
    keep(&site, &[(&format!("{TLS_ALPN_01}new.test"), Some(&pem))]);
    let connector = Connector::new(site.authority.der(), &TLS13).with_name("new.test");
    let stream = TcpStream::connect(site.address()).unwrap();
    let mut client = connector.with_alpn(only).over(stream, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(client.read_rest().unwrap(), b"");
    let metrics = site.sealane().wait_for_metrics("it has ended", |metrics| metrics.open() == 0);
    assert_eq!(metrics.sum("sealane_backend_connected_total", &[]), 2);
}
