//! What a listener's policy means for clients: rustls pairs in memory, with either provider.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair, RsaKeySize, SignatureAlgorithm};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, CipherSuite as S, ClientConfig, ClientConnection, Error, RootCertStore,
    SupportedProtocolVersion,
};
use sealane_engine::buffer::Buffer;
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
use sealane_engine::context::{Context, LaneContext, LaneResources, Refusal};
use sealane_engine::hello::{self, Hello, Peek};
use sealane_engine::policy::{Group, Policy, UnknownNames, Versions};
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_engine::session::{ServerSession, Session};
use sealane_engine::tickets::{TicketRoot, UnixSeconds};

#[test]
fn every_group_works_in_every_version_with_either_provider() {
    for choice in [ProviderChoice::Graviola, ProviderChoice::AwsLc] {
        let keys = [("a.test", &rcgen::PKCS_ECDSA_P256_SHA256)];
        let server = Server::new(choice, Policy::default(), &keys);
        for group in Group::ALL {
            for version in [&TLS12, &TLS13] {
                if group == Group::X25519MlKem768 && version == &TLS12 {
                    continue; // the hybrid is for TLS 1.3 only
                }
                let client = Client { groups: vec![group], ..Client::default() };
                let session = server.accept(&client, "a.test", version).unwrap();
                assert_eq!(session.group(), Some(group.name()), "{choice:?} {version:?}");
            }
        }
    }
}

#[test]
fn no_other_group_is_agreed_on() {
    let policy = Policy { groups: vec![Group::Secp384r1], ..Policy::default() };
    let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
    for version in [&TLS12, &TLS13] {
        let session = server.accept(&Client::default(), "a.test", version).unwrap();
        assert_eq!(session.group(), Some("secp384r1"), "in TLS 1.3 by a HelloRetryRequest");
        let refused = Client { groups: vec![Group::Secp256r1], ..Client::default() };
        let failed = server.accept(&refused, "a.test", version).unwrap_err();
        assert_eq!(failed, Failed::Alert(AlertDescription::HandshakeFailure));
    }
}

