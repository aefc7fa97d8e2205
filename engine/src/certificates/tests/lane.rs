//! The keys that a lane keeps, and the certificate that a real client hello gets.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::rc::Rc;

use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::{Acceptor, ResolvesServerCert};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct};

use super::*;
use crate::policy::UnknownNames;

fn lane_keys(keys_max: usize) -> Rc<RefCell<LaneKeys>> {
    Rc::new(RefCell::new(LaneKeys::new(NonZeroUsize::new(keys_max).unwrap())))
}

fn three_names() -> CertificateIndex {
    index(&[&pem_p256(&["a.test"]), &pem_p256(&["b.test"]), &pem_p256(&["c.test"])])
}

#[test]
fn least_recently_used_key_leaves_first() {
    let (index, provider) = (three_names(), provider());
    let mut keys = LaneKeys::new(NonZeroUsize::new(2).unwrap());
    for name in ["a.test", "b.test", "a.test", "c.test", "a.test", "b.test"] {
        keys.certified_key(&index.find(name)[0], &provider).unwrap();
        assert!(keys.len() <= 2);
    }
    let expected =
        LaneKeyCounters { decoded: 4, evictions: 2, hits: 2, ..LaneKeyCounters::default() };
    assert_eq!(keys.counters(), expected);
}

#[test]
fn keys_outlive_a_generation() {
    let text = pem_p256(&["a.test"]);
    let provider = provider();
    let mut keys = LaneKeys::new(NonZeroUsize::MIN);
    let before = keys.certified_key(&index(&[&text]).find("a.test")[0], &provider).unwrap();
    let reloaded = index(&[&pem_p256(&["b.test"]), &text]);
    let after = keys.certified_key(&reloaded.find("a.test")[0], &provider).unwrap();
    assert!(Arc::ptr_eq(&before, &after));
}

#[test]
fn keys_of_files_leave_with_the_last_index_that_holds_them() {
    let texts = ["a.test", "b.test", "c.test"].map(|name| pem_p256(&[name]));
    let [a, b, c] = texts.each_ref().map(|text| index(&[text]));
    let all = index(&[&texts[0], &texts[1], &texts[2]]);
    let provider = provider();
    let mut keys = LaneKeys::new(NonZeroUsize::new(8).unwrap());
    let decode_all = |keys: &mut LaneKeys| {
        for certificate in &all {
            keys.certified_key(certificate, &provider).unwrap();
        }
        keys.counters().decoded
    };
    assert_eq!(decode_all(&mut keys), 3);
    // A large index and several small ones are gone through in two ways.
    keys.forget_unserved([&all]);
    keys.forget_unserved([&a, &c, &b]);
    assert_eq!((keys.len(), decode_all(&mut keys)), (3, 3));
    keys.forget_unserved([&c, &a]);
    assert_eq!((keys.len(), decode_all(&mut keys)), (2, 4));
    keys.forget_unserved([&index(&[&texts[0], &texts[1], &pem_p256(&["d.test"])])]);
    assert_eq!((keys.len(), decode_all(&mut keys)), (2, 5));
    keys.forget_unserved([]);
    assert!(keys.is_empty());
}

#[test]
fn what_is_served_no_more_is_decoded_but_not_kept() {
    let lane = TestLane::new(three_names(), UnknownNames::Refuse);
    let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256];
    assert_eq!(lane.resolve("a.test", &schemes), "a");
    lane.resolver.set_current(false);
    for _ in 0..2 {
        assert_eq!(lane.resolve("a.test", &schemes), "a");
        assert_eq!(lane.resolve("b.test", &schemes), "b");
    }
    let counters = lane.keys.borrow().counters();
    assert_eq!((counters.hits, counters.decoded, lane.keys.borrow().len()), (2, 3, 1));
    lane.resolver.set_current(true);
    assert_eq!(lane.resolve("b.test", &schemes), "b");
    assert_eq!(lane.keys.borrow().len(), 2);
}

#[test]
fn a_bad_key_is_decoded_once() {
    let index = index_with_bad_key();
    let mut keys = LaneKeys::new(NonZeroUsize::MIN);
    for _ in 0..3 {
        let error = keys.certified_key(&index.find("bad.test")[0], &provider()).unwrap_err();
        assert!(matches!(error, CertificateError::KeyUndecodable { .. }), "{error}");
    }
    let expected = LaneKeyCounters { failures: 1, hits: 2, ..LaneKeyCounters::default() };
    assert_eq!((keys.counters(), keys.len()), (expected, 1));
}

