//! Writes to cache lines that another thread writes too: the program runs under valgrind's tool
//! lackey, and its trace is read as it comes.

use std::{ffi::OsString, time::Instant};

use sealane_lab_harness::{
    interrupt::Interrupt,
    phase::{self, CLIENT_SIDE, Phase, SERVER_SIDE},
    programs,
};
use sealane_lab_model::{
    document::{ALLOCATOR, BySide, SharedWrites},
    error::Error,
};

use crate::count::{
    class,
    progress::Progress,
    run::{Program, Run},
    symbols::Symbols,
    trace::{Trace, WrittenLine},
};

/// What one trace holds.
pub(super) struct Lines {
    /// Lines that at least two threads wrote.
    pub(super) writes: SharedWrites,
    /// Instructions per handshake.
    pub(super) instructions: BySide<f64>,
}

/// Traces `program`, which marks the phases of `handshakes` handshakes, all threads together.
///
/// # Errors
/// If valgrind is missing or fails, or what stopped the program.
pub(super) fn count(
    program: &Program,
    handshakes: u64,
    stop: &Interrupt,
    progress: &Progress,
) -> Result<Lines, Error> {
    let run = Run::start(&lackey()?, program, stop)?;
    let (mut trace, symbols) = traced(run, Trace::with_marks(), program, progress)?;
    let shared = trace.take_shared();
    Ok(result(&trace, &shared, &symbols, handshakes as f64))
}

/// The whole trace, and the names of what ran.
fn traced(
    mut run: Run,
    mut trace: Trace,
    program: &Program,
    progress: &Progress,
) -> Result<(Trace, Symbols), Error> {
    let mut maps = String::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut look_again = 0;
    let started = Instant::now();
    let mut warmed_up = None;
    loop {
        match run.read(&mut buffer)? {
            0 => break,
            some => trace.feed(&buffer[..some])?,
        }
        if trace.wants_marks() {
            maps = run.maps().unwrap_or(maps);
            match Symbols::new(&maps).address_of(phase::SYMBOL) {
                Some(marks) => trace.set_marks(marks),
                None if maps.contains(&*program.binary.to_string_lossy()) => {
                    return Err(Error::Check(format!(
                        "{} has no symbol {}; was it stripped?",
                        program.binary.display(),
                        phase::SYMBOL
                    )));
                }
                // It has ended, or never began; how, the end tells.
                None => {}
            }
        }
        if trace.read() > look_again {
            // Libraries that were loaded since. All are when the first handshake is counted, but
            // by then a short program may have ended.
            maps = run.maps().unwrap_or(maps);
            let begun = trace.instructions(&SERVER_SIDE) > 0;
            look_again = trace.read() + if begun { MAPS_EVERY_LINES } else { MAPS_SOON_LINES };
            if begun {
                warmed_up.get_or_insert_with(|| started.elapsed());
            }
            let left = warmed_up.and_then(|time| program.left(time, started.elapsed()));
            progress.trace(trace.read(), begun, left);
        }
    }
    run.end(&trace.words())?;
    if trace.is_cut_short() {
        return Err(Error::Check(format!(
            "the trace ended in the middle of a line after {} lines; was valgrind ended?",
            trace.read()
        )));
    }
    if trace.instructions(&SERVER_SIDE) == 0 {
        return Err(Error::Check(format!(
            "the traced program never entered the server's phase, in {} lines of trace",
            trace.read()
        )));
    }
    Ok((trace, Symbols::new(&maps)))
}

fn result(trace: &Trace, shared: &[WrittenLine], symbols: &Symbols, handshakes: f64) -> Lines {
    let per_handshake = |phases: &[Phase]| trace.instructions(phases) as f64 / handshakes;
    let instructions =
        BySide { server: per_handshake(&SERVER_SIDE), client: per_handshake(&CLIENT_SIDE) };
    Lines { writes: summed(shared, symbols, handshakes), instructions }
}

/// The lines with their names, the allocator's summed apart.
pub(super) fn summed(shared: &[WrittenLine], symbols: &Symbols, handshakes: f64) -> SharedWrites {
    let lines: Vec<_> = shared.iter().map(|line| class::named(line, symbols, handshakes)).collect();
    let mut writes = SharedWrites::default();
    for line in &lines {
        let sum = if line.class == ALLOCATOR { &mut writes.allocator } else { &mut writes.total };
        sum.server += line.writes.server;
        sum.client += line.writes.client;
    }
    writes.lines = lines;
    writes
}

/// The command line of lackey, which writes its trace to its standard error, up to the program's
/// own.
pub(super) fn lackey() -> Result<Vec<OsString>, Error> {
    lackey_with(["--log-fd=2".into()])
}

/// The same with `more` options, of which one tells where the trace goes.
pub(super) fn lackey_with<const N: usize>(more: [OsString; N]) -> Result<Vec<OsString>, Error> {
    let valgrind = programs::installed("valgrind", "valgrind")?;
    let options = [
        "--tool=lackey",
        "--basic-counts=no",
        "--trace-mem=yes",
        // Which thread runs.
        "--trace-sched=yes",
        // Threads take turns, so that each line of two threads is written by both in the window.
        "--fair-sched=yes",
    ];
    let options = options.map(OsString::from).into_iter().chain(more);
    Ok([valgrind.into_os_string()].into_iter().chain(options).collect())
}

const MAPS_EVERY_LINES: u64 = 500_000;
const MAPS_SOON_LINES: u64 = 10_000;
const READ_BYTES: usize = 256 * 1024;
