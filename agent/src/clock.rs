//! The time of this machine.

use std::time::SystemTime;

use sealane_renewal::UnixSeconds;

/// The time of this machine.
pub(crate) fn now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    UnixSeconds(since.map_or(0, |since| since.as_secs()))
}

/// The same, as certificates have it.
pub(crate) fn now_s() -> i64 {
    signed(now())
}

/// A time as certificates have it.
pub(crate) fn signed(UnixSeconds(time): UnixSeconds) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}
