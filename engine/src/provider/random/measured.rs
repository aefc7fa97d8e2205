//! The cost of a server's handshake with each source of random bytes: printed, never asserted.

use std::sync::{Arc, Barrier};
use std::thread;

use rustix::time::{ClockId, clock_gettime};
use rustls::client::Resumption;
use rustls::version::TLS13;
use rustls::{ClientConfig, HandshakeKind};

use super::*;
use crate::buffer::Buffer;
use crate::hello::Hello;
use crate::session::tests::{World, client, deliver, flight};
use crate::session::{ServerSession, Session as _};

#[test]
#[ignore = "half a minute, and its figures are of a machine that does nothing else"]
fn cpu_by_who_makes_the_bytes() {
    if KernelRandom::open().is_none() {
        println!("this kernel has no generator in the process");
        return;
    }
    for (kind, lanes) in [(FULL, 1), (FULL, 2), (RESUMED, 1), (RESUMED, 2)] {
        let start = Barrier::new(lanes);
        let rounds: Vec<_> = thread::scope(|scope| {
            let lanes: Vec<_> =
                (0..lanes).map(|_| scope.spawn(|| handshake_rounds(kind, &start))).collect();
            lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
        });
        println!("{kind:?}, lanes at once {lanes}: server's us each, {}", told(&rounds));
    }
    let rounds: Vec<_> = (0..ROUNDS).map(|round| in_turn(round, draw_ns)).collect();
    println!("32 bytes: ns each, {}", told(&rounds));
}

/// The cost of both sources in each round of a lane, which begins when the other lanes do.
fn handshake_rounds(kind: HandshakeKind, start: &Barrier) -> Vec<[f64; 2]> {
    let lane = Lane::new(kind);
    lane.handshakes_us();
    start.wait();
    (0..ROUNDS).map(|round| in_turn(round, || lane.handshakes_us())).collect()
}

/// The cost of the kernel's bytes, and of our own. The first in one round is the last in the next.
fn in_turn(round: usize, mut cost: impl FnMut() -> f64) -> [f64; 2] {
    let mut costs = [0.0; 2];
    for turn in 0..2 {
        let maker = (round + turn) % 2;
        SOURCE.set(match maker {
            0 => Source::Kernel(KernelRandom::open().unwrap()),
            _ => Source::Ours(Generator::unseeded().unwrap()),
        });
        fill(&mut [0; 1]).unwrap();
        costs[maker] = cost();
    }
    costs
}

/// A server, the buffers that a lane would lend its sessions, and the settings of its clients.
struct Lane {
    kind: HandshakeKind,
    world: World,
    config: ClientConfig,
}

impl Lane {
    fn new(kind: HandshakeKind) -> Self {
        let world = World::new();
        let config = world.client_config(&TLS13);
        Self { kind, world, config }
    }

    /// Microseconds of processor time that one of the server's handshakes takes.
    fn handshakes_us(&self) -> f64 {
        let mut buffers = [(); 3].map(|()| Buffer::with_capacity(BUFFER_BYTES_LENT));
        let mut config = self.without_tickets();
        if self.kind == RESUMED {
            self.handshake_ns(&config, FULL, &mut buffers);
        }
        let mut sum_ns = 0.0;
        for _ in 0..HANDSHAKES_PER_ROUND {
            sum_ns += self.handshake_ns(&config, self.kind, &mut buffers);
            if self.kind == FULL {
                config = self.without_tickets();
            }
        }
        sum_ns / f64::from(HANDSHAKES_PER_ROUND) / 1e3
    }

    /// A client that takes tickets, as real ones do, and has none yet.
    fn without_tickets(&self) -> Arc<ClientConfig> {
        let mut config = self.config.clone();
        config.resumption = Resumption::in_memory_sessions(1);
        Arc::new(config)
    }

    /// From the hello to the answer that the tickets leave with; the client's part is not timed.
    fn handshake_ns(
        &self,
        config: &Arc<ClientConfig>,
        kind: HandshakeKind,
        [received, plain, wire]: &mut [Buffer; 3],
    ) -> f64 {
        let mut client = client(config);
        let (mut session, mut sum_ns) = timed(|| {
            ServerSession::new(self.world.context.admit(&Hello::default()).unwrap()).unwrap()
        });
        while client.is_handshaking() || !session.is_established() {
            let bytes = flight(&mut client);
            sum_ns += timed(|| {
                received.clear();
                assert_eq!(received.append(&bytes), bytes.len());
                session.feed(received.filled_mut(), plain, wire).unwrap();
            })
            .1;
            deliver(&mut client, wire.filled());
            wire.clear();
        }
        sum_ns += timed(|| session.seal(ANSWER, wire).unwrap()).1;
        assert_eq!(deliver(&mut client, wire.filled()).0, ANSWER);
        wire.clear();
        assert_eq!(client.handshake_kind(), Some(kind));
        sum_ns + timed(|| drop(session)).1
    }
}

/// Nanoseconds that a server random's worth of bytes takes.
fn draw_ns() -> f64 {
    let draw = || (0..DRAWS_PER_ROUND).for_each(|_| fill(&mut [0; 32]).unwrap());
    timed(draw).1 / f64::from(DRAWS_PER_ROUND)
}

/// Runs `work` and returns its result and the nanoseconds of processor time that it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let before = clock_gettime(ClockId::ThreadCPUTime);
    let done = work();
    let after = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = (after.tv_sec - before.tv_sec) as f64;
    (done, seconds * 1e9 + (after.tv_nsec - before.tv_nsec) as f64)
}

/// Both costs and their ratio: the median, and in brackets the least and the most.
fn told(rounds: &[[f64; 2]]) -> String {
    let spread = |of: fn(&[f64; 2]) -> f64| {
        let mut all: Vec<_> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        format!("{:.3} [{:.3}-{:.3}]", all[all.len() / 2], all[0], all[all.len() - 1])
    };
    let (kernel, ours) = (spread(|round| round[0]), spread(|round| round[1]));
    format!("kernel {kernel}, ours {ours}, kernel / ours {}", spread(|round| round[0] / round[1]))
}

const FULL: HandshakeKind = HandshakeKind::Full;
const RESUMED: HandshakeKind = HandshakeKind::Resumed;
const ROUNDS: usize = 61;
const HANDSHAKES_PER_ROUND: u32 = 200;
const DRAWS_PER_ROUND: u32 = 100_000;
const BUFFER_BYTES_LENT: usize = 1 << 16;
const ANSWER: &[u8] = b"answer";
