//! Where plaintext goes: which backend a connection gets, and when a failed one rests.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use sealane_engine::client::ClientContext;
use sealane_lanes::cause::Cause;
use sealane_lanes::counters::Counter;
use sealane_lanes::kernel::Address;
use sealane_lanes::liveness::Liveness;

use crate::challenges::Responder;
use crate::config::{AcceptProxy, Balance, ProxyHeader, Spoken};
use crate::relay::Admission;

/// What the relay knows of one listener: shared by all lanes and read-only, but for each lane's own
/// counters, which live in memory of their own.
pub struct RelaySettings {
    /// The listener's name, for logs.
    pub listener: String,
    /// Whose PROXY header tells who the client is; without it connections have none.
    pub accept_proxy: Option<AcceptProxy>,
    /// Whom it lets in.
    pub admission: Admission,
    /// One attempt to connect.
    pub connect_timeout: Duration,
    /// Where plaintext goes: first of the listener itself.
    pub destinations: Vec<Destination>,
    /// Where requests go that are redirected.
    pub https_port: u16,
    /// How the kernel finds out that a backend is gone.
    pub liveness: Liveness,
    /// Where clients of some names go, in the order of their numbers, which begin with 1.
    pub names: Vec<NameRoutes>,
    /// What answers challenges of ACME clients where requests are redirected, if something does:
    /// then it is the one backend.
    pub responder: Option<Arc<Responder>>,
    /// What clients speak.
    pub spoken: Spoken,
}

/// Where clients of some names go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameRoutes {
    /// With whom one of these protocols was agreed on: the position of their destination.
    pub by_alpn: Vec<(Vec<u8>, u32)>,
    /// The position of everybody else's.
    pub otherwise: u32,
}

/// Where plaintext goes.
pub struct Destination {
    /// At most [`BACKENDS_MAX`].
    pub backends: Vec<Backend>,
    /// How one is chosen.
    pub balance: Balance,
    /// The PROXY header with which each backend connection begins.
    pub proxy_header: ProxyHeader,
    /// By lane: where the round robin stands; of one backend there is none.
    pub cursors: Vec<Arc<Cursor>>,
}

/// One backend.
pub struct Backend {
    /// Where it listens.
    pub address: Address,
    /// As it was written, for logs and metrics.
    pub label: String,
    /// How it is spoken to in TLS, if it is.
    pub tls: Option<BackendTls>,
    /// By lane: what that lane knows of it.
    pub lanes: Vec<Arc<BackendCounters>>,
}

/// What TLS with a backend takes.
#[derive(Clone)]
pub struct BackendTls {
    /// Shared by all whose options are equal; lanes speak with their own replica.
    pub context: Arc<ClientContext>,
    /// The name that it must prove.
    pub name: ServerName<'static>,
}

/// Backends of one destination: what a connection has tried fits in 64 bits.
pub const BACKENDS_MAX: usize = 64;

/// A lane's place in the round robin.
#[derive(Default)]
#[repr(align(128))]
pub struct Cursor(pub Counter);

/// What one lane counts for one backend, and until when it lets it rest. Kept across generations.
#[derive(Default)]
#[repr(align(128))]
pub struct BackendCounters {
    /// Connections open or being opened.
    pub active: Counter,
    /// Connections that were established, TLS included.
    pub connected: Counter,
    /// Failed attempts to connect, TLS included.
    pub failed: Counter,
    /// Completed TLS handshakes in which it proved its name by its certificate.
    pub full_handshakes: Counter,
    /// Completed TLS handshakes that resumed a session.
    pub resumed_handshakes: Counter,
    /// Failed TLS handshakes by [`HANDSHAKE_FAILURES`].
    handshake_failures: [Counter; HANDSHAKE_FAILURES.len()],
    /// Failures since the last success.
    failed_in_a_row: Counter,
    /// Whether an operator wants it to get no new connections: 1, or 0.
    drained: Counter,
    /// Until when it is not chosen, in milliseconds of its lane's clock; 0: it does not rest.
    rests_until_ms: Counter,
}

impl BackendCounters {
    /// The backend took a connection, and completed the handshake if TLS is spoken.
    pub fn note_success(&self) {
        self.connected.add(1);
        if self.failed_in_a_row.value() > 0 {
            self.failed_in_a_row.set(0);
            self.rests_until_ms.set(0);
        }
    }

