//! The command `count`: what one handshake does, by side, in figures that do not depend on the
//! machine's mood.
//!
//! ```text
//!                        +- callgrind, two lengths -------> instructions
//! a trial of fixed length+- the interposer, native/locks.c -> locks, by call path
//! (or a running sealane) +- lackey's memory trace --------> shared writes, named and classed
//! ```

mod allocations;
mod class;
mod instructions;
mod lines;
mod locks;
mod plain;
mod progress;
mod run;
mod serve;
mod slope;
mod subject;
mod symbols;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod threads;
mod trace;

use std::{
    env,
    path::{Path, PathBuf},
};

use sealane_lab_harness::{
    interrupt::Interrupt,
    journal::Journal,
    options::Json,
    trial::{Task, launch},
};
use sealane_lab_model::{
    document::{CountResult, SharedWrites},
    error::Error,
    scenario::{Cipher, Group, Key, Kind, Scenario, Share, Version},
};
use sealane_lab_stacks::{handshake::task::fault::Fault, stacks};

#[cfg(test)]
pub(crate) use plain::OPERATIONS;
pub(crate) use plain::{Counts, Plain};
#[cfg(test)]
pub(crate) use serve::PLACEHOLDERS;
pub(crate) use serve::{Connections, Load, ProxyHeader, Server, Wanted, found};
pub(crate) use subject::BULK_UNIT;

use crate::{
    count::{progress::Progress, run::Program, subject::Subject},
    show,
};

/// The arguments of `count`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Stacks to count, by name or path, separated by commas
    #[arg(long, value_delimiter = ',', required_unless_present_any = ["kernel", "serve"])]
    stack: Vec<String>,
    /// Counts shared writes of this binary of sealane instead, running with two lanes
    #[arg(long, value_name = "PATH", conflicts_with_all = ["stack",
        "repeats", "handshakes", "instructions", "locks", "lines"])]
    serve: Option<PathBuf>,
    /// What is done with it so often
    #[arg(long, default_value = "echo", requires = "serve")]
    load: Load,
    /// The server speaks TLS to its backend too
    #[arg(long, requires = "serve")]
    backend_tls: bool,
    #[command(flatten)]
    asked: Asked,
    /// Counts so often and says whether every time gave the same
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    repeats: u32,
    /// Handshakes per thread in a memory trace, after as many to warm up
    #[arg(long, default_value_t = HANDSHAKES,
          value_parser = clap::value_parser!(u64).range(1..=50))]
    handshakes: u64,
    /// Counts instructions; without any of these three, all are counted
    #[arg(long)]
    instructions: bool,
    /// Counts lock acquisitions, by lock and call path
    #[arg(long)]
    locks: bool,
    /// Counts writes to cache lines that another thread writes too
    #[arg(long)]
    lines: bool,
    #[command(flatten)]
    json: Json,
}

impl Arguments {
    /// Where the document goes, and how often everything is counted.
    pub fn kept(&self) -> (Option<&Path>, u32) {
        (self.json.path(), self.repeats)
    }
}

/// A scenario on the command line.
#[derive(Clone, Debug, clap::Args)]
pub struct Asked {
    /// How the handshake goes, or `bulk`: what a MiB takes after a full one
    #[arg(long, default_value = "full")]
    kind: Counted,
    /// The protocol version
    #[arg(long, default_value = "1.3")]
    tls: Version,
    /// Record protection
    #[arg(long, default_value = "aes128-gcm")]
    cipher: Cipher,
    /// The key exchange
    #[arg(long, default_value = "x25519")]
    group: Group,
    /// The server's key
    #[arg(long, default_value = "p256")]
    key: Key,
    /// Tickets after each handshake
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=8))]
    tickets: u8,
    /// What the threads share
    #[arg(long, default_value = "context")]
    share: Share,
    /// The client shows a certificate
    #[arg(long)]
    client_certificate: bool,
    /// Certificates that the server sends: its own, its issuer's, the root's
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
    chain: u8,
}

impl Asked {
    /// Whether bytes are asked for, not handshakes.
    pub fn is_bulk(&self) -> bool {
        self.kind == Counted::Bulk
    }

    /// What is asked for.
    pub fn scenario(&self) -> Scenario {
        Scenario {
            kind: self.kind.of_handshake(),
            version: self.tls,
            cipher: self.cipher,
            group: self.group,
            key: self.key,
            client_certificate: self.client_certificate,
            chain: self.chain,
            tickets: self.tickets,
            share: self.share,
        }
    }
}

