//! The command `tickets`: ticket keys under the mutex that rustls had, under the read-write lock
//! that it has, and as Sealane has them, derived by each lane for itself.
//!
//! ```text
//! Arguments --plan--> TicketsTask per cell --a process each, in rounds--> rows --judge--> table
//! ```
//! All three seal with the engine's [`TicketKey`](sealane_engine::tickets::TicketKey), so that they
//! differ in the sharing alone; `lane` is the engine's own code. The two locks are written here
//! after rustls 0.23.46: rustls' own would seal with any key, but their locks cannot be asked who
//! waited, and time is no argument of theirs.

mod judge;
mod rotation;
mod rotators;
mod strategy;
mod tally;
mod task;
mod window;

use std::{collections::BTreeSet, time::Duration};

use sealane_lab_harness::{
    interrupt::Interrupt,
    journal::Journal,
    options::Shuffled,
    strategies::{Cell, Plan, Strict, conclude, counted, measure, measured, named, word},
    trial::{Fixed, Task, WINDOW_DEFAULT_MS},
};
use sealane_lab_model::{
    document::{Figure, SharedWrites, Strategies, StrategyRow},
    error::Error,
};
use sealane_lab_sharing::count;
use sealane_lab_stacks::handshake::thread_count;

pub use strategy::Strategy;
pub use task::{TicketsTask, Work};

/// The arguments of `tickets`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// How threads share ticket keys
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "mutex,rwlock,lane")]
    strategy: Vec<Strategy>,
    /// Numbers of threads [default: doubled from 1, up to twice the processors]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = thread_count)]
    threads: Vec<usize>,
    /// Length of the window in which tickets count
    #[arg(long, default_value_t = WINDOW_DEFAULT_MS, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(10..=600_000))]
    window_ms: u64,
    /// Lifetimes of keys that change under load
    #[arg(long, default_value_t = 10, value_name = "N",
        value_parser = clap::value_parser!(u64).range(4..=1_000))]
    lifetimes: u64,
    /// How long each of them takes
    #[arg(long, default_value_t = 1_000, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(50..=600_000))]
    lifetime_ms: u64,
    /// Also counts writes to cache lines that another thread writes too; takes valgrind
    #[arg(long)]
    shared_writes: bool,
    /// Leaves it to the kernel where threads run
    #[arg(long)]
    no_pin: bool,
    #[command(flatten)]
    strict: Strict,
    #[command(flatten)]
    shuffled: Shuffled,
}

/// `true` if every strategy was measured and no check failed.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    if arguments.shared_writes {
        count::needs_valgrind()?;
    }
    let (mut journal, interrupt) = arguments.shuffled.begin()?;
    let planned = Planned::new(arguments, &journal);
    let mut strategies = measure(planned.windows()?, &mut journal, &interrupt)?;
    if arguments.shared_writes {
        planned.count_shared_writes(&mut strategies, &interrupt)?;
    }
    let rotations = planned.rotations()?;
    match measure(rotations, &mut journal, &interrupt) {
        Ok(rotations) => strategies.rows.extend(rotations.rows),
        Err(error) => {
            journal.run.strategies = vec![strategies];
            journal.save(false)?;
            return Err(error);
        }
    }
    judge::judge(&mut strategies, journal.run.machine.processors);
    conclude(&mut journal, strategies, arguments.strict)
}

/// The arguments with their defaults for this machine.
struct Planned<'a> {
    arguments: &'a Arguments,
    strategies: BTreeSet<Strategy>,
    threads: BTreeSet<usize>,
    pin_order: Vec<usize>,
}

impl<'a> Planned<'a> {
    fn new(arguments: &'a Arguments, journal: &Journal) -> Self {
        let machine = &journal.run.machine;
        let threads = if arguments.threads.is_empty() {
            thread_counts(machine.processors)
        } else {
            arguments.threads.iter().copied().collect()
        };
        let pin_order = if arguments.no_pin { Vec::new() } else { machine.pin_order.clone() };
        let strategies = arguments.strategy.iter().copied().collect();
        Self { arguments, strategies, threads, pin_order }
    }

    fn windows(&self) -> Result<Plan, Error> {
        let work = Work::Window { window_ms: self.arguments.window_ms };
        let each = self.threads.iter().map(|threads| self.cells(*threads, work, TICKETS));
        let each = each.collect::<Result<Vec<_>, _>>()?;
        Ok(self.plan(self.arguments.shuffled.number(), each.into_iter().flatten().collect()))
    }

