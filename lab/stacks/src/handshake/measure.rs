//! Measures the cells of `handshake` in rounds: one process each, and whatever it does is a result.

use std::{collections::BTreeMap, time::Duration};

use sealane_lab_harness::{
    credentials::Credentials,
    interrupt::Interrupt,
    journal::Journal,
    rounds::{self, Measurement, Schedule, Turn},
    trial::{Reply, Task, launch},
};
use sealane_lab_model::{
    document::{HandshakePoint, HandshakeRound, HandshakeSeries, HandshakeTimes, Histogram},
    error::Error,
    figures::Round,
    histogram::Times,
    scenario::{Key, Negotiated, Scenario},
};
use tempfile::TempDir;

use super::{Handshakes, Settings, comparisons::comparisons};
use crate::stacks;

/// Adds rounds to `journal` until it has `rounds` of them, comparisons included, and keeps it after
/// each.
///
/// # Errors
/// [`Error::Interrupted`] after Ctrl-C, with all finished rounds in the journal; or what makes
/// going on senseless. That a stack fails is no error: its series says why.
pub fn measure(
    settings: &Settings,
    rounds: u32,
    seed: u64,
    journal: &mut Journal,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    if journal.run.handshakes.is_empty() {
        journal.run.handshakes = series(settings);
        identify(settings, journal);
    } else {
        stacks::unchanged(&journal.run.stacks)?;
    }
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let mut credentials = BTreeMap::new();
    for scenario in &settings.scenarios {
        let name = format!("{:?}", scenario.key);
        credentials.insert(scenario.key, folder.path().join(name));
    }
    for (key, path) in &credentials {
        Credentials::make(path, *key)?;
    }
    let done = done(&journal.run.handshakes);
    let cells = Cells {
        stacks: settings.stacks.len(),
        scenarios: settings.scenarios.len(),
        threads: settings.threads.len(),
    };
    let mut bench =
        Bench { settings, cells, credentials, _folder: folder, journal, failed: Vec::new() };
    rounds::run(done..rounds.max(done), &Schedule::new(cells.blocks(), seed), interrupt, &mut bench)
}

/// How cells are numbered: the stacks of one scenario and number of threads are neighbours.
#[derive(Clone, Copy, Debug)]
struct Cells {
    stacks: usize,
    scenarios: usize,
    threads: usize,
}

impl Cells {
    /// What is compared: one block for each scenario and number of threads.
    fn blocks(self) -> Vec<Vec<usize>> {
        (0..self.scenarios * self.threads)
            .map(|block| (block * self.stacks..(block + 1) * self.stacks).collect())
            .collect()
    }

    /// The series and the point of a cell.
    fn place(self, cell: usize) -> (usize, usize) {
        let (block, stack) = (cell / self.stacks, cell % self.stacks);
        let (scenario, point) = (block / self.threads, block % self.threads);
        (scenario * self.stacks + stack, point)
    }
}

struct Bench<'a> {
    settings: &'a Settings,
    cells: Cells,
    credentials: BTreeMap<Key, std::path::PathBuf>,
    /// The credentials are in it.
    _folder: TempDir,
    journal: &'a mut Journal,
    /// Series with a point that failed in the round under way.
    failed: Vec<usize>,
}

struct Window {
    round: HandshakeRound,
    negotiated: Negotiated,
    server: Histogram,
    client: Histogram,
}

impl Measurement for Bench<'_> {
    type Outcome = Window;

    fn name(&self, cell: usize) -> String {
        let (series, point) = self.cells.place(cell);
        let series = &self.journal.run.handshakes[series];
        let threads = self.settings.threads[point];
        let plural = if threads == 1 { "" } else { "s" };
        format!("{}, {}, {threads} thread{plural}", series.stack, brief(&series.scenario))
    }

    fn has_failed(&self, cell: usize) -> bool {
        let (series, _) = self.cells.place(cell);
        self.journal.run.handshakes[series].failure.is_some() || self.failed.contains(&series)
    }

    fn measure(&mut self, turn: Turn) -> Result<Window, Error> {
        let (series, point) = self.cells.place(turn.cell);
        let window = self.trial(series, point, turn.order);
        if window.is_err() {
            self.failed.push(series);
        }
        window
    }

    fn keep(&mut self, outcomes: Vec<(usize, Result<Window, Error>)>) -> Result<(), Error> {
        let highest = self.settings.threads.len() - 1;
        for (cell, outcome) in outcomes {
            let (series, point) = self.cells.place(cell);
            let series = &mut self.journal.run.handshakes[series];
            if series.failure.is_some() {
                continue;
            }
            let kept = outcome.map_err(|error| error.to_string());
            let kept = kept.and_then(|window| add(series, point, point == highest, window));
            if let Err(reason) = kept {
                fail(series, reason);
            }
        }
        self.journal.run.comparisons = comparisons(&self.journal.run);
        self.journal.save(false)
    }
}

