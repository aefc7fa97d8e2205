//! The rounds of a run: every cell once per round, a process for each, and what their ratios show.

use std::{collections::BTreeMap, time::Duration};

use sealane_lab_harness::{
    interrupt::Interrupt,
    journal::Journal,
    machine::Steal,
    rounds::{self, Measurement, Schedule, Turn},
    trial::{BulkOutcome, Reply, Task, launch},
};
use sealane_lab_model::{
    document::{BulkSeries, Comparison},
    error::Error,
    figures::{bulk::RATE, conduct::Conduct, rounds::counting},
    library::Identity,
    statistics::{ROUNDS_MIN, Row, compare},
};

use crate::{
    bulk::{
        Arguments, table,
        task::{BulkTask, Emulation, Fault, FaultKind, Loops, Runtime, word},
    },
    stacks,
};

/// Measures everything that `journal` does not hold yet; a cell that fails has its reason and no
/// figures.
///
/// # Errors
/// [`Error::Interrupted`]: the journal holds the rounds that were whole. Else it cannot be written.
pub(super) fn measure(
    arguments: &Arguments,
    tasks: &[BulkTask],
    journal: &mut Journal,
) -> Result<(), Error> {
    let interrupt = Interrupt::catch()?;
    let blank: Vec<BulkSeries> = tasks.iter().map(series).collect();
    if journal.run.bulk.is_empty() {
        journal.run.bulk = blank;
    } else if !journal.run.bulk.iter().map(without_figures).eq(blank) {
        let text =
            "the run cannot be resumed: other stacks or processors are here than at its start";
        return Err(Error::Check(text.into()));
    }
    stacks::unchanged(&journal.run.stacks)?;
    let done = journal.run.bulk.iter().filter(|series| series.failure.is_none());
    let done = done.map(|series| series.rounds.len()).min().unwrap_or(0);
    let done = u32::try_from(done).unwrap_or(u32::MAX);
    let schedule = Schedule::new(blocks(tasks), arguments.shuffled.seed());
    let mut cells = Cells { tasks, journal };
    rounds::run(done..arguments.rounds(), &schedule, &interrupt, &mut cells)?;
    if usize::try_from(arguments.rounds()).is_ok_and(|rounds| rounds >= ROUNDS_MIN) {
        journal.run.comparisons = comparisons(tasks, &journal.run.bulk);
    }
    journal.save(true)
}

/// Cells that differ in threads, stack, runtime, loops or emulation only are a block.
fn blocks(tasks: &[BulkTask]) -> Vec<Vec<usize>> {
    let mut blocks: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (cell, task) in tasks.iter().enumerate() {
        blocks.entry(size_of(task)).or_default().push(cell);
    }
    blocks.into_values().collect()
}

/// What two cells must have in common to be compared.
fn size_of(task: &BulkTask) -> (usize, usize) {
    (task.message_bytes, task.connections)
}

struct Cells<'a> {
    tasks: &'a [BulkTask],
    journal: &'a mut Journal,
}

impl Measurement for Cells<'_> {
    type Outcome = BulkOutcome;

    fn name(&self, cell: usize) -> String {
        table::name(&self.journal.run.bulk[cell])
    }

    fn has_failed(&self, cell: usize) -> bool {
        self.journal.run.bulk[cell].failure.is_some()
    }

    fn measure(&mut self, turn: Turn) -> Result<BulkOutcome, Error> {
        let before = Steal::so_far();
        let mut outcome = outcome(&self.tasks[turn.cell])?;
        outcome.round.order = turn.order;
        let stolen_percent = Steal::percent(before, Steal::so_far());
        outcome.round.invalid = Conduct { stolen_percent, window: None }.invalid();
        Ok(outcome)
    }

    fn keep(&mut self, outcomes: Vec<(usize, Result<BulkOutcome, Error>)>) -> Result<(), Error> {
        for (cell, outcome) in outcomes {
            let series = &mut self.journal.run.bulk[cell];
            match outcome {
                Ok(BulkOutcome { stack, driver, negotiated, round }) => {
                    series.negotiated = Some(negotiated);
                    series.driver = driver;
                    series.rounds.push(round);
                    note(&mut self.journal.run.stacks, stack);
                }
                Err(error) => {
                    series.rounds.clear();
                    series.failure = Some(error.to_string());
                }
            }
        }
        self.journal.save(false)
    }
}

/// Each library once. Asio's driver knows less of its library than the lab that loads it.
fn note(stacks: &mut Vec<Identity>, stack: Identity) {
    let known = stacks
        .iter_mut()
        .find(|known| (&known.name, &known.sha256) == (&stack.name, &stack.sha256));
    match known {
        Some(known) if known.build.is_empty() => *known = stack,
        Some(_) => {}
        None => stacks.push(stack),
    }
}

fn outcome(task: &BulkTask) -> Result<BulkOutcome, Error> {
    let time_max = Duration::from_secs(task.seconds_max() + TRIAL_BESIDE_S);
    match launch::run(&Task::new(task)?, time_max)? {
        Reply::Bulk(outcome) => Ok(outcome),
        _ => Err(Error::Check("the trial told something else than bytes".into())),
    }
}

/// What comes, under each runtime over sockets, of its first task when a connection is reset.
pub(super) fn resets(tasks: &[BulkTask]) -> Vec<(String, Result<(), String>)> {
    let mut resets: Vec<(String, Result<(), String>)> = Vec::new();
    for task in tasks.iter().filter(|task| task.loops.is_some()) {
        let runtime = word(&task.runtime);
        if resets.iter().all(|(known, _)| *known != runtime) {
            resets.push((runtime, reset(task)));
        }
    }
    resets
}

