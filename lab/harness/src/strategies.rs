//! Named ways to do one thing, side by side: what the commands `tables`, `tickets`, `ring`,
//! `offload`, `certificates`, `contexts` and `node` have in common.
//!
//! ```text
//! Plan: a Cell per strategy and variant --a process each, in rounds--> Strategies --checks--> text
//! ```
//! A command makes a [`Plan`], lets [`measure`] fill the rows, judges them by checks, and ends with
//! [`conclude`]. A row that fails has its reason and no figures.

mod table;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io::{self, Write},
    time::Duration,
};

use clap::ValueEnum;
use sealane_lab_model::{
    document::{Comparison, Figure, Judgement, Strategies, StrategyCheck, StrategyRow},
    error::Error,
    histogram::Times,
    statistics::{Row, compare},
};

use crate::{
    interrupt::Interrupt,
    journal::Journal,
    rounds::{self, Measurement, Schedule, Turn},
    trial::{Reply, Task, launch},
};

pub use table::told;

/// Everything that one command measures.
pub struct Plan {
    /// The command's name.
    pub command: &'static str,
    /// What all rows have in common.
    pub settings: BTreeMap<String, String>,
    /// What the rows tell.
    pub figures: Vec<Figure>,
    /// The rows; those of one variant stand side by side in time.
    pub cells: Vec<Cell>,
    /// How often each is measured.
    pub rounds: u32,
    /// The seed of the order.
    pub seed: u64,
    /// One trial takes no longer.
    pub time_max: Duration,
}

/// One row to be measured.
pub struct Cell {
    /// The strategy's name on the command line.
    pub strategy: String,
    /// What else tells this row from others.
    pub variant: BTreeMap<String, String>,
    /// The trial, which answers with [`Reply::Figures`].
    pub task: Task,
}

/// Measures all cells in interleaved rounds; the rows are in the order of the cells.
///
/// # Errors
/// [`Error::Interrupted`]: the journal then holds the rounds that were whole. Else it cannot be
/// written.
pub fn measure(
    plan: Plan,
    journal: &mut Journal,
    interrupt: &Interrupt,
) -> Result<Strategies, Error> {
    let Plan { command, settings, figures, cells, rounds, seed, time_max } = plan;
    let blank = |cell: &Cell| StrategyRow {
        strategy: cell.strategy.clone(),
        variant: cell.variant.clone(),
        ..StrategyRow::default()
    };
    let rows = cells.iter().map(blank).collect();
    let (command, checks) = (command.to_owned(), Vec::new());
    let strategies = Strategies { command, settings, figures, rows, checks };
    let schedule = Schedule::new(blocks(&cells), seed);
    let mut rows = Rows { cells, strategies, time_max, times: BTreeMap::new(), journal };
    rounds::run(0..rounds, &schedule, interrupt, &mut rows)?;
    Ok(rows.strategies)
}

/// What a check that is not decided here comes to.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Strict {
    /// Fails unless every check is decided here, and holds
    #[arg(long)]
    strict: bool,
}

impl Strict {
    /// Whether a command ends well that was judged so.
    pub fn allows(self, judgement: &Judgement) -> bool {
        judgement.failed.is_empty() && (!self.strict || judgement.all_hold())
    }
}

/// Judged rows to the document and, as a table with its checks, to standard output; whether every
/// row has figures and the checks are as well as `strict` wants them.
///
/// # Errors
/// The document cannot be written, or standard output is gone.
pub fn conclude(
    journal: &mut Journal,
    strategies: Strategies,
    strict: Strict,
) -> Result<bool, Error> {
    let text = table::table(&strategies);
    let fine = strict.allows(&strategies.judgement());
    journal.run.comparisons.extend(comparisons(&strategies));
    journal.run.strategies = vec![strategies];
    journal.save(true)?;
    io::stdout().write_all(text.as_bytes()).map_err(Error::io("standard output"))?;
    Ok(fine)
}