    /// Once, with the most threads: what it shows is counted.
    fn rotations(&self) -> Result<Plan, Error> {
        let Arguments { lifetime_ms, lifetimes, .. } = *self.arguments;
        let work = Work::Rotation { lifetime_ms, lifetimes };
        Ok(self.plan(1, self.cells(self.threads_max(), work, ROTATION)?))
    }

    fn plan(&self, rounds: u32, cells: Vec<(Duration, Cell)>) -> Plan {
        let arguments = self.arguments;
        let (times, cells): (Vec<Duration>, _) = cells.into_iter().unzip();
        let settings = [
            ("session", format!("{} bytes", task::SESSION_BYTES)),
            ("window", format!("{} ms", arguments.window_ms)),
            ("rotation", format!("{} x {} ms", arguments.lifetimes, arguments.lifetime_ms)),
        ];
        Plan {
            command: "tickets",
            settings: named(settings),
            figures: figures(),
            rounds,
            seed: arguments.shuffled.seed(),
            time_max: times.into_iter().max().unwrap_or_default(),
            cells,
        }
    }

    fn cells(
        &self,
        threads: usize,
        work: Work,
        kind: &str,
    ) -> Result<Vec<(Duration, Cell)>, Error> {
        let cell = |strategy: &Strategy| {
            let task = self.task(*strategy, threads, work);
            let cell = Cell {
                strategy: word(strategy),
                variant: named([("threads", threads.to_string()), ("keys", kind.to_owned())]),
                task: Task::new(&task)?,
            };
            Ok::<_, Error>((task.time_max(), cell))
        };
        self.strategies.iter().map(cell).collect()
    }

    fn task(&self, strategy: Strategy, threads: usize, work: Work) -> TicketsTask {
        let pin = self.pin_order.iter().copied().cycle().take(threads).collect();
        TicketsTask { strategy, threads, pin, work }
    }

    fn threads_max(&self) -> usize {
        self.threads.last().copied().unwrap_or(1)
    }

    /// By two threads, told in the rows of several.
    fn count_shared_writes(
        &self,
        strategies: &mut Strategies,
        interrupt: &Interrupt,
    ) -> Result<(), Error> {
        for strategy in &self.strategies {
            let mut task = self.task(*strategy, COUNTED_THREADS, Work::Fixed(COUNTED));
            task.pin.clear();
            let operations = COUNTED.count * COUNTED_THREADS as u64;
            let SharedWrites { total, .. } =
                count::shared_writes(&Task::new(&task)?, operations, interrupt)?;
            let of_strategy = |row: &&mut StrategyRow| {
                row.strategy == word(strategy)
                    && row.failure.is_none()
                    && row.variant["threads"] != "1"
            };
            for row in strategies.rows.iter_mut().filter(of_strategy) {
                row.figures.insert(SHARED_ISSUE.into(), vec![total.server]);
                row.figures.insert(SHARED_RESUME.into(), vec![total.client]);
            }
        }
        Ok(())
    }
}

/// Doubled from 1, all processors, and twice as many.
fn thread_counts(processors: usize) -> BTreeSet<usize> {
    let doubled = std::iter::successors(Some(1), |count| Some(count * 2));
    doubled.take_while(|count| *count < processors).chain([processors, 2 * processors]).collect()
}

fn figures() -> Vec<Figure> {
    vec![
        measured("tickets_per_s", "tickets per thread", "per second", "more"),
        measured("cpu_ns", "CPU per ticket", "ns", "less"),
        measured("p99_us", "99% of tickets within", "us", "less"),
        counted("lock_acquisitions", "locks per ticket"),
        counted("lock_waits", "lock waits"),
        counted("kernel_waits", "waits in the kernel"),
        counted(SHARED_ISSUE, "shared writes per issue"),
        counted(SHARED_RESUME, "shared writes per resume"),
        counted("keys_generated", "keys made"),
        counted("keys_generated_locked", "keys made under a lock"),
        counted("young_opened", "young opened"),
        counted("young_refused", "young refused"),
        counted("old_opened", "old opened"),
        counted("old_refused", "old refused"),
    ]
}

/// Two are enough to share.
const COUNTED_THREADS: usize = 2;
/// A lane makes its first key before it is counted.
const COUNTED: Fixed = Fixed { warm_up: 2, count: 10 };
const ROTATION: &str = "rotating";
const SHARED_ISSUE: &str = "shared_writes_issue";
const SHARED_RESUME: &str = "shared_writes_resume";
const TICKETS: &str = "constant";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_twice_the_processors() {
        for (processors, counts) in [(1, &[1, 2][..]), (2, &[1, 2, 4]), (6, &[1, 2, 4, 6, 12])] {
            assert!(thread_counts(processors).iter().eq(counts), "{processors}");
        }
    }
}
