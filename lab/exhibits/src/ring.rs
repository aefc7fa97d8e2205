//! The command `ring`: the same bytes from one thread to another through a locked queue, through
//! TLSnappy's ring, through rtrb and through bytering.

mod ends;
mod paged;
pub mod trial;

use std::{collections::BTreeSet, time::Duration};

use sealane_lab_harness::{
    options::Shuffled,
    strategies::{Cell, Plan, Strict, check, conclude, counted, measure, measured, named, word},
    trial::Task,
};
use sealane_lab_model::{
    document::{Strategies, StrategyCheck, StrategyRow},
    error::Error,
};
use serde::{Deserialize, Serialize};

use crate::ring::trial::RingTask;

/// The arguments of `ring`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Rings, side by side
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "mutex,paged,rtrb,bytering"
    )]
    strategy: Vec<Strategy>,
    /// Bytes of a write and of a read, multiples of 8
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "1024,4096,16384,65536",
        value_parser = clap::value_parser!(u64).range(8..=1 << 20))]
    chunk: Vec<u64>,
    /// Bytes per round as fast as the ring takes them
    #[arg(long, default_value_t = 1_023_000_000, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    bytes: u64,
    /// Chunks per round that are handed over one by one, and timed
    #[arg(long, default_value_t = 20_000, value_name = "N",
        value_parser = clap::value_parser!(u64).range(0..=1 << 32))]
    handovers: u64,
    #[command(flatten)]
    strict: Strict,
    #[command(flatten)]
    shuffled: Shuffled,
}

/// Which ring; the remedy last.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// A queue of bytes behind a lock
    Mutex,
    /// TLSnappy's: circular pages and one total that both ends write
    Paged,
    /// One buffer of fixed size
    Rtrb,
    /// Ours: pages that come and go, one position per side
    Bytering,
}

/// `true` if every byte arrived and no check failed.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    if let Some(odd) = arguments.chunk.iter().find(|bytes| !bytes.is_multiple_of(8)) {
        return Err(Error::Check(format!("--chunk {odd}: give multiples of 8")));
    }
    let (mut journal, interrupt) = arguments.shuffled.begin()?;
    let mut strategies = measure(arguments.plan()?, &mut journal, &interrupt)?;
    strategies.checks = checks(&strategies);
    conclude(&mut journal, strategies, arguments.strict)
}

impl Arguments {
    fn plan(&self) -> Result<Plan, Error> {
        let settings = [("bytes", self.bytes), ("handovers", self.handovers)];
        let cells = self.pairs().map(|(strategy, chunk)| self.cell(strategy, chunk));
        Ok(Plan {
            command: "ring",
            settings: named(settings.map(|(name, value)| (name, value.to_string()))),
            figures: vec![
                measured("mb_per_s", "bytes", "MB/s", "more"),
                measured("producer_ns", "producer's CPU per chunk", "ns", "less"),
                measured("consumer_ns", "consumer's CPU per chunk", "ns", "less"),
                counted("waits", "producer waits"),
                counted("stream_pages_allocated", "pages allocated"),
                counted("kept_up_pages_allocated", "allocated when kept up"),
                counted("kept_up_pages_live", "live when kept up"),
            ],
            cells: cells.collect::<Result<_, _>>()?,
            rounds: self.shuffled.number(),
            seed: self.shuffled.seed(),
            time_max: TIME_MAX + Duration::from_nanos(self.bytes.saturating_mul(BYTE_NS_MAX)),
        })
    }

    /// In the order of the cells: the remedy last, whatever the order on the command line.
    fn pairs(&self) -> impl Iterator<Item = (Strategy, u64)> {
        let strategies: BTreeSet<Strategy> = self.strategy.iter().copied().collect();
        self.chunk.iter().flat_map(move |chunk| {
            let chunk = *chunk;
            strategies.clone().into_iter().map(move |strategy| (strategy, chunk))
        })
    }

    fn cell(&self, strategy: Strategy, chunk: u64) -> Result<Cell, Error> {
        let task = RingTask {
            strategy,
            chunk_bytes: usize::try_from(chunk).unwrap_or(usize::MAX),
            chunks: self.bytes.div_ceil(chunk),
            handovers: self.handovers,
        };
        Ok(Cell {
            strategy: word(&strategy),
            variant: named([("chunk", chunk.to_string())]),
            task: Task::new(&task)?,
        })
    }
}

fn checks(strategies: &Strategies) -> Vec<StrategyCheck> {
    let rows = &strategies.rows;
    let bytes = rows.iter().flat_map(|row| row.values("bytes")).sum::<f64>();
    let failed = rows.iter().filter(|row| row.failure.is_some()).count();
    let mut checks = vec![check(
        "B1",
        "every byte arrives as it was sent",
        Some(failed == 0 && bytes > 0.0),
        format!("{bytes:.0} bytes compared, {failed} rows failed"),
    )];
    // A chunk that no page holds takes several, however well the receiver keeps up.
    let fits = |row: &&StrategyRow| {
        let bytes = row.variant["chunk"].parse::<usize>();
        row.strategy == "bytering" && bytes.is_ok_and(|bytes| bytes <= ends::PAGE_BYTES)
    };
    let ours: Vec<_> = rows.iter().filter(fits).collect();
    let most = |name| ours.iter().flat_map(|row| row.values(name)).copied().reduce(f64::max);
    if let [Some(live), Some(allocated), Some(taken), Some(growth), Some(leaked)] =
        ["kept_up_pages_live", "kept_up_pages_allocated", "paused_taken", "paused_growth", "leaked"]
            .map(most)
    {
        checks.push(check(
            "B3",
            "pages are reused, and the producer is told to wait at the cap",
            Some(
                live <= LIVE_MAX
                    && allocated <= ALLOCATED_MAX
                    && taken == ends::CAP_BYTES as f64
                    && growth <= GROWTH_BYTES_MAX,
            ),
            format!(
                "kept up: {live} live, {allocated} allocated; paused: {taken} bytes taken, \
                 memory grew by {growth}"
            ),
        ));
        checks.push(check(
            "B6",
            "10,000 rings that each grew to 5 pages leave nothing",
            Some(leaked < LEAKED_BYTES_MAX),
            format!("{leaked} bytes by the allocator's count; bytering/prove counts leaks"),
        ));
    }
    checks
}

/// B3's bounds.
const LIVE_MAX: f64 = 3.0;
const ALLOCATED_MAX: f64 = 4.0;
const GROWTH_BYTES_MAX: f64 = (2 << 20) as f64;
/// Less than a byte per ring: what the allocator keeps of freed blocks counts as used.
const LEAKED_BYTES_MAX: f64 = 10_000.0;
/// The handovers, on a machine under load.
const TIME_MAX: Duration = Duration::from_secs(120);
const BYTE_NS_MAX: u64 = 100;
