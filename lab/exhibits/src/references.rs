//! The command `references`: one object that many threads take and give back, its references
//! counted behind a lock, by an atomic, or by each lane for itself: the other half of TLSnappy's
//! story, which found 30% of its time in OpenSSL's `CRYPTO_add_lock` and made it atomic.
//!
//! ```text
//! Arguments --plan--> ReferencesTask per cell --a process each, in rounds--> rows --judge--> table
//! ```

mod judge;
mod task;

use std::{collections::BTreeSet, time::Duration};

use sealane_lab_harness::{
    interrupt::Interrupt,
    options::Shuffled,
    strategies::{Cell, Plan, Strict, conclude, counted, measure, measured, named, word},
    trial::{Fixed, Task, WINDOW_DEFAULT_MS},
};
use sealane_lab_model::{document::Strategies, error::Error};
use sealane_lab_sharing::count;
use sealane_lab_stacks::handshake::thread_count;
use serde::{Deserialize, Serialize};

pub use task::{ReferencesTask, Work};

/// The arguments of `references`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Who counts
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "lock,atomic,lane")]
    strategy: Vec<Strategy>,
    /// Numbers of threads [default: 1, and as many as processors]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = thread_count)]
    threads: Vec<usize>,
    /// Length of the window in which references count
    #[arg(long, default_value_t = WINDOW_DEFAULT_MS, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(10..=600_000))]
    window_ms: u64,
    /// Also counts writes to cache lines that another thread writes too; takes valgrind
    #[arg(long)]
    shared_writes: bool,
    #[command(flatten)]
    strict: Strict,
    #[command(flatten)]
    shuffled: Shuffled,
}

/// Who counts; the remedy last.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// One number behind a lock: `CRYPTO_add_lock` as OpenSSL 1.0 had it
    Lock,
    /// One atomic number: TLSnappy's patch, and OpenSSL since
    Atomic,
    /// A number of each lane's own, of an object of its own
    Lane,
}

/// `true` if every strategy was measured and the checks are as well as was asked.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    if arguments.shared_writes {
        count::needs_valgrind()?;
    }
    let (mut journal, interrupt) = arguments.shuffled.begin()?;
    let machine = &journal.run.machine;
    let (processors, pin_order) = (machine.processors, machine.pin_order.clone());
    let plan = arguments.plan(processors, &pin_order)?;
    let mut strategies = measure(plan, &mut journal, &interrupt)?;
    if arguments.shared_writes {
        arguments.count_writes(&mut strategies, &interrupt)?;
    }
    judge::judge(&mut strategies, processors);
    conclude(&mut journal, strategies, arguments.strict)
}

impl Arguments {
    fn plan(&self, processors: usize, pin_order: &[usize]) -> Result<Plan, Error> {
        let threads: BTreeSet<usize> = match self.threads.is_empty() {
            true => [1, processors.max(2)].into(),
            false => self.threads.iter().copied().collect(),
        };
        let work = Work::Window { window_ms: self.window_ms };
        let mut cells = Vec::new();
        for threads in threads {
            let pin: Vec<usize> = pin_order.iter().copied().cycle().take(threads).collect();
            for strategy in self.strategies() {
                let pin = pin.clone();
                let task = Task::new(&ReferencesTask { strategy, threads, pin, work })?;
                let variant = named([("threads", threads.to_string())]);
                cells.push(Cell { strategy: word(&strategy), variant, task });
            }
        }
        Ok(Plan {
            command: "references",
            settings: named([("window", format!("{} ms", self.window_ms))]),
            figures: vec![
                measured(RATE, "references per thread", "per second", "more"),
                measured(CPU_NS, "CPU per reference", "ns", "less"),
                counted(SHARED, "shared writes per reference"),
            ],
            cells,
            rounds: self.shuffled.number(),
            seed: self.shuffled.seed(),
            time_max: Duration::from_millis(self.window_ms) + TIME_BESIDE,
        })
    }

    fn strategies(&self) -> BTreeSet<Strategy> {
        self.strategy.iter().copied().collect()
    }

    /// Shared writes of two threads, into the rows of several.
    fn count_writes(
        &self,
        strategies: &mut Strategies,
        interrupt: &Interrupt,
    ) -> Result<(), Error> {
        for strategy in self.strategies() {
            let work = Work::Fixed(COUNTED);
            let task = ReferencesTask { strategy, threads: COUNTED_THREADS, pin: Vec::new(), work };
            let operations = COUNTED.count * COUNTED_THREADS as u64;
            let writes = count::shared_writes(&Task::new(&task)?, operations, interrupt)?;
            let of_strategy = strategies.rows.iter_mut().filter(|row| {
                row.strategy == word(&strategy)
                    && row.failure.is_none()
                    && row.variant["threads"] != "1"
            });
            for row in of_strategy {
                row.figures.insert(SHARED.into(), vec![writes.total.server]);
            }
        }
        Ok(())
    }
}

const CPU_NS: &str = "cpu_ns";
const RATE: &str = "references_per_s";
const SHARED: &str = "shared_writes";
/// Two are enough to share.
const COUNTED_THREADS: usize = 2;
const COUNTED: Fixed = Fixed { warm_up: 1, count: 10 };
const TIME_BESIDE: Duration = Duration::from_secs(60);
