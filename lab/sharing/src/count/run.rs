//! Runs one program under one instrument, [`Run`]: started in a process group of its own, read to
//! its end or its limit, and ended with whatever happens here.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{ChildStderr, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};
use sealane_lab_harness::{
    child::{Child, Output},
    interrupt::Interrupt,
    trial::Reply,
};
use sealane_lab_model::error::Error;

/// What is counted: a program that does its handshakes and ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    /// The binary.
    pub(crate) binary: PathBuf,
    /// The arguments.
    pub arguments: Vec<OsString>,
    /// If it is a trial: how many handshakes it must say that it counted.
    pub(crate) operations: Option<u64>,
    /// If it is known: how many it does before.
    pub(crate) warm_up: Option<u64>,
    /// What is added to its environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// The time that is left of a run which took `warm_up` up to its first counted handshake and
    /// `so_far` until now. Rather too long: starting took a part of that.
    pub(super) fn left(&self, warm_up: Duration, so_far: Duration) -> Option<Duration> {
        let (counted, before) = (self.operations?, self.warm_up.filter(|count| *count > 0)?);
        let all = warm_up.mul_f64(counted as f64 / before as f64);
        Some((warm_up + all).saturating_sub(so_far))
    }
}

/// A child and its instrument, running.
pub(super) struct Run {
    program: Program,
    child: Child,
    output: Output,
    errors: ChildStderr,
    deadline: Instant,
    stop: Interrupt,
}

impl Run {
    /// Starts `program` under `instrument`: the command and arguments that come before the
    /// program's own; none for a plain run. Where the system lets us, without random addresses.
    pub(super) fn start(
        instrument: &[OsString],
        program: &Program,
        stop: &Interrupt,
    ) -> Result<Self, Error> {
        let mut words: Vec<&OsStr> = Vec::new();
        if can_fix_addresses() {
            words.extend([OsStr::new("setarch"), OsStr::new("-R")]);
        }
        words.extend(instrument.iter().map(OsString::as_os_str));
        words.push(program.binary.as_os_str());
        words.extend(program.arguments.iter().map(OsString::as_os_str));
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).envs(program.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Child::start(&mut command)?;
        let output = Output::of(child.take_output());
        let missing = || Error::Check("a child has no standard error".into());
        let errors = child.take_errors().ok_or_else(missing)?;
        let _ = rustix::pipe::fcntl_setpipe_size(&errors, PIPE_BYTES);
        let deadline = Instant::now() + RUN_TIME_MAX;
        let program = program.clone();
        Ok(Self { program, child, output, errors, deadline, stop: stop.clone() })
    }

