//! Starts a trial as a process of its own and reads what it prints; whatever it does, only its own
//! result is lost.

use std::{
    env,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use sealane_lab_model::error::Error;

use crate::{
    child::{Child, Output},
    trial::{Reply, Task},
};

/// Runs `task` in a new process of this program and returns its last line, which is the result.
///
/// # Errors
/// Why there is none: [`Error::Unsupported`] if the stack cannot do it; else what the trial said,
/// the signal that ended it, or that it took longer than `time_max`.
pub fn run(task: &Task, time_max: Duration) -> Result<Reply, Error> {
    result(&mut command(task)?, time_max)
}

/// The last line of what `command`, a trial's, prints.
///
/// # Errors
/// As [`run`].
pub fn result(command: &mut Command, time_max: Duration) -> Result<Reply, Error> {
    let lines = lines(command, time_max)?;
    match lines.into_iter().next_back() {
        Some(Reply::Started { .. }) | None => {
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
fn lines(command: &mut Command, time_max: Duration) -> Result<Vec<Reply>, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Child::start(command)?;
    let (out, errors) = (Output::of(child.take_output()), Output::of(child.take_errors()));
    let Some(status) = child.wait(time_max) else {
        let seconds = time_max.as_secs();
        return Err(Error::Check(format!("the trial did not end within {seconds} s")));
    };
    let (out, errors) = (out.text(), errors.text());
    let lines: Vec<Reply> = out.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
    if let Some(Reply::Failed { unsupported, reason }) = lines.last() {
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

fn how_it_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, code) => format!("ended with status {}", code.unwrap_or(-1)),
    }
}
