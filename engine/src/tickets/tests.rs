//! rustls pairs in memory: two lanes, each with its own replica of one root and its own clock.

mod announced;
mod shared;

use std::{io::Read as _, sync::Arc, time::Duration};

use proptest::prelude::*;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore, ServerConfig,
    ServerConnection, SupportedProtocolVersion,
    client::{
        ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
        Tls13ClientSessionValue,
    },
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    server::{NoServerSessionStorage, ProducesTickets},
    version::{TLS12, TLS13},
};

use super::*;
use crate::policy::{Policy, PolicyDigest, Versions};
use crate::provider::random::fill as random;

#[test]
fn a_ticket_resumes_on_the_other_lane_and_back() {
    for version in VERSIONS {
        let [first, second] = Machine::new().lanes(START);
        let mut client = Client::new(&first.certificate, version);
        assert_eq!(client.connect(&first, POLICY, "a.test"), FULL, "{version:?}");
        for lane in [&second, &first, &second] {
            assert_eq!(client.connect(lane, POLICY, "a.test"), RESUMED, "{version:?}");
        }
    }
}

#[test]
fn a_ticket_resumes_in_the_next_epoch_and_not_in_the_one_after() {
    for version in VERSIONS {
        for (later_s, expected) in
            [(LIFETIME_S, RESUMED), (2 * LIFETIME_S - 1, RESUMED), (2 * LIFETIME_S, FULL)]
        {
            let [first, second] = Machine::new().lanes(START);
            let mut client = Client::new(&first.certificate, version);
            client.connect(&first, POLICY, "a.test");
            second.clock.set(UnixSeconds(START.0 + later_s));
            assert_eq!(
                client.connect(&second, POLICY, "a.test"),
                expected,
                "{version:?} {later_s}"
            );
        }
    }
}

#[test]
fn lanes_rotate_at_the_same_second_with_no_message() {
    let [first, second] = Machine::new().lanes(START);
    let ends = first.tickets.rotates_at();
    assert_eq!((ends, second.tickets.rotates_at()), (UnixSeconds(START.0 + LIFETIME_S), ends));
    for (now, epoch) in [(ends.0 - 1, EPOCH), (ends.0, EPOCH + 1)] {
        for (lane, other) in [(&first, &second), (&second, &first)] {
            lane.clock.set(UnixSeconds(now));
            let ticket = lane.ticketer(POLICY).seal(&LEAF, b"session").unwrap();
            assert_eq!(epoch_of(&ticket), epoch);
            // The other one's clock may not have come to this second yet.
            assert_eq!(other.ticketer(POLICY).open(&LEAF, &ticket).unwrap(), b"session");
        }
    }
}

#[test]
fn a_ticket_does_not_resume_under_another_policy() {
    let tls13_only = Policy { versions: Versions::Tls13, ..Policy::default() }.digest();
    for version in VERSIONS {
        let [first, second] = Machine::new().lanes(START);
        let mut client = Client::new(&first.certificate, version);
        client.connect(&first, Policy::default().digest(), "a.test");
        assert_eq!(client.connect(&second, tls13_only, "a.test"), FULL, "{version:?}");
        assert_eq!(client.connect(&first, tls13_only, "a.test"), RESUMED, "{version:?}");
    }
}

#[test]
fn a_ticket_does_not_resume_under_another_name() {
    for version in VERSIONS {
        let [first, second] = Machine::new().lanes(START);
        let mut client = Client::new(&first.certificate, version);
        client.connect(&first, POLICY, "a.test");
        assert_eq!(client.connect(&second, POLICY, "b.test"), FULL, "{version:?}");
        assert_eq!(client.connect(&second, POLICY, "b.test"), RESUMED, "{version:?}");
    }
}

#[test]
fn a_replica_of_an_advanced_root_cannot_open_older_tickets() {
    let machine = Machine::new();
    let [first, _] = machine.lanes(START);
    let ticket = first.ticketer(POLICY).seal(&LEAF, b"session").unwrap();
    let mut root = machine.root.clone();
    let replica_opens = |root: &TicketRoot| {
        let lane = machine.lane(root.clone(), START);
        lane.ticketer(POLICY).open(&LEAF, &ticket).is_some()
    };
    root.advance_to(root.oldest_accepted_at(START)).unwrap();
    assert!(replica_opens(&root));
    root.advance_to(Epoch(EPOCH + 1)).unwrap();
    assert!(!replica_opens(&root));
    assert!(!replica_opens(&TicketRoot::from_text(&root.to_text().unwrap()).unwrap()));
}

