//! Records of DNS, made and taken away by a command of the operator's.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tracing::warn;

use crate::failure::Failed;
use crate::ledger::Record;

/// Has the command make a record.
pub(crate) async fn present(record: &Record) -> Result<(), Failed> {
    run("present", record, COMMAND_TIMEOUT).await
}

/// Has commands take records away. What cannot be taken away is told, and left.
pub(crate) async fn clean_up(records: &[Record]) {
    for record in records {
        if let Err(failed) = run("cleanup", record, COMMAND_TIMEOUT).await {
            warn!("{}", failed.text);
        }
    }
}

/// Runs the command without a shell, for a bounded time, after which it is killed with all that it
/// has started. Its standard error is this process's own: it goes to the local log, and no status
/// that other machines read quotes it.
async fn run(what: &str, record: &Record, limit: Duration) -> Result<(), Failed> {
    let Record { name, value, command, .. } = record;
    let program = command.first().map(String::as_str).unwrap_or_default();
    let failed = |why: String| {
        Failed::ours(format!(
            "{name}: dns_command {program} {what} {why}; the log has what it printed"
        ))
    };
    let mut child = Command::new(program)
        .args(command.iter().skip(1))
        .args([what, name, value])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .process_group(0)
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let Ok(status) = tokio::time::timeout(limit, child.wait()).await else {
        // The command itself has not been waited for, so that the number is still its own.
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        return Err(failed(format!("was not done within {} s", limit.as_secs())));
    };
    let status = status.map_err(|error| failed(format!("cannot be waited for: {error}")))?;
    if status.success() {
        return Ok(());
    }
    Err(failed(format!("failed: {status}")))
}

/// For how long a command is waited for.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);
#[cfg(test)]
mod tests {
    use super::*;

    fn run_script(script: &str, argument: &str) -> Result<(), Failed> {
        run_script_within(script, argument, COMMAND_TIMEOUT)
    }

    fn run_script_within(script: &str, argument: &str, limit: Duration) -> Result<(), Failed> {
        let record = Record {
            name: "_acme-challenge.a.test".into(),
            value: "v".into(),
            command: ["sh", "-c", script, argument].map(str::to_owned).to_vec(),
            is_made: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(run("present", &record, limit))
    }

    #[test]
    fn command_that_prints_much_is_not_quoted() {
        let much = "i=0; while [ $i -lt 200 ]; do echo 0123456789 >&2 || exit 9; i=$((i+1)); done";
        assert!(run_script(much, "").is_ok());
        let failed = run_script("echo a secret >&2; exit 3", "").unwrap_err();
        assert!(failed.text.contains("failed: exit status: 3; "), "{}", failed.text);
        assert!(!failed.text.contains("secret"), "{}", failed.text);
    }

    #[test]
    fn a_command_is_done_when_it_ends_whatever_it_leaves_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("left");
        let script = "sleep 1000 & echo $! > $0";
        let came = run_script(script, file.to_str().unwrap());
        let left = std::fs::read_to_string(&file).unwrap();
        let killed =
            std::process::Command::new("sh").args(["-c", &format!("kill {left}")]).status();
        assert!(killed.unwrap().success(), "it is there still");
        came.map_err(|failed| failed.text).unwrap();
    }

    #[test]
    fn a_command_that_takes_too_long_is_killed_with_what_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("left");
        let script = "sleep 1000 & echo $! > $0; wait";
        let limit = Duration::from_secs(1);
        let failed = run_script_within(script, file.to_str().unwrap(), limit).unwrap_err();
        assert!(failed.text.contains("was not done within 1 s"), "{}", failed.text);
        let left = std::fs::read_to_string(&file).unwrap();
        let is_gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", left.trim()));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        let waited = (0..1_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            is_gone()
        });
        assert!(waited, "{left} is there still");
    }
}
