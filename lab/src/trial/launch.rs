//! Starts a trial as a process of its own and reads what it prints; whatever it does, only its own
//! result is lost.

use std::{
    env,
    io::Read,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    error::Error,
    trial::{Line, Task},
};

/// Runs `task` in a new process of this program and returns its last line, which is the result.
///
/// # Errors
/// Why there is none: [`Error::Unsupported`] if the stack cannot do it; else what the trial said,
/// the signal that ended it, or that it took longer than `time_max`.
pub fn run(task: &Task, time_max: Duration) -> Result<Line, Error> {
    result(&mut command(task)?, time_max)
}

/// The last line of what `command`, a trial's, prints.
///
/// # Errors
/// As [`run`].
pub fn result(command: &mut Command, time_max: Duration) -> Result<Line, Error> {
    let lines = lines(command, time_max)?;
    match lines.into_iter().next_back() {
        Some(Line::Started { .. }) | None => {
            Err(Error::Check("the trial ended without a result".into()))
        }
        Some(line) => Ok(line),
    }
}

/// The command line of a trial.
///
/// # Errors
/// This program's own path is not known.
pub fn command(task: &Task) -> Result<Command, Error> {
    let task = serde_json::to_string(task)
        .map_err(|error| Error::Check(format!("a task as JSON: {error}")))?;
    let mut command = Command::new(env::current_exe().map_err(Error::io("this program's path"))?);
    command.arg("trial").arg(task);
    Ok(command)
}

/// Everything that a trial printed, if it ended well.
fn lines(command: &mut Command, time_max: Duration) -> Result<Vec<Line>, Error> {
    // In its own group, Ctrl-C reaches the lab alone, which lets the trial come to its end.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Running(command.spawn().map_err(Error::io("start a trial"))?);
    let out = drain(child.0.stdout.take());
    let errors = drain(child.0.stderr.take());
    let status = child.wait(time_max)?;
    let (out, errors) = (join(out), join(errors));
    let lines: Vec<Line> = out.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
    if let Some(Line::Failed { unsupported, reason }) = lines.last() {
        let reason = reason.clone();
        return Err(if *unsupported { Error::Unsupported(reason) } else { Error::Check(reason) });
    }
    if !status.success() {
        let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(Error::Check(format!("the trial {}; {last}", how_it_ended(status))));
    }
    if lines.len() != out.lines().count() {
        return Err(Error::Check("the trial printed something else than a result".into()));
    }
    Ok(lines)
}

/// A child that does not outlive this value.
struct Running(Child);

impl Running {
    fn wait(&mut self, time_max: Duration) -> Result<ExitStatus, Error> {
        let until = Instant::now() + time_max;
        loop {
            if let Some(status) = self.0.try_wait().map_err(Error::io("wait for a trial"))? {
                return Ok(status);
            }
            if Instant::now() >= until {
                let seconds = time_max.as_secs();
                return Err(Error::Check(format!("the trial did not end within {seconds} s")));
            }
            thread::sleep(WAIT_STEP);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Of a child that has ended, there is nothing left to kill or to wait for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads a pipe to its end on a thread of its own, so that the child never waits for it.
fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn join(reader: JoinHandle<String>) -> String {
    reader.join().unwrap_or_default()
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, code) => format!("ended with status {}", code.unwrap_or(-1)),
    }
}

const OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// Small beside a trial; waiting costs nothing that a trial could feel.
const WAIT_STEP: Duration = Duration::from_millis(5);
