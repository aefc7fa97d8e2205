//! Requests to cancel a query of PostgreSQL: each backend gets them, because only the server that
//! has the query knows its key. The others take no notice.

/// A request to cancel a query, and how far it has come.
pub(super) struct CancelRequest {
    pub(super) bytes: Box<[u8]>,
    /// Bytes that the backend has which is asked now.
    pub(super) sent: usize,
    /// Backends that were asked.
    pub(super) asked: usize,
    /// Connections that were tried.
    attempts: usize,
    /// When no other connection is tried, in milliseconds of the lane; none after the first alone.
    until_ms: Option<u64>,
    /// Whether it came without TLS, so that no server name leads to one route.
    pub(super) is_clear: bool,
}

/// Connections that are tried for one request, one after the other.
const ATTEMPTS_MAX: usize = 64;

/// How long backends are tried for one request after the first, in milliseconds. Each that does
/// not answer takes one or two connect timeouts of it.
const ATTEMPTS_MS_MAX: u64 = 30_000;

/// The requests that a lane forwards: each costs it up to [`ATTEMPTS_MAX`] connections, and clients
/// need no certificate to send one.
#[derive(Default)]
pub(super) struct CancelBudget {
    second: u64,
    taken: u32,
}

/// Requests that a lane forwards in a second; it drops the others.
const CANCELS_PER_SECOND_MAX: u32 = 20;

impl CancelBudget {
    /// Counts a request, if it may be forwarded.
    pub(super) fn take(&mut self, now_ms: u64) -> bool {
        let second = now_ms / 1_000;
        if self.second != second {
            *self = Self { second, taken: 0 };
        }
        let is_left = self.taken < CANCELS_PER_SECOND_MAX;
        self.taken += u32::from(is_left);
        is_left
    }
}

impl CancelRequest {
    pub(super) fn new(bytes: &[u8], is_clear: bool) -> Self {
        Self { bytes: bytes.into(), sent: 0, asked: 0, attempts: 0, until_ms: None, is_clear }
    }

    /// Counts another connection to a backend, if there may be one.
    pub(super) fn take_attempt(&mut self, now_ms: u64) -> bool {
        let until_ms = *self.until_ms.get_or_insert(now_ms.saturating_add(ATTEMPTS_MS_MAX));
        let is_left = self.attempts < ATTEMPTS_MAX && now_ms < until_ms;
        self.attempts += usize::from(is_left);
        is_left
    }

    /// Begins with another backend.
    pub(super) fn restart(&mut self) {
        self.sent = 0;
        self.asked += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_second_are_bounded() {
        let mut budget = CancelBudget::default();
        let taken =
            |budget: &mut CancelBudget, now_ms| (0..100).filter(|_| budget.take(now_ms)).count();
        assert_eq!(taken(&mut budget, 5_000), 20);
        assert_eq!(taken(&mut budget, 5_999), 0);
        assert_eq!(taken(&mut budget, 6_000), 20);
        let mut request = CancelRequest::new(b"", true);
        assert_eq!((0..100).filter(|_| request.take_attempt(5_000)).count(), 64);
        let mut request = CancelRequest::new(b"", true);
        let taken = [5_000, 34_999, 35_000].map(|now_ms| request.take_attempt(now_ms));
        assert_eq!(taken, [true, true, false]);
    }
}
