//! What a lane counts for a backend, and when one that failed rests.

use std::sync::LazyLock;
use std::time::Instant;

use sealane_lanes::cause::Cause;
use sealane_lanes::counters::Counter;

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
    backoff_until_ms: Counter,
    /// The same by [`monotonic_ms`], for other threads.
    rests_until_ms: Counter,
}

impl BackendCounters {
    /// The backend took a connection, and completed the handshake if TLS is spoken.
    pub fn note_success(&self) {
        self.connected.add(1);
        if self.failed_in_a_row.value() > 0 {
            self.failed_in_a_row.set(0);
            self.backoff_until_ms.set(0);
            self.rests_until_ms.set(0);
        }
    }

    /// The backend refused, or did not answer in time: it rests, longer with every failure.
    pub fn note_failure(&self, now_ms: u64) {
        self.failed.add(1);
        self.failed_in_a_row.add(1);
        let doublings = (self.failed_in_a_row.value() - 1).min(BACKOFF_DOUBLINGS_MAX);
        let rest_ms = BACKOFF_MS << doublings;
        self.backoff_until_ms.set(now_ms + rest_ms);
        self.rests_until_ms.set(monotonic_ms() + rest_ms);
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

    /// Until when failures keep it from being chosen.
    pub(super) fn backoff_until_ms(&self) -> u64 {
        self.backoff_until_ms.value()
    }

    /// Whether the last attempt failed.
    pub fn is_failing(&self) -> bool {
        self.failed_in_a_row.value() > 0
    }

    /// Failed attempts since the last success.
    pub fn failed_in_a_row(&self) -> u64 {
        self.failed_in_a_row.value()
    }

    /// How long the lane still chooses other backends, at `now_ms` by [`monotonic_ms`]; 0: it
    /// chooses this one again.
    pub fn rest_left_ms(&self, now_ms: u64) -> u64 {
        self.rests_until_ms.value().saturating_sub(now_ms)
    }
}

/// Milliseconds since the first call in this process, the same for all threads. By the standard
/// library: rustix asks the kernel for its vDSO at the first call, which lanes may not.
pub fn monotonic_ms() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Why a TLS handshake with a backend can fail.
pub const HANDSHAKE_FAILURES: [Cause; 4] = [
    Cause::BackendCertificateExpired,
    Cause::BackendCertificateName,
    Cause::BackendCertificateUntrusted,
    Cause::BackendHandshakeFailed,
];

/// The rest after a first failure; it doubles with each further one, up to 32 seconds.
const BACKOFF_MS: u64 = 1_000;
const BACKOFF_DOUBLINGS_MAX: u64 = 5;