/// The word of a value on the command line, as which documents have it too.
pub fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Names with what they stand for: a variant, settings, or the figures of a trial.
pub fn named<N: Into<String>, V, M: FromIterator<(String, V)>>(
    pairs: impl IntoIterator<Item = (N, V)>,
) -> M {
    pairs.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

/// A column that was counted, event by event.
pub fn counted(name: &str, title: &str) -> Figure {
    let (name, title) = (name.to_owned(), title.to_owned());
    Figure { name, title, unit: String::new(), counted: true, better: None }
}

/// A column that was measured, with its unit and which is better: `less` or `more`.
pub fn measured(name: &str, title: &str, unit: &str, better: &str) -> Figure {
    Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        counted: false,
        better: Some(better.to_owned()),
    }
}

/// A judgement, by the number that the check has in the write-ups' list.
pub fn check(
    id: &str,
    claim: &str,
    holds: Option<bool>,
    shown: impl Into<String>,
) -> StrategyCheck {
    StrategyCheck { id: id.to_owned(), claim: claim.to_owned(), holds, shown: shown.into() }
}

/// Cells of one variant are a block.
fn blocks(cells: &[Cell]) -> Vec<Vec<usize>> {
    let mut blocks: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (number, cell) in cells.iter().enumerate() {
        blocks.entry(&cell.variant).or_default().push(number);
    }
    blocks.into_values().collect()
}

/// Each row with the last one of its variant, which is the remedy, by every measured figure that
/// has a better side.
fn comparisons(strategies: &Strategies) -> Vec<Comparison> {
    let judged = |figure: &&Figure| !figure.counted && figure.better.is_some();
    let mut comparisons = Vec::new();
    for figure in strategies.figures.iter().filter(judged) {
        for (at, row) in strategies.rows.iter().enumerate() {
            let rest = &strategies.rows[at + 1..];
            let Some(remedy) = rest.iter().rfind(|other| other.variant == row.variant) else {
                continue;
            };
            let [of, to] = [row, remedy].map(|row| {
                row.values(&figure.name).iter().map(|value| Some(*value)).collect::<Vec<_>>()
            });
            let [of_name, to_name] = [row, remedy].map(StrategyRow::name);
            let measure = format!("{}: {}", strategies.command, figure.title);
            let of = Row { name: &of_name, figures: &of };
            comparisons.extend(compare(&measure, of, Row { name: &to_name, figures: &to }));
        }
    }
    comparisons
}

struct Rows<'a> {
    cells: Vec<Cell>,
    strategies: Strategies,
    time_max: Duration,
    /// Merged over rounds, by cell and name.
    times: BTreeMap<(usize, String), Times>,
    journal: &'a mut Journal,
}

/// The result of one trial.
struct Outcome {
    order: u32,
    figures: BTreeMap<String, f64>,
    times: BTreeMap<String, Times>,
}