    /// The backend refused, or did not answer in time: it rests, longer with every failure.
    pub fn note_failure(&self, now_ms: u64) {
        self.failed.add(1);
        self.failed_in_a_row.add(1);
        let doublings = (self.failed_in_a_row.value() - 1).min(REST_DOUBLINGS_MAX);
        self.rests_until_ms.set(now_ms + (REST_MS << doublings));
    }

    /// A TLS handshake was completed.
    pub fn note_handshake(&self, resumed: bool) {
        if resumed { self.resumed_handshakes.add(1) } else { self.full_handshakes.add(1) }
    }

    /// A TLS handshake failed; causes that are none of [`HANDSHAKE_FAILURES`] are not counted.
    pub fn note_handshake_failure(&self, cause: Cause) {
        let position = HANDSHAKE_FAILURES.iter().position(|failure| *failure == cause);
        if let Some(position) = position {
            self.handshake_failures[position].add(1);
        }
    }

    /// Failed TLS handshakes by cause.
    pub fn handshake_failures(&self) -> impl Iterator<Item = (Cause, u64)> {
        HANDSHAKE_FAILURES.into_iter().zip(self.handshake_failures.iter().map(Counter::value))
    }

    /// Whether an operator wants it to get no new connections.
    pub fn is_drained(&self) -> bool {
        self.drained.value() > 0
    }

    /// Keeps new connections from it, or lets them come again; only the owning lane may call this.
    pub fn drain(&self, is_drained: bool) {
        self.drained.set(is_drained.into());
    }

    /// Whether failures keep it from being chosen for now.
    pub fn is_resting(&self, now_ms: u64) -> bool {
        self.rests_until_ms.value() > now_ms
    }

    /// Whether it failed when it was last tried.
    pub fn is_failing(&self) -> bool {
        self.failed_in_a_row.value() > 0
    }
}

/// Why a TLS handshake with a backend can fail.
pub const HANDSHAKE_FAILURES: [Cause; 4] = [
    Cause::BackendCertificateExpired,
    Cause::BackendCertificateName,
    Cause::BackendCertificateUntrusted,
    Cause::BackendHandshakeFailed,
];

/// The rest after a first failure; it doubles with each further one, up to 32 seconds.
const REST_MS: u64 = 1_000;
const REST_DOUBLINGS_MAX: u64 = 5;

impl RelaySettings {
    /// Whether some backends are told all that a PROXY header told us.
    pub fn passes_all(&self) -> bool {
        let passes = |to: &Destination| matches!(to.proxy_header, ProxyHeader::Pass(_));
        self.destinations.iter().any(passes)
    }

    /// The position of the destination for a client whose name has `number`, and with whom `alpn`
    /// was agreed on.
    pub fn destination_for(&self, number: u32, alpn: Option<&[u8]>) -> u32 {
        let position = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let Some(routes) = position.and_then(|position| self.names.get(position)) else { return 0 };
        let agreed = routes.by_alpn.iter().find(|(protocol, _)| Some(&**protocol) == alpn);
        agreed.map_or(routes.otherwise, |(_, position)| *position)
    }
}