/// What comes of `task` when its first connection is reset in the middle of its first message.
fn reset(task: &BulkTask) -> Result<(), String> {
    let fault =
        Fault { kind: FaultKind::Reset, connection: 0, after_bytes: task.message_bytes as u64 / 2 };
    let task = BulkTask { fault: Some(fault), messages: 1, ..task.clone() };
    outcome(&task).map(|_| ()).map_err(|error| error.to_string())
}

/// What is compared: a loop per lane with a shared one, an emulated fault with none, many threads
/// under such a fault with one, and under Asio each stack with the first one.
fn comparisons(tasks: &[BulkTask], series: &[BulkSeries]) -> Vec<Comparison> {
    let mut found = Vec::new();
    for (of, task) in tasks.iter().enumerate() {
        let is_peer = |other: &BulkTask| {
            let same_threads = other.threads == task.threads;
            let same_stack = other.stack == task.stack;
            let same_driver = (other.runtime, other.loops) == (task.runtime, task.loops);
            let same_fault = other.emulate == task.emulate;
            let by_loops = (task.loops, other.loops) == (Some(Loops::PerLane), Some(Loops::Shared))
                && other.runtime == task.runtime
                && (same_threads && same_stack && same_fault);
            let by_fault = (task.emulate != Emulation::None && other.emulate == Emulation::None)
                && (same_threads && same_stack && same_driver);
            let by_threads = task.emulate != Emulation::None
                && task.threads > 1
                && other.threads == 1
                && (same_stack && same_driver && same_fault);
            // The write-up's first step: another library, in the same loops.
            let by_library = task.runtime == Runtime::Asio && task.emulate == Emulation::None;
            let by_stack = (other.stack == tasks[0].stack && !same_stack)
                && (same_threads && same_driver && by_library);
            size_of(other) == size_of(task) && (by_loops || by_fault || by_threads || by_stack)
        };
        for (to, _) in tasks.iter().enumerate().filter(|(_, other)| is_peer(other)) {
            let (of, to) = (&series[of], &series[to]);
            let [of_figures, to_figures] = [of, to].map(|series| counting(&series.rounds, &RATE));
            let of = Row { name: &table::name(of), figures: &of_figures };
            let to = Row { name: &table::name(to), figures: &to_figures };
            found.extend(compare(&format!("bulk {}", RATE.unit), of, to));
        }
    }
    found
}

fn series(task: &BulkTask) -> BulkSeries {
    BulkSeries {
        stack: task.stack.clone(),
        runtime: word(&task.runtime),
        driver: None,
        loops: task.loops.as_ref().map(word),
        emulate: Some(task.emulate).filter(|it| *it != Emulation::None).as_ref().map(word),
        scenario: task.scenario.clone(),
        threads: task.threads,
        connections: task.connections,
        messages: task.messages,
        message_bytes: task.message_bytes as u64,
        verify: Some(word(&task.verify)),
        negotiated: None,
        rounds: Vec::new(),
        failure: None,
    }
}

fn without_figures(series: &BulkSeries) -> BulkSeries {
    let (negotiated, rounds, failure, driver) = (None, Vec::new(), None, None);
    BulkSeries { negotiated, rounds, failure, driver, ..series.clone() }
}

/// What a trial takes beside its own limit: compiling Asio's driver at first use.
const TRIAL_BESIDE_S: u64 = 300;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sealane_lab_model::{document::BulkRound, scenario::Scenario};

    use super::*;
    use crate::bulk::task::Verify;

    fn task(threads: usize, loops: Loops, emulate: Emulation) -> BulkTask {
        BulkTask {
            stack: "openssl".into(),
            runtime: Runtime::Asio,
            loops: Some(loops),
            emulate,
            scenario: Scenario::default(),
            threads,
            connections: 8,
            messages: 1,
            message_bytes: 1,
            verify: Verify::Sha256,
            fault: None,
            processors: Vec::new(),
            credentials: PathBuf::new(),
            include: None,
        }
    }

    fn compared(tasks: &[BulkTask], wanted: &[(usize, usize)]) {
        let mut all: Vec<BulkSeries> = tasks.iter().map(series).collect();
        for series in &mut all {
            let round = BulkRound { bytes: 1, wall_ns: 1, ..BulkRound::default() };
            series.rounds = vec![round; 3];
        }
        let place = |name: &str| all.iter().position(|series| table::name(series) == name);
        let pairs: Vec<_> = comparisons(tasks, &all)
            .iter()
            .map(|found| (place(&found.of).unwrap(), place(&found.to).unwrap()))
            .collect();
        assert_eq!(pairs, wanted);
        let cells: Vec<usize> = (0..tasks.len()).collect();
        assert_eq!(blocks(tasks), [cells]);
    }

    #[test]
    fn only_what_differs_in_one_thing_is_compared() {
        let [none, lock] = [Emulation::None, Emulation::ErrorLock];
        let tasks = [
            task(1, Loops::Shared, none),
            task(2, Loops::Shared, none),
            task(1, Loops::Shared, lock),
            task(2, Loops::Shared, lock),
            task(2, Loops::PerLane, lock),
        ];
        compared(&tasks, &[(2, 0), (3, 1), (3, 2), (4, 3)]);
    }

    #[test]
    fn the_library_is_one_step_and_the_loop_another() {
        let old =
            |emulate| BulkTask { stack: "openssl@1.0.2".into(), ..task(2, Loops::Shared, emulate) };
        let tasks = [
            old(Emulation::None),
            old(Emulation::FairLocks),
            task(2, Loops::Shared, Emulation::None),
            task(2, Loops::PerLane, Emulation::None),
        ];
        compared(&tasks, &[(1, 0), (2, 0), (2, 1), (3, 2)]);
    }
}
