//! Counts of a program that knows nothing of the lab, [`Plain`]: it does as many operations as its
//! environment says, and runs at two lengths.

use std::{ffi::OsString, path::PathBuf};

use sealane_lab_model::{
    document::{LockCounts, SharedWrites},
    error::Error,
};

use crate::count::{
    Tools, lines,
    locks::{self, Interposer, Rows},
    run::{Program, Run},
    slope::{self, Grown, LENGTHS, Length, Writer},
    symbols::Symbols,
    trace::Trace,
};

/// A program and its lengths.
pub(crate) struct Plain {
    pub(crate) binary: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Operations of the shortest run; the others do twice and three times as many.
    pub(crate) operations: u64,
}

/// Per operation.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) writes: SharedWrites,
    pub(crate) instructions: f64,
    /// If they were asked for.
    pub(crate) locks: Option<LockCounts>,
}

impl Plain {
    /// Runs each length in a memory trace and, `with_locks`, once more at its own speed.
    ///
    /// # Errors
    /// What stopped it, or that its work does not grow with its operations.
    pub(crate) fn count(&self, with_locks: bool, tools: &Tools) -> Result<Counts, Error> {
        let step = self.operations as f64;
        let [short, middle, long] = self.lengths();
        let (short, _) = self.traced(short, tools)?;
        let (middle, _) = self.traced(middle, tools)?;
        let instructions = [short.instructions, middle.instructions];
        self.must_grow(instructions)?;
        let (long, maps) = self.traced(long, tools)?;
        let instructions =
            slope::smaller_step([instructions[0], instructions[1], long.instructions]);
        let lengths = [&short.shared[..], &middle.shared, &long.shared];
        let symbols = Symbols::new(&maps);
        let grown = slope::grown(lengths, step, Writer::ThreadAndInstruction, &symbols);
        let locks = match with_locks {
            true => {
                let [short, middle, long] =
                    self.lengths().map(|operations| self.locks(operations, tools));
                let (lengths, shared) = ([short?, middle?, long?], |rows: &Rows| rows.shared());
                let shared = lengths.iter().map(shared).max().unwrap_or_default();
                let sites = lengths.map(|rows| rows.by_site());
                Some(together(locks::slope(&sites, shared, step), &grown))
            }
            false => None,
        };
        let instructions = instructions as f64 / step;
        Ok(Counts { writes: grown.writes, instructions, locks })
    }

    fn lengths(&self) -> [u64; LENGTHS] {
        [1, 2, 3].map(|times| times * self.operations)
    }

    fn traced(&self, operations: u64, tools: &Tools) -> Result<(Length, String), Error> {
        tools.progress.step(format!("{}: {operations} operations", self.binary.display()));
        let mut run = Run::start(&lines::lackey()?, &self.program(operations), &tools.stop)?;
        let mut trace = Trace::without_marks();
        let (mut maps, mut look_again) = (String::new(), 0);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match run.read(&mut buffer)? {
                0 => break,
                some => trace.feed(&buffer[..some])?,
            }
            if trace.read() > look_again {
                // Libraries that were loaded since.
                maps = run.maps().unwrap_or(maps);
                look_again = (trace.read() + MAPS_EVERY_LINES_MIN).max(trace.read() / 8 * 9);
                tools.progress.trace(trace.read(), true, None);
            }
        }
        run.end(&trace.words())?;
        let instructions = trace.take_work().iter().map(|work| work.instructions).sum();
        Ok((Length { shared: trace.take_shared(), instructions }, maps))
    }

    fn locks(&self, operations: u64, tools: &Tools) -> Result<Rows, Error> {
        let interposer = Interposer::new(tools.folder.path())?;
        let program = interposer.in_all_of(self.program(operations));
        let mut run = Run::start(&[], &program, &tools.stop)?;
        let process = run.id();
        let words = run.words()?;
        run.end(&words)?;
        interposer.rows_of(process)
    }

    fn program(&self, operations: u64) -> Program {
        let operations = OsString::from(operations.to_string());
        Program {
            binary: self.binary.clone(),
            arguments: self.arguments.iter().map(OsString::from).collect(),
            environment: vec![(OPERATIONS.into(), operations)],
            ..Program::default()
        }
    }

    fn must_grow(&self, [short, long]: [u64; 2]) -> Result<(), Error> {
        let enough = (self.operations * OPERATION_INSTRUCTIONS_MIN).max(short / GROWTH_SHARE_MIN);
        if long >= short + enough {
            return Ok(());
        }
        let [few, many] = [self.operations, 2 * self.operations];
        Err(Error::Check(format!(
            "{} does not do more work when told to do more operations: {short} instructions for \
             {few}, {long} for {many}. Did it read {OPERATIONS}? Did its arguments choose a test? \
             If an operation is that small, give it more of them",
            self.binary.display()
        )))
    }
}

/// The C library's locks, and those inside the binary.
pub(super) fn together(mut locks: LockCounts, grown: &Grown) -> LockCounts {
    let LockCounts { read, write, mutex, shared, sites } = &grown.own_locks;
    locks.read.server += read.server;
    locks.write.server += write.server;
    locks.mutex.server += mutex.server;
    locks.shared += shared;
    locks.sites.extend(sites.iter().cloned());
    locks
}

/// The variable that says how many operations to do.
pub(crate) const OPERATIONS: &str = "SEALANE_GATE_OPERATIONS";
/// By this share of its instructions, as a divisor, a run must grow to tell work from chance.
const GROWTH_SHARE_MIN: u64 = 100;
const MAPS_EVERY_LINES_MIN: u64 = 10_000;
const OPERATION_INSTRUCTIONS_MIN: u64 = 5;
const READ_BYTES: usize = 256 * 1024;