impl Destination {
    /// The backend for a connection on `lane` that has tried those whose bits are set in `tried`.
    ///
    /// Resting backends are passed over, but when all that are left rest, the one whose rest ends
    /// first is tried all the same: a connection is not refused while something may answer. Drained
    /// ones get nothing.
    pub fn choose(&self, lane: usize, tried: u64, now_ms: u64) -> Option<usize> {
        let untried =
            |index: &usize| tried & (1 << index) == 0 && !self.of_lane(*index, lane).is_drained();
        let awake = |index: &usize| !self.of_lane(*index, lane).is_resting(now_ms);
        let count = self.backends.len();
        let cursor = self.cursors.get(lane);
        let start = cursor.map_or(0, |cursor| cursor.0.value());
        let in_turn = || {
            (0..count).map(move |step| {
                usize::try_from((start + step as u64) % count as u64).unwrap_or_default()
            })
        };
        let mut candidates = in_turn().filter(untried).filter(awake);
        let chosen = match self.balance {
            Balance::RoundRobin => candidates.next(),
            Balance::LeastConnections => {
                candidates.min_by_key(|index| self.of_lane(*index, lane).active.value())
            }
        };
        let chosen = chosen.or_else(|| {
            let rest = |index: &usize| self.of_lane(*index, lane).rests_until_ms.value();
            in_turn().filter(untried).min_by_key(rest)
        })?;
        if let Some(cursor) = cursor {
            cursor.0.set((chosen as u64 + 1) % count as u64);
        }
        Some(chosen)
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
            tls: None,
            lanes: vec![Arc::default(), Arc::default()],
        };
        Destination {
            backends: (1u16..).take(count).map(backend).collect(),
            balance,
            proxy_header: ProxyHeader::Off,
            cursors: vec![Arc::default(), Arc::default()],
        }
    }

    #[test]
    fn a_name_and_what_was_agreed_on_lead_to_a_destination() {
        let settings = RelaySettings {
            listener: "web".into(),
            accept_proxy: None,
            admission: Admission::default(),
            connect_timeout: Duration::from_secs(5),
            destinations: Vec::new(),
            https_port: 443,
            liveness: Liveness::default(),
            responder: None,
            spoken: Spoken::Tls,
            names: vec![
                NameRoutes { by_alpn: vec![(b"h2".to_vec(), 3)], otherwise: 1 },
                NameRoutes { by_alpn: Vec::new(), otherwise: 2 },
            ],
        };
        for (number, alpn, expected) in [
            (0, Some(&b"h2"[..]), 0),
            (1, Some(b"h2"), 3),
            (1, Some(b"http/1.1"), 1),
            (1, None, 1),
            (2, Some(b"h2"), 2),
            (3, None, 0),
        ] {
            assert_eq!(settings.destination_for(number, alpn), expected, "{number} {alpn:?}");
        }
    }

    #[test]
    fn round_robin_takes_turns_on_each_lane_for_itself() {
        let destination = destination(3, Balance::RoundRobin);
        let turns: Vec<_> = (0..5).map(|_| destination.choose(0, 0, 0).unwrap()).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1]);
        assert_eq!(destination.choose(1, 0, 0), Some(0), "the other lane starts at its own place");
    }

    #[test]
    fn least_connections_takes_the_idlest_and_turns_among_equals() {
        let destination = destination(3, Balance::LeastConnections);
        destination.of_lane(0, 0).active.add(2);
        destination.of_lane(1, 0).active.add(1);
        destination.of_lane(2, 0).active.add(1);
        assert_eq!(destination.choose(0, 0, 0), Some(1));
        assert_eq!(destination.choose(0, 0, 0), Some(2), "equals take turns");
    }

    #[test]
    fn a_failed_backend_rests_longer_each_time_and_a_success_ends_it() {
        let destination = destination(2, Balance::RoundRobin);
        let first = destination.of_lane(0, 0);
        first.note_failure(0);
        assert_eq!(destination.choose(0, 0, 999), Some(1));
        assert_eq!(destination.choose(0, 0, 999), Some(1), "the first still rests");
        assert!(!first.is_resting(1_000));
        first.note_failure(1_000);
        assert!(first.is_resting(2_999) && !first.is_resting(3_000));
        for _ in 0..100 {
            first.note_failure(0);
        }
        assert!(first.is_resting(31_999) && !first.is_resting(32_000), "bounded");
        first.note_success();
        assert!(!first.is_resting(0) && !first.is_failing());
    }

    #[test]
    fn a_drained_backend_gets_nothing_until_it_is_put_back() {
        let destination = destination(2, Balance::RoundRobin);
        destination.of_lane(0, 0).drain(true);
        assert_eq!(destination.choose(0, 0, 0), Some(1));
        assert_eq!(destination.choose(0, 0b10, 0), None, "not even if nothing else is left");
        assert_eq!(destination.choose(1, 0, 0), Some(0), "each lane is told for itself");
        destination.of_lane(0, 0).drain(false);
        assert_eq!(destination.choose(0, 0, 0), Some(0));
    }

    #[test]
    fn when_all_rest_the_one_that_wakes_first_is_tried_and_nothing_twice() {
        let destination = destination(2, Balance::RoundRobin);
        destination.of_lane(0, 0).note_failure(500);
        destination.of_lane(1, 0).note_failure(0);
        assert_eq!(destination.choose(0, 0, 600), Some(1));
        assert_eq!(destination.choose(0, 0b10, 600), Some(0));
        assert_eq!(destination.choose(0, 0b11, 600), None);
    }
}
