//! Where plaintext goes: the backends of a destination, and which of them a connection gets.

mod counters;
mod drained;
mod memory;
mod plan;
mod selection;
mod target;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use sealane_config::{AcceptProxy, BACKENDS_MAX, Balance, ProxyHeader, Share, Spoken};
use sealane_engine::client::ClientContext;
use sealane_engine::policy::newest_version;
use sealane_lanes::kernel::Address;
use sealane_lanes::liveness::Liveness;

use crate::admission::Admission;
use crate::challenges::Responder;

pub use counters::{BackendCounters, HANDSHAKE_FAILURES, monotonic_ms};
pub use drained::Drained;
pub use memory::LaneMemory;
pub use plan::{PlannedBackend, places};
pub use selection::Unavailable;
use selection::{Candidate, least_loaded, members, preferred, take_turn};
pub use target::Target;

/// What the relay knows of one listener: shared by all lanes and read-only, but for each lane's own
/// counters, which live in memory of their own.
#[derive(Clone)]
pub struct RelaySettings {
    /// The listener's name, for logs.
    pub listener: String,
    /// Whose PROXY header tells who the client is; without it connections have none.
    pub accept_proxy: Option<AcceptProxy>,
    /// Whom it lets in.
    pub admission: Arc<Admission>,
    /// One attempt to connect.
    pub connect_timeout: Duration,
    /// Where plaintext goes: first of the listener itself.
    pub destinations: Vec<Destination>,
    /// Where requests go that are redirected.
    pub https_port: u16,
    /// How the kernel finds out that a backend is gone.
    pub liveness: Liveness,
    /// Where clients go, by the number of their name; 0 is of those without a route by name.
    pub names: Arc<[NameRoutes]>,
    /// What answers challenges of ACME clients where requests are redirected, if something does:
    /// then it is the one backend.
    pub responder: Option<Arc<Responder>>,
    /// What clients speak.
    pub spoken: Spoken,
}

/// Where clients of a name go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameRoutes {
    /// With whom one of these protocols was agreed on: the position of their destination.
    pub by_alpn: Vec<(Vec<u8>, u32)>,
    /// The position of everybody else's.
    pub otherwise: u32,
}

/// Where plaintext goes.
#[derive(Clone)]
pub struct Destination {
    /// At most [`BACKENDS_MAX`].
    pub backends: Vec<Backend>,
    /// How one is chosen.
    pub balance: Balance,
    /// By lane: what it remembers of its choices; of one backend there is none.
    pub memories: Vec<Arc<LaneMemory>>,
    /// What the backends are made of, for when their names lead elsewhere.
    pub planned: Arc<[PlannedBackend]>,
    /// The PROXY header with which each backend connection begins.
    pub proxy_header: ProxyHeader,
    /// From being up again to the whole share; 0: at once.
    pub slow_start_ms: u64,
}

/// One backend.
#[derive(Clone)]
pub struct Backend {
    /// Where it listens.
    pub address: Address,
    /// The backend as it was written, for logs and metrics.
    pub label: String,
    /// How much a lane gives it.
    pub share: LaneShare,
    /// How it is checked, if it is.
    pub target: Option<Arc<Target>>,
    /// How it is spoken to in TLS, if it is.
    pub tls: Option<BackendTls>,
    /// By lane: what that lane knows of it.
    pub lanes: Vec<Arc<BackendCounters>>,
}

/// How much of a lane's connections a backend gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneShare {
    /// Connections that it may have of the lane.
    pub connections_max: u64,
    /// Whether it is for when all others are away.
    pub is_backup: bool,
    /// The backend's share beside the weights of others; 0: it gets nothing new.
    pub weight: u16,
}

impl LaneShare {
    /// The part of `share` that each of `lanes` gives.
    pub fn of(share: Share, lanes: NonZeroUsize) -> Self {
        let Share { is_backup, weight, .. } = share;
        let part = share.connections_per_lane(lanes);
        Self { connections_max: part.map_or(u64::MAX, |part| part as u64), is_backup, weight }
    }
}

/// What TLS with a backend takes.
#[derive(Clone)]
pub struct BackendTls {
    /// Shared by all whose options are equal; lanes speak with their own replica.
    pub context: Arc<ClientContext>,
    /// The name that it must prove.
    pub name: ServerName<'static>,
}

/// Into so many steps of its weight the slow start of a backend is divided.
const SLOW_STEPS: u64 = 256;

impl RelaySettings {
    /// Whether some backends are told all that a PROXY header told us.
    pub fn passes_all(&self) -> bool {
        let passes = |to: &Destination| matches!(to.proxy_header, ProxyHeader::Pass(_));
        self.destinations.iter().any(passes)
    }

    /// The position of the destination for a client whose name has `number`, and with whom `alpn`
    /// was agreed on.
    pub fn destination_for(&self, number: u32, alpn: Option<&[u8]>) -> u32 {
        let index = usize::try_from(number).ok();
        let Some(routes) = index.and_then(|index| self.names.get(index)) else { return 0 };
        let of = |alpn: &[u8]| routes.by_alpn.iter().find(|(protocol, _)| **protocol == *alpn);
        let agreed = alpn.and_then(|alpn| of(alpn).or_else(|| of(newest_version(alpn))));
        agreed.map_or(routes.otherwise, |(_, position)| *position)
    }
}

