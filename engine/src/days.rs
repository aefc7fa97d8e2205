//! Spans of time in messages: [`days`].

/// Seconds in words, rounded down: "2 days", "1 hour".
pub fn days(seconds: i64) -> String {
    let (count, unit) = match (seconds / DAY_S, seconds / HOUR_S) {
        (0, 0) => (seconds / MINUTE_S, "minute"),
        (0, hours) => (hours, "hour"),
        (days, _) => (days, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

const DAY_S: i64 = 24 * HOUR_S;
const HOUR_S: i64 = 60 * MINUTE_S;
const MINUTE_S: i64 = 60;
