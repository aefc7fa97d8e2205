//! Contexts against servers in memory.

mod chains;
mod swap;

use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;

use super::*;
use crate::policy::{Group, Versions};
use crate::provider::{ProviderChoice, lane_provider};
use crate::session::tests::lent::{Lent, carry, shake};
use crate::session::{ClientSession, ServerSession, Session, SessionError};
use crate::tickets::{LaneClock, UnixSeconds};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

/// Issues certificates to servers and clients.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn roots(&self) -> Roots {
        Roots::from_pem("ca.pem", self.0.pem().as_bytes()).unwrap()
    }

    fn options(&self) -> ClientOptions {
        ClientOptions { groups: vec![Group::X25519], ..ClientOptions::trusting(self.roots()) }
    }

    /// A chain and a key as PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn identity(&self, name: &str) -> ClientIdentity {
        let (chain, key) = self.issue(name);
        let pair = (("c.crt", chain.as_bytes()), ("c.key", key.as_bytes()));
        ClientIdentity::from_pem_pair(pair.0, pair.1).unwrap()
    }

    /// A server named `name`, which asks for a certificate by `clients` if there are any.
    fn server(&self, name: &str, clients: Option<&Self>) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Self::server_with(certificate.der(), &key, clients)
    }

    fn server_with(
        certificate: &CertificateDer<'static>,
        key: &KeyPair,
        clients: Option<&Self>,
    ) -> Arc<ServerConfig> {
        let chain = vec![certificate.clone()];
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
        let provider = Arc::new(provider);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(authority.0.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        Arc::new(builder.with_single_cert(chain, key.into()).unwrap())
    }
}

fn lane(slot: &ContextSlot) -> LaneClient {
    LaneClient::new(slot, Arc::new(LaneClock::new(NOW))).unwrap()
}

type Ends = (Lent<ClientSession>, Lent<ServerSession>);

/// A handshake and an answer, which brings the tickets.
fn connect(
    lane: &mut LaneClient,
    name: &'static str,
    server: &Arc<ServerConfig>,
) -> Result<Ends, SessionError> {
    let client = lane.connect(ServerName::try_from(name).unwrap()).unwrap();
    let mut client = Lent::to(client);
    let mut server = Lent::to(ServerSession::new(Arc::clone(server)).unwrap());
    shake(&mut client, &mut server, 1 << 20)?;
    server.session.seal(b"answer", &mut server.wire)?;
    carry(&mut server, &mut client, 1 << 20)?;
    assert_eq!(client.plain.filled(), b"answer");
    Ok((client, server))
}

fn refused(outcome: Result<Ends, SessionError>) -> String {
    let Err(error) = outcome else { panic!("it was accepted") };
    error.to_string()
}

#[test]
fn the_digest_tells_options_apart_and_knows_equal_ones() {
    let [one, two] = ["one", "two"].map(Authority::new);
    let (one_pem, two_pem) = (one.0.pem(), two.0.pem());
    let both = [one_pem.clone(), two_pem.clone()].concat();
    let base = || ClientOptions::trusting(Roots::from_pem("a", both.as_bytes()).unwrap());
    let same = [
        Roots::from_pem("b", [two_pem.clone(), one_pem.clone()].concat().as_bytes()).unwrap(),
        Roots::from_pem("a", [both.clone(), "text\n".into(), both.clone()].concat().as_bytes())
            .unwrap(),
        Roots::from_der("c", &[two.0.der(), one.0.der(), two.0.der()]).unwrap(),
    ];
    for roots in same {
        assert_eq!(roots.len(), 2);
        assert_eq!(ClientOptions { roots, ..base() }.digest(), base().digest());
    }
    let identity = |name| Some(one.identity(name));
    let protocols = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let different = [
        base(),
        ClientOptions { roots: one.roots(), ..base() },
        ClientOptions { roots: Roots::none(), ..base() },
        ClientOptions { identity: identity("c"), ..base() },
        ClientOptions { identity: identity("c"), ..base() },
        ClientOptions { verification: Verification::DangerousNone, ..base() },
        ClientOptions { alpn: protocols(&["h2"]), ..base() },
        ClientOptions { alpn: protocols(&["h2", "x"]), ..base() },
        ClientOptions { alpn: protocols(&["x", "h2"]), ..base() },
        ClientOptions { alpn: protocols(&["h", "2x"]), ..base() },
        ClientOptions { alpn: protocols(&["h2x"]), ..base() },
        ClientOptions { groups: vec![Group::X25519], ..base() },
        ClientOptions { provider: ProviderChoice::AwsLc, ..base() },
        ClientOptions { resumption: false, ..base() },
        ClientOptions { versions: Versions::Tls13, ..base() },
    ];
    let digests: std::collections::HashSet<_> =
        different.iter().map(ClientOptions::digest).collect();
    assert_eq!(digests.len(), different.len());
}