#[test]
fn aes_128_comes_first_unless_the_client_prefers_chacha20() {
    let keys = [("a.test", &rcgen::PKCS_ECDSA_P256_SHA256)];
    let server = Server::new(ProviderChoice::Auto, Policy::default(), &keys);
    let suite_of = |suites: &[S], version| {
        let client = Client { suites: suites.to_vec(), ..Client::default() };
        server.accept(&client, "a.test", version).unwrap().suite().unwrap()
    };
    // The default order of OpenSSL and Go puts AES-256 first.
    let openssl = [
        S::TLS13_AES_256_GCM_SHA384,
        S::TLS13_CHACHA20_POLY1305_SHA256,
        S::TLS13_AES_128_GCM_SHA256,
    ];
    assert_eq!(suite_of(&openssl, &TLS13), "TLS_AES_128_GCM_SHA256");
    // A phone without AES instructions.
    let phone = [S::TLS13_CHACHA20_POLY1305_SHA256, S::TLS13_AES_128_GCM_SHA256];
    assert_eq!(suite_of(&phone, &TLS13), "TLS_CHACHA20_POLY1305_SHA256");
    assert_eq!(suite_of(&[S::TLS13_AES_256_GCM_SHA384], &TLS13), "TLS_AES_256_GCM_SHA384");
    let tls12 =
        [S::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, S::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];
    assert_eq!(suite_of(&tls12, &TLS12), "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
}

#[test]
fn of_several_key_types_the_client_gets_one_that_it_can_check() {
    let types: [(&str, &SignatureAlgorithm); 3] = [
        ("a.test", &rcgen::PKCS_RSA_SHA256),
        ("a.test", &rcgen::PKCS_ED25519),
        ("a.test", &rcgen::PKCS_ECDSA_P256_SHA256),
    ];
    let suites = vec![S::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
    let rsa = Client { suites, ..Client::default() };
    for choice in [ProviderChoice::Graviola, ProviderChoice::AwsLc] {
        let server = Server::new(choice, Policy::default(), &types);
        let session = server.accept(&Client::default(), "a.test", &TLS12).unwrap();
        assert!(session.suite().unwrap().contains("ECDSA"), "the cheapest comes first");
        let session = server.accept(&rsa, "a.test", &TLS12).unwrap();
        assert!(session.suite().unwrap().contains("_RSA_"), "{choice:?}");
    }
}

#[test]
fn versions_are_kept_to() {
    let accepts = |versions, version| {
        let policy = Policy { versions, ..Policy::default() };
        let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
        server.accept(&Client::default(), "a.test", version).map(|_| ())
    };
    assert_eq!(accepts(Versions::Tls12, &TLS12), Ok(()));
    assert_eq!(accepts(Versions::Tls13, &TLS13), Ok(()));
    let refused = Err(Failed::Alert(AlertDescription::ProtocolVersion));
    assert_eq!(accepts(Versions::Tls12, &TLS13), refused);
    assert_eq!(accepts(Versions::Tls13, &TLS12), refused);
}

#[test]
fn alpn_follows_the_servers_order_and_refuses_without_overlap() {
    let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let server = Server::new(ProviderChoice::Auto, Policy { alpn, ..Policy::default() }, &ED25519);
    let speaking = |protocols: &[&[u8]]| Client {
        alpn: protocols.iter().map(|protocol| protocol.to_vec()).collect(),
        ..Client::default()
    };
    let session = server.accept(&speaking(&[b"http/1.1", b"h2"]), "a.test", &TLS13).unwrap();
    assert_eq!(session.alpn(), Some(&b"h2"[..]));
    let session = server.accept(&Client::default(), "a.test", &TLS13).unwrap();
    assert_eq!(session.alpn(), None, "a client without ALPN is served");
    let failed = server.accept(&speaking(&[b"smtp"]), "a.test", &TLS13).unwrap_err();
    assert_eq!(failed, Failed::Alert(AlertDescription::NoApplicationProtocol));
}

#[test]
fn unknown_names_get_the_default_certificate_or_the_right_alert() {
    let names = [("a.test", &rcgen::PKCS_ED25519), ("*.b.test", &rcgen::PKCS_ED25519)];
    let lenient = Server::new(ProviderChoice::Auto, Policy::default(), &names);
    // The default certificate is served, and it is the client that finds it wrong.
    let failed = lenient.accept(&Client::default(), "c.test", &TLS13).unwrap_err();
    assert!(matches!(failed, Failed::Client(Error::InvalidCertificate(_))), "{failed:?}");

    let policy = Policy { unknown_names: UnknownNames::Refuse, ..Policy::default() };
    let strict = Server::new(ProviderChoice::Auto, policy, &names);
    assert!(strict.accept(&Client::default(), "x.b.test", &TLS13).is_ok());
    for unknown in ["c.test", "x.y.b.test", "b.test"] {
        let failed = strict.accept(&Client::default(), unknown, &TLS13).unwrap_err();
        assert_eq!(failed, Failed::Alert(AlertDescription::UnrecognisedName), "{unknown}");
    }
    let nameless = |offers_tls13| Hello { offers_tls13, ..Hello::default() };
    assert_eq!(strict.context.admit(&nameless(true)).unwrap_err(), Refusal::NoName);
    assert_eq!(strict.context.admit(&nameless(false)).unwrap_err(), Refusal::NoNameTls12);
    assert_eq!(Refusal::NoName.alert()[6], u8::from(AlertDescription::MissingExtension));
}

#[test]
fn policies_that_differ_in_anything_have_digests_of_their_own() {
    let base = Policy::default();
    let others = [
        Policy { versions: Versions::Tls13, ..base.clone() },
        Policy { unknown_names: UnknownNames::Refuse, ..base.clone() },
        Policy { groups: vec![Group::X25519], ..base.clone() },
        Policy { alpn: vec![b"h2".to_vec()], ..base.clone() },
        Policy { alpn: vec![b"h".to_vec(), b"2".to_vec()], ..base.clone() },
    ];
    let mut digests: Vec<_> = others.iter().map(|policy| policy.digest().0).collect();
    digests.push(base.digest().0);
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), others.len() + 1);
    assert_eq!(base.digest(), Policy::default().digest());
}

const ED25519: [(&str, &SignatureAlgorithm); 1] = [("a.test", &rcgen::PKCS_ED25519)];
const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

/// A listener's context on one lane, with certificates of one CA.
struct Server {
    context: LaneContext,
    roots: RootCertStore,
}

