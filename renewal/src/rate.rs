//! A rate limit, kept as one number.

use crate::UnixSeconds;

/// A rate limit as Let's Encrypt counts: a bucket that holds `count` and gets one back every
/// `period_s / count`.
///
/// A tenth of the bucket is never used: for clocks that differ, and for other orders with the same
/// account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    period_s: u64,
}

impl Rate {
    /// A limit of `count`, at least one, in `period_s` seconds.
    #[must_use]
    pub fn new(count: u32, period_s: u64) -> Self {
        Self { count: count.max(1), period_s }
    }

    /// The size of the bucket.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// In how many seconds.
    #[must_use]
    pub fn period_s(&self) -> u64 {
        self.period_s
    }

    /// Takes one now.
    ///
    /// # Errors
    /// None is left: nothing changes, and there will be one at the time in the error.
    pub fn take(&self, spent: &mut Spent, now: UnixSeconds) -> Result<(), UnixSeconds> {
        let at = self.free_at(*spent, now);
        if at > now {
            return Err(at);
        }
        self.reserve(spent, now);
        Ok(())
    }

    /// Takes the next one that is left, and returns when that may be used: now, or later.
    pub fn reserve(&self, spent: &mut Spent, now: UnixSeconds) -> UnixSeconds {
        let at = self.free_at(*spent, now);
        spent.until_ms = spent.until_ms.max(millis(now)).saturating_add(self.interval_ms());
        at
    }

    /// Gives one back that was taken and came to nothing.
    pub fn give_back(&self, spent: &mut Spent) {
        spent.until_ms = spent.until_ms.saturating_sub(self.interval_ms());
    }

    /// The time when one is left: now, or later.
    #[must_use]
    pub fn free_at(&self, spent: Spent, now: UnixSeconds) -> UnixSeconds {
        let depth_ms = self.interval_ms().saturating_mul(self.used().into());
        let full_ms = spent.until_ms.saturating_add(self.interval_ms());
        let at = UnixSeconds(full_ms.saturating_sub(depth_ms).div_ceil(1_000));
        at.max(now)
    }

    fn interval_ms(&self) -> u64 {
        self.period_s.saturating_mul(1_000) / u64::from(self.count)
    }

    fn used(&self) -> u32 {
        self.count - self.count / 10
    }
}

/// The used part of a [`Rate`]: the moment at which its bucket is full again. A fleet keeps it as
/// one number in its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spent {
    /// Milliseconds since 1970.
    pub until_ms: u64,
}

impl Spent {
    /// Nothing is spent any more, so that it need not be kept.
    #[must_use]
    pub fn is_nothing(&self, now: UnixSeconds) -> bool {
        self.until_ms <= millis(now)
    }
}

fn millis(time: UnixSeconds) -> u64 {
    time.0.saturating_mul(1_000)
}