#[test]
fn ten_thousand_clients_with_equal_options_build_one_context() {
    let bundle: String = (0..8).map(|n| Authority::new(&n.to_string()).0.pem()).collect();
    let mut contexts = ClientContexts::new();
    let pools: Vec<_> = (0..10_000)
        .map(|_| {
            let roots = Roots::from_pem("bundle", bundle.as_bytes()).unwrap();
            ContextSlot::new(contexts.context(&ClientOptions::trusting(roots)).unwrap())
        })
        .collect();
    let counts = contexts.counts();
    assert_eq!((counts.built, counts.certificates_parsed, counts.live()), (1, 8, 1));
    drop(pools);
    assert_eq!(contexts.counts().freed, 1, "the table keeps none");
}

#[test]
fn freed_contexts_leave_the_table() {
    let authority = Authority::new("a");
    let mut contexts = ClientContexts::new();
    for number in 0..100_u8 {
        let alpn = vec![vec![number]];
        contexts.context(&ClientOptions { alpn, ..authority.options() }).unwrap();
    }
    assert_eq!((contexts.counts().built, contexts.counts().live()), (100, 0));
    assert!(contexts.entries() <= 32, "{} entries", contexts.entries());
}

#[test]
fn bad_options_are_named_and_change_nothing() {
    let authority = Authority::new("a");
    let server = authority.server("one.test", None);
    let mut contexts = ClientContexts::new();
    let slot = ContextSlot::new(contexts.context(&authority.options()).unwrap());
    let mut lane = lane(&slot);
    let (mut client, mut peer) = connect(&mut lane, "one.test", &server).unwrap();
    let before = contexts.counts();

    let good = authority.0.der().to_vec();
    let broken = Roots::from_der("dir", &[&good, &good[..200], &good]).unwrap();
    let options = || authority.options();
    let bad = [
        (
            ClientOptions { roots: broken, ..options() },
            "roots: dir: certificate 2 is not a valid X.509 certificate",
        ),
        (ClientOptions { roots: Roots::none(), ..options() }, "roots: none are given"),
        (ClientOptions { alpn: vec![b"h2".to_vec(), vec![]], ..options() }, "ALPN: protocol 2"),
        (ClientOptions { alpn: vec![vec![b'x'; 3]; 17], ..options() }, "ALPN: 17 protocols"),
        (ClientOptions { groups: vec![], ..options() }, "no key exchange group"),
        (
            ClientOptions {
                groups: vec![Group::X25519MlKem768],
                versions: Versions::Tls12,
                ..options()
            },
            "groups: TLS 1.2 has none of them",
        ),
    ];
    for (options, expected) in bad {
        let error = contexts.context(&options).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let counts = contexts.counts();
    assert_eq!((counts.live(), counts.built - counts.freed), (before.live(), 1));
    assert_eq!((slot.generation(), lane.refresh().unwrap()), (1, false));
    client.session.seal(b"still here", &mut client.wire).unwrap();
    carry(&mut client, &mut peer, 1 << 20).unwrap();
    assert_eq!(peer.plain.filled(), b"still here");
    connect(&mut lane, "one.test", &server).unwrap();
}

#[test]
fn sources_join_and_tell_when_the_first_authority_expires() {
    let until = |year| {
        let mut params = CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        Roots::from_pem(&format!("{year}.pem"), pem.as_bytes()).unwrap()
    };
    let (late, soon) = (until(2035), until(2031));
    let joined = Roots::joined(&[late.clone(), soon.clone(), late.clone()]).unwrap();
    assert_eq!(joined.len(), 2, "each counts once");
    assert_eq!(joined.soonest_expiry_s().unwrap(), Some(1_924_992_000));
    let other_order = Roots::joined(&[soon, late]).unwrap();
    let digest = |roots| ClientOptions::trusting(roots).digest();
    assert_eq!(digest(joined.clone()), digest(other_order));
    let bad = Roots::from_der("bad.der", &[b"no certificate"]).unwrap();
    let all = Roots::joined(&[joined, bad]).unwrap();
    let words = all.soonest_expiry_s().unwrap_err().to_string();
    assert!(words.starts_with("roots: bad.der: certificate 1 is not a valid X.509"), "{words}");
    assert_eq!(Roots::none().soonest_expiry_s().unwrap(), None);
}

#[test]
fn bad_sources_are_named() {
    let authority = Authority::new("a");
    let pem = authority.0.pem();
    let roots = |text: String| Roots::from_pem("ca.pem", text.as_bytes()).unwrap_err().to_string();
    assert!(roots(String::new()).starts_with("roots: ca.pem: no certificate in it"));
    let cut = [pem.clone(), pem[..pem.len() / 2].to_owned()].concat();
    let begins = pem.lines().count() + 1;
    assert!(roots(cut).starts_with(&format!("roots: ca.pem:{begins}: the section that begins")));
    let list = pem.replace("CERTIFICATE", "X509 CRL");
    assert!(roots(pem.clone() + &list).contains(&format!("ca.pem:{begins}: a revocation list")));
    let many = pem.repeat(ROOTS_MAX + 1);
    assert!(roots(many).contains("4097 certificates; at most 4096"));
    assert!(roots("x".repeat(ROOTS_BYTES_MAX + 1)).contains("4194305 bytes"));

    let (chain, key) = authority.issue("c");
    let (_, other) = authority.issue("d");
    let pair = |chain: &str, key: &str| {
        let error =
            ClientIdentity::from_pem_pair(("c.crt", chain.as_bytes()), ("c.key", key.as_bytes()));
        error.unwrap_err().to_string()
    };
    assert!(pair(&chain, &other).starts_with(
        "client certificate: c.key: this private key does not belong to the first certificate in \
         c.crt"
    ));
    assert!(pair(&key, &chain).starts_with("client certificate: c.key: no private key in it"));
    assert!(pair("", &key).starts_with("client certificate: c.crt: neither a certificate nor"));
}

#[test]
fn a_context_ends_behind_its_last_connection() {
    let [old, new] = ["old", "new"].map(Authority::new);
    let server = old.server("one.test", None);
    let mut contexts = ClientContexts::new();
    let slot = ContextSlot::new(contexts.context(&old.options()).unwrap());
    let mut lane = lane(&slot);
    let (first, second) = (
        connect(&mut lane, "one.test", &server).unwrap(),
        connect(&mut lane, "one.test", &server).unwrap(),
    );
    assert_eq!(slot.publish(&contexts.context(&new.options()).unwrap()), 2);
    assert!(lane.refresh().unwrap());
    drop(first);
    assert_eq!(contexts.counts().freed, 0, "a connection still has it");
    let (mut client, mut peer) = second;
    client.session.seal(b"still here", &mut client.wire).unwrap();
    carry(&mut client, &mut peer, 1 << 20).unwrap();
    assert_eq!(peer.plain.filled(), b"still here");
    drop(client);
    assert_eq!(contexts.counts().freed, 1);
    let error = refused(connect(&mut lane, "one.test", &server));
    assert!(error.contains("none of the trusted roots issued it"), "{error}");
    drop((lane, slot));
    assert_eq!(contexts.counts().live(), 0);
}

#[test]
fn the_name_belongs_to_the_connection() {
    let authority = Authority::new("a");
    let server = authority.server("one.test", None);
    let mut contexts = ClientContexts::new();
    let slot = ContextSlot::new(contexts.context(&authority.options()).unwrap());
    let mut lane = lane(&slot);
    let mut resumed = 0;
    for _ in 0..PAIRS {
        let error = refused(connect(&mut lane, "two.test", &server));
        assert!(error.contains("it is not for two.test but for one.test"), "{error}");
        let (client, _) = connect(&mut lane, "one.test", &server).unwrap();
        resumed += usize::from(client.session.resumed());
    }
    assert_eq!(resumed, PAIRS - 1, "and what was remembered of one name was not of the other");
    assert_eq!(contexts.counts().built, 1);
}

const PAIRS: usize = 1_000;

#[test]
fn lanes_share_neither_sessions_nor_reference_counts() {
    let authority = Authority::new("a");
    let server = authority.server("one.test", None);
    let mut contexts = ClientContexts::new();
    let context = contexts.context(&authority.options()).unwrap();
    let slot = ContextSlot::new(Arc::clone(&context));
    let mut lanes = [lane(&slot), lane(&slot)];
    let shared = context.references();
    let mut ends = Vec::new();
    for resumed in [false, true] {
        for lane in &mut lanes {
            let pair = connect(lane, "one.test", &server).unwrap();
            assert_eq!(pair.0.session.resumed(), resumed);
            ends.push(pair);
        }
    }
    assert_eq!(context.references(), shared, "a connection counted a reference that lanes share");
    drop(lanes);
    assert_eq!(context.references(), shared, "the connections hold what the lanes held");
    drop(ends);
    assert_ne!(context.references(), shared);
}

#[test]
fn a_client_shows_its_certificate_to_whoever_asks() {
    let authority = Authority::new("a");
    let server = authority.server("one.test", Some(&authority));
    let mut contexts = ClientContexts::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let options = ClientOptions { versions, ..authority.options() };
        let slot = ContextSlot::new(contexts.context(&options).unwrap());
        assert_eq!(
            refused(connect(&mut lane(&slot), "one.test", &server)),
            "peer sent no certificates"
        );
        let identity = Some(authority.identity("client.test"));
        let context = contexts.context(&ClientOptions { identity, ..options }).unwrap();
        slot.publish(&context);
        let (_, peer) = connect(&mut lane(&slot), "one.test", &server).unwrap();
        assert_eq!(peer.session.peer_certificates().len(), 1);
    }
}

