//! What a system call does under a file table's lock, measured on two processors: [`measure`].
//!
//! ```text
//! thread each      tables         two calls
//! look_ns          one for each   F_GETFD, F_GETFD
//! apart_ns         one for each   F_DUPFD, close
//! together_ns      one for both   F_DUPFD, close
//! ```
//! Halves of differences: a call holds the lock for (apart - look) / 2 at most, the rest of its
//! own work included. How many lines it moves while it holds it, nobody can time from outside: the
//! replay of the same two threads tells with how many it comes nearest to `together_ns`. What a
//! shared table costs without anybody to wait for (two atomics on the file's own count) is in that.

use std::time::Duration;

use sealane_lab_harness::{
    interrupt::Interrupt,
    trial::{Reply, Task, launch},
};
use sealane_lab_model::{
    document::{KernelHold, Machine},
    error::Error,
    statistics::Spread,
};

use super::path::ServerPath;
use crate::{
    forecast::{
        SERVER,
        replays::{Replays, Speed, Watch},
    },
    tables::{CPU_NS, Strategy, TablesTask, Work},
};

/// Measured here, where moving a line costs `transfer_ns`.
///
/// # Errors
/// There is one processor only, threads with one table were not slower, or Ctrl-C.
pub(super) fn measure(
    transfer_ns: f64,
    machine: &Machine,
    stop: &Interrupt,
) -> Result<KernelHold, Error> {
    let mut figures: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for ((strategy, work), figures) in CELLS.into_iter().zip(&mut figures) {
            if stop.is_pressed() {
                return Err(Error::Interrupted);
            }
            figures.push(cpu_ns(strategy, work, machine)?);
        }
    }
    fitted(transfer_ns, figures, stop)
}

/// The CPU time of one operation.
fn cpu_ns(strategy: Strategy, work: Work, machine: &Machine) -> Result<f64, Error> {
    let pin: Vec<usize> = machine.pin_order.iter().copied().take(THREADS as usize).collect();
    let threads = pin.len();
    if threads < THREADS as usize {
        return Err(Error::Unsupported(
            "how long a file table is locked shows between two processors, and this process may \
             run on one only; give it more"
                .into(),
        ));
    }
    let task = TablesTask { strategy, work, threads, pin, window_ms: WINDOW_MS };
    match launch::run(&Task::new(&task)?, TIME_MAX)? {
        Reply::Figures { figures, .. } => figures.get(CPU_NS).copied(),
        _ => None,
    }
    .ok_or_else(|| Error::Check("a trial of file tables told no CPU time".into()))
}

/// What the times come to.
pub(super) fn fitted(
    transfer_ns: f64,
    [look, apart, together]: [Vec<f64>; 3],
    stop: &Interrupt,
) -> Result<KernelHold, Error> {
    let median = |figures: &[f64]| Spread::of(figures).map_or(0.0, |spread| spread.median);
    let [look_ns, apart_ns, together_ns] = [&look, &apart, &together].map(|of| median(of));
    if together_ns <= apart_ns {
        return Err(Error::Check(format!(
            "two threads that write one file table were not slower ({together_ns:.0} ns) than with \
             a table each ({apart_ns:.0} ns): other programs kept them from running at the same \
             time, or the processors are not real ones; stop what else runs here, and measure again"
        )));
    }
    let hold_ns = ((apart_ns - look_ns) / 2.0).max(0.0);
    let mut nearest: Option<(f64, u32)> = None;
    for lines in 0..=LINES_MAX {
        let path = ServerPath { holds: 2, work_ns: apart_ns - 2.0 * hold_ns, hold_ns, lines };
        let ns = replayed_ns(path, transfer_ns, stop)?;
        if nearest.is_none_or(|(best, _)| (ns - together_ns).abs() < (best - together_ns).abs()) {
            nearest = Some((ns, lines));
        }
    }
    let (replayed_ns, lines) = nearest.unwrap_or_default();
    Ok(KernelHold {
        look_ns: look,
        apart_ns: apart,
        together_ns: together,
        transfer_ns,
        hold_ns,
        lines,
        replayed_ns,
    })
}

/// What the two threads come to in the replay.
fn replayed_ns(path: ServerPath, transfer_ns: f64, stop: &Interrupt) -> Result<f64, Error> {
    let recording = path.recording();
    let watch = Watch::silent(stop);
    let replays = Replays::new(&recording, path.base_ns(), transfer_ns, SEED, &watch);
    Ok(path.base_ns().server / replays.efficiency(SERVER, THREADS, Speed::Given)?)
}

/// In the order of the figures.
const CELLS: [(Strategy, Work); 3] = [
    (Strategy::OwnTable, Work::Flags),
    (Strategy::OwnTable, Work::Duplicate),
    (Strategy::ThreadTable, Work::Duplicate),
];
const THREADS: u32 = 2;
/// Rounds of all three in turn.
const ROUNDS: u32 = 7;
const WINDOW_MS: u64 = 300;
/// The limit of one trial: 0.3 s, and as long for threads to begin and end as they like.
const TIME_MAX: Duration = Duration::from_secs(60);
/// More were never met: the kernel's own data of a small table is four lines.
pub(super) const LINES_MAX: u32 = 8;
/// The seed of the places at which the two threads begin.
const SEED: u64 = 1;
