//! Spans of time in messages.

/// So many seconds in words, rounded down.
pub(crate) fn days(seconds: i64) -> String {
    match seconds / DAY_S {
        0 => format!("{} hours", seconds / HOUR_S),
        days => format!("{days} days"),
    }
}

const DAY_S: i64 = 24 * HOUR_S;
const HOUR_S: i64 = 3600;