impl Destination {
    /// The backend for a connection on `lane` that has tried those whose bits are set in `tried`.
    ///
    /// # Errors
    /// There is none that it may have.
    pub fn choose(&self, lane: usize, tried: u64, now_ms: u64) -> Result<usize, Unavailable> {
        if self.backends.is_empty() {
            return Err(Unavailable::Unresolved);
        }
        let memory = self.memories.get(lane).map(|memory| &**memory);
        let down = memory.map_or(0, LaneMemory::down);
        let candidate = |index: usize| {
            let counters = self.of_lane(index, lane);
            let share = self.backends[index].share;
            Candidate {
                active: counters.active.value(),
                active_max: share.connections_max,
                is_backup: share.is_backup,
                is_down: down & (1 << index) != 0,
                backoff_until_ms: counters.backoff_until_ms(),
                weight: if counters.is_drained() { 0 } else { self.weight(index, memory, now_ms) },
            }
        };
        let all = u64::MAX >> (BACKENDS_MAX - self.backends.len().min(BACKENDS_MAX));
        let mut among = preferred(all & !tried, now_ms, candidate)?;
        if self.balance == Balance::LeastConnections {
            among = least_loaded(among, candidate);
        }
        let Some(memory) = memory else {
            return members(among).next().ok_or(Unavailable::Nobody);
        };
        let credit = |index: usize| memory.credit(index);
        let set_credit = |index: usize, value: i64| memory.set_credit(index, value);
        let weight = |index: usize| {
            i64::try_from(self.weight(index, Some(memory), now_ms)).unwrap_or(i64::MAX)
        };
        Ok(take_turn(among, weight, credit, set_credit))
    }

    /// The weight of the backend at `index` beside others: one that has come back gets less at
    /// first, but something, unless it is to get nothing.
    fn weight(&self, index: usize, memory: Option<&LaneMemory>, now_ms: u64) -> u64 {
        let whole = u64::from(self.backends[index].share.weight) * SLOW_STEPS;
        let back_for_ms = memory
            .filter(|_| self.slow_start_ms > 0)
            .and_then(|memory| memory.back_for_ms(index, now_ms))
            .filter(|back_for_ms| *back_for_ms < self.slow_start_ms);
        match back_for_ms {
            None => whole,
            Some(back_for_ms) => (whole * back_for_ms / self.slow_start_ms).max(whole.min(1)),
        }
    }

