//! Tells the operator that lanes have more handshakes than they can make.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sealane_lanes::counters::Counters;
use tracing::warn;

/// The handshakes that gave way, and the last warning about them.
#[derive(Default)]
pub(super) struct OverloadWatch {
    /// How many had given way at the last warning.
    reported: u64,
    warned: Option<Instant>,
}

/// Between two warnings, however long a flood lasts.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

impl OverloadWatch {
    /// Warns if handshakes have given way since the last warning, once in [`WARNING_INTERVAL`].
    pub(super) fn look(&mut self, lanes: &[Arc<Counters>], now: Instant) {
        if let Some(count) = self.due(lanes.iter().map(|lane| lane.gave_way()).sum(), now) {
            warn!(
                handshakes = count,
                "{count} handshakes were reset: more clients come than the lanes can make \
                 handshakes with. See limit_handshake_queue in docs/log.md"
            );
        }
    }

    /// The number to warn about now, if there is one.
    fn due(&mut self, total: u64, now: Instant) -> Option<u64> {
        let rests = self.warned.is_some_and(|at| now.duration_since(at) < WARNING_INTERVAL);
        let count = total.saturating_sub(self.reported);
        if rests || count == 0 {
            return None;
        }
        (self.reported, self.warned) = (total, Some(now));
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_is_reported_once_in_a_minute() {
        let (mut watch, start) = (OverloadWatch::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(watch.due(0, at(0)), None);
        assert_eq!(watch.due(5, at(1)), Some(5));
        assert_eq!(watch.due(500, at(60)), None);
        assert_eq!(watch.due(700, at(61)), Some(695));
        assert_eq!(watch.due(700, at(200)), None, "it is over");
    }
}
