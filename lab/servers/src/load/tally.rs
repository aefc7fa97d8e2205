//! What a load came to: [`Tally`].

use std::{collections::BTreeMap, fmt, time::Duration};

use rustls::{CipherSuite, HandshakeKind, NamedGroup, ProtocolVersion};
use sealane_lab_model::{error::Error, histogram::Times};

use crate::load::slot::{Failure, Kind, iana_name};

/// Everything that one thread counted, or several together.
pub struct Tally {
    /// Operations that succeeded.
    pub operations: u64,
    /// Bytes of answers' bodies.
    pub body_bytes: u64,
    /// Connections whose handshake ended well, by what was agreed on.
    pub(crate) negotiations: BTreeMap<Negotiation, u64>,
    /// Handshakes that offered a ticket, and those of them that the server resumed.
    pub(crate) tickets_offered: u64,
    /// Handshakes that the server resumed, of those that offered a ticket.
    pub(crate) tickets_resumed: u64,
    /// Operations that failed, by kind, with an example of each.
    pub(crate) failures: BTreeMap<Kind, (u64, String)>,
    /// Time from the start of the operation to its end; nanoseconds.
    pub service: Times,
    /// The same from the intended start on. Equal in a closed loop.
    pub intended: Times,
    /// From the connect to the end of the handshake.
    pub handshake: Times,
    /// Processor time of each client thread.
    pub cpu_ns: Vec<u64>,
    /// What all client threads together waited for a processor while they could have run.
    pub(crate) waited_ns: u64,
    /// From the start of the load to its last operation's end.
    pub elapsed: Duration,
    /// By how much the last operation of an open loop started after it was due: what the schedule
    /// was longer than it should have been.
    pub(crate) late: Duration,
    /// Operations by the second in which they ended.
    pub(crate) per_second: Vec<u64>,
    /// `intended` of those that ended in each of the plan's seconds apart.
    pub by_second: Vec<Times>,
}

/// What a handshake agreed on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Negotiation {
    /// The protocol version's number.
    pub version: u16,
    /// The cipher suite's number.
    pub suite: u16,
    /// Zero if none was agreed on.
    pub group: u16,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// The protocol of ALPN, if one was agreed on.
    pub alpn: Option<Vec<u8>>,
}

impl Tally {
    /// A tally of nothing yet.
    ///
    /// # Errors
    /// Never with these bounds of times.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            operations: 0,
            body_bytes: 0,
            negotiations: BTreeMap::new(),
            tickets_offered: 0,
            tickets_resumed: 0,
            failures: BTreeMap::new(),
            service: Times::new()?,
            intended: Times::new()?,
            handshake: Times::new()?,
            cpu_ns: Vec::new(),
            waited_ns: 0,
            elapsed: Duration::ZERO,
            late: Duration::ZERO,
            per_second: Vec::new(),
            by_second: Vec::new(),
        })
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        let (count, _) = self.failures.entry(failure.kind).or_insert((0, failure.text));
        *count += 1;
    }

    /// Operations that failed.
    pub fn failed(&self) -> u64 {
        self.failures.values().map(|(count, _)| count).sum()
    }

    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    /// Share of the time of `processors` that the client's threads ran, 0 to 1.
    pub(crate) fn client_busy(&self, processors: usize) -> f64 {
        if self.operations == 0 {
            return 0.0; // It has no time to be a share of.
        }
        let available = self.elapsed.as_nanos() as f64 * self.cpu_ns.len().min(processors) as f64;
        self.cpu_ns.iter().sum::<u64>() as f64 / available.max(1.0)
    }

    /// Share of their time that the client's threads waited for a processor, 0 to 1.
    pub(crate) fn client_waited(&self) -> f64 {
        let threads = self.cpu_ns.len().max(1) as f64;
        self.waited_ns as f64 / (self.elapsed.as_nanos() as f64 * threads).max(1.0)
    }

    /// Adds what another thread counted at the same time.
    pub fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.body_bytes += other.body_bytes;
        for (negotiation, count) in other.negotiations {
            *self.negotiations.entry(negotiation).or_default() += count;
        }
        self.tickets_offered += other.tickets_offered;
        self.tickets_resumed += other.tickets_resumed;
        for (kind, (count, text)) in other.failures {
            self.failures.entry(kind).or_insert((0, text)).0 += count;
        }
        // All have the same bounds, so that none of these can fail.
        let _ = self.service.add(&other.service);
        let _ = self.intended.add(&other.intended);
        let _ = self.handshake.add(&other.handshake);
        self.cpu_ns.extend(other.cpu_ns);
        self.waited_ns += other.waited_ns;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.late = self.late.max(other.late);
        let seconds = self.per_second.len().max(other.per_second.len());
        self.per_second.resize(seconds, 0);
        for (mine, theirs) in self.per_second.iter_mut().zip(other.per_second) {
            *mine += theirs;
        }
        for (second, theirs) in other.by_second.into_iter().enumerate() {
            match self.by_second.get_mut(second) {
                Some(mine) => {
                    let _ = mine.add(&theirs);
                }
                None => self.by_second.push(theirs),
            }
        }
    }
}

impl fmt::Display for Negotiation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = ProtocolVersion::from(self.version);
        let suite = CipherSuite::from(self.suite);
        let version = match version {
            ProtocolVersion::TLSv1_2 => "TLS 1.2",
            ProtocolVersion::TLSv1_3 => "TLS 1.3",
            _ => "TLS ?",
        };
        write!(f, "{version}, {}", iana_name(suite))?;
        if self.group != 0 {
            write!(f, ", {}", NamedGroup::from(self.group).as_str().unwrap_or("group ?"))?;
        }
        f.write_str(if self.resumed { ", resumed" } else { ", full handshake" })?;
        match &self.alpn {
            Some(name) => write!(f, ", ALPN {}", String::from_utf8_lossy(name)),
            None => Ok(()),
        }
    }
}

/// Whether the server resumed; a retry of the hello is a full handshake.
pub(crate) fn is_resumed(kind: Option<HandshakeKind>) -> bool {
    kind == Some(HandshakeKind::Resumed)
}
