//! The standing of clients: whether those of an address complete the handshakes that they begin.
//!
//! A client of a storm that leaves, or that never answers, costs a signature each time. Clients of
//! an address that has completed handshakes of late go before it when a lane has more handshakes
//! than it can make.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};

/// The clients' addresses of one lane, in a table of fixed size. Two addresses of one entry share
/// their standing; the table's secret is new in each process, so no client can choose its entry.
pub(super) struct Standings {
    entries: Box<[Entry]>,
    random: RandomState,
}

/// Whether clients of an address complete their handshakes. The order is that of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// They have completed some of late, at least one for [`ANSWERS_PER_COMPLETED`] answers.
    Good,
    /// None has been completed of late, and few have been answered.
    Unknown,
    /// The lane has answered some that were not completed.
    Poor,
}

/// Handshakes of the addresses of an entry. The last two numbers are halved every [`HALF_LIFE`].
#[derive(Clone, Copy, Default)]
struct Entry {
    /// The time of the last change, in units of [`TICK_MS`] since the lane started.
    tick: u32,
    /// Those that the lane has answered in this tick, and that are not completed.
    fresh: u16,
    /// Those that it has answered before, and that are not completed.
    overdue: u16,
    completed: u16,
}

/// Entries of a lane: 48 KiB.
const ENTRIES: usize = 4096;
/// The time in which a client can complete its handshake before it counts against its address.
const TICK_MS: u64 = 500;
/// The time in which half of an address's record is forgotten, in ticks: 10 s.
const HALF_LIFE: u32 = 20;
/// Answers without an end to each completed handshake with which a standing is still good: clients
/// behind one address translator, some of which are slow.
const ANSWERS_PER_COMPLETED: u16 = 4;
/// Answers without an end with which a standing is still unknown: a browser's first connections.
const UNPROVEN_MAX: u16 = 2;

impl Standings {
    pub(super) fn new() -> Self {
        Self { entries: vec![Entry::default(); ENTRIES].into(), random: RandomState::new() }
    }

    /// The standing of the clients of `host`.
    pub(super) fn of(&mut self, host: Host, now_ms: u64) -> Standing {
        let Entry { overdue, completed, .. } = *self.entry(host, now_ms);
        if completed > 0 && overdue <= completed.saturating_mul(ANSWERS_PER_COMPLETED) {
            Standing::Good
        } else if overdue <= UNPROVEN_MAX {
            Standing::Unknown
        } else {
            Standing::Poor
        }
    }

    /// Notes a handshake that the lane has answered, at the cost of a signature.
    pub(super) fn note_answered(&mut self, host: Host, now_ms: u64) {
        let entry = self.entry(host, now_ms);
        entry.fresh = entry.fresh.saturating_add(1);
    }

    /// Notes a handshake that the client has completed.
    pub(super) fn note_completed(&mut self, host: Host, now_ms: u64) {
        let entry = self.entry(host, now_ms);
        if entry.overdue > 0 {
            entry.overdue -= 1;
        } else {
            entry.fresh = entry.fresh.saturating_sub(1);
        }
        entry.completed = entry.completed.saturating_add(1);
    }

    /// The entry of `host` as of now.
    fn entry(&mut self, host: Host, now_ms: u64) -> &mut Entry {
        let index = self.random.hash_one(host.0) % ENTRIES as u64;
        let entry = &mut self.entries[usize::try_from(index).unwrap_or_default()];
        let tick = u32::try_from(now_ms / TICK_MS).unwrap_or(u32::MAX);
        if tick != entry.tick {
            let halvings = (tick / HALF_LIFE).saturating_sub(entry.tick / HALF_LIFE);
            let overdue = entry.overdue.saturating_add(std::mem::take(&mut entry.fresh));
            entry.overdue = overdue.checked_shr(halvings).unwrap_or_default();
            entry.completed = entry.completed.checked_shr(halvings).unwrap_or_default();
            entry.tick = tick;
        }
        entry
    }
}