/// The kinds of a handshake, and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Counted {
    /// A MiB from the server to the client, in full records
    Bulk,
    Full,
    SessionId,
    Ticket,
}

impl Counted {
    /// How the handshake goes that is counted, or comes before the bytes.
    pub(crate) fn of_handshake(self) -> Kind {
        match self {
            Self::Bulk | Self::Full => Kind::Full,
            Self::SessionId => Kind::SessionId,
            Self::Ticket => Kind::Ticket,
        }
    }
}

/// `true` if all went well and every repeat gave the same.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    if arguments.asked.is_bulk() && arguments.serve.is_some() {
        let remedy = "--kind bulk is of stacks; a running server has --load bulk";
        return Err(Error::Check(remedy.into()));
    }
    let tools = Tools::new(arguments.handshakes)?;
    let mut journal = Journal::begin(env::args().collect(), arguments.json.path());
    let mut well = true;
    if let Some(sealane) = &arguments.serve {
        let work = (arguments.load, arguments.backend_tls);
        let result = serve::sealane(sealane, &arguments.asked.scenario(), work, &tools)?;
        show(&table::text(&result))?;
        show(serve::NOTE)?;
        journal.run.counts.push(result);
    }
    for stack in &arguments.stack {
        let mut subject = Subject::new(stack, arguments.asked.scenario(), None)?;
        subject.is_bulk = arguments.asked.is_bulk();
        let (result, differences) = match counted(&subject, arguments, &tools) {
            Ok(result) => result,
            Err(Error::Check(reason) | Error::Unsupported(reason)) => {
                well = false;
                (CountResult { failure: Some(reason), ..subject.result() }, String::new())
            }
            Err(error) => return Err(error),
        };
        show(&table::text(&result))?;
        show(&differences)?;
        well &= differences.is_empty();
        journal.run.stacks.extend(stacks::identity(stack).ok());
        journal.run.counts.push(result);
        journal.save(false)?;
    }
    journal.save(true)?;
    Ok(well)
}

/// What every count needs.
pub(crate) struct Tools {
    /// For files that nobody keeps.
    folder: tempfile::TempDir,
    /// Ctrl-C ends the run that is under way; finished stacks are in the document.
    stop: Interrupt,
    progress: Progress,
    /// Handshakes per thread in a trace.
    handshakes: u64,
}

impl Tools {
    /// With `handshakes` per thread in a trace of a stack.
    ///
    /// # Errors
    /// The system refuses a folder or a signal's handler.
    pub(crate) fn new(handshakes: u64) -> Result<Self, Error> {
        let stop = Interrupt::catch()?;
        let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
        Ok(Self { folder, stop, progress: Progress::start(), handshakes })
    }

    /// Whether the operator wants no more.
    pub(crate) fn stop(&self) -> &Interrupt {
        &self.stop
    }
}

/// One stack, counted as often as asked, and what differed between the times, in words.
fn counted(
    subject: &Subject,
    arguments: &Arguments,
    tools: &Tools,
) -> Result<(CountResult, String), Error> {
    let Arguments { instructions, locks, lines, repeats, .. } = *arguments;
    let all = !(instructions || locks || lines);
    let mut times = Vec::new();
    for time in 1..=repeats {
        let mut result = subject.result();
        let step = |what: &str| {
            tools.progress.step(format!("{}: {what}, {time} of {repeats}", subject.stack));
        };
        if all || locks {
            step("locks");
            result.locks = Some(subject.locks(tools, time == 1)?);
        }
        if all || instructions {
            step("instructions");
            result.instructions = Some(subject.instructions(tools)?);
        }
        if all || lines {
            step("shared lines");
            let counted = subject.lines(tools)?;
            result.shared_writes = Some(counted.writes);
            // The trace tells them too, with the reading of the clock around each step.
            result.instructions.get_or_insert(counted.instructions);
        }
        times.push(result);
    }
    Ok(subject::merged(times))
}

/// A result as text for a terminal.
pub fn text(result: &CountResult) -> String {
    table::text(result)
}

/// Locks of one stack, with the call paths to them.
///
/// # Errors
/// What stopped the trial.
pub fn locks(stack: &str, scenario: Scenario, stop: &Interrupt) -> Result<CountResult, Error> {
    let (subject, tools) = alone(stack, scenario, stop)?;
    tools.progress.step(format!("{stack}: locks"));
    Ok(CountResult { locks: Some(subject.locks(&tools, true)?), ..subject.result() })
}

