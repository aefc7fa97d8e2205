//! Pairs in memory: our sessions with rustls' own and with each other, over streams cut at
//! arbitrary places.

mod agreement;
mod alerts;
pub(crate) mod bounds;
mod clients;
pub(crate) mod early_data;
pub(crate) mod fragments;
pub(crate) mod lent;
mod pairs;

use std::io::Read;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use self::lent::Lent;
use super::faults;
use super::subject;
use super::*;
use crate::buffer::Buffer;
use crate::certificates::{DefaultCertificate, IndexBuilder};
use crate::context::{Context, ContextId, LaneContext, LaneResources};
use crate::hello::Hello;
use crate::policy::{Group, Policy};
use crate::provider::{ProviderChoice, lane_provider};
use crate::tickets::{TicketRoot, UnixSeconds};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
const TICKETS: usize = 2;

/// A server's context and the roots for its clients.
pub(crate) struct World {
    pub(crate) context: LaneContext,
    pub(crate) roots: RootCertStore,
}

impl World {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["one.test".to_owned()]).unwrap();
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
        let mut builder = IndexBuilder::new(&provider, 0);
        builder.add("one", pem.as_bytes());
        let certificates = Arc::new(builder.finish(DefaultCertificate::First).index);
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let root = TicketRoot::generate(Duration::from_secs(3_600), NOW, |bytes| bytes.fill(3));
        let lane = LaneResources::new(root.unwrap(), NOW, NonZeroUsize::MIN);
        let policy = Policy { groups: vec![Group::X25519], ..Policy::default() };
        let provider = ProviderChoice::Auto;
        let (key_log, store, tickets) = (false, None, TICKETS);
        let id = ContextId::fresh();
        let context = Context { id, policy, certificates, key_log, store, provider, tickets };
        Self { context: LaneContext::new(&Arc::new(context), &lane).unwrap(), roots }
    }

    pub(crate) fn server(&self) -> Server {
        Lent::to(ServerSession::new(self.context.admit(&Hello::default()).unwrap()).unwrap())
    }

    pub(crate) fn client_config(&self, version: &'static SupportedProtocolVersion) -> ClientConfig {
        let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
        let mut config = ClientConfig::builder_with_details(provider.into(), Arc::new(Stopped))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.enable_secret_extraction = true;
        config
    }
}

/// A clock that does not move.
#[derive(Debug)]
struct Stopped;

impl TimeProvider for Stopped {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(NOW.0)))
    }
}

pub(crate) type Server = Lent<ServerSession>;

pub(crate) fn client(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("one.test").unwrap();
    let mut client = ClientConnection::new(Arc::clone(config), name).unwrap();
    client.set_buffer_limit(None);
    client
}

/// Everything that a client has to send.
pub(crate) fn flight(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Hands `bytes` to the client; returns the plaintext, and whether the clean end has come.
pub(crate) fn deliver(client: &mut ClientConnection, mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut plain = Vec::new();
    let mut closed = false;
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        let state = client.process_new_packets().unwrap();
        closed |= state.peer_has_closed();
        match client.reader().read_to_end(&mut plain) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    (plain, closed)
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter_map(|byte| char::from(byte).to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

/// Completes a handshake without cuts.
pub(crate) fn shake_hands(client: &mut ClientConnection, server: &mut Server) {
    while client.is_handshaking() || !server.session.is_established() {
        server.feed(&flight(client)).unwrap();
        deliver(client, server.wire.filled());
        server.wire.clear();
    }
}

#[test]
fn tickets_wait_for_the_first_response_or_for_their_release() {
    let world = World::new();
    for with_data in [true, false] {
        let mut client = client(&Arc::new(world.client_config(&TLS13)));
        let mut server = world.server();
        shake_hands(&mut client, &mut server);
        assert!(server.session.held_len() > 0);
        assert_eq!(client.tls13_tickets_received(), 0);
        if with_data {
            assert_eq!(server.session.seal(b"answer", &mut server.wire).unwrap(), 6);
        } else {
            server.session.release_held(&mut server.wire);
        }
        assert_eq!(server.session.held_len(), 0);
        let (plain, _) = deliver(&mut client, server.wire.filled());
        assert_eq!(plain, if with_data { &b"answer"[..] } else { b"" });
        assert_eq!(client.tls13_tickets_received() as usize, TICKETS);
    }
}

#[test]
fn a_bad_record_brings_one_readable_alert_in_every_state() {
    let world = World::new();
    for version in [&rustls::version::TLS12, &TLS13] {
        for answered in [true, false] {
            let mut client = client(&Arc::new(world.client_config(version)));
            let mut server = world.server();
            shake_hands(&mut client, &mut server);
            if answered {
                server.session.seal(b"answer", &mut server.wire).unwrap();
            }
            let mut bad = vec![23, 3, 3, 0, 40];
            bad.extend([9; 40]);
            let error = server.feed(&bad).unwrap_err();
            assert!(matches!(error, SessionError::Tls(faults::Error::DecryptError)), "{error}");
            let mut wire = server.wire.filled();
            let alert = loop {
                client.read_tls(&mut wire).unwrap();
                if let Err(error) = client.process_new_packets() {
                    break error;
                }
                assert!(!wire.is_empty(), "no alert came");
            };
            let expected = rustls::AlertDescription::BadRecordMac;
            assert_eq!(alert, rustls::Error::AlertReceived(expected));
            assert!(wire.is_empty(), "more than one alert");
        }
    }
}

#[test]
fn what_follows_the_clean_end_is_ignored_and_not_kept() {
    let world = World::new();
    for version in [&rustls::version::TLS12, &TLS13] {
        let mut client = client(&Arc::new(world.client_config(version)));
        let mut server = world.server();
        shake_hands(&mut client, &mut server);
        client.send_close_notify();
        let mut bytes = flight(&mut client);
        bytes.extend(vec![0; PARTIAL_BYTES_MAX + 1]);
        assert!(server.feed(&bytes).unwrap().peer_closed);
        assert_eq!(server.session.partial_len(), 0);
        assert_eq!(server.session.seal(b"answer", &mut server.wire).unwrap(), 6);
        server.session.close(&mut server.wire).unwrap();
        assert_eq!(deliver(&mut client, server.wire.filled()), (b"answer".to_vec(), true));
    }
}

#[test]
fn plaintext_before_the_handshake_is_refused() {
    let world = World::new();
    let mut server = world.server();
    let sealed = server.session.seal(b"too early", &mut server.wire);
    assert!(matches!(sealed, Err(SessionError::NotEstablished)));
    assert!(server.wire.is_empty());
}

#[test]
fn sealing_takes_what_fits() {
    let world = World::new();
    let mut client = client(&Arc::new(world.client_config(&TLS13)));
    let mut server = world.server();
    shake_hands(&mut client, &mut server);
    server.session.release_held(&mut server.wire);
    let plain: Vec<_> = (0..100_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let mut taken = 0;
    let mut got = Vec::new();
    while taken < plain.len() {
        got.extend(deliver(&mut client, server.wire.filled()).0);
        // Too small for all, and once too small for a whole record.
        server.wire = Buffer::with_capacity(if taken == 0 { 50_000 } else { 9_000 });
        let more = server.session.seal(&plain[taken..], &mut server.wire).unwrap();
        assert!(more > 0);
        taken += more;
    }
    got.extend(deliver(&mut client, server.wire.filled()).0);
    assert!(got == plain);
}