impl Measurement for Rows<'_> {
    type Outcome = Outcome;

    fn name(&self, cell: usize) -> String {
        let name = self.strategies.rows[cell].name();
        format!("{} {name}", self.strategies.command)
    }

    fn has_failed(&self, cell: usize) -> bool {
        self.strategies.rows[cell].failure.is_some()
    }

    fn measure(&mut self, turn: Turn) -> Result<Outcome, Error> {
        match launch::run(&self.cells[turn.cell].task, self.time_max)? {
            Reply::Figures { figures, times } => {
                let read = |(name, times)| Times::read(&times).map(|times| (name, times));
                let times = times.into_iter().map(read).collect::<Result<_, _>>()?;
                Ok(Outcome { order: turn.order, figures, times })
            }
            _ => Err(Error::Check("the trial told something else than figures".into())),
        }
    }

    fn keep(&mut self, outcomes: Vec<(usize, Result<Outcome, Error>)>) -> Result<(), Error> {
        for (cell, outcome) in outcomes {
            let row = &mut self.strategies.rows[cell];
            match outcome {
                Ok(outcome) => {
                    row.order.push(outcome.order);
                    for (name, value) in outcome.figures {
                        row.figures.entry(name).or_default().push(value);
                    }
                    for (name, times) in outcome.times {
                        let merged = match self.times.entry((cell, name.clone())) {
                            Entry::Vacant(place) => place.insert(times),
                            Entry::Occupied(merged) => {
                                let merged = merged.into_mut();
                                merged.add(&times)?;
                                merged
                            }
                        };
                        row.times.insert(name, merged.document()?);
                    }
                }
                Err(error) => {
                    row.figures.clear();
                    row.times.clear();
                    row.order.clear();
                    row.failure = Some(error.to_string());
                }
            }
        }
        self.journal.run.strategies = vec![self.strategies.clone()];
        self.journal.save(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(strategy: &str, threads: &str, figures: &[f64]) -> StrategyRow {
        StrategyRow {
            strategy: strategy.into(),
            variant: [("threads".to_owned(), threads.to_owned())].into(),
            figures: [("cpu".to_owned(), figures.to_vec())].into(),
            ..StrategyRow::default()
        }
    }

    fn strategies() -> Strategies {
        Strategies {
            command: "tickets".into(),
            settings: [("lifetime".to_owned(), "1 s".to_owned())].into(),
            figures: vec![
                measured("cpu", "CPU per ticket", "ns", "less"),
                counted("waits", "lock waits"),
            ],
            rows: vec![
                row("mutex", "1", &[10.0, 11.0, 12.0, 11.0, 10.5]),
                row("lane", "1", &[5.0, 5.5, 6.0, 5.5, 5.25]),
                row("mutex", "2", &[20.0; 5]),
                row("lane", "2", &[5.0; 5]),
            ],
            checks: vec![
                check("C5", "a lane never waits for a lock", Some(true), "0 waits"),
                check("C6", "old tickets are refused", Some(false), "3 of 10 were taken"),
            ],
        }
    }

    #[test]
    fn every_row_is_compared_with_the_remedy_of_its_variant() {
        let found = comparisons(&strategies());
        let told: Vec<_> =
            found.iter().map(|found| (&*found.of, &*found.to, found.ratio)).collect();
        let expected = [
            ("mutex, threads 1", "lane, threads 1", 2.0),
            ("mutex, threads 2", "lane, threads 2", 4.0),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_table_tells_medians_with_their_ends_and_every_check() {
        let mut strategies = strategies();
        strategies.rows[3].failure = Some("no such lock".into());
        for row in &mut strategies.rows {
            row.figures.insert("waits".into(), vec![7.0; 5]);
        }
        let text = table::table(&strategies);
        for wanted in [
            "tickets: lifetime 1 s",
            "11 [10-12]",
            "CPU per ticket (ns)",
            "lane, threads 2: NO FIGURES: no such lock",
            "C5 holds: a lane never waits for a lock: 0 waits",
            "C6 FAILS: old tickets are refused: 3 of 10 were taken",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn a_failed_check_or_row_is_a_failed_run_and_an_undecided_check_if_it_is_strict() {
        let mut journal = Journal::begin(Vec::new(), None);
        let mut ends = |strategies: &Strategies| {
            [false, true].map(|strict| {
                conclude(&mut journal, strategies.clone(), Strict { strict }).unwrap()
            })
        };
        let mut rows = strategies();
        assert_eq!(ends(&rows), [false, false]);
        rows.checks.pop();
        assert_eq!(ends(&rows), [true, true]);
        rows.checks.push(check("E8", "which wins on 16 cores", None, "2 cores cannot show it"));
        assert_eq!(ends(&rows), [true, false]);
        rows.rows[0].failure = Some("crash".into());
        assert_eq!(ends(&rows), [false, false]);
    }
}
