//! The keys that say how long something may take: `[limits]` has them for all listeners, and a
//! listener for itself.

use std::ops::RangeInclusive;
use std::time::Duration;

use sealane_lanes::timeouts::Timeouts;
use sealane_operator::key::{Either, Key, Or, Span, Word};
use sealane_operator::reader::Table;

/// The timeouts that `table` names, and for the others those of `default`.
pub(crate) fn timeouts(table: &Table<'_>, default: Timeouts) -> Timeouts {
    let backend = table.read(&BACKEND_TIMEOUT).unwrap_or(default.backend);
    let client = table.read(&CLIENT_TIMEOUT).unwrap_or(default.client);
    Timeouts {
        backend,
        client,
        half_closed: table.read(&HALF_CLOSED_TIMEOUT).unwrap_or(default.half_closed),
        handshake: table.read(&HANDSHAKE_TIMEOUT).unwrap_or(default.handshake),
        idle: table.read(&IDLE_TIMEOUT).unwrap_or(default.idle),
    }
}

/// The timeouts that a process has unless its file sets others.
pub(crate) fn default_timeouts() -> Timeouts {
    Timeouts {
        backend: BACKEND_TIMEOUT.default(),
        client: CLIENT_TIMEOUT.default(),
        half_closed: HALF_CLOSED_TIMEOUT.default(),
        handshake: HANDSHAKE_TIMEOUT.default(),
        idle: IDLE_TIMEOUT.default(),
    }
}

/// The keys that [`timeouts`] reads.
pub(crate) static TIMEOUT_KEYS: [&Key; 5] =
    [&HANDSHAKE_TIMEOUT, &IDLE_TIMEOUT, &HALF_CLOSED_TIMEOUT, &CLIENT_TIMEOUT, &BACKEND_TIMEOUT];

pub(crate) static HANDSHAKE_TIMEOUT: Key<Or<Span>> = Key::new(
    "handshake_timeout",
    Or(Span(Duration::from_millis(100)..=Duration::from_secs(300)), Duration::from_secs(10)),
    "A handshake may take this long, from accept to its end. Then the connection is closed.",
);

pub(crate) static IDLE_TIMEOUT: Key<Or<Span>> = Key::new(
    "idle_timeout",
    Or(Span(IDLE), Duration::from_mins(5)),
    "A connection is closed after this time without plaintext, and without a whole record, in \
     either direction.",
);

pub(crate) static HALF_CLOSED_TIMEOUT: Key<Or<Span>> = Key::new(
    "half_closed_timeout",
    Or(Span(IDLE), Duration::from_secs(30)),
    "This is the idle timeout of a connection of which one direction has ended.",
);

pub(crate) static CLIENT_TIMEOUT: Key<Or<Either<Word, Span>>> = Key::new(
    "client_timeout",
    Or(Either(Word("off"), Span(IDLE)), None),
    "A connection is closed after this time without a byte of plaintext from the client. It runs \
     from the end of the handshake on. It does not run while the backend does not accept earlier \
     bytes.",
);

pub(crate) static BACKEND_TIMEOUT: Key<Or<Either<Word, Span>>> = Key::new(
    "backend_timeout",
    Or(Either(Word("off"), Span(IDLE)), None),
    "A connection is closed after this time without a byte of plaintext from the backend. It runs \
     from the end of the handshake on. It does not run while the client does not accept earlier \
     bytes.",
);

const IDLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(7 * 24);
