//! The table `listener.check`: how backends are checked while nobody uses them.

use std::ops::RangeInclusive;
use std::time::Duration;

use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

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
    table: &mut Table<'_>,
    spoken: Spoken,
    destination: Option<&Destination>,
    routes: &[Route],
) -> Option<Check> {
    let written = table.value("check")?;
    let (check, kind) = written.table(|table| {
        let kind = table.value("kind");
        // Every key is asked for before a mistake in one ends the reading.
        let check = Check {
            every: table.duration("every", EVERY).unwrap_or(EVERY_DEFAULT),
            fall: table.count("fall", IN_A_ROW).unwrap_or(3),
            kind: CheckKind::Connect,
            rise: table.count("rise", IN_A_ROW).unwrap_or(2),
            slow_start: table.duration("slow_start", SLOW_START).unwrap_or_default(),
            timeout: table.duration("timeout", TIMEOUT).unwrap_or(TIMEOUT_DEFAULT),
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
        return written.choice(&KINDS).map(|kind| match kind {
            Kind::Connect => CheckKind::Connect,
            Kind::Proxy => CheckKind::Proxy,
            Kind::Tls => CheckKind::Tls,
        });
    }
    written.table(|table| {
        let send = table.value("send").map(|v| v.parsed(bytes));
        let expect = table.required("expect", "expect = \"+PONG\"")?;
        let send = send.unwrap_or(Some(Vec::new()))?;
        let expected = expect.parsed(bytes)?;
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
enum Kind {
    Connect,
    Proxy,
    Tls,
}

const KINDS: [(&str, Kind); 3] =
    [("connect", Kind::Connect), ("proxy", Kind::Proxy), ("tls", Kind::Tls)];

const EVERY: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);

const EVERY_DEFAULT: Duration = Duration::from_secs(2);

const IN_A_ROW: RangeInclusive<usize> = 1..=100;

const SLOW_START: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3_600);

const TEXT_BYTES_MAX: usize = 1024;

const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
