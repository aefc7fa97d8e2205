//! What a lane counts: written by that lane alone, read by whoever asks.
//!
//! A counter is an atomic only so that another thread may read it. Its lane adds with a plain load
//! and store, never with a locked instruction, and no two lanes' counters share a cache line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sealane_engine::policy::Group;
use sealane_engine::session::ServerSession;

use crate::cause::Cause;

/// Everything one lane counts.
#[derive(Debug, Default)]
#[repr(align(128))] // two cache lines: the neighbour line is prefetched along
pub struct Counters {
    /// Connections taken off the listeners' queues.
    pub accepted: Counter,
    /// Failed calls of accept4(2), such as for want of descriptors.
    pub accept_errors: Counter,
    /// Connections open now.
    pub connections: Counter,
    /// Open connections that are in their handshake.
    pub handshaking: Counter,
    /// Bytes of plaintext received from clients.
    pub received_bytes: Counter,
    /// Bytes of plaintext sent to clients.
    pub sent_bytes: Counter,
    /// Hellos that wait for the lane, which has more of them than a turn has time for.
    pub hellos_waiting: Counter,
    /// Clients that left while their hello waited; they cost no signature.
    pub left_waiting: Counter,
    /// The moving average of the lane's time for a hello, in microseconds; 0 before the first of
    /// several was measured.
    pub hello_us: Counter,
    /// Completed handshakes.
    pub handshakes: Handshakes,
    /// Completed handshakes of TLS 1.2 without extended master secret.
    pub handshakes_without_ems: Counter,
    /// From accept to the end of a completed handshake.
    pub handshake_time: Histogram,
    /// Ended connections by [`Cause`].
    ends: Ends,
    /// Clients that were let in by a revocation list that had ended.
    pub clients_by_ended_lists: Counter,
    /// Private keys decoded because a hello needed one that was not at hand.
    pub keys_decoded: Counter,
    /// Decoded keys dropped to make room for others.
    pub keys_evicted: Counter,
    /// Private keys that could not be decoded; `sealane check` says which and why.
    pub keys_failed: Counter,
    /// Private keys unsealed out of a certificate store.
    pub keys_opened: Counter,
    /// Reads of a certificate store that failed; `sealane certificates verify` says why.
    pub store_failures: Counter,
    /// Connections that were cut because their handler panicked.
    pub panics: Counter,
    /// The generation that new connections get.
    pub generation: Counter,
    /// Turns of the event loop.
    pub turns: Counter,
    /// What the lane was last asked to answer.
    pub answered: Counter,
}

impl Counters {
    /// How many connections ended by `cause`.
    pub fn ended(&self, cause: Cause) -> &Counter {
        &self.ends.0[cause as usize]
    }

    /// Handshakes that were reset because the lane had more than it could make.
    pub fn gave_way(&self) -> u64 {
        let causes = [Cause::LimitHandshakeQueue, Cause::LimitHandshakeWait];
        causes.iter().map(|cause| self.ended(*cause).value()).sum()
    }
}

/// A counter for each cause: the standard library makes arrays of 32 by default, and none longer.
#[derive(Debug)]
struct Ends([Counter; Cause::ALL.len()]);

impl Default for Ends {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

/// A number that one thread writes and others may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The value, as of some moment not long ago.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds `count`; only the owning lane may call this.
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Takes `count` off; only the owning lane may call this.
    pub fn subtract(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).saturating_sub(count), Relaxed);
    }

    /// Sets the value; only the owning lane may call this.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
}

/// Completed handshakes by version, group and whether they were resumed.
#[derive(Debug, Default)]
pub struct Handshakes([[[Counter; GROUPS]; 2]; 2]);

const GROUPS: usize = Group::ALL.len() + 1;

impl Handshakes {
    pub(crate) fn count(&self, session: &ServerSession) {
        let version = usize::from(session.version() == Some("TLSv1.3"));
        let group = session
            .group()
            .and_then(|name| Group::ALL.iter().position(|group| group.name() == name));
        let group = group.unwrap_or(Group::ALL.len());
        self.0[version][usize::from(session.resumed())][group].add(1);
    }

    /// Every cell as (version, resumed, group, count); the group is `none` where a resumed TLS 1.2
    /// session needed no key exchange.
    pub fn cells(&self) -> impl Iterator<Item = (&'static str, bool, &'static str, u64)> {
        self.0.iter().zip(["TLSv1.2", "TLSv1.3"]).flat_map(|(by_resumed, version)| {
            by_resumed.iter().zip([false, true]).flat_map(move |(by_group, resumed)| {
                let names = Group::ALL.iter().map(|group| group.name()).chain(["none"]);
                by_group
                    .iter()
                    .zip(names)
                    .map(move |(counter, group)| (version, resumed, group, counter.value()))
            })
        })
    }

    /// Completed handshakes in all.
    pub fn total(&self) -> u64 {
        self.cells().map(|(.., count)| count).sum()
    }
}

/// A histogram with fixed bounds in microseconds.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; Self::BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    /// Upper bounds of the buckets; the last bucket has none.
    pub const BOUNDS_US: [u64; 14] = [
        100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
        1_000_000, 5_000_000,
    ];

    pub(crate) fn record(&self, value_us: u64) {
        let bucket = Self::BOUNDS_US.partition_point(|bound| *bound < value_us);
        self.buckets[bucket].add(1);
        self.sum_us.add(value_us);
    }

    /// How many values lie at or below each bound, ending with all of them.
    pub fn cumulative(&self) -> [u64; Self::BOUNDS_US.len() + 1] {
        let mut sum = 0;
        std::array::from_fn(|bucket| {
            sum += self.buckets[bucket].value();
            sum
        })
    }

    /// Sum of all values.
    pub fn sum_us(&self) -> u64 {
        self.sum_us.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_at_and_below_each_bound() {
        let histogram = Histogram::default();
        for value_us in [100, 101, 9_000_000] {
            histogram.record(value_us);
        }
        let counts = histogram.cumulative();
        assert_eq!((counts[0], counts[1], counts[13], counts[14]), (1, 2, 2, 3));
        assert_eq!(histogram.sum_us(), 9_000_201);
    }

    #[test]
    fn every_combination_has_a_cell_of_its_own() {
        let handshakes = Handshakes::default();
        handshakes.0[1][0][1].add(3);
        let named: Vec<_> = handshakes.cells().filter(|cell| cell.3 > 0).collect();
        assert_eq!(named, [("TLSv1.3", false, "X25519", 3)]);
        assert_eq!(handshakes.cells().count(), 2 * 2 * 5);
    }
}
