//! The command `tables`: one file table for all threads, one for each, and a process each.
//!
//! ```text
//! Arguments --plan--> TablesTask per cell --a process each, in rounds--> rows --judge--> table
//! ```
//! Threads do nothing but what changes the table: sockets that are made and closed, or connections
//! that are accepted and closed. Then descriptors come that stay, so that the table grows.

mod judge;
mod task;

use std::{collections::BTreeSet, time::Duration};

use sealane_lab_harness::{
    journal::Journal,
    options::Shuffled,
    strategies::{Cell, Plan, Strict, conclude, counted, measure, measured},
    trial::Task,
};
use sealane_lab_model::{document::Figure, error::Error};
use sealane_lab_stacks::handshake::thread_count;
use serde::{Deserialize, Serialize};

pub use task::{TablesTask, Work};

/// The arguments of `tables`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Whose the file table is
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "thread-table,own-table,process"
    )]
    strategy: Vec<Strategy>,
    /// What threads do
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "socket,accept")]
    work: Vec<Work>,
    /// Numbers of threads [default: 1, as many as processors, twice as many]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = thread_count)]
    threads: Vec<usize>,
    /// Length of the window in which operations count
    #[arg(long, default_value_t = WINDOW_DEFAULT_MS, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(10..=600_000))]
    window_ms: u64,
    /// Leaves it to the kernel where threads run
    #[arg(long)]
    no_pin: bool,
    #[command(flatten)]
    strict: Strict,
    #[command(flatten)]
    shuffled: Shuffled,
}

/// Whose the file table is; the remedies last.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// One table for all threads, as every process has it
    ThreadTable,
    /// A table for each thread, by close_range(2) with CLOSE_RANGE_UNSHARE
    OwnTable,
    /// A process for each thread
    Process,
}

impl Strategy {
    /// The word on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ThreadTable => "thread-table",
            Self::OwnTable => "own-table",
            Self::Process => "process",
        }
    }
}

/// `true` if every strategy was measured and no check failed.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let (mut journal, interrupt) = arguments.shuffled.begin()?;
    let plan = plan(arguments, &journal)?;
    let mut strategies = measure(plan, &mut journal, &interrupt)?;
    judge::judge(&mut strategies, journal.run.machine.processors);
    conclude(&mut journal, strategies, arguments.strict)
}

fn plan(arguments: &Arguments, journal: &Journal) -> Result<Plan, Error> {
    let machine = &journal.run.machine;
    let processors = machine.processors.max(2);
    let threads: BTreeSet<usize> = match arguments.threads.is_empty() {
        true => [1, processors, 2 * processors].into(),
        false => arguments.threads.iter().copied().collect(),
    };
    let strategies: BTreeSet<Strategy> = arguments.strategy.iter().copied().collect();
    let works: BTreeSet<Work> = arguments.work.iter().copied().collect();
    let mut cells = Vec::new();
    for (work, threads) in works.iter().flat_map(|work| threads.iter().map(move |it| (work, it))) {
        let order = if arguments.no_pin { &[][..] } else { &machine.pin_order };
        let pin: Vec<usize> = order.iter().copied().cycle().take(*threads).collect();
        for strategy in &strategies {
            cells.push(Cell {
                strategy: strategy.name().to_owned(),
                variant: [("threads", threads.to_string()), ("work", work.name().to_owned())]
                    .map(|(name, value)| (name.to_owned(), value))
                    .into(),
                task: Task::new(&TablesTask {
                    strategy: *strategy,
                    work: *work,
                    threads: *threads,
                    pin: pin.clone(),
                    window_ms: arguments.window_ms,
                })?,
            });
        }
    }
    let settings = [
        ("window", format!("{} ms", arguments.window_ms)),
        ("descriptors that stay", format!("{} a thread", task::HELD)),
    ];
    Ok(Plan {
        command: "tables",
        settings: settings.map(|(name, value)| (name.to_owned(), value)).into(),
        figures: figures(),
        rounds: arguments.shuffled.number(),
        seed: arguments.shuffled.seed(),
        time_max: Duration::from_millis(arguments.window_ms) + TIME_BESIDE,
        cells,
    })
}

fn figures() -> Vec<Figure> {
    vec![
        measured("operations_per_s", "operations per thread", "per second", "more"),
        measured(CPU_NS, "CPU per operation", "ns", "less"),
        counted(SHARERS, "threads of one table"),
        counted(GROWTHS, "growths that all wait for"),
    ]
}

/// CPU time of one operation.
pub(crate) const CPU_NS: &str = "cpu_ns";
const GROWTHS: &str = "shared_growths";
const SHARERS: &str = "sharers";
const TIME_BESIDE: Duration = Duration::from_secs(60);
const WINDOW_DEFAULT_MS: u64 = 300;