/// An ECDSA certificate with a key of which the public half fits and the private half is zero, and
/// a sound one with Ed25519.
fn index_with_bad_key() -> CertificateIndex {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["bad.test".to_owned()]).unwrap();
    let mut der = key.serialize_der();
    der[36..68].fill(0);
    let provider = provider();
    let mut builder = IndexBuilder::trying_none(&provider, NOW_S);
    let chain = [params.self_signed(&key).unwrap().der().to_vec()];
    builder.insert("a", &chain, "a", EncodedKey::new(KeyEncoding::Pkcs8, &der)).unwrap();
    builder.add("b", pem(&PKCS_ED25519, &["bad.test"]).as_bytes());
    builder.finish(DefaultCertificate::First).index
}

#[test]
fn a_bad_key_gives_way_to_another_kind() {
    let lane = TestLane::new(index_with_bad_key(), UnknownNames::Refuse);
    let both = [SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519];
    assert_eq!(lane.resolve("bad.test", &both), "b");
}

#[test]
fn the_client_decides_on_the_kind_of_key() {
    let index = index(&[
        &(testdata!("rsa.crt").to_owned() + testdata!("rsa.pkcs8.key")),
        &pem(&PKCS_ED25519, &["rsa.test"]),
        &pem(&PKCS_ECDSA_P384_SHA384, &["rsa.test"]),
        &pem_p256(&["rsa.test"]),
    ]);
    let lane = TestLane::new(index, UnknownNames::Refuse);
    let rsa = SignatureScheme::RSA_PSS_SHA256;
    for (schemes, label) in [
        (&[rsa, SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256][..], "d"),
        (&[rsa, SignatureScheme::ECDSA_NISTP384_SHA384], "c"),
        (&[rsa, SignatureScheme::ED25519], "b"),
        (&[rsa], "a"),
    ] {
        assert_eq!(lane.resolve("rsa.test", schemes), label, "{schemes:?}");
    }
    let (pkcs1, p521) = (SignatureScheme::RSA_PKCS1_SHA384, SignatureScheme::ECDSA_NISTP521_SHA512);
    // None fits a client of TLS 1.2: the best one, for rustls to end the handshake.
    for (is_tls13, scheme, label) in
        [(false, pkcs1, "a"), (true, pkcs1, ""), (false, p521, "d"), (true, p521, "")]
    {
        lane.resolver.note_version(is_tls13);
        assert_eq!(lane.resolve("rsa.test", &[scheme]), label, "{scheme:?} {is_tls13}");
    }
    assert_eq!(lane.keys.borrow().counters().decoded, 4, "only what was chosen is decoded");
}

#[test]
fn unknown_names_follow_the_policy_and_leave_nothing_behind() {
    let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256];
    let refusing = TestLane::new(three_names(), UnknownNames::Refuse);
    let serving = TestLane::new(three_names(), UnknownNames::ServeDefault);
    for number in 0..100 {
        let name = format!("unknown{number}.test");
        assert_eq!(refusing.resolve(&name, &schemes), "");
        assert_eq!(serving.resolve(&name, &schemes), "a");
    }
    // A client that asks for an address sends no name.
    assert_eq!(refusing.resolve("192.0.2.1", &schemes), "");
    assert_eq!(serving.resolve("192.0.2.1", &schemes), "a");
    assert_eq!(serving.resolve("b.test", &schemes), "b");
    assert!(refusing.keys.borrow().is_empty());
    assert_eq!(serving.keys.borrow().len(), 2);
}

#[test]
fn expired_certificate_gives_way_while_running() {
    let (p256, ed25519) = (&PKCS_ECDSA_P256_SHA256, &PKCS_ED25519);
    let index = index(&[
        &pem_dated(p256, "a.test", (2020, 2029)),
        &pem_dated(p256, "a.test", (2020, 2028)),
        &pem_dated(p256, "www.b.test", (2020, 2028)),
        &pem_dated(p256, "*.b.test", (2020, 2030)),
        &pem_dated(p256, "c.test", (2020, 2028)),
        &pem_dated(ed25519, "c.test", (2020, 2030)),
        &pem_dated(p256, "a.test", (2028, 2031)),
    ]);
    let lane = TestLane::new(index, UnknownNames::ServeDefault);
    let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519];
    let served = |year: i32| {
        // Some days into the year.
        lane.clock.set(UnixSeconds((u64::try_from(year - 1970).unwrap() * 31_557_600) + 864_000));
        ["a.test", "www.b.test", "c.test", "unknown.test"]
            .map(|name| lane.resolve(name, &schemes))
            .concat()
    };
    assert_eq!(served(2027), "acea");
    assert_eq!(served(2028), "adfa", "a wildcard and another kind of key are in date");
    assert_eq!(served(2030), "gceg", "all others have expired");
    assert_eq!(lane.resolve("c.test", &schemes[..1]), "e", "its only one of that kind");
    assert_eq!(served(2027), "acea", "a clock that is set back");
}

