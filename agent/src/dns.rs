//! Records of DNS, made and taken away by a command of the operator's.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use sealane_operator::{Priority, say_at};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

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
            say_at(Priority::Warning, &failed.text);
        }
    }
}

/// Runs the command without a shell, for a bounded time, after which it is killed with all that it
/// has started. What it says is told if it fails.
async fn run(what: &str, record: &Record, limit: Duration) -> Result<(), Failed> {
    let Record { name, value, command, .. } = record;
    let program = command.first().map(String::as_str).unwrap_or_default();
    let failed = |why: String| {
        Failed::ours(format!(
            "{name}: dns_command {program} {what} {why}; run it by hand to see what is wrong"
        ))
    };
    let mut child = Command::new(program)
        .args(command.iter().skip(1))
        .args([what, name, value])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .process_group(0)
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let mut said = Vec::new();
    let stderr = child.stderr.take();
    let whole = async {
        let reading = async {
            if let Some(stderr) = stderr {
                read_last(stderr, &mut said).await;
            }
        };
        tokio::pin!(reading);
        // What it leaves behind may hold its standard error open: its own end is what counts.
        tokio::select! {
            status = child.wait() => {
                // All that it said itself is there by now.
                let _ = tokio::time::timeout(REST_TIMEOUT, reading).await;
                status
            }
            () = &mut reading => child.wait().await,
        }
    };
    let Ok(status) = tokio::time::timeout(limit, whole).await else {
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
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.map(|line| format!(", and said {:?}", line.trim())).unwrap_or_default();
    Err(failed(format!("failed: {status}{last}")))
}

/// Reads to the end, and keeps the last bytes. What cannot be read is not told.
async fn read_last(mut from: impl AsyncRead + Unpin, last: &mut Vec<u8>) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        last.extend(chunk.iter().take(count));
        let surplus = last.len().saturating_sub(SAID_BYTES_MAX);
        last.drain(..surplus);
    }
}

/// For how long a command is waited for.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);
/// For how long what a command has said is read on when it has ended.
const REST_TIMEOUT: Duration = Duration::from_millis(100);
/// Bytes that are kept of what a command says.
const SAID_BYTES_MAX: usize = 64 << 10;

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
    fn a_command_that_says_much_ends_well_and_its_last_line_is_told() {
        let much =
            "i=0; while [ $i -lt 20000 ]; do echo 0123456789 >&2 || exit 9; i=$((i+1)); done";
        assert!(run_script(much, "").is_ok());
        let failed = run_script(&format!("{much}; echo last >&2; exit 3"), "").unwrap_err();
        assert!(failed.text.contains("exit status: 3, and said \"last\""), "{}", failed.text);
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