impl Bench<'_> {
    fn trial(&self, series: usize, point: usize, order: u32) -> Result<Window, Error> {
        let series = &self.journal.run.handshakes[series];
        let threads = self.settings.threads[point];
        let task = Task::new(&Handshakes {
            stack: series.stack.clone(),
            scenario: series.scenario.clone(),
            credentials: self.credentials[&series.scenario.key].clone(),
            threads,
            pin: self.settings.pinned(threads),
            window_ms: self.settings.window_ms,
            fixed: None,
            bulk: false,
            fault: self.settings.fault_of(&series.stack),
        })?;
        // Warm-up takes about as long as the window, at most.
        let time_max = Duration::from_millis(3 * self.settings.window_ms) + TRIAL_SLACK_MAX;
        match launch::run(&task, time_max)? {
            Reply::Window { mut round, negotiated, server, client } => {
                round.order = order;
                Ok(Window { round, negotiated, server, client })
            }
            _ => Err(Error::Check("the trial told something else than a window".into())),
        }
    }
}

/// One more round of a point; the reason if it contradicts the ones before.
fn add(
    series: &mut HandshakeSeries,
    point: usize,
    is_highest: bool,
    window: Window,
) -> Result<(), String> {
    let Window { round, negotiated, server, client } = window;
    match &series.negotiated {
        Some(before) if *before != negotiated => {
            return Err(format!("negotiated {negotiated:?}, after {before:?}"));
        }
        _ => series.negotiated = Some(negotiated),
    }
    let threads = series.points[point].threads;
    if is_highest && round.counts() {
        let (server, client) = match &series.times {
            Some(times) => (merged(&times.server, &server)?, merged(&times.client, &client)?),
            None => (server, client),
        };
        series.times = Some(HandshakeTimes { threads, server, client });
    }
    series.points[point].rounds.push(round);
    Ok(())
}

fn merged(one: &Histogram, other: &Histogram) -> Result<Histogram, String> {
    let merged = || {
        let mut all = Times::read(one)?;
        all.add(&Times::read(other)?)?;
        all.document()
    };
    merged().map_err(|error: Error| error.to_string())
}

/// No number stays of a stack that failed.
fn fail(series: &mut HandshakeSeries, reason: String) {
    series.points.clear();
    series.times = None;
    series.failure = Some(reason);
}

fn series(settings: &Settings) -> Vec<HandshakeSeries> {
    let points = || {
        let point = |threads: &usize| HandshakePoint {
            threads: *threads,
            pinned: settings.pinned(*threads),
            rounds: Vec::new(),
        };
        settings.threads.iter().map(point).collect()
    };
    let mut series = Vec::new();
    for scenario in &settings.scenarios {
        for stack in &settings.stacks {
            series.push(HandshakeSeries {
                stack: stack.clone(),
                scenario: scenario.clone(),
                negotiated: None,
                points: points(),
                times: None,
                failure: None,
            });
        }
    }
    series
}

/// Lets each stack tell what it is; one that cannot has failed already.
fn identify(settings: &Settings, journal: &mut Journal) {
    for (place, stack) in settings.stacks.iter().enumerate() {
        // The same one twice shows what chance alone brings.
        if settings.stacks[..place].contains(stack) {
            continue;
        }
        match stacks::identity(stack) {
            Ok(identity) => journal.run.stacks.push(identity),
            Err(error) => {
                let reason = match error {
                    // Unlike a scenario that it cannot do, this is the operator's to repair.
                    Error::Unsupported(reason) => reason,
                    other => other.to_string(),
                };
                let of_it = journal.run.handshakes.iter_mut().filter(|one| one.stack == *stack);
                of_it.for_each(|series| fail(series, reason.clone()));
            }
        }
    }
}

/// Rounds that every series has.
fn done(series: &[HandshakeSeries]) -> u32 {
    let points = series.iter().flat_map(|series| &series.points);
    let least = points.map(|point| point.rounds.len()).min().unwrap_or(0);
    u32::try_from(least).unwrap_or(u32::MAX)
}

/// For progress.
fn brief(scenario: &Scenario) -> String {
    let Scenario { kind, version, key, .. } = scenario;
    format!("{kind:?} {version:?} {key:?}").to_lowercase()
}

/// Loading, building contexts, and a machine under load.
const TRIAL_SLACK_MAX: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_the_stacks_of_one_scenario_and_thread_count() {
        let cells = Cells { stacks: 3, scenarios: 2, threads: 2 };
        let blocks = cells.blocks();
        assert_eq!(blocks.len(), 4);
        let places: Vec<_> = blocks.concat().into_iter().map(|cell| cells.place(cell)).collect();
        assert_eq!(places[..4], [(0, 0), (1, 0), (2, 0), (0, 1)]);
        assert_eq!(places[6..8], [(3, 0), (4, 0)]);
        let mut sorted = places.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 12);
    }
}