    /// What `lane` knows of the backend at `index`.
    pub fn of_lane(&self, index: usize, lane: usize) -> &BackendCounters {
        &self.backends[index].lanes[lane]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(count: usize, balance: Balance) -> Destination {
        let backend = |port| Backend {
            address: Address::Tcp(std::net::SocketAddr::from(([127, 0, 0, 1], port))),
            label: port.to_string(),
            share: LaneShare::of(Share::default(), NonZeroUsize::MIN),
            target: None,
            tls: None,
            lanes: vec![Arc::default(), Arc::default()],
        };
        Destination {
            backends: (1u16..).take(count).map(backend).collect(),
            balance,
            proxy_header: ProxyHeader::Off,
            slow_start_ms: 0,
            memories: (0..2).map(|_| Arc::new(LaneMemory::of(count, 0))).collect(),
            planned: Arc::default(),
        }
    }

    #[test]
    fn a_name_and_what_was_agreed_on_lead_to_a_destination() {
        let settings = RelaySettings {
            listener: "web".into(),
            accept_proxy: None,
            admission: Arc::default(),
            connect_timeout: Duration::from_secs(5),
            destinations: Vec::new(),
            https_port: 443,
            liveness: Liveness::default(),
            responder: None,
            spoken: Spoken::Tls,
            names: Arc::new([
                NameRoutes { by_alpn: vec![(b"smtp".to_vec(), 4)], otherwise: 0 },
                NameRoutes { by_alpn: vec![(b"h2".to_vec(), 3)], otherwise: 1 },
                NameRoutes { by_alpn: Vec::new(), otherwise: 2 },
                NameRoutes { by_alpn: vec![(b"http/1.1".to_vec(), 5)], otherwise: 0 },
            ]),
        };
        for (number, alpn, expected) in [
            (0, Some(&b"h2"[..]), 0),
            (0, Some(b"smtp"), 4),
            (1, Some(b"h2"), 3),
            (1, Some(b"http/1.1"), 1),
            (1, None, 1),
            (2, Some(b"h2"), 2),
            (3, Some(b"http/1.0"), 5),
            (3, Some(b"h2"), 0),
            (4, None, 0),
        ] {
            assert_eq!(settings.destination_for(number, alpn), expected, "{number} {alpn:?}");
        }
    }

    #[test]
    fn round_robin_takes_turns_on_each_lane_for_itself() {
        let destination = destination(3, Balance::RoundRobin);
        let turns: Vec<_> = (0..5).map(|_| destination.choose(0, 0, 0).unwrap()).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1]);
        assert_eq!(destination.choose(1, 0, 0), Ok(0), "the other lane starts at its own place");
    }

    #[test]
    fn least_connections_takes_the_idlest_and_turns_among_equals() {
        let destination = destination(3, Balance::LeastConnections);
        destination.of_lane(0, 0).active.add(2);
        destination.of_lane(1, 0).active.add(1);
        destination.of_lane(2, 0).active.add(1);
        assert_eq!(destination.choose(0, 0, 0), Ok(1));
        assert_eq!(destination.choose(0, 0, 0), Ok(2), "equals take turns");
    }

    #[test]
    fn a_failed_backend_rests_longer_each_time_and_a_success_ends_it() {
        let destination = destination(2, Balance::RoundRobin);
        let first = destination.of_lane(0, 0);
        first.note_failure(0);
        assert_eq!(destination.choose(0, 0, 999), Ok(1));
        assert_eq!(destination.choose(0, 0, 999), Ok(1), "the first still rests");
        assert!(first.backoff_until_ms() <= 1_000);
        first.note_failure(1_000);
        assert!(first.backoff_until_ms() == 3_000);
        for _ in 0..100 {
            first.note_failure(0);
        }
        assert!(first.backoff_until_ms() == 32_000, "bounded");
        first.note_success();
        assert!(first.backoff_until_ms() == 0 && !first.is_failing());
    }

    #[test]
    fn a_drained_backend_gets_nothing_until_it_is_put_back() {
        let destination = destination(2, Balance::RoundRobin);
        destination.of_lane(0, 0).drain(true);
        assert_eq!(destination.choose(0, 0, 0), Ok(1));
        let none = Err(Unavailable::Nobody);
        assert_eq!(destination.choose(0, 0b10, 0), none, "not even if nothing else is left");
        assert_eq!(destination.choose(1, 0, 0), Ok(0), "each lane is told for itself");
        destination.of_lane(0, 0).drain(false);
        assert_eq!(destination.choose(0, 0b10, 0), Ok(0));
    }

    #[test]
    fn when_all_rest_the_one_that_wakes_first_is_tried_and_nothing_twice() {
        let destination = destination(2, Balance::RoundRobin);
        destination.of_lane(0, 0).note_failure(500);
        destination.of_lane(1, 0).note_failure(0);
        assert_eq!(destination.choose(0, 0, 600), Ok(1));
        assert_eq!(destination.choose(0, 0b10, 600), Ok(0));
        assert_eq!(destination.choose(0, 0b11, 600), Err(Unavailable::Nobody));
    }

    #[test]
    fn each_lane_has_its_share_of_turns_and_of_connections_and_backups_wait() {
        let mut destination = destination(3, Balance::RoundRobin);
        let lanes = NonZeroUsize::new(2).unwrap();
        let share = |weight, connections, is_backup| {
            LaneShare::of(
                Share { connections_max: NonZeroUsize::new(connections), is_backup, weight },
                lanes,
            )
        };
        // Of seven connections a lane has three: together they never have more.
        let shares = [share(2, 7, false), share(1, 0, false), share(1, 2, true)];
        for (backend, share) in destination.backends.iter_mut().zip(shares) {
            backend.share = share;
        }
        let turns: Vec<_> = (0..6).map(|_| destination.choose(0, 0, 0).unwrap()).collect();
        assert_eq!(turns, [0, 1, 0, 0, 1, 0]);
        destination.of_lane(0, 0).active.add(3);
        assert_eq!(destination.choose(0, 0, 0), Ok(1), "the first is full");
        assert_eq!(destination.choose(0, 0b10, 0), Ok(2), "the backup stands in");
        destination.of_lane(2, 0).active.add(1);
        assert_eq!(destination.choose(0, 0b10, 0), Err(Unavailable::Full));
        destination.backends[1].share.weight = 0;
        assert_eq!(destination.choose(0, 0, 0), Err(Unavailable::Full), "one is to be left alone");
    }

    #[test]
    fn who_is_down_comes_last_and_who_comes_back_gets_more_by_and_by() {
        let mut destination = destination(2, Balance::RoundRobin);
        destination.slow_start_ms = 1_000;
        let choose = |now_ms| destination.choose(0, 0, now_ms).unwrap();
        destination.memories[0].note_checked(0b01, 10);
        assert_eq!([choose(10), choose(10), choose(10)], [1, 1, 1]);
        assert_eq!(destination.choose(0, 0b10, 10), Ok(0), "but it is not given up");
        assert_eq!(destination.choose(1, 0, 10), Ok(0), "the other lane has not heard yet");
        destination.memories[0].note_checked(0, 1_000);
        let share = |from_ms| (0..100).filter(|_| choose(from_ms) == 0).count();
        assert!(share(1_001) <= 1);
        assert!((19..=21).contains(&share(1_250)));
        assert!((49..=51).contains(&share(2_000)));
        destination.memories[0].note_checked(0b11, 3_000);
        assert!(destination.choose(0, 0, 3_000).is_ok(), "when all are down, one is tried");
    }
}
