//! The access log: a JSON line per connection, written by a thread of its own.
//!
//! [`open`] gives each lane a [`LaneLog`], the end of a bounded ring of bytes, and starts the
//! [`LogWriter`] that empties all rings. A lane writes a line whole or drops it and counts; it
//! never waits, and neither side frees what the other allocated.

mod client;
mod entry;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use rtrb::RingBuffer;
use sealane_config::{AccessLog, LoggedEnds};
use sealane_engine::client_certificates::Distrust;
use sealane_lanes::cause::{Blame, Cause};
use sealane_lanes::counters::Counter;
use sealane_lanes::service::EndedConnection;
use sealane_operator::timestamp::Timestamp;

use crate::connection_number::ConnectionNumber;
use crate::proxy_header::Source;

pub use entry::blame_label;
pub use writer::{LogFault, LogWriter, STOP_WAIT, WriterCounters};

/// Opens the log's destination, starts its thread, and makes the ends of `lanes` lanes.
///
/// `report` gets to know that lines cannot be written, once until they can be again.
///
/// # Errors
/// The destination cannot be opened, or the thread not be started.
pub fn open(
    settings: &AccessLog,
    lanes: usize,
    report: impl Fn(&AccessLogError) + Send + 'static,
) -> Result<(Vec<LaneLog>, LogWriter), AccessLogError> {
    let (mut logs, mut rings, mut counters) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..lanes {
        let (producer, consumer) = RingBuffer::new(settings.buffer_bytes);
        let counted = Arc::new(LaneLogCounters::default());
        counters.push(Arc::clone(&counted));
        rings.push(consumer);
        logs.push(LaneLog {
            ring: producer,
            entry: Vec::new(),
            health_checks: settings.health_checks,
            ja4: settings.ja4,
            only: settings.only,
            refusals: (0, 0),
            counters: counted,
        });
    }
    let writer = LogWriter::start(&settings.destination, rings, counters, Box::new(report))?;
    Ok((logs, writer))
}

/// A lane's end of the access log.
pub struct LaneLog {
    ring: rtrb::Producer<u8>,
    /// Reused, so that a lane allocates nothing for a line once it has written its longest.
    entry: Vec<u8>,
    health_checks: bool,
    ja4: bool,
    only: LoggedEnds,
    /// The second of the last refused client, and the lines that such clients got in it.
    refusals: (u64, u32),
    counters: Arc<LaneLogCounters>,
}

/// Lines in a second and on a lane about clients that are refused at accept: a flood of them must
/// not push other lines out.
const REFUSALS_PER_SECOND: u32 = 10;

impl LaneLog {
    /// Writes the line of a connection that has ended, or drops it if the ring is full.
    pub fn write(&mut self, ended: &Ended<'_>) {
        self.write_at(Timestamp::now(), ended);
    }

    /// Writes the line of a client that was refused at accept, unless there have been many.
    pub fn write_refused(&mut self, ended: &Ended<'_>) {
        self.write_refused_at(Timestamp::now(), ended);
    }

    fn write_refused_at(&mut self, now: Timestamp, ended: &Ended<'_>) {
        let second = now.unix_ms() / 1_000;
        if self.refusals.0 != second {
            self.refusals = (second, 0);
        }
        if self.refusals.1 < REFUSALS_PER_SECOND {
            self.refusals.1 += 1;
            self.write_at(now, ended);
        }
    }

    /// Whether lines tell how hellos introduce their clients.
    pub fn wants_ja4(&self) -> bool {
        self.ja4
    }

    fn write_at(&mut self, now: Timestamp, ended: &Ended<'_>) {
        let is_failure = ended.end.cause.blame() != Blame::Nobody;
        if ended.is_health_check() && !self.health_checks
            || self.only == LoggedEnds::Failures && !is_failure
        {
            return;
        }
        self.entry.clear();
        let formatted = entry::format(&mut self.entry, now, ended);
        if formatted.is_ok() && self.ring.push_entire_slice(&self.entry).is_ok() {
            self.counters.lines.add(1);
        } else {
            self.counters.dropped.add(1);
        }
    }
}

/// A connection that has ended, as the log tells of it.
#[derive(Clone, Copy)]
pub struct Ended<'a> {
    /// The backend that it was relayed to, if it got so far.
    pub backend: Option<&'a str>,
    /// Why the client's certificate, which was only asked for, is not believed.
    pub doubted: Option<&'a Distrust>,
    /// What tells it from all others.
    pub connection: ConnectionNumber,
    /// What the lane tells of it.
    pub end: &'a EndedConnection<'a>,
    /// The listener's name.
    pub listener: &'a str,
    /// What a PROXY header announced of it.
    pub source: Option<&'a Source>,
}

impl Ended<'_> {
    /// Whether whoever sent the header only looked whether somebody answers.
    fn is_health_check(&self) -> bool {
        let is_own = self.source.is_some_and(|source| source.is_own);
        let has_moved = self.end.received_bytes + self.end.sent_bytes > 0;
        is_own && self.end.cause == Cause::Clean && self.end.session.is_none() && !has_moved
    }
}

/// What a lane counts about its log; on cache lines of its own, as all that a lane writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LaneLogCounters {
    /// Lines handed to the writer.
    pub lines: Counter,
    /// Lines dropped because the ring was full.
    pub dropped: Counter,
}

/// The log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum AccessLogError {
    /// The file cannot be opened: the operator's to mend.
    #[error(
        "access_log.path: {path} cannot be opened: {source}; see that its folder is there, and \
         that this user may write to it"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The thread cannot be started.
    #[error("the thread of the access log cannot be started: {0}")]
    Thread(std::io::Error),
    /// The destination takes no more: the operator's to mend.
    #[error("access_log: {destination} cannot be written: {source}; make room there")]
    Write {
        /// Where the lines should go.
        destination: String,
        /// What the system said.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests;
