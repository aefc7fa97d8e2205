//! Backoff after a failure.

use fastrand::Rng;

use crate::{HOUR_S, UnixSeconds};

/// The shortest wait after a failure.
pub const RETRY_S_MIN: u64 = 60;
/// The longest wait after a failure.
pub const RETRY_S_MAX: u64 = 86_400;

/// The wait after this many failures in a row: one to two minutes, then twice that, up to half a
/// day to a day.
pub(crate) fn wait_s(failures: u32, random: &mut Rng) -> u64 {
    doubled_s(failures, RETRY_S_MIN, RETRY_S_MAX, random)
}

/// The wait while a certificate that ends at `not_after` is served: no longer than a third of its
/// remaining life, or an hour.
pub(crate) fn wait_until_end_s(wait_s: u64, now: UnixSeconds, not_after: UnixSeconds) -> u64 {
    let left_s = not_after.since(now);
    if left_s == 0 { wait_s } else { wait_s.min((left_s / 3).max(HOUR_S)) }
}

/// A wait of `min_s` to twice that, doubled with each failure after the first, up to `max_s`.
pub(crate) fn doubled_s(failures: u32, min_s: u64, max_s: u64, random: &mut Rng) -> u64 {
    let doublings = failures.saturating_sub(1).min(32);
    let most_s = min_s.saturating_mul(2 << doublings).min(max_s);
    random.u64(most_s / 2..=most_s)
}
