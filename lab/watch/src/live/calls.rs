//! System calls of the server, `Calls`: counted in the kernel by `bpftrace`, else from a stream
//! of events by `perf trace`, else, where the operator allows it to be slowed, by `strace`.

pub mod bpftrace;
mod perf;
pub mod strace;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use sealane_lab_harness::interrupt::Interrupt;
use sealane_lab_model::document::{LiveAddress, LiveCall, LiveCalls, LiveProcess, Unseen};

use super::{Wish, tool::Tool};

/// Calls being counted.
pub(super) struct Calls {
    tool: Tool,
    instrument: Instrument,
    asked: Asked,
    begun: Instant,
    /// When it was seen to count.
    counts_since: Option<Instant>,
    unseen: Vec<Unseen>,
}

/// What was asked.
#[derive(Clone, Debug)]
struct Asked {
    pids: Vec<u32>,
    seconds: u32,
    /// The server may be slowed.
    allow_slow: bool,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counted {
    /// By name.
    pub(super) calls: BTreeMap<String, Total>,
    /// Connections by thread; `None` if the instrument does not tell threads apart.
    pub(super) accepts: Option<BTreeMap<u32, u64>>,
    /// Waits in futex by thread, as above.
    pub(super) waits: Option<BTreeMap<u32, Total>>,
    /// The longest first.
    pub(super) addresses: Vec<LiveAddress>,
}

/// How often, and how long together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) count: u64,
    pub(super) ns: u64,
}

/// Everything that there is to tell.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) calls: Option<LiveCalls>,
    pub(super) counted: Counted,
    pub(super) unseen: Vec<Unseen>,
}

/// The cheapest for the server first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instrument {
    Bpftrace,
    PerfTrace,
    Strace,
}

impl Calls {
    /// Begins with the cheapest instrument that starts.
    ///
    /// # Errors
    /// None does.
    pub(super) fn begin(processes: &[LiveProcess], wish: Wish) -> Result<Self, Vec<Unseen>> {
        let pids = processes.iter().map(|process| process.pid).collect();
        let Wish { seconds, allow_slow, .. } = wish;
        start(Asked { pids, seconds, allow_slow }, &ALL, Vec::new())
    }

    /// Whether it counts by now, or never will.
    pub(super) fn is_ready(&mut self) -> bool {
        let loads = self.instrument == Instrument::Bpftrace && !self.tool.has_spoken();
        if !loads {
            self.counts_since.get_or_insert_with(Instant::now);
        }
        !loads || !self.tool.runs() || self.begun.elapsed() > LOAD_TIME_MAX
    }

    /// Sees to it that calls are counted: where an instrument is refused, the next one has a try.
    pub(super) fn attend(&mut self) {
        if !self.tool.has_failed() || self.begun.elapsed() > REFUSAL_TIME_MAX {
            return;
        }
        let after = ALL.iter().position(|it| *it == self.instrument).map_or(ALL.len(), |at| at + 1);
        if let Ok(next) = start(self.asked.clone(), &ALL[after..], Vec::new()) {
            let refused = std::mem::replace(self, next);
            let words = refused.tool.end(Duration::ZERO, &Interrupt::default()).words();
            self.unseen = refused.unseen;
            self.unseen.push(refused.instrument.refused(&words));
        }
    }

    /// Ends, and reads what was counted.
    pub(super) fn end(self) -> Told {
        let seconds = self.counts_since.unwrap_or(self.begun).elapsed().as_secs_f64();
        self.tool.stop();
        // A second Ctrl-C must not be needed: it ends by itself, within a limit.
        let ended = self.tool.end(END_TIME_MAX, &Interrupt::default());
        let counted = match self.instrument {
            Instrument::Bpftrace if !ended.is_well() => None,
            Instrument::Bpftrace => bpftrace::counted(&ended.output),
            Instrument::PerfTrace => perf::counted(&ended.said),
            Instrument::Strace => strace::counted(&ended.said),
        };
        let mut told = Told { unseen: self.unseen, ..Told::default() };
        match counted {
            Some(counted) => {
                told.calls = Some(document(self.instrument, seconds, &counted));
                told.counted = counted;
            }
            None => told.unseen.push(self.instrument.refused(&ended.words())),
        }
        told
    }
}

/// The first of `instruments` that starts.
fn start(
    asked: Asked,
    instruments: &[Instrument],
    mut unseen: Vec<Unseen>,
) -> Result<Calls, Vec<Unseen>> {
    for instrument in instruments {
        match instrument.start(&asked) {
            Ok(tool) => {
                let begun = Instant::now();
                let counts_since = None;
                let instrument = *instrument;
                return Ok(Calls { tool, instrument, asked, begun, counts_since, unseen });
            }
            Err(reason) => unseen.push(reason),
        }
    }
    Err(unseen)
}

impl Instrument {
    fn start(self, asked: &Asked) -> Result<Tool, Unseen> {
        match self {
            Self::Bpftrace => bpftrace::start(asked),
            Self::PerfTrace => perf::start(asked),
            Self::Strace => strace::start(asked),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bpftrace => "bpftrace",
            Self::PerfTrace => "perf trace",
            Self::Strace => "strace",
        }
    }

    fn refused(self, words: &str) -> Unseen {
        let remedy = match self {
            Self::Bpftrace => bpftrace::REMEDY,
            Self::PerfTrace => super::profile::TRACEPOINT_REMEDY,
            Self::Strace => strace::REMEDY,
        };
        Unseen {
            what: format!("{WHAT}, by {}", self.name()),
            why: format!("it counted nothing: {words}"),
            remedy: remedy.into(),
        }
    }
}

fn document(instrument: Instrument, seconds: f64, counted: &Counted) -> LiveCalls {
    let mut calls: Vec<LiveCall> = counted
        .calls
        .iter()
        .map(|(call, Total { count, ns })| LiveCall {
            call: call.clone(),
            count: *count,
            inside_ns: *ns,
        })
        .collect();
    calls.sort_by_key(|call| std::cmp::Reverse((call.inside_ns, call.count)));
    calls.truncate(CALLS_MAX);
    LiveCalls { instrument: instrument.name().into(), counted_seconds: seconds, calls }
}

/// The system calls whose end is a new connection.
const ACCEPTS: [&str; 2] = ["accept", "accept4"];
const ALL: [Instrument; 3] = [Instrument::Bpftrace, Instrument::PerfTrace, Instrument::Strace];
const CALLS_MAX: usize = 60;
const END_TIME_MAX: Duration = Duration::from_secs(10);
const LOAD_TIME_MAX: Duration = Duration::from_secs(20);
/// By then a refusal has been said.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(20);
const WHAT: &str = "system calls and waits in futex";
