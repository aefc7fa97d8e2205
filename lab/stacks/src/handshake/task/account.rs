//! Adds up the reports of the threads.

use sealane_lab_harness::trial::Reply;
use sealane_lab_model::{
    document::HandshakeRound,
    error::Error,
    figures::conduct::{Conduct, Exclusive, Window},
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
    round.invalid = conduct(task, reports, &round, steal_percent).invalid();
    round
}

fn conduct(
    task: &Handshakes,
    reports: &[Report],
    round: &HandshakeRound,
    stolen_percent: f64,
) -> Conduct {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let HandshakeRound { server_ns, client_ns, server_setup_ns, client_setup_ns, .. } = round;
    let window = Window {
        length_ns: reports.len() as u64 * round.window_ns,
        accounted_ns: server_ns + client_ns + server_setup_ns + client_setup_ns + round.other_ns,
        least_done: round.per_thread.iter().copied().min().unwrap_or_default(),
        exclusive: (task.threads <= processors).then(|| Exclusive {
            wall_ns: reports.iter().map(|report| report.times.cpu_wall_ns).sum(),
            cpu_ns: round.cpu_ns,
            start_spread_ns: round.start_spread_ns,
        }),
    };
    Conduct { stolen_percent, window: Some(window) }
}
