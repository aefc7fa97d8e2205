//! The keys that say how long something may take: `[limits]` has them for all listeners, and a
//! listener for itself.

use std::ops::RangeInclusive;
use std::time::Duration;

use sealane_lanes::timeouts::Timeouts;
use sealane_operator::reader::Table;

/// The timeouts that `table` names, and for the others those of `default`.
pub(crate) fn timeouts(table: &mut Table<'_>, default: Timeouts) -> Timeouts {
    let mut silence = |key, default| {
        table.value(key).and_then(|v| v.duration_or_off(IDLE_TIMEOUT)).unwrap_or(default)
    };
    let backend = silence("backend_timeout", default.backend);
    let client = silence("client_timeout", default.client);
    Timeouts {
        backend,
        client,
        half_closed: table
            .duration("half_closed_timeout", IDLE_TIMEOUT)
            .unwrap_or(default.half_closed),
        handshake: table
            .duration("handshake_timeout", HANDSHAKE_TIMEOUT)
            .unwrap_or(default.handshake),
        idle: table.duration("idle_timeout", IDLE_TIMEOUT).unwrap_or(default.idle),
    }
}

const HANDSHAKE_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(300);

const IDLE_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