    /// The process id, which is the program's also under valgrind.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The memory map, while it lives.
    pub(super) fn maps(&self) -> Option<String> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.id())).ok()?;
        (!maps.is_empty()).then_some(maps)
    }

    /// The next bytes of its standard error; `0` at the end.
    ///
    /// # Errors
    /// [`Error::Interrupted`], or that the run takes too long.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        while !self.wait_for_bytes(STOP_CHECK)? {}
        let read = self.errors.read(buffer).map_err(Error::io("read what valgrind prints"))?;
        if read < buffer.len() / 4 {
            // Valgrind writes each line by itself; it is twice as fast if nobody waits for it.
            thread::sleep(GATHER);
        }
        Ok(read)
    }

    /// The bytes that are there, once [`Self::wait_for_bytes`] says so.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn read_now(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        self.errors.read(buffer).map_err(Error::io("read what a server prints"))
    }

    /// Whether bytes, or the end, can be read within `time`.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub(super) fn wait_for_bytes(&self, time: Duration) -> Result<bool, Error> {
        if self.stop.is_pressed() {
            return Err(Error::Interrupted);
        }
        if Instant::now() > self.deadline {
            let (minutes, seconds) = (RUN_TIME_MAX.as_secs() / 60, END_TIME_MAX.as_secs());
            return Err(Error::Check(format!(
                "{} took more than {minutes} minutes, or {seconds} s to end; count fewer \
                 handshakes",
                self.program.binary.display()
            )));
        }
        let time = Timespec::try_from(time).unwrap_or_default();
        let mut waited = [PollFd::new(&self.errors, PollFlags::IN)];
        match poll(&mut waited, Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Error::Io { what: "wait for valgrind".into(), source: error.into() }),
        }
    }

    /// Reads its standard error to the end and returns it, of which the last
    /// [`OUTPUT_BYTES_MAX`] bytes are kept.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub(super) fn words(&mut self) -> Result<String, Error> {
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match self.read(&mut buffer)? {
                0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                some => text.extend_from_slice(&buffer[..some]),
            }
            let bytes_max = usize::try_from(OUTPUT_BYTES_MAX).unwrap_or(usize::MAX);
            text.drain(..text.len().saturating_sub(bytes_max));
        }
    }

    /// What is said beside a program that runs to its end under `instrument`.
    ///
    /// # Errors
    /// Those of [`Self::start`], [`Self::read`] and [`Self::end`].
    pub(super) fn words_of(
        instrument: &[OsString],
        program: &Program,
        stop: &Interrupt,
    ) -> Result<String, Error> {
        let mut run = Self::start(instrument, program, stop)?;
        let words = run.words()?;
        run.end(&words)?;
        Ok(words)
    }

    /// Asks it to end, as an operator would.
    pub(super) fn terminate(&mut self) {
        self.child.signal_group(Signal::TERM);
        self.deadline = self.deadline.min(Instant::now() + END_TIME_MAX);
    }

    /// Whether its first process has ended.
    pub(super) fn has_ended(&self) -> bool {
        !self.child.runs()
    }

    /// How its first process ended, in words.
    pub(super) fn how_it_ended(&mut self) -> String {
        self.child.ended().map_or("no status".into(), |status| status.to_string())
    }

    /// Waits for the end, which is near once its standard error has ended; `words` is what was read
    /// there.
    ///
    /// # Errors
    /// If it did not end well.
    pub(super) fn end(mut self, words: &str) -> Result<(), Error> {
        let status = self.status()?;
        let output = self.output.text();
        let result = output.lines().last().and_then(|line| serde_json::from_str(line).ok());
        match (result, self.program.operations) {
            (Some(Reply::Failed { unsupported: true, reason }), _) => {
                Err(Error::Unsupported(reason))
            }
            (Some(Reply::Failed { reason, .. }), _) => Err(Error::Check(reason)),
            (_, None) if status.success() => Ok(()),
            (Some(Reply::Fixed { operations, .. }), Some(expected))
                if status.success() && operations == expected =>
            {
                Ok(())
            }
            (_, Some(_)) => Err(failed(&self.program.binary, status, words)),
            // Whoever prints no results says there what went wrong, as tests do.
            (_, None) => Err(failed(&self.program.binary, status, &format!("{words}\n{output}"))),
        }
    }

    fn status(&mut self) -> Result<ExitStatus, Error> {
        loop {
            if let Some(status) = self.child.ended() {
                return Ok(status);
            }
            thread::sleep(END_CHECK);
            self.wait_for_bytes(Duration::ZERO)?;
        }
    }
}

/// Whether `setarch -R` works here; containers may forbid it.
fn can_fix_addresses() -> bool {
    let mut test = Command::new("setarch");
    test.args(["-R", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    test.status().is_ok_and(|status| status.success())
}

/// What valgrind printed when a run went wrong, as an error.
fn failed(what: &Path, status: ExitStatus, words: &str) -> Error {
    let lines: Vec<&str> = words.lines().collect();
    let last = lines[lines.len().saturating_sub(WORDS_SHOWN)..].join("\n");
    let without = if status.success() { " and without its result" } else { "" };
    Error::Check(format!(
        "{} ended with {status}{without} under the instrument; if valgrind (Debian package \
         valgrind) lacks an instruction of this processor, its words tell:\n{last}",
        what.display()
    ))
}

const END_CHECK: Duration = Duration::from_millis(5);
const END_TIME_MAX: Duration = Duration::from_secs(60);
const GATHER: Duration = Duration::from_millis(4);
const OUTPUT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Many times the default, so that valgrind and its reader work side by side.
const PIPE_BYTES: usize = 1024 * 1024;
/// The limit on a machine that others use too; alone, the longest trace takes some minutes.
const RUN_TIME_MAX: Duration = Duration::from_secs(60 * 60);
const STOP_CHECK: Duration = Duration::from_millis(200);
const WORDS_SHOWN: usize = 20;
