//! Records of DNS, made and taken away by a command of the operator's.

use std::process::Stdio;
use std::time::Duration;

use sealane_operator::{Priority, say_at};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::failure::Failed;
use crate::ledger::Record;

/// Has the command make a record.
pub(crate) async fn present(record: &Record) -> Result<(), Failed> {
    run("present", record).await
}

/// Has commands take records away. What cannot be taken away is told, and left.
pub(crate) async fn clean_up(records: &[Record]) {
    for record in records {
        if let Err(failed) = run("cleanup", record).await {
            say_at(Priority::Warning, &failed.text);
        }
    }
}

/// Runs the command without a shell, for a bounded time. What it says is told if it fails.
async fn run(what: &str, record: &Record) -> Result<(), Failed> {
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
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let said = child.stderr.take();
    let whole = async {
        let mut text = Vec::new();
        if let Some(said) = said {
            // What cannot be read is not told.
            let _ = said.take(SAID_BYTES_MAX).read_to_end(&mut text).await;
        }
        (child.wait().await, text)
    };
    let Ok((status, said)) = tokio::time::timeout(COMMAND_TIMEOUT, whole).await else {
        return Err(failed(format!("was not done within {} s", COMMAND_TIMEOUT.as_secs())));
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

/// For how long a command is waited for.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes that are read of what a command says.
const SAID_BYTES_MAX: u64 = 64 << 10;
