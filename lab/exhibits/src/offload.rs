//! The command `offload`: TLS on worker threads behind one I/O loop, as TLSnappy does it, beside
//! TLS in the loop itself.
//!
//! ```text
//!              socket --enc_in--> worker --clear_out--> application
//!  one loop {                     TLS                                } one loop
//!              socket <--enc_out-- worker <--clear_in-- application
//! ```
//! A connection is bound to one worker for life, so that each of its four ways has one thread at
//! either end. What differs is how bytes cross, and what it takes to have them noticed:
//! [`Strategy`]. The TLS is the same in all of them, and so are loop and application.

mod account;
mod bell;
mod connection;
mod front;
mod judge;
mod notice;
mod pipe;
mod running;
mod server;
mod strategy;
mod task;
mod tls;
mod worker;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use sealane_lab_harness::{
    credentials::Credentials,
    options::Shuffled,
    strategies::{Cell, Plan, Strict, conclude, counted, measure, measured, named, word},
    trial::{Task, WINDOW_DEFAULT_MS},
};
use sealane_lab_model::{document::Figure, error::Error, scenario::Key};

pub use server::{Arguments as ServerArguments, run as serve};
pub use strategy::Strategy;
pub use task::{OffloadTask, Traffic};

/// The arguments of `offload`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Where TLS is done [default: all; with no workers, inline]
    #[arg(long, alias = "mode", value_delimiter = ',', value_name = "LIST")]
    strategy: Vec<Strategy>,
    /// Threads for TLS behind the loop
    #[arg(long, default_value_t = 2, value_name = "N",
        value_parser = clap::value_parser!(u64).range(0..=64))]
    workers: u64,
    /// Bytes of each answer
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "3069,100000",
        value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    body: Vec<u64>,
    /// Requests under way at any time
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "4,16,64,184",
        value_parser = clap::value_parser!(u64).range(1..=1_024))]
    concurrency: Vec<u64>,
    /// RSA-4096 handshakes under way beside requests, for the loop's stalls; 0: none
    #[arg(long, default_value_t = 8, value_name = "N",
        value_parser = clap::value_parser!(u64).range(0..=256))]
    rsa_4096: u64,
    /// Connections that each have a body of 100,000 bytes come back; 0: none
    #[arg(long, default_value_t = 1_000, value_name = "N",
        value_parser = clap::value_parser!(u64).range(0..=100_000))]
    echo: u64,
    /// How long requests come
    #[arg(long, default_value_t = WINDOW_DEFAULT_MS, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(10..=600_000))]
    window_ms: u64,
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
    let strategies = arguments.strategies()?;
    let (mut journal, interrupt) = arguments.shuffled.begin()?;
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let plan = arguments.plan(&strategies, folder.path())?;
    let mut measured = measure(plan, &mut journal, &interrupt)?;
    judge::judge(&mut measured, arguments.workers, journal.run.machine.processors);
    conclude(&mut journal, measured, arguments.strict)
}

impl Arguments {
    /// Those that were asked for, in the order of the table.
    fn strategies(&self) -> Result<BTreeSet<Strategy>, Error> {
        let all = [Strategy::Inline, Strategy::Queue, Strategy::Ring];
        let asked = match &self.strategy[..] {
            [] if self.workers == 0 => &all[..1],
            [] => &all,
            asked => asked,
        };
        let asked: BTreeSet<_> = asked.iter().copied().collect();
        if self.workers == 0 && asked.iter().any(|strategy| *strategy != Strategy::Inline) {
            let text = "without workers there is inline alone; give --workers, or no --strategy";
            return Err(Error::Unsupported(text.into()));
        }
        Ok(asked)
    }

