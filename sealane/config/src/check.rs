//! The table `listener.check`: how backends are checked while nobody uses them.

use std::time::Duration;

use sealane_operator::key::{Choice, Count, Either, Group, Key, Or, Span, TableKind, Text};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Readable as _, Table, Value};

use crate::destination::Destination;
use crate::proxy_header::ProxyHeader;
use crate::route::Route;
use crate::spoken::Spoken;

/// How the backends of a listener are checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// From the beginning of one check to that of the next.
    pub every: Duration,
    /// Failed checks in a row after which a backend is down.
    pub fall: usize,
    /// What is checked.
    pub kind: CheckKind,
    /// Passed checks in a row after which a backend is up.
    pub rise: usize,
    /// From being up again to the whole share.
    pub slow_start: Duration,
    /// How long a check may take.
    pub timeout: Duration,
}

/// What a check does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// Sends this, in TLS if the backend speaks it, and waits for that.
    Ask {
        /// May be nothing.
        send: Vec<u8>,
        /// Anywhere in the answer.
        expect: Vec<u8>,
    },
    /// Connects, and no more.
    Connect,
    /// Sends the PROXY header of who only looks, and sees whether the backend takes it.
    Proxy,
    /// Completes a TLS handshake, in which the backend proves its name.
    Tls,
}

impl CheckKind {
    /// The word for it in a configuration, without what is sent.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ask { .. } => "send",
            Self::Connect => "connect",
            Self::Proxy => "proxy",
            Self::Tls => "tls",
        }
    }
}

/// How the backends of a listener and of its routes are checked, if they are.
pub(crate) fn check(
    table: &Table<'_>,
    spoken: Spoken,
    destination: Option<&Destination>,
    routes: &[Route],
) -> Option<Check> {
    let written = table.value(&CHECK)?;
    let (check, kind) = written.table(&GROUP, |table| {
        let kind = table.value(&KIND);
        // Every key is read before a mistake in one ends the reading.
        let check = Check {
            every: table.get(&EVERY),
            fall: table.get(&FALL),
            kind: CheckKind::Connect,
            rise: table.get(&RISE),
            slow_start: table.get(&SLOW_START),
            timeout: table.get(&TIMEOUT),
        };
        let read = kind.as_ref().map_or(Some(CheckKind::Connect), what)?;
        Some((Check { kind: read, ..check }, kind))
    })?;
    let at = kind.unwrap_or(written);
    let all =
        || destination.into_iter().chain(routes.iter().filter_map(|r| r.destination.as_ref()));
    let problem = match &check.kind {
        CheckKind::Tls if all().any(|each| each.backend_tls.is_none()) => Some((
            "not all backends of this listener and of its routes are spoken to in TLS",
            "use \"connect\", or write \"tls://HOST:PORT\" for them",
        )),
        CheckKind::Proxy if all().any(|each| each.proxy_header == ProxyHeader::Off) => Some((
            "not all backends of this listener and of its routes get a PROXY header",
            "use \"connect\", or set proxy_header",
        )),
        CheckKind::Ask { .. } | CheckKind::Tls if spoken == Spoken::Postgres => {
            Some(("PostgreSQL is asked for TLS first, as no check does", "use \"connect\""))
        }
        _ => None,
    };
    if let Some((what, remedy)) = problem {
        at.wrong(Problem::new(what, remedy));
    }
    Some(check)
}

fn what(written: &Value<'_>) -> Option<CheckKind> {
    if !written.is_table() {
        return KIND.kind.0.read(written).map(|kind| match kind {
            Plain::Connect => CheckKind::Connect,
            Plain::Proxy => CheckKind::Proxy,
            Plain::Tls => CheckKind::Tls,
        });
    }
    written.table(&ASK, |table| {
        let send = table.value(&SEND).map(|v| SEND.read(&v));
        let expect = table.required(&EXPECT, "expect = \"+PONG\"")?;
        let send = send.unwrap_or(Some(Vec::new()))?;
        let expected = EXPECT.read(&expect)?;
        if expected.is_empty() {
            expect.wrong(Problem::new("nothing is in every answer", "write what a good one has"));
        }
        Some(CheckKind::Ask { send, expect: expected })
    })
}