/// Shared lines of one stack.
///
/// # Errors
/// If valgrind is missing or fails, or what stopped the trial.
pub fn shared_lines(
    stack: &str,
    scenario: Scenario,
    stop: &Interrupt,
) -> Result<CountResult, Error> {
    let (subject, tools) = alone(stack, scenario, stop)?;
    tools.progress.step(format!("{stack}: shared lines"));
    let counted = subject.lines(&tools)?;
    let shared_writes = Some(counted.writes);
    let instructions = Some(counted.instructions);
    Ok(CountResult { shared_writes, instructions, ..subject.result() })
}

/// One stack that is counted once.
fn alone(stack: &str, scenario: Scenario, stop: &Interrupt) -> Result<(Subject, Tools), Error> {
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let (stop, progress) = (stop.clone(), Progress::start());
    let tools = Tools { folder, stop, progress, handshakes: HANDSHAKES };
    Ok((Subject::new(stack, scenario, None)?, tools))
}

/// One stack, as a budget names it.
pub(crate) struct OfStack<'a> {
    pub(crate) stack: &'a str,
    pub(crate) scenario: &'a Scenario,
    /// Whether MiB are counted, not handshakes.
    pub(crate) is_bulk: bool,
    pub(crate) fault: Option<Fault>,
}

/// What a stack does per handshake, or per MiB: what was asked for, each in one run. In the trace
/// each thread does `operations` of them.
///
/// # Errors
/// What stopped it.
pub(crate) fn of_stack(
    asked: &OfStack<'_>,
    (with_trace, with_locks, operations): (bool, bool, u64),
    tools: &mut Tools,
) -> Result<CountResult, Error> {
    let OfStack { stack, scenario, is_bulk, fault } = *asked;
    tools.handshakes = operations;
    let mut subject = Subject::new(stack, scenario.clone(), fault)?;
    subject.is_bulk = is_bulk;
    let mut result = subject.result();
    if with_locks {
        tools.progress.step(format!("{stack}: locks"));
        result.locks = Some(subject.locks(tools, true)?);
    }
    if with_trace {
        tools.progress.step(format!("{stack}: shared lines"));
        let counted = subject.lines(tools)?;
        result.shared_writes = Some(counted.writes);
        result.instructions = Some(counted.instructions);
    }
    Ok(result)
}

/// Shared writes per operation of `task`, a trial of fixed length that marks its phases and answers
/// with figures; `operations` is of all threads together.
///
/// # Errors
/// If valgrind is missing or fails, or what stopped the trial.
pub fn shared_writes(
    task: &Task,
    operations: u64,
    stop: &Interrupt,
) -> Result<SharedWrites, Error> {
    let progress = Progress::start();
    progress.step("shared lines");
    Ok(lines::count(&program(task)?, operations, stop, &progress)?.writes)
}

/// Allocations per operation, exact: `task` makes a trial of so many operations, which answers with
/// figures.
///
/// # Errors
/// If valgrind is missing or fails, or what stopped a trial.
pub fn allocations(
    task: impl Fn(u64) -> Result<Task, Error>,
    stop: &Interrupt,
) -> Result<f64, Error> {
    let progress = Progress::start();
    progress.step("allocations");
    let [short, long] = ALLOCATING_OPERATIONS.map(|count| Ok((program(&task(count)?)?, count)));
    let (short, long): ((Program, u64), (Program, u64)) = (short?, long?);
    allocations::count([(&short.0, short.1), (&long.0, long.1)], stop)
}

/// The process that `task` runs in.
fn program(task: &Task) -> Result<Program, Error> {
    let command = launch::command(task)?;
    Ok(Program {
        binary: command.get_program().into(),
        arguments: command.get_args().map(Into::into).collect(),
        ..Program::default()
    })
}

/// Whether `stack` runs under valgrind in this build of the lab.
///
/// # Errors
/// What is missing: valgrind, or a build for counting.
pub fn can_be_counted(stack: &str) -> Result<(), Error> {
    subject::needs_a_build_for_counting(stack)
}

/// Whether [`shared_writes`] and [`allocations()`] can be counted here.
///
/// # Errors
/// The Debian package that is missing.
pub fn needs_valgrind() -> Result<(), Error> {
    lines::lackey().map(|_| ())
}

/// Lengths of as many digits each: a task's own text is as long in both.
const ALLOCATING_OPERATIONS: [u64; 2] = [10, 60];
/// Handshakes per thread in a trace.
const HANDSHAKES: u64 = 2;
