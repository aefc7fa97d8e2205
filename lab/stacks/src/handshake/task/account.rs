//! Adds up what the threads report, and judges whether the round counts.

use sealane_lab_harness::trial::Reply;
use sealane_lab_model::{
    document::{HandshakeRound, Invalid},
    error::Error,
    histogram::Times as Histogram,
    scenario::Negotiated,
};

use super::{
    Handshakes,
    pair::{Part, Spans},
};

/// One thread's.
pub(super) struct Report {
    pub(super) number: usize,
    /// Handshakes that ended inside the window.
    pub(super) counted: u64,
    pub(super) warm_up: u64,
    /// Handshakes of another kind than asked for.
    pub(super) discarded: u64,
    /// Inside the window.
    pub(super) spans: Spans,
    pub(super) times: Times,
    pub(super) negotiated: Option<Negotiated>,
    laps: Option<Laps>,
}

/// Durations per handshake; large, so that a trial under an instrument has none.
struct Laps {
    server: Histogram,
    client: Histogram,
    other: Histogram,
}

impl Laps {
    fn new() -> Result<Self, Error> {
        let [server, client, other] = [Histogram::new()?, Histogram::new()?, Histogram::new()?];
        Ok(Self { server, client, other })
    }

    fn add(&mut self, more: &Self) -> Result<(), Error> {
        self.server.add(&more.server)?;
        self.client.add(&more.client)?;
        self.other.add(&more.other)
    }
}

/// When a thread did what, in nanoseconds from the trial's beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// The window closes, for all threads the same.
    pub(super) end_ns: u64,
    /// The first handshake of the window began.
    pub(super) first_ns: u64,
    /// The thread stopped working.
    pub(super) last_ns: u64,
    /// CPU time from the start to the end of that which closed the window.
    pub(super) cpu_ns: u64,
    /// Wall time of the same.
    pub(super) cpu_wall_ns: u64,
}

impl Report {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            counted: 0,
            warm_up: 0,
            discarded: 0,
            spans: Spans::default(),
            times: Times::default(),
            negotiated: None,
            laps: None,
        }
    }

    /// Whether the thread worked all through the window.
    ///
    /// # Errors
    /// If it did not.
    pub(super) fn is_whole(&self) -> Result<(), Error> {
        let Self { number, times, .. } = self;
        if times.last_ns < times.end_ns {
            let early_ms = (times.end_ns - times.last_ns) / 1_000_000;
            let early = format!("thread {number} stopped {early_ms} ms before the window closed");
            return Err(Error::Check(early));
        }
        Ok(())
    }

    /// One more handshake that took so long.
    pub(super) fn count(&mut self, lap: &Spans) {
        self.counted += 1;
        if let Some(laps) = &mut self.laps {
            laps.server.record(lap[Part::Server as usize] + lap[Part::ServerSetup as usize]);
            laps.client.record(lap[Part::Client as usize] + lap[Part::ClientSetup as usize]);
            laps.other.record(lap[Part::Other as usize]);
        }
    }

    /// Notes durations too.
    ///
    /// # Errors
    /// Never with these bounds.
    pub(super) fn with_laps(self) -> Result<Self, Error> {
        Ok(Self { laps: Some(Laps::new()?), ..self })
    }
}

/// The trial's result, out of all threads'.
///
/// # Errors
/// There was no handshake at all, or its histogram cannot be written.
pub(super) fn result(
    task: &Handshakes,
    reports: &[Report],
    steal_percent: f64,
) -> Result<Reply, Error> {
    let negotiated = reports.iter().find_map(|report| report.negotiated.clone());
    let none = || Error::Check("no handshake came to an end".into());
    let negotiated = negotiated.ok_or_else(none)?;
    if task.fixed.is_some() {
        let operations = reports.iter().map(|report| report.counted).sum();
        let warm_up = reports.iter().map(|report| report.warm_up).sum();
        return Ok(Reply::Fixed { operations, warm_up, negotiated });
    }
    let mut all = Laps::new()?;
    for laps in reports.iter().filter_map(|report| report.laps.as_ref()) {
        all.add(laps)?;
    }
    let Laps { server, client, other } = all;
    let mut round = round(task, reports, steal_percent);
    round.median_ns = [&server, &client, &other].map(|times| times.percentile_ns(50.0));
    Ok(Reply::Window { round, negotiated, server: server.document()?, client: client.document()? })
}

