//! The time as a lane knows it: set by the lane once per loop turn, read without a system call.

use std::{cell::Cell, fmt, time::Duration};

use fragile::Fragile;
use rustls::{pki_types::UnixTime, time_provider::TimeProvider};

/// A lane's wall clock, for its tickets and for rustls.
///
/// It belongs to the thread that made it. rustls wants it shareable, so it may be moved and
/// dropped anywhere, but on another thread it has no time and takes none.
pub struct LaneClock(Fragile<Cell<u64>>);

impl LaneClock {
    /// A clock of the calling thread.
    pub fn new(now: UnixSeconds) -> Self {
        Self(Fragile::new(Cell::new(now.0)))
    }

    /// Sets the time; on a thread other than the clock's own it does nothing.
    pub fn set(&self, now: UnixSeconds) {
        if let Ok(seconds) = self.0.try_get() {
            seconds.set(now.0);
        }
    }

    /// The time that was set last; none on a thread other than the clock's own.
    pub fn now(&self) -> Option<UnixSeconds> {
        self.0.try_get().ok().map(|seconds| UnixSeconds(seconds.get()))
    }
}

impl TimeProvider for LaneClock {
    fn current_time(&self) -> Option<UnixTime> {
        self.now().map(|now| UnixTime::since_unix_epoch(Duration::from_secs(now.0)))
    }
}

impl fmt::Debug for LaneClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LaneClock").field(&self.now()).finish()
    }
}

/// Seconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_was_set_last_even_if_it_is_earlier() {
        let clock = LaneClock::new(UnixSeconds(100));
        assert_eq!(clock.current_time().unwrap().as_secs(), 100);
        clock.set(UnixSeconds(50));
        assert_eq!(clock.now(), Some(UnixSeconds(50)));
    }

    #[test]
    fn another_thread_neither_reads_nor_sets() {
        let clock = LaneClock::new(UnixSeconds(100));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                clock.set(UnixSeconds(200));
                assert_eq!(clock.now(), None);
                assert!(clock.current_time().is_none());
            });
        });
        assert_eq!(clock.now(), Some(UnixSeconds(100)));
    }
}