fn bytes(text: &str) -> Result<Vec<u8>, Problem> {
    match text.len() {
        0..=TEXT_BYTES_MAX => Ok(text.as_bytes().to_vec()),
        len => {
            let what = format!("{len} bytes are too many");
            Err(Problem::new(what, format!("write at most {TEXT_BYTES_MAX}")))
        }
    }
}

#[derive(Clone, Copy)]
enum Plain {
    Connect,
    Proxy,
    Tls,
}

pub(crate) static CHECK: Key<TableKind> = Key::new("check", TableKind(&GROUP), "");

static GROUP: Group = Group::new(
    "listener.check",
    "Health checks of the listener's backends, and of its routes', by one thread besides the \
     lanes. No checks without this table. A backend that fails a check is skipped before a client \
     is sent there; when all are down, one is tried all the same. A backend that refuses a \
     connection gets none for a while too.",
    &[&KIND, &EVERY, &TIMEOUT, &RISE, &FALL, &SLOW_START],
);

static KIND: Key<Either<Choice<Plain>, TableKind>> = Key::new(
    "kind",
    Either(
        Choice(&[("connect", Plain::Connect), ("proxy", Plain::Proxy), ("tls", Plain::Tls)]),
        TableKind(&ASK),
    ),
    "\"connect\" connects. \"tls\" completes a handshake in which the backend proves its name. \
     \"proxy\" sends the PROXY header of a health check (LOCAL), closes its side, and expects a \
     close or an answer instead of a reset. A table sends text and looks for text in the answer. \
     All but \"connect\" begin as connections of clients do: with the header of proxy_header, and \
     with TLS if the backend speaks TLS.",
)
.examples(&["\"connect\"", "{ send = \"PING\\r\\n\", expect = \"+PONG\" }"])
.without("\"connect\"");

static ASK: Group = Group::new(
    "listener.check.kind",
    "Text that a check sends, and text that a good answer contains.",
    &[&SEND, &EXPECT],
);

static SEND: Key<Text<Vec<u8>>> =
    Key::new("send", Text(TEXT, bytes), "The text that is sent.").examples(&["\"PING\\r\\n\""]);

static EXPECT: Key<Text<Vec<u8>>> =
    Key::new("expect", Text(TEXT, bytes), "Text that is anywhere in a good answer.")
        .examples(&["\"+PONG\""])
        .required();

static EVERY: Key<Or<Span>> = Key::new(
    "every",
    Or(Span(Duration::from_millis(100)..=Duration::from_secs(3_600)), Duration::from_secs(2)),
    "A check begins this long after the beginning of the previous one.",
);

static TIMEOUT: Key<Or<Span>> = Key::new(
    "timeout",
    Or(Span(Duration::from_millis(10)..=Duration::from_secs(60)), Duration::from_secs(1)),
    "A check that takes longer has failed.",
);

static RISE: Key<Or<Count>> = Key::new(
    "rise",
    Or(Count(1..=100), 2),
    "Passed checks in a row after which a backend is up. The first check decides alone, unless \
     there was one before a reload: its state holds on.",
);

static FALL: Key<Or<Count>> = Key::new(
    "fall",
    Or(Count(1..=100), 3),
    "Failed checks in a row after which a backend is down.",
);

static SLOW_START: Key<Or<Span>> = Key::new(
    "slow_start",
    Or(Span(Duration::ZERO..=Duration::from_secs(3_600)), Duration::ZERO),
    "How long a backend that is up again gets less than its share. The share grows during this \
     time.",
);

const TEXT: &str = "text of at most 1024 bytes";
const TEXT_BYTES_MAX: usize = 1024;