#[test]
fn a_server_that_wants_a_certificate_is_told_from_others() {
    let authority = Authority::new("a");
    let server = authority.server("one.test", Some(&authority));
    let mut contexts = ClientContexts::new();
    let slot = ContextSlot::new(contexts.context(&authority.options()).unwrap());
    let name = ServerName::try_from("one.test").unwrap();
    let mut client = Lent::to(lane(&slot).connect(name).unwrap());
    let mut server = Lent::to(ServerSession::new(server).unwrap());
    shake(&mut client, &mut server, 1 << 20).unwrap_err();
    assert_eq!(
        carry(&mut server, &mut client, 1).unwrap_err().to_string(),
        "the server accepts only clients that have a certificate; give one with its key"
    );
}

#[test]
fn an_authority_that_serves_with_its_own_certificate_is_told() {
    let authority = Authority::new("a");
    let mut params = CertificateParams::new(vec!["one.test".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let own = params.signed_by(&key, &authority.0).unwrap();
    let server = Authority::server_with(own.der(), &key, None);
    let mut contexts = ClientContexts::new();
    let slot = ContextSlot::new(contexts.context(&authority.options()).unwrap());
    let error = refused(connect(&mut lane(&slot), "one.test", &server));
    assert!(error.contains("it is an authority's (CA:TRUE)"), "{error}");
}

#[test]
fn verification_is_left_out_only_by_its_dangerous_name() {
    let authority = Authority::new("a");
    let server = Authority::new("b").server("one.test", None);
    let mut contexts = ClientContexts::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let full = ClientOptions { versions, ..authority.options() };
        let verification = Verification::DangerousNone;
        let none = ClientOptions { roots: Roots::none(), verification, ..full.clone() };
        let slot = ContextSlot::new(contexts.context(&none).unwrap());
        connect(&mut lane(&slot), "any.test", &server).unwrap();
        slot.publish(&contexts.context(&full).unwrap());
        refused(connect(&mut lane(&slot), "one.test", &server));
    }
}

#[test]
fn publishing_the_current_context_again_changes_nothing() {
    let authority = Authority::new("a");
    let mut contexts = ClientContexts::new();
    let slot = ContextSlot::new(contexts.context(&authority.options()).unwrap());
    let mut lane = lane(&slot);
    assert_eq!(slot.publish(&contexts.context(&authority.options()).unwrap()), 1);
    assert!(!lane.refresh().unwrap());
    assert_eq!((slot.generation(), lane.generation()), (1, 1));
}

/// The longest time that a test waits for another thread.
const PATIENCE: Duration = Duration::from_secs(60);
