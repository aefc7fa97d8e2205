//! Any certificates of a backend, in a whole handshake of TLS 1.2 or 1.3.
//!
//! The first byte chooses the version. Then comes each certificate, behind its length in two bytes.
#![no_main]

#[path = "../chain.rs"]
mod chain;

use std::cell::LazyCell;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection};
use sealane_engine::buffer::Buffer;
use sealane_engine::client::{ClientContexts, ClientOptions, ContextSlot, LaneClient, Roots};
use sealane_engine::policy::Group;
use sealane_engine::session::Session;
use sealane_engine::tickets::{LaneClock, UnixSeconds};

thread_local! {
    static SLOT: LazyCell<ContextSlot> = const { LazyCell::new(|| {
        let roots = Roots::from_pem("root", chain::ROOT.as_bytes()).expect("a root");
        let options = ClientOptions {
            groups: vec![Group::X25519],
            resumption: false,
            ..ClientOptions::trusting(roots)
        };
        ContextSlot::new(ClientContexts::new().context(&options).expect("a context"))
    }) };
}

/// Shows the input's certificates.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesServerCert for Shows {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fuzz_target!(|input: &[u8]| {
    let [which, bytes @ ..] = input else { return };
    let Some(shown) = chain::shown(bytes) else { return };
    let version = if which & 2 == 2 { &TLS12 } else { &TLS13 };
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let server = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Shows(Arc::new(shown))));
    let mut server = ServerConnection::new(Arc::new(server)).expect("a server");
    SLOT.with(|slot| {
        let clock = Arc::new(LaneClock::new(UnixSeconds(chain::NOW_S)));
        let mut lane = LaneClient::new(slot, clock).expect("a lane's client");
        let mut session = lane.connect("a.test".try_into().expect("a name")).expect("a session");
        let mut plain = Buffer::with_capacity(1 << 16);
        let mut wire = Buffer::with_capacity(1 << 18);
        let mut answer = Vec::new();
        for _ in 0..4 {
            if session.feed(&mut answer, &mut plain, &mut wire).is_err() {
                return;
            }
            answer.clear();
            server.read_tls(&mut wire.filled()).expect("a flight");
            wire.clear();
            if server.process_new_packets().is_err() {
                return;
            }
            while server.wants_write() {
                server.write_tls(&mut answer).expect("an answer");
            }
        }
        assert!(session.is_established());
        chain::assert_bounded(session.peer_certificates());
    });
});
