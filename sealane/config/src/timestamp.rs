//! Times as people and log collectors read them: [`Timestamp`], in RFC 3339 and UTC.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use sealane_engine::tickets::UnixSeconds;
use serde::{Serialize, Serializer};

/// The current time in whole seconds, for certificates and tickets.
pub fn unix_now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(since.as_secs())
}

/// A moment between the years 1970 and 9999, in milliseconds; earlier and later ones are clamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    unix_ms: u64,
}

impl Timestamp {
    /// What the system's clock says.
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Seconds since 1970.
    pub fn from_unix_s(seconds: i64) -> Self {
        let seconds = u64::try_from(seconds).unwrap_or(0);
        Self { unix_ms: seconds.saturating_mul(1_000).min(UNIX_MS_MAX) }
    }

    /// Milliseconds since 1970.
    pub fn unix_ms(self) -> u64 {
        self.unix_ms
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX).min(UNIX_MS_MAX) }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms) = (self.unix_ms / MS_PER_DAY, self.unix_ms % MS_PER_DAY);
        let (year, month, day) = civil(days);
        let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
        let (second, milli) = (ms / 1_000 % 60, ms % 1_000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last of its year; then 400 years have
/// 146,097 days, and the lengths of months follow a straight line: 153 days in five of them.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_FROM_MARCH_OF_YEAR_0;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

const MS_PER_DAY: u64 = 86_400_000;
/// 9999-12-31T23:59:59.999Z.
const UNIX_MS_MAX: u64 = 253_402_300_799_999;
/// From 1 March of the year 0 to 1 January 1970.
const DAYS_FROM_MARCH_OF_YEAR_0: u64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_rfc_3339() {
        for (unix_s, text) in [
            (i64::MIN, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_792_650_000, "2026-10-22T06:20:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::from_unix_s(unix_s).to_string(), text);
        }
        assert_eq!(Timestamp { unix_ms: 1_007 }.to_string(), "1970-01-01T00:00:01.007Z");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut expected = (1970, 1, 1);
        for days in 0..UNIX_MS_MAX / MS_PER_DAY {
            assert_eq!(civil(days), expected);
            expected = day_after(expected);
        }
    }

    fn day_after((year, month, day): (u64, u64, u64)) -> (u64, u64, u64) {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let length = match month {
            2 => 28 + u64::from(leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        match (month, day) {
            (12, 31) => (year + 1, 1, 1),
            _ if day == length => (year, month + 1, 1),
            _ => (year, month, day + 1),
        }
    }
}