    fn plan(&self, strategies: &BTreeSet<Strategy>, folder: &Path) -> Result<Plan, Error> {
        let mut cells = Vec::new();
        for (traffic, body_bytes, concurrency) in self.loads() {
            let credentials = credentials(folder, traffic.key())?;
            for strategy in strategies {
                let variant = [
                    ("body", body_bytes.to_string()),
                    ("concurrency", concurrency.to_string()),
                    ("traffic", traffic.name().to_owned()),
                ];
                let task = OffloadTask {
                    strategy: *strategy,
                    workers: self.workers,
                    traffic,
                    body_bytes,
                    concurrency: usize::try_from(concurrency).unwrap_or(usize::MAX),
                    window_ms: self.window_ms,
                    credentials: credentials.clone(),
                };
                let (strategy, variant) = (word(strategy), named(variant));
                let (time_max, task) = (task.time_max(), Task::new(&task)?);
                cells.push((time_max, Cell { strategy, variant, task }));
            }
        }
        Ok(Plan {
            command: "offload",
            settings: named([
                ("workers", self.workers.to_string()),
                ("window", format!("{} ms", self.window_ms)),
            ]),
            figures: figures(),
            rounds: self.shuffled.number(),
            seed: self.shuffled.seed(),
            time_max: cells.iter().map(|(time_max, _)| *time_max).max().unwrap_or_default(),
            cells: cells.into_iter().map(|(_, cell)| cell).collect(),
        })
    }

    /// What clients do, with how many bytes to an answer, and how much of it at a time.
    fn loads(&self) -> Vec<(Traffic, u64, u64)> {
        let bodies: BTreeSet<_> = self.body.iter().copied().collect();
        let concurrencies: BTreeSet<_> = self.concurrency.iter().copied().collect();
        let mut loads = Vec::new();
        for body in bodies {
            let at = |concurrency: &u64| (Traffic::KeepAlive, body, *concurrency);
            loads.extend(concurrencies.iter().map(at));
        }
        if self.rsa_4096 > 0 {
            let in_flight = usize::try_from(self.rsa_4096).unwrap_or(usize::MAX);
            loads.push((Traffic::BesideHandshakes(in_flight), STALL_BODY_BYTES, STALL_CONCURRENCY));
        }
        if self.echo > 0 {
            let concurrency = ECHO_CONCURRENCY.min(self.echo);
            loads.push((Traffic::Echo(self.echo), ECHO_BODY_BYTES, concurrency));
        }
        loads
    }
}

/// Keys and certificates of that type, made when they are first asked for.
fn credentials(folder: &Path, key: Key) -> Result<PathBuf, Error> {
    let folder = folder.join(format!("{key:?}"));
    if !folder.exists() {
        Credentials::make(&folder, key)?;
    }
    Ok(folder)
}

fn figures() -> Vec<Figure> {
    let neither = |figure| Figure { better: None, ..figure };
    vec![
        measured("rate", "answers", "per second", "more"),
        measured("p50_us", "p50", "us", "less"),
        measured("p99_us", "p99", "us", "less"),
        neither(measured("max_us", "max", "us", "less")),
        measured("cpu_us", "server CPU per answer", "us", "less"),
        neither(measured("loop_us", "of the loop", "us", "less")),
        neither(measured("workers_us", "of workers", "us", "less")),
        counted("events_per_request", "events per answer"),
        counted("calls_per_event", "calls to wake, per event"),
        counted("calls_per_batch", "per batch"),
        neither(measured("tick_p99_us", "loop's turn p99", "us", "less")),
        neither(measured("tick_cpu_p99_us", "its CPU p99", "us", "less")),
        neither(measured("stall_us", "longest stall", "us", "less")),
        counted("handshakes", "handshakes beside"),
        neither(measured("handshake_us", "CPU of one", "us", "less")),
        counted("broken", "broken connections"),
    ]
}

/// TLSnappy's `/big`.
const STALL_BODY_BYTES: u64 = 3_069;
const STALL_CONCURRENCY: u64 = 16;
/// TLSnappy's `/verybig`.
const ECHO_BODY_BYTES: u64 = 100_000;
const ECHO_CONCURRENCY: u64 = 64;