/// Clients may do without an expired intermediate, but not without the leaf.
#[test]
fn expired_intermediate_beats_expired_leaf() {
    let p256 = &PKCS_ECDSA_P256_SHA256;
    let between = pem_dated(p256, "between", (2020, 2026));
    let (between, _) = between.split_at(between.find("-----BEGIN PRIVATE").unwrap());
    let index = index(&[
        // Expired when the index is built, but its chain ends after that of c.
        &pem_dated(p256, "a.test", (2020, 2027)),
        // Expires while it is served.
        &pem_dated(p256, "b.test", (2020, 2028)),
        &(pem_dated(p256, "a.test", (2020, 2030)) + between),
        &(pem_dated(p256, "b.test", (2020, 2030)) + between),
    ]);
    assert_eq!(labels(index.find("a.test")), "c");
    assert_eq!(labels(index.find("b.test")), "b");
    let lane = TestLane::new(index, UnknownNames::ServeDefault);
    let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256];
    assert_eq!(lane.resolve("a.test", &schemes), "c");
    assert_eq!(lane.resolve("b.test", &schemes), "b");
    lane.clock.set(UnixSeconds(1_850_000_000));
    assert_eq!(lane.resolve("b.test", &schemes), "d");
}

#[test]
fn another_thread_resolves_nothing() {
    let lane = TestLane::new(three_names(), UnknownNames::ServeDefault);
    let hello = hello("a.test", &[SignatureScheme::ECDSA_NISTP256_SHA256]);
    let resolver = &lane.resolver;
    std::thread::scope(|scope| {
        scope.spawn(move || assert!(resolve(resolver, &hello).is_none())).join().unwrap();
    });
}

struct TestLane {
    clock: Arc<LaneClock>,
    index: Arc<CertificateIndex>,
    keys: Rc<RefCell<LaneKeys>>,
    resolver: LaneResolver,
}

impl TestLane {
    fn new(index: CertificateIndex, unknown_names: UnknownNames) -> Self {
        let (index, keys) = (Arc::new(index), lane_keys(8));
        let served = Served { index: Arc::clone(&index), store: None, unknown_names };
        let clock = clock();
        let of_lane = (Rc::clone(&keys), Arc::clone(&clock));
        let resolver = LaneResolver::new(served, provider(), of_lane, None);
        Self { clock, index, keys, resolver }
    }

    /// The label of the certificate for a client that asks for `name` and accepts `schemes`.
    fn resolve(&self, name: &str, schemes: &[SignatureScheme]) -> String {
        let Some(certified) = resolve(&self.resolver, &hello(name, schemes)) else {
            return String::new();
        };
        let leaf = certified.cert[0].as_ref();
        let found = self.index.iter().find(|found| found.chain().next() == Some(leaf)).unwrap();
        found.label().to_owned()
    }
}

pub(super) fn resolve(resolver: &LaneResolver, mut hello: &[u8]) -> Option<Arc<CertifiedKey>> {
    let mut acceptor = Acceptor::default();
    acceptor.read_tls(&mut hello).unwrap();
    let accepted = acceptor.accept().unwrap().unwrap();
    resolver.resolve(accepted.client_hello())
}

/// The first bytes of a client that takes `schemes` only.
pub(super) fn hello(name: &str, schemes: &[SignatureScheme]) -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Takes(schemes.to_vec())))
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Speaks of its signature schemes only: no handshake here goes further than the hello.
#[derive(Debug)]
struct Takes(Vec<SignatureScheme>);

impl ServerCertVerifier for Takes {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        unreachable!("only a hello is made")
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        unreachable!("only a hello is made")
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        unreachable!("only a hello is made")
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
