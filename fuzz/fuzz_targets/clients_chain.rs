//! Any certificates of a client, in a whole handshake: required or only asked for, in TLS 1.2 and
//! 1.3.
//!
//! The first byte chooses these. Then comes each certificate, behind its length in two bytes.
#![no_main]

#[path = "../chain.rs"]
mod chain;

use std::cell::LazyCell;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SignatureScheme};
use sealane_engine::buffer::Buffer;
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
use sealane_engine::client_certificates::{ClientRoots, ClientStanding};
use sealane_engine::context::{Context, ContextId, LaneContext, LaneResources};
use sealane_engine::hello::Hello;
use sealane_engine::policy::{ClientCertificates, Group, Policy};
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_engine::session::{ServerSession, Session};
use sealane_engine::tickets::{TicketRoot, UnixSeconds};

/// A listener that asks, and one that requires.
struct World {
    contexts: [LaneContext; 2],
    roots: RootCertStore,
}

thread_local! {
    static WORLD: LazyCell<World> = const { LazyCell::new(world) };
}

fn world() -> World {
    let clients = ClientRoots::from_pem(&[chain::ROOT.as_bytes()], &[]).expect("a root");
    let clients = Arc::new(clients);
    let made = rcgen::generate_simple_self_signed(vec!["one.test".to_owned()]).expect("made");
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).expect("a provider").crypto;
    let mut builder = IndexBuilder::new(&provider, 0);
    builder.add("one", pem.as_bytes());
    let certificates = Arc::new(builder.finish(DefaultCertificate::First).index);
    let now = UnixSeconds(chain::NOW_S);
    let context = |clients| {
        let root = TicketRoot::generate(Duration::from_secs(3_600), now, |bytes| bytes.fill(3));
        let lane = LaneResources::new(root.expect("a root"), now, NonZeroUsize::MIN);
        let policy = Policy { clients, groups: vec![Group::X25519], ..Policy::default() };
        let context = Context {
            id: ContextId::fresh(),
            policy,
            certificates: Arc::clone(&certificates),
            key_log: false,
            store: None,
            provider: ProviderChoice::AwsLc,
            tickets: 0,
        };
        LaneContext::new(&Arc::new(context), &lane).expect("a context")
    };
    let contexts = [
        context(ClientCertificates::Asked(Arc::clone(&clients))),
        context(ClientCertificates::Required(clients)),
    ];
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root certificate");
    World { contexts, roots }
}

/// Shows the input's certificates.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fuzz_target!(|input: &[u8]| {
    let [which, bytes @ ..] = input else { return };
    let Some(shown) = chain::shown(bytes) else { return };
    WORLD.with(|world| {
        let is_required = which & 1 == 1;
        let version = if which & 2 == 2 { &TLS12 } else { &TLS13 };
        let context = &world.contexts[usize::from(is_required)];
        let config = context.admit(&Hello::default()).expect("admitted");
        let mut session = ServerSession::new(config).expect("a session");
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let client = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(world.roots.clone())
            .with_client_cert_resolver(Arc::new(Shows(Arc::new(shown))));
        let name = ServerName::try_from("one.test").expect("a name");
        let mut client = ClientConnection::new(Arc::new(client), name).expect("a client");
        let mut plain = Buffer::with_capacity(1 << 16);
        let mut wire = Buffer::with_capacity(1 << 18);
        for _ in 0..4 {
            let mut flight = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut flight).expect("a flight");
            }
            if session.feed(&mut flight, &mut plain, &mut wire).is_err() {
                return;
            }
            client.read_tls(&mut wire.filled()).expect("an answer");
            wire.clear();
            if client.process_new_packets().is_err() {
                return;
            }
        }
        assert!(session.is_established());
        let standing = context.standing(&session);
        assert!(!is_required || standing == ClientStanding::Verified, "{standing:?}");
        let certificates = session.peer_certificates();
        chain::assert_bounded(certificates);
    });
});