#[test]
fn a_machine_whose_clock_is_an_epoch_ahead_is_understood() {
    let machine = Machine::new();
    let [ahead, behind] = machine.lanes(START);
    ahead.clock.set(UnixSeconds(START.0 + LIFETIME_S));
    let ticket = ahead.ticketer(POLICY).seal(&LEAF, b"session").unwrap();
    assert_eq!(epoch_of(&ticket), EPOCH + 1);
    let opens = behind.ticketer(POLICY).open(&LEAF, &ticket);
    assert_eq!(opens.unwrap(), b"session");
    // Nothing was advanced for it: the epoch's own tickets still open.
    let own = behind.ticketer(POLICY).seal(&LEAF, b"own").unwrap();
    assert_eq!(epoch_of(&own), EPOCH);
    ahead.clock.set(UnixSeconds(START.0 + 2 * LIFETIME_S));
    let too_new = ahead.ticketer(POLICY).seal(&LEAF, b"session").unwrap();
    assert!(behind.ticketer(POLICY).open(&LEAF, &too_new).is_none());
}

#[test]
fn a_clock_that_goes_back_brings_nothing_back() {
    let [lane, _] = Machine::new().lanes(START);
    let ticketer = lane.ticketer(POLICY);
    let old = ticketer.seal(&LEAF, b"old").unwrap();
    let later = UnixSeconds(START.0 + 3 * LIFETIME_S);
    lane.clock.set(later);
    let new = ticketer.seal(&LEAF, b"new").unwrap();
    assert!(ticketer.open(&LEAF, &old).is_none());

    // One epoch back: its root is still held. Two back: sealed for the oldest that is left.
    for (back, epoch) in [(1, EPOCH + 2), (2, EPOCH + 2)] {
        lane.clock.set(UnixSeconds(later.0 - back * LIFETIME_S));
        assert_eq!(lane.tickets.rotate(), Ok(()));
        let ticket = ticketer.seal(&LEAF, b"back").unwrap();
        assert_eq!(epoch_of(&ticket), epoch);
        assert_eq!(ticketer.open(&LEAF, &ticket).unwrap(), b"back");
        assert!(ticketer.open(&LEAF, &old).is_none());
    }

    for far_back in [START, UnixSeconds(0)] {
        lane.clock.set(far_back);
        assert!(matches!(lane.tickets.rotate(), Err(TicketRootError::ClockBehind { .. })));
        assert!(ticketer.seal(&LEAF, b"back").is_none());
        assert!(ticketer.open(&LEAF, &old).is_none() && ticketer.open(&LEAF, &new).is_none());
    }
    lane.clock.set(later);
    assert_eq!(ticketer.open(&LEAF, &new).unwrap(), b"new");
    assert!(ticketer.open(&LEAF, &old).is_none());
}

#[test]
fn a_clock_far_ahead_turns_tickets_off_until_it_is_right_again() {
    for version in VERSIONS {
        let [lane, _] = Machine::new().lanes(START);
        let mut client = Client::new(&lane.certificate, version);
        client.connect(&lane, POLICY, "a.test");
        // The root follows to the epoch before the clock's.
        let steps = RATCHET_STEPS_MAX + 2;
        lane.clock.set(UnixSeconds(START.0 + steps * LIFETIME_S));
        assert!(matches!(lane.tickets.rotate(), Err(TicketRootError::ClockAhead { .. })));
        assert_eq!(client.connect(&lane, POLICY, "a.test"), FULL, "{version:?}");
        assert_eq!(client.connect(&lane, POLICY, "a.test"), FULL, "{version:?}");

        let mut client = Client::new(&lane.certificate, version);
        lane.clock.set(START);
        client.connect(&lane, POLICY, "a.test");
        assert_eq!(client.connect(&lane, POLICY, "a.test"), RESUMED, "{version:?}");

        lane.clock.set(UnixSeconds(START.0 + (steps - 1) * LIFETIME_S));
        assert_eq!(lane.tickets.rotate(), Ok(()));
        assert_eq!(client.connect(&lane, POLICY, "a.test"), FULL, "{version:?}");
        assert_eq!(client.connect(&lane, POLICY, "a.test"), RESUMED, "{version:?}");
    }
}

#[test]
fn a_ticket_is_epoch_nonce_and_what_is_sealed() {
    let machine = Machine::new();
    let clock = Arc::new(LaneClock::new(START));
    let tickets = LaneTickets::new(machine.root, clock, |bytes| {
        bytes.fill(0xee);
        Ok(())
    });
    let ticket = tickets.ticketer(POLICY).seal(&LEAF, b"name a.test").unwrap();
    assert_eq!(ticket.len(), 8 + 24 + 11 + 16);
    assert_eq!(epoch_of(&ticket), EPOCH);
    let again = tickets.ticketer(POLICY).seal(&LEAF, b"name b.test").unwrap();
    assert_ne!(ticket[8..32], again[8..32], "equal random bytes make no equal nonce");
    assert!(!ticket.windows(6).any(|window| window == b"a.test"));
}