/// One client's address: of IPv6 the first 64 bits, which one client can have all addresses of.
/// Clients of a unix socket are one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host(u128);

/// Neighbouring addresses, which share the lane's time fairly with other prefixes: a /24 of IPv4,
/// a /56 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Prefix(u128);

impl Host {
    pub(super) fn of(address: Option<SocketAddr>) -> Self {
        Self(match address.map(|address| address.ip().to_canonical()) {
            Some(IpAddr::V4(address)) => u128::from(address.to_bits()),
            Some(IpAddr::V6(address)) => address.to_bits() >> 64 << 64,
            None => u128::MAX,
        })
    }

    pub(super) fn prefix(self) -> Prefix {
        match u32::try_from(self.0) {
            Ok(v4) => Prefix(u128::from(v4 >> 8 << 8)),
            Err(_) => Prefix(self.0 >> 72 << 72),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(address: &str) -> Host {
        Host::of(Some(SocketAddr::new(address.parse().unwrap(), 1)))
    }

    const HALF_LIFE_MS: u64 = HALF_LIFE as u64 * TICK_MS;

    #[test]
    fn completed_handshakes_make_a_good_standing() {
        let (mut standings, here) = (Standings::new(), host("192.0.2.1"));
        assert_eq!(standings.of(here, 0), Standing::Unknown);
        standings.note_answered(here, 0);
        standings.note_completed(here, 0);
        for _ in 0..ANSWERS_PER_COMPLETED {
            standings.note_answered(here, 0);
        }
        assert_eq!(standings.of(here, TICK_MS), Standing::Good);
        standings.note_answered(here, TICK_MS);
        assert_eq!(standings.of(here, 2 * TICK_MS), Standing::Poor);
        standings.note_completed(here, 2 * TICK_MS);
        assert_eq!(standings.of(here, 2 * TICK_MS), Standing::Good);
    }

    #[test]
    fn answers_without_an_end_make_a_poor_standing() {
        let (mut standings, here) = (Standings::new(), host("2001:db8::1"));
        for _ in 0..UNPROVEN_MAX {
            standings.note_answered(here, 0);
        }
        assert_eq!(standings.of(here, TICK_MS), Standing::Unknown);
        standings.note_answered(here, TICK_MS);
        assert_eq!(standings.of(here, TICK_MS), Standing::Unknown, "it may still complete");
        assert_eq!(standings.of(here, 2 * TICK_MS), Standing::Poor);
        assert_eq!(standings.of(host("2001:db8::2"), 2 * TICK_MS), Standing::Poor, "the same /64");
    }

    #[test]
    fn standing_is_forgotten() {
        let (mut standings, here) = (Standings::new(), host("192.0.2.1"));
        for _ in 0..100 {
            standings.note_answered(here, 0);
        }
        assert_eq!(standings.of(here, 5 * HALF_LIFE_MS), Standing::Poor);
        assert_eq!(standings.of(here, 7 * HALF_LIFE_MS), Standing::Unknown);
        standings.note_completed(here, 7 * HALF_LIFE_MS);
        assert_eq!(standings.of(here, 7 * HALF_LIFE_MS + 1), Standing::Good);
        assert_eq!(standings.of(here, u64::MAX), Standing::Unknown);
    }

    #[test]
    fn prefixes_are_of_a_network() {
        let prefix = |address| host(address).prefix();
        assert_eq!(prefix("192.0.2.1"), prefix("192.0.2.255"));
        assert_eq!(prefix("192.0.2.1"), prefix("::ffff:192.0.2.9"));
        assert_ne!(prefix("192.0.2.1"), prefix("192.0.3.1"));
        assert_eq!(prefix("2001:db8:0:100::1"), prefix("2001:db8:0:1ff::1"));
        assert_ne!(prefix("2001:db8:0:100::1"), prefix("2001:db8:0:200::1"));
        assert_ne!(Host::of(None), host("255.255.255.255"));
    }
}
