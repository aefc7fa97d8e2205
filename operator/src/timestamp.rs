//! Times as people and log collectors read them: [`Timestamp`], in RFC 3339 and UTC.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sealane_engine::tickets::UnixSeconds;
use serde::{Serialize, Serializer};
use time::OffsetDateTime;

/// The current time in whole seconds, for certificates and tickets.
#[must_use]
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
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn from_unix_s(seconds: i64) -> Self {
        let seconds = u64::try_from(seconds).unwrap_or(0);
        Self { unix_ms: seconds.saturating_mul(1_000).min(UNIX_MS_MAX) }
    }

    /// Milliseconds since 1970.
    #[must_use]
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
        // Clamped to years that it knows.
        let time = OffsetDateTime::from(UNIX_EPOCH + Duration::from_millis(self.unix_ms));
        let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
        let (hour, minute, second, milli) = time.to_hms_milli();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// 9999-12-31T23:59:59.999Z.
const UNIX_MS_MAX: u64 = 253_402_300_799_999;
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
}