#[test]
fn tickets_have_a_longest_length() {
    let [lane, _] = Machine::new().lanes(START);
    let ticketer = lane.ticketer(POLICY);
    let longest = vec![1; TICKET_BYTES_MAX - 48];
    let ticket = ticketer.seal(&LEAF, &longest).unwrap();
    assert_eq!(ticket.len(), TICKET_BYTES_MAX);
    assert_eq!(ticketer.open(&LEAF, &ticket).unwrap(), longest);
    assert!(ticketer.seal(&LEAF, &vec![1; longest.len() + 1]).is_none());
    assert_eq!(ticketer.lifetime(), LIFETIME_DEFAULT_S);
}

#[test]
fn a_ticket_opens_for_the_certificate_that_its_session_began_with() {
    let [first, second] = Machine::new().lanes(START);
    let ticket = first.ticketer(POLICY).seal(&LEAF, b"session").unwrap();
    assert_eq!(second.ticketer(POLICY).open(&LEAF, &ticket).unwrap(), b"session");
    assert_eq!(second.ticketer(POLICY).open(&LeafDigest::of(b"other"), &ticket), None);
}

#[test]
fn rustls_gets_no_ticket_while_it_is_no_sessions_turn() {
    let [lane, _] = Machine::new().lanes(START);
    let ticketer = lane.ticketer(POLICY);
    assert!(ticketer.encrypt(b"session").is_none());
    let ticket = ticketer.seal(&LEAF, b"session").unwrap();
    assert!(ticketer.decrypt(&ticket).is_none());
}

#[test]
fn two_copies_of_a_lane_share_no_nonce_between_different_sessions() {
    // All that a copy of the process has: the keys, the clock, and the generator's next bytes.
    let copy = || {
        let root = TicketRoot::generate(Duration::from_secs(LIFETIME_S), START, |b| b.fill(5));
        let clock = Arc::new(LaneClock::new(START));
        let tickets = LaneTickets::new(root.unwrap(), clock, |bytes| {
            bytes.fill(0xee);
            Ok(())
        });
        tickets.ticketer(POLICY)
    };
    let known = copy().seal(&LEAF, b"the session of an attacker").unwrap();
    let victim = copy().seal(&LEAF, b"the session of its victim!").unwrap();
    let (nonces, sealed) = (8..32, 32..58);
    assert_ne!(known[nonces.clone()], victim[nonces]);
    let xor = |i: usize| known[i] ^ victim[i] ^ b"the session of an attacker"[i - 32];
    let guessed: Vec<u8> = sealed.map(xor).collect();
    assert_ne!(guessed, b"the session of its victim!");
}

#[test]
fn on_another_thread_a_ticketer_neither_seals_nor_opens() {
    let [lane, _] = Machine::new().lanes(START);
    let ticketer = lane.ticketer(POLICY);
    let ticket = ticketer.seal(&LEAF, b"session").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(ticketer.seal(&LEAF, b"session").is_none());
            assert!(ticketer.open(&LEAF, &ticket).is_none());
        });
    });
}

proptest! {
    #[test]
    fn garbage_opens_nothing(
        epoch in prop_oneof![EPOCH - 2..EPOCH + 3, any::<u64>()],
        rest in prop::collection::vec(any::<u8>(), 0..200),
        cut in 0_usize..208,
    ) {
        let [lane, _] = Machine::new().lanes(START);
        let mut ticket = [&epoch.to_be_bytes()[..], &rest].concat();
        ticket.truncate(cut);
        prop_assert!(lane.ticketer(POLICY).open(&LEAF, &ticket).is_none());
    }

    #[test]
    fn a_changed_ticket_opens_nothing(
        plain in prop::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
        bit in 0..8,
        extra in prop::collection::vec(any::<u8>(), 1..TICKET_BYTES_MAX),
    ) {
        let [first, second] = Machine::new().lanes(START);
        let ticket = first.ticketer(POLICY).seal(&LEAF, &plain).unwrap();
        let opener = second.ticketer(POLICY);
        prop_assert_eq!(opener.open(&LEAF, &ticket), Some(plain));
        prop_assert!(opener.open(&LEAF, &ticket[..at.index(ticket.len())]).is_none());
        prop_assert!(opener.open(&LEAF, &[&ticket[..], &extra].concat()).is_none());
        let mut changed = ticket;
        let at = at.index(changed.len());
        changed[at] ^= 1_u8 << bit;
        prop_assert!(opener.open(&LEAF, &changed).is_none());
    }
}

/// One machine: a root, and a certificate for every name in these tests.
struct Machine {
    certificate: Arc<CertifiedKey<rcgen::KeyPair>>,
    root: TicketRoot,
}

