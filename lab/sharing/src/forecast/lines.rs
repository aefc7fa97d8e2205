//! What each line costs: [`costs`], the replay run again without it.

use std::collections::BTreeMap;

use sealane_lab_model::{
    document::{CauseWrites, LineCost},
    error::Error,
    recording::{ByPart, LockClass, Part, RecordedLine, Recording},
};

use crate::forecast::{
    SERVER,
    replays::{Replays, Speed, band},
};

/// Lines that are named.
pub(crate) const LINES_MAX: usize = 5;

/// The lines that threads wait for most at the most of `cores`.
///
/// # Errors
/// Ctrl-C.
pub(crate) fn costs(replays: &Replays<'_>, cores: &[u32]) -> Result<Vec<LineCost>, Error> {
    let Some(most) = cores.last().copied() else {
        return Ok(Vec::new());
    };
    let waits = replays.at(most, Speed::Given)?.waits_ns;
    let all: f64 = waits.iter().map(sum).sum();
    let mut order: Vec<(usize, f64)> =
        waits.iter().map(|wait| sum(wait) / all).enumerate().filter(|of| of.1 > 0.0).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let paths = busiest(replays.recording);
    let mut costs = Vec::new();
    for (at, share_of_waiting) in order.into_iter().take(LINES_MAX) {
        let Some(line) = replays.recording.lines.get(at) else { continue };
        let place = u32::try_from(at).unwrap_or(u32::MAX);
        let without = [place];
        let rest = replays.without(&without);
        let without = rest.efficiency(SERVER, most, Speed::Given)?;
        costs.push(LineCost {
            class: line.class.clone(),
            symbol: line.symbol.clone(),
            owner: line.owner.clone(),
            lock: lock(replays.recording, place),
            writes: writes(line),
            path: paths.get(&place).map(|path| named(replays.recording, *path)).unwrap_or_default(),
            share_of_waiting,
            without,
            without_band: band(without, rest.efficiency(SERVER, most, Speed::Fast)?),
            knee_without: rest.knee(SERVER, cores)?,
        });
    }
    Ok(costs)
}

/// Writes per operation to all shared lines, by what they are for, most first.
pub(crate) fn causes(recording: &Recording) -> Vec<CauseWrites> {
    let mut causes: BTreeMap<&str, [f64; 3]> = BTreeMap::new();
    for line in recording.lines.iter().filter(|line| line.class != READ_SHARED) {
        let sums = causes.entry(&line.class).or_default();
        for (sum, writes) in sums.iter_mut().zip(writes(line)) {
            *sum += writes;
        }
    }
    let mut causes: Vec<CauseWrites> = causes
        .into_iter()
        .map(|(cause, writes)| CauseWrites { cause: cause.to_owned(), writes })
        .collect();
    causes.sort_by(|a, b| b.writes.iter().sum::<f64>().total_cmp(&a.writes.iter().sum()));
    causes
}

/// Writes of one line: server, client, the rest.
fn writes(line: &RecordedLine) -> [f64; 3] {
    let of = |part: Part| line.updates.of(part) + line.stores.of(part);
    let rest = [Part::ServerSetup, Part::ClientSetup, Part::Outside];
    [of(Part::Server), of(Part::Client), rest.into_iter().map(of).sum()]
}

fn sum(wait: &ByPart<f64>) -> f64 {
    Part::ALL.into_iter().map(|part| *wait.of(part)).sum()
}

fn lock(recording: &Recording, line: u32) -> Option<String> {
    let lock = recording.locks.iter().find(|lock| lock.line == line)?;
    let word = match lock.class {
        LockClass::FutexMutex => "Rust's mutex",
        LockClass::FutexRwLock => "Rust's read-write lock",
        LockClass::KernelSpin => "spin lock of the kernel",
        LockClass::Mutex => "mutex",
        LockClass::RwLock => "read-write lock",
    };
    Some(word.to_owned())
}

/// For each line, the path that writes it most often.
fn busiest(recording: &Recording) -> BTreeMap<u32, u32> {
    let mut counts: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for step in &recording.steps {
        let Some(line) = recording.written_line(step) else { continue };
        // A path that nobody knows is none.
        if step.path != 0 {
            *counts.entry((line, step.path)).or_default() += 1;
        }
    }
    let mut busiest: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
    for ((line, path), count) in counts {
        let most = busiest.entry(line).or_default();
        if count > most.0 {
            *most = (count, path);
        }
    }
    busiest.into_iter().map(|(line, (_, path))| (line, path)).collect()
}

/// A path's functions, innermost first.
fn named(recording: &Recording, path: u32) -> Vec<String> {
    let functions = recording.callers(path).map(|node| &node.function);
    functions.filter(|name| !name.is_empty()).take(PATH_MAX).cloned().collect()
}

/// One thread writes it, others only read.
const READ_SHARED: &str = "read-shared";
/// Functions of a path; deeper ones say little.
const PATH_MAX: usize = 64;
