//! The simulation's time, which everything but the machines' clocks goes by.

use sealane_renewal::UnixSeconds;

/// Seconds; the simulation begins at [`START`].
pub(crate) type Time = u64;

/// A time from one moment up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Time,
    pub(crate) to: Time,
}

impl Span {
    pub(crate) fn contains(self, now: Time) -> bool {
        (self.from..self.to).contains(&now)
    }

    pub(crate) fn seconds(self) -> u64 {
        self.to - self.from
    }
}

/// The time that is right.
pub(crate) fn right(now: Time) -> UnixSeconds {
    UnixSeconds(EPOCH + now)
}

/// The time of a clock that is ahead or behind.
pub(crate) fn skewed(now: Time, skew: i64) -> UnixSeconds {
    UnixSeconds((EPOCH + now).saturating_add_signed(skew))
}

/// When a clock that is ahead or behind shows a time.
pub(crate) fn shown_at(shown: UnixSeconds, skew: i64) -> Time {
    shown.0.saturating_add_signed(-skew).saturating_sub(EPOCH)
}

pub(crate) const HOUR: u64 = 3_600;
pub(crate) const DAY: u64 = 86_400;
/// When the simulation begins; what was before has a time too.
pub(crate) const START: Time = 100 * DAY;
/// What a clock shows at the time 0; the simulation begins on 2028-03-01, when certificates of 45
/// days are the rule.
const EPOCH: u64 = 1_835_481_600 - START;