impl Machine {
    fn new() -> Self {
        thread_local! {
            static CERTIFICATE: Arc<CertifiedKey<rcgen::KeyPair>> = Arc::new(
                generate_simple_self_signed(["a.test".into(), "b.test".into()]).unwrap(),
            );
        }
        let root =
            TicketRoot::generate(Duration::from_secs(LIFETIME_S), START, |b| random(b).unwrap())
                .unwrap();
        Self { certificate: CERTIFICATE.with(Arc::clone), root }
    }

    fn lanes(&self, now: UnixSeconds) -> [Lane; 2] {
        [self.lane(self.root.clone(), now), self.lane(self.root.clone(), now)]
    }

    fn lane(&self, root: TicketRoot, now: UnixSeconds) -> Lane {
        let clock = Arc::new(LaneClock::new(now));
        let tickets = LaneTickets::new(root, Arc::clone(&clock), random);
        Lane { certificate: Arc::clone(&self.certificate), clock, tickets }
    }
}

struct Lane {
    certificate: Arc<CertifiedKey<rcgen::KeyPair>>,
    clock: Arc<LaneClock>,
    tickets: LaneTickets,
}

impl Lane {
    fn ticketer(&self, policy: PolicyDigest) -> Ticketer {
        self.tickets.ticketer(policy)
    }

    fn config(&self, policy: PolicyDigest) -> ServerConfig {
        let chain = vec![self.certificate.cert.der().clone()];
        let key = PrivateKeyDer::try_from(self.certificate.signing_key.serialize_der()).unwrap();
        let clock: Arc<LaneClock> = Arc::clone(&self.clock);
        let mut config =
            ServerConfig::builder_with_details(Arc::new(aws_lc_rs::default_provider()), clock)
                .with_protocol_versions(&[&TLS12, &TLS13])
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 2;
        config.ticketer = Arc::new(OneCertificate(self.ticketer(policy)));
        config
    }
}

/// For sessions that rustls drives alone, all with one certificate.
#[derive(Debug)]
struct OneCertificate(Ticketer);

impl ProducesTickets for OneCertificate {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.seal(&LEAF, plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.open(&LEAF, cipher)
    }
}

/// A client that offers any ticket it has to every name that it asks for.
struct Client {
    config: Arc<ClientConfig>,
    version: &'static SupportedProtocolVersion,
}

impl Client {
    fn new(
        certificate: &CertifiedKey<rcgen::KeyPair>,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::clone(certificate.cert.der())).unwrap();
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.resumption = Resumption::store(Arc::new(OneName::new()));
        Self { config: Arc::new(config), version }
    }

    /// One whole connection. Returns the kind of handshake, on which both sides must agree.
    fn connect(&mut self, lane: &Lane, policy: PolicyDigest, name: &'static str) -> HandshakeKind {
        let name = ServerName::try_from(name).unwrap();
        let mut client = ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        let mut server = ServerConnection::new(Arc::new(lane.config(policy))).unwrap();
        let mut wire = Vec::new();
        while client.wants_write() || server.wants_write() {
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            wire.clear();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            let mut unread = wire.as_slice();
            while !unread.is_empty() {
                client.read_tls(&mut unread).unwrap();
                client.process_new_packets().unwrap();
            }
            wire.clear();
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        assert_eq!(client.protocol_version(), Some(self.version.version));
        assert!(client.reader().read(&mut [0]).is_err(), "no data was sent");
        let kind = server.handshake_kind().unwrap();
        assert_eq!(client.handshake_kind().unwrap(), kind);
        kind
    }
}

/// A session store that takes every server name for one.
#[derive(Debug)]
struct OneName(ClientSessionMemoryCache, ServerName<'static>);

impl OneName {
    fn new() -> Self {
        Self(ClientSessionMemoryCache::new(8), ServerName::try_from("any.test").unwrap())
    }
}

impl ClientSessionStore for OneName {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(self.1.clone(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&self.1)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(self.1.clone(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&self.1)
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&self.1);
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(self.1.clone(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&self.1)
    }
}

fn epoch_of(ticket: &[u8]) -> u64 {
    u64::from_be_bytes(*ticket.first_chunk().unwrap())
}

const EPOCH: u64 = 40_000;
const FULL: HandshakeKind = HandshakeKind::Full;
const LEAF: LeafDigest = LeafDigest([3; 32]);
const LIFETIME_S: u64 = LIFETIME_DEFAULT_S as u64;
const POLICY: PolicyDigest = PolicyDigest([1; 32]);
const RESUMED: HandshakeKind = HandshakeKind::Resumed;
const START: UnixSeconds = UnixSeconds(EPOCH * LIFETIME_S);
const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];
