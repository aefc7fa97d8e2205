//! Contexts swapped while eight threads connect.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::*;

/// The values that the threads share.
struct Shared {
    /// Odd generations trust the first server's issuer, even ones the second's.
    servers: [Arc<ServerConfig>; 2],
    slot: ContextSlot,
    handshakes: AtomicU64,
    /// The newest generation that a handshake began under.
    newest: AtomicU64,
    done: AtomicBool,
}

#[test]
fn every_handshake_sees_exactly_one_generation_and_every_context_ends() {
    let authorities = ["odd", "even"].map(Authority::new);
    let mut contexts = ClientContexts::new();
    let slot = ContextSlot::new(contexts.context(&authorities[0].options()).unwrap());
    let servers = [0, 1].map(|index| authorities[index].server("one.test", None));
    let (handshakes, newest, done) = Default::default();
    let shared = Shared { servers, slot, handshakes, newest, done };
    std::thread::scope(|scope| {
        let _done = Done(&shared.done);
        for _ in 0..THREADS {
            scope.spawn(|| connect_until_done(&shared));
        }
        for swap in 1..=SWAPS {
            wait_for_handshakes(&shared, u64::from(swap));
            let authority = &authorities[usize::from(swap % 2)];
            // Differs from all before it, so each swap builds and each must be freed.
            let alpn = vec![swap.to_be_bytes().to_vec()];
            let options = ClientOptions { alpn, ..authority.options() };
            let generation = shared.slot.publish(&contexts.context(&options).unwrap());
            assert_eq!(generation, u64::from(swap) + 1);
        }
        wait_for_handshakes(&shared, u64::from(SWAPS) + 1);
    });
    drop(shared);
    let counts = contexts.counts();
    assert_eq!((counts.built, counts.freed), (u64::from(SWAPS) + 1, u64::from(SWAPS) + 1));
}

/// Ends the threads however the test ends.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connects to both servers in turn.
fn connect_until_done(shared: &Shared) {
    let mut lane = lane(&shared.slot);
    while !shared.done.load(Ordering::Relaxed) {
        for (server, parity) in shared.servers.iter().zip([1, 0]) {
            let outcome = connect(&mut lane, "one.test", server);
            shared.newest.fetch_max(lane.generation(), Ordering::Relaxed);
            match outcome {
                Ok(_) => assert_eq!(lane.generation() % 2, parity, "it trusts another root"),
                Err(error) => {
                    assert_ne!(lane.generation() % 2, parity, "{error}");
                    assert!(error.to_string().contains("none of the trusted roots"), "{error}");
                }
            }
            shared.handshakes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Waits until `generation` was seen, after its share of handshakes.
fn wait_for_handshakes(shared: &Shared, generation: u64) {
    let deadline = Instant::now() + PATIENCE;
    while shared.newest.load(Ordering::Relaxed) < generation
        || shared.handshakes.load(Ordering::Relaxed) < generation * HANDSHAKES_PER_SWAP
    {
        assert!(Instant::now() < deadline, "nobody saw generation {generation}");
        std::thread::yield_now();
    }
}

const THREADS: usize = 8;
const SWAPS: u16 = 200;
const HANDSHAKES_PER_SWAP: u64 = 8;