fn round(task: &Handshakes, reports: &[Report], steal_percent: f64) -> HandshakeRound {
    let sum = |part: Part| reports.iter().map(|report| report.spans[part as usize]).sum();
    let firsts = || reports.iter().map(|report| report.times.first_ns);
    let start_spread_ns = firsts().max().unwrap_or_default() - firsts().min().unwrap_or_default();
    let mut threads: Vec<&Report> = reports.iter().collect();
    threads.sort_unstable_by_key(|report| report.number);
    let parts = [Part::Server, Part::Client, Part::ServerSetup, Part::ClientSetup];
    let mut round = HandshakeRound {
        order: 0,
        window_ns: task.window_ms * 1_000_000,
        per_thread: threads.iter().map(|report| report.counted).collect(),
        discarded: reports.iter().map(|report| report.discarded).sum(),
        warm_up: reports.iter().map(|report| report.warm_up).sum(),
        server_ns: sum(Part::Server),
        client_ns: sum(Part::Client),
        server_setup_ns: sum(Part::ServerSetup),
        client_setup_ns: sum(Part::ClientSetup),
        other_ns: sum(Part::Other),
        cpu_ns: reports.iter().map(|report| report.times.cpu_ns).sum(),
        start_spread_ns,
        per_thread_ns: threads
            .iter()
            .map(|report| parts.map(|part| report.spans[part as usize]))
            .collect(),
        median_ns: [0; 3],
        invalid: None,
    };
    let wall_ns = reports.iter().map(|report| report.times.cpu_wall_ns).sum();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    round.invalid = invalid(&round, wall_ns, steal_percent, task.threads > processors);
    round
}

/// Why a round does not count. With more threads than processors (`crowded`) they take turns, which
/// is what such a point is to show: only the accounting and the hypervisor can spoil it.
fn invalid(
    round: &HandshakeRound,
    wall_ns: u64,
    steal_percent: f64,
    crowded: bool,
) -> Option<Invalid> {
    let threads = round.per_thread.len() as u64;
    let accounted = round.server_ns
        + round.client_ns
        + round.server_setup_ns
        + round.client_setup_ns
        + round.other_ns;
    let wanted = threads * round.window_ns;
    let off = accounted.abs_diff(wanted) as f64 / wanted as f64;
    if off > ACCOUNTING_TOLERANCE {
        Some(Invalid::Accounting)
    } else if round.per_thread.contains(&0) {
        Some(Invalid::Starved)
    } else if steal_percent > STEAL_PERCENT_MAX {
        Some(Invalid::Steal)
    } else if !crowded && wall_ns as f64 > round.cpu_ns as f64 * WALL_PER_CPU_MAX {
        Some(Invalid::Preempted)
    } else if !crowded && round.start_spread_ns > START_SPREAD_NS_MAX {
        Some(Invalid::Start)
    } else {
        None
    }
}

/// The spans' sum may differ so much from threads x window.
const ACCOUNTING_TOLERANCE: f64 = 0.02;
/// Percent of the machine's processor time that a hypervisor may take.
const STEAL_PERCENT_MAX: f64 = 1.0;
/// Beyond it, somebody else used the processors.
const WALL_PER_CPU_MAX: f64 = 1.05;
/// From the first thread's first handshake to the last thread's.
const START_SPREAD_NS_MAX: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads, 100 ns each.
    fn good() -> HandshakeRound {
        HandshakeRound {
            window_ns: 100,
            per_thread: vec![1, 1],
            server_ns: 90,
            client_ns: 80,
            server_setup_ns: 10,
            client_setup_ns: 10,
            other_ns: 10,
            cpu_ns: 200,
            ..HandshakeRound::default()
        }
    }

    #[test]
    fn a_round_counts_if_nothing_is_amiss() {
        assert_eq!(invalid(&good(), 205, 0.5, false), None);
    }

    #[test]
    fn time_that_no_span_accounts_for_is_found_and_so_is_too_much() {
        for server_ns in [80, 100] {
            let round = HandshakeRound { server_ns, ..good() };
            assert_eq!(invalid(&round, 200, 0.0, true), Some(Invalid::Accounting));
        }
    }

    #[test]
    fn each_disturbance_has_its_name() {
        let late = HandshakeRound { start_spread_ns: 1_000_001, ..good() };
        assert_eq!(invalid(&late, 200, 0.0, false), Some(Invalid::Start));
        assert_eq!(invalid(&good(), 211, 0.0, false), Some(Invalid::Preempted));
        assert_eq!(invalid(&good(), 200, 1.1, false), Some(Invalid::Steal));
        let idle = HandshakeRound { per_thread: vec![2, 0], ..good() };
        assert_eq!(invalid(&idle, 200, 0.0, true), Some(Invalid::Starved));
    }

    #[test]
    fn threads_that_must_take_turns_are_not_called_preempted() {
        let late = HandshakeRound { start_spread_ns: 10_000_000, ..good() };
        assert_eq!(invalid(&late, 400, 0.0, true), None);
    }
}
