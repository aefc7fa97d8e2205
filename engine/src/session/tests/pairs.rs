//! Arbitrary sizes, cuts, key updates and orders of the ends.

use std::io::Write;

use proptest::prelude::*;
use rustls::HandshakeKind;
use rustls::version::TLS12;

use super::*;

/// One conversation.
#[derive(Clone, Debug)]
struct Plan {
    tls13: bool,
    resumed: bool,
    /// Bytes that the client sends, and the server.
    lens: [usize; 2],
    /// Drives every cut and the order of events.
    seed: u64,
    /// The client updates its keys in one of this many steps.
    key_updates: u64,
}

fn plans() -> impl Strategy<Value = Plan> {
    let len = || prop_oneof![Just(0_usize), 1..300_usize, 10_000..100_000_usize];
    (any::<bool>(), any::<bool>(), len(), len(), any::<u64>(), 2..40_u64).prop_map(
        |(tls13, resumed, client_len, server_len, seed, key_updates)| Plan {
            tls13,
            resumed,
            lens: [client_len, server_len],
            seed,
            key_updates,
        },
    )
}

/// Even dice that repeat.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }

    /// The count of `len` bytes to pass on: often a byte, often all.
    fn cut(&mut self, len: usize) -> usize {
        let choices = [1, 4, 5, 6, 21, 1_000, 17_000, len];
        choices[usize::try_from(self.below(8)).unwrap()].min(len)
    }
}

/// The pair, the bytes under way between them, and a record of events.
struct Pair {
    client: ClientConnection,
    server: Server,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    server_got: Vec<u8>,
    client_got: Vec<u8>,
    established: usize,
    server_saw_end: usize,
    client_saw_end: bool,
}

impl Pair {
    fn new(world: &World, config: &Arc<ClientConfig>) -> Self {
        Self {
            client: client(config),
            server: world.server(),
            to_server: Vec::new(),
            to_client: Vec::new(),
            server_got: Vec::new(),
            client_got: Vec::new(),
            established: 0,
            server_saw_end: 0,
            client_saw_end: false,
        }
    }

    fn deliver_to_server(&mut self, len: usize) {
        let bytes: Vec<_> = self.to_server.drain(..len).collect();
        let established_before = self.server.session.is_established();
        let fed = self.server.feed(&bytes).unwrap();
        assert_eq!(fed.established, !established_before && self.server.session.is_established());
        self.established += usize::from(fed.established);
        assert_eq!(self.server_saw_end, 0, "data or an end behind the end");
        self.server_saw_end += usize::from(fed.peer_closed);
        self.server_got.extend_from_slice(self.server.plain.filled());
        assert!(self.established == 1 || self.server_got.is_empty());
        self.server.plain.clear();
        self.collect();
    }

    /// Moves the server's bytes on their way.
    fn collect(&mut self) {
        self.to_client.extend_from_slice(self.server.wire.filled());
        self.server.wire.clear();
    }

    fn deliver_to_client(&mut self, len: usize, tickets: usize) {
        let bytes: Vec<_> = self.to_client.drain(..len).collect();
        let (plain, ended) = deliver(&mut self.client, &bytes);
        self.client_got.extend(plain);
        self.client_saw_end |= ended;
        let has_tickets = self.client.tls13_tickets_received() as usize == tickets;
        assert!(self.client_got.is_empty() || has_tickets, "tickets come before data");
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let mut dice = Dice(seed as u64);
    (0..len).map(|_| dice.below(256).to_le_bytes()[0]).collect()
}

fn converse(world: &World, config: &Arc<ClientConfig>, plan: &Plan) -> Pair {
    let mut pair = Pair::new(world, config);
    let mut dice = Dice(plan.seed);
    let [request, answer] = plan.lens.map(|len| pattern(len, len));
    let (mut requested, mut answered) = (0, 0);
    let (mut client_ended, mut server_ended) = (false, false);
    let tickets = if plan.tls13 { TICKETS } else { 0 };
    for _ in 0..1_000_000 {
        let established = pair.server.session.is_established();
        match dice.below(6) {
            0 if !pair.client.is_handshaking() && requested < request.len() => {
                let len = dice.cut(request.len() - requested);
                pair.client.writer().write_all(&request[requested..requested + len]).unwrap();
                requested += len;
                if plan.tls13 && dice.below(plan.key_updates) == 0 {
                    pair.client.refresh_traffic_keys().unwrap();
                }
            }
            1 if established && answered < answer.len() => {
                let len = dice.cut(answer.len() - answered);
                let chunk = &answer[answered..answered + len];
                assert_eq!(pair.server.session.seal(chunk, &mut pair.server.wire).unwrap(), len);
                answered += len;
                pair.collect();
            }
            2 if requested == request.len() && !client_ended && !pair.client.is_handshaking() => {
                pair.client.send_close_notify();
                client_ended = true;
            }
            3 if established && answered == answer.len() && !server_ended => {
                if dice.below(2) == 0 {
                    pair.server.session.release_held(&mut pair.server.wire);
                }
                pair.server.session.close(&mut pair.server.wire).unwrap();
                server_ended = true;
                pair.collect();
            }
            4 if !pair.to_server.is_empty() => {
                let len = dice.cut(pair.to_server.len());
                pair.deliver_to_server(len);
            }
            5 if !pair.to_client.is_empty() => {
                let len = dice.cut(pair.to_client.len());
                pair.deliver_to_client(len, tickets);
            }
            _ => {}
        }
        pair.to_server.extend(flight(&mut pair.client));
        let under_way = pair.to_server.len() + pair.to_client.len();
        if client_ended && server_ended && under_way == 0 {
            return pair;
        }
    }
    panic!("the conversation never ends");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_and_both_ends_arrive(plan in plans()) {
        let world = World::new();
        let version = if plan.tls13 { &TLS13 } else { &TLS12 };
        let config = Arc::new(world.client_config(version));
        if plan.resumed {
            let first = Plan { lens: [0, 10], seed: 1, ..plan.clone() };
            let pair = converse(&world, &config, &first);
            prop_assert!(!pair.server.session.resumed());
        }
        let pair = converse(&world, &config, &plan);
        prop_assert!(pair.server_got == pattern(plan.lens[0], plan.lens[0]));
        prop_assert!(pair.client_got == pattern(plan.lens[1], plan.lens[1]));
        prop_assert_eq!((pair.established, pair.server_saw_end), (1, 1));
        prop_assert!(pair.client_saw_end);
        prop_assert_eq!(pair.server.session.held_len(), 0);
        prop_assert_eq!(pair.server.session.partial_len(), 0);
        prop_assert_eq!(pair.server.session.resumed(), plan.resumed);
        let kind = if plan.resumed { HandshakeKind::Resumed } else { HandshakeKind::Full };
        prop_assert_eq!(pair.client.handshake_kind(), Some(kind));
        let name = if plan.tls13 { "TLSv1.3" } else { "TLSv1.2" };
        prop_assert_eq!(pair.server.session.version(), Some(name));
    }
}