impl Server {
    fn new(
        choice: ProviderChoice,
        policy: Policy,
        names: &[(&str, &'static SignatureAlgorithm)],
    ) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let crypto = lane_provider(choice, &Group::ALL).unwrap().crypto;
        let mut builder = IndexBuilder::new(&crypto, 1_800_000_000);
        for (name, algorithm) in names {
            let key = if *algorithm == &rcgen::PKCS_RSA_SHA256 {
                KeyPair::generate_rsa_for(algorithm, RsaKeySize::_2048).unwrap()
            } else {
                KeyPair::generate_for(algorithm).unwrap()
            };
            let leaf = CertificateParams::new([(*name).to_owned()]).unwrap();
            let leaf = leaf.signed_by(&key, &ca).unwrap();
            builder.add(name, format!("{}{}", leaf.pem(), key.serialize_pem()).as_bytes());
        }
        let indexed = builder.finish(DefaultCertificate::First);
        assert_eq!(indexed.errors, []);
        let root = TicketRoot::generate(Duration::from_secs(43_200), NOW, |b| b.fill(7)).unwrap();
        let lane = LaneResources::new(root, NOW, NonZeroUsize::new(16).unwrap());
        let certificates = Arc::new(indexed.index);
        let (key_log, store, tickets) = (false, None, 2);
        let context = Context { policy, certificates, key_log, store, provider: choice, tickets };
        let context = Arc::new(context);
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        Self { context: LaneContext::new(&context, &lane).unwrap(), roots }
    }

    /// A whole handshake in memory.
    fn accept(
        &self,
        client: &Client,
        name: &'static str,
        version: &'static SupportedProtocolVersion,
    ) -> Result<ServerSession, Failed> {
        let mut client = client.connect(self.roots.clone(), name, version);
        let mut plain = Buffer::with_capacity(1 << 16);
        let mut wire = Buffer::with_capacity(1 << 18);
        let mut session = None;
        for _ in 0..8 {
            let mut sent = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut sent).unwrap();
            }
            if !sent.is_empty() {
                let session = match &mut session {
                    Some(session) => session,
                    None => match self.begin(&sent) {
                        Ok(begun) => session.insert(begun),
                        Err(alert) => return Err(Failed::received(&mut client, &alert)),
                    },
                };
                if session.feed(&mut sent, &mut plain, &mut wire).is_err() {
                    return Err(Failed::received(&mut client, wire.filled()));
                }
            }
            client.read_tls(&mut wire.filled()).unwrap();
            wire.clear();
            client.process_new_packets().map_err(Failed::Client)?;
        }
        Ok(session.filter(ServerSession::is_established).expect("eight flights are enough"))
    }

    fn begin(&self, hello: &[u8]) -> Result<ServerSession, [u8; 7]> {
        let Peek::Hello(hello) = hello::peek(hello, 1 << 14) else { panic!("a whole hello") };
        let config = self.context.admit(&hello).map_err(Refusal::alert)?;
        Ok(ServerSession::new(config).unwrap())
    }
}

/// What a client offers; empty lists stand for everything.
#[derive(Default)]
struct Client {
    groups: Vec<Group>,
    suites: Vec<S>,
    alpn: Vec<Vec<u8>>,
}

impl Client {
    fn connect(
        &self,
        roots: RootCertStore,
        name: &'static str,
        version: &'static SupportedProtocolVersion,
    ) -> ClientConnection {
        let mut provider: CryptoProvider = aws_lc_rs::default_provider();
        if !self.suites.is_empty() {
            let of = |suite: &S| {
                let mut all = aws_lc_rs::ALL_CIPHER_SUITES.iter();
                *all.find(|other| other.suite() == *suite).unwrap()
            };
            provider.cipher_suites = self.suites.iter().map(of).collect();
        }
        if !self.groups.is_empty() {
            let of = |group: &Group| {
                let mut all = aws_lc_rs::ALL_KX_GROUPS.iter();
                *all.find(|other| other.name().as_str() == Some(group.name())).unwrap()
            };
            provider.kx_groups = self.groups.iter().map(of).collect();
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols.clone_from(&self.alpn);
        ClientConnection::new(Arc::new(config), name.try_into().unwrap()).unwrap()
    }
}

#[derive(Debug, PartialEq)]
enum Failed {
    /// The server sent this alert.
    Alert(AlertDescription),
    /// The client was not content.
    Client(Error),
}

impl Failed {
    fn received(client: &mut ClientConnection, wire: &[u8]) -> Self {
        client.read_tls(&mut &*wire).unwrap();
        match client.process_new_packets() {
            Err(Error::AlertReceived(alert)) => Self::Alert(alert),
            other => panic!("the client should have got an alert, not {other:?}"),
        }
    }
}
