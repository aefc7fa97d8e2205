//! Examines a store in a process of its own before it is mapped in this one: a damaged file may end
//! a process that maps it.

use std::fs;
use std::io::{self, Read as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sealane_store::{DATA_FILE, StoreError, examine};
use serde_json::{Value, json};

use super::owner::other_owner;

/// Lets another process read all of the store in the folder `path`. As root, that process has the
/// rights of the folder's owner.
///
/// # Errors
/// The store is not in order, or that cannot be found out.
pub fn examine_apart(path: &Path) -> Result<(), Refused> {
    let failed = |what: String| Refused::Unknown { path: path.into(), what };
    // Also if the file of this program was replaced since it started.
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["certificates", "examine", "--"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let owner = other_owner(path);
    if let Some((user, group)) = owner.map_err(|error| failed(error.to_string()))? {
        command.uid(user).gid(group);
    }
    let child = command.spawn().map_err(|error| failed(format!("cannot be started: {error}")))?;
    let limit = time_limit(path);
    let (status, text) = outcome(child, Instant::now() + limit)
        .map_err(|error| failed(error.to_string()))?
        .ok_or_else(|| failed(format!("not done within {} s", limit.as_secs())))?;
    match status.signal() {
        Some(signal) if FAULTS.contains(&signal) => {
            return Err(Refused::Ended { path: path.into(), signal });
        }
        Some(signal) => return Err(failed(format!("ended by {}", name(signal)))),
        None => {}
    }
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    let said = |field: &str| answer.get(field).and_then(Value::as_str).map(str::to_owned);
    match (answer.get("certificates"), said("absent"), said("refused"), said("failed")) {
        (Some(_), None, None, None) => Ok(()),
        (_, Some(absent), ..) => Err(Refused::Absent(absent)),
        (_, _, Some(refused), _) => Err(Refused::Said(refused)),
        (.., Some(what)) => Err(failed(what)),
        (None, None, None, None) => Err(failed(format!("no answer, {status}"))),
    }
}

/// What the other process does: examines the store, and writes what it found as JSON.
///
/// # Errors
/// The writer's.
pub fn answer(path: &Path, out: &mut dyn Write) -> io::Result<()> {
    let answer = match examine(path) {
        Ok(found) => json!({ "certificates": found.certificates, "names": found.names }),
        Err(error @ StoreError::Absent { .. }) => json!({ "absent": error.to_string() }),
        // What the disk does not give back is damaged; whatever else the system refuses is not.
        Err(StoreError::System { source, .. })
            if source.raw_os_error() != Some(Errno::IO.raw_os_error()) =>
        {
            json!({ "failed": source.to_string() })
        }
        Err(error) => json!({ "refused": error.to_string() }),
    };
    writeln!(out, "{answer}")
}

/// Why a store is not to be opened.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is none, or one that was never finished.
    #[error("{0}")]
    Absent(String),
    /// The file ended the process that read it, as a fault of memory does.
    #[error(
        "{}: damaged: the check of it ended by {}; restore it from a backup, or from the \
         certificates' files by: sealane certificates import --create",
        path.display(),
        name(*signal)
    )]
    Ended {
        /// The store.
        path: PathBuf,
        /// The signal's number.
        signal: i32,
    },
    /// What is wrong.
    #[error("{0}")]
    Said(String),
    /// Nobody knows whether it is in order.
    #[error(
        "{}: not opened, because it cannot be checked in a process of its own: {what}",
        path.display()
    )]
    Unknown {
        /// The store.
        path: PathBuf,
        /// What failed.
        what: String,
    },
}

fn name(signal: i32) -> String {
    match signal {
        4 => "SIGILL".into(),
        6 => "SIGABRT".into(),
        7 => "SIGBUS".into(),
        8 => "SIGFPE".into(),
        9 => "SIGKILL".into(),
        11 => "SIGSEGV".into(),
        other => format!("signal {other}"),
    }
}

/// Long enough to read a file of this length from a slow disk.
fn time_limit(path: &Path) -> Duration {
    let len = fs::metadata(path.join(DATA_FILE)).map_or(0, |facts| facts.size());
    EXAMINATION_TIMEOUT + Duration::from_secs(len / DISK_BYTES_PER_S)
}

/// How a process ended and what it wrote, if it did so in time. Its output is read on another
/// thread, so that one that writes nothing holds nobody up.
fn outcome(mut child: Child, until: Instant) -> io::Result<Option<(ExitStatus, String)>> {
    let (sender, text) = channel();
    let output = child.stdout.take();
    let read = move || {
        let mut text = String::new();
        if let Some(output) = output {
            // What cannot be read is no answer.
            let _ = output.take(ANSWER_BYTES_MAX).read_to_string(&mut text);
        }
        // Whoever asked may have given up.
        let _ = sender.send(text);
    };
    std::thread::Builder::new().name("examination".into()).spawn(read)?;
    let text = text.recv_timeout(until.saturating_duration_since(Instant::now()));
    let status = match &text {
        // It closed its output, so it ends now.
        Ok(_) => Some(child.wait()?),
        Err(_) => None,
    };
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(status.zip(text.ok()))
}

/// Signals by which a process ends itself: others come from outside, as from a system that is out
/// of memory, and tell nothing of the file.
const FAULTS: [i32; 5] = [4, 6, 7, 8, 11];
/// An answer, with a path in it.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// What a disk reads in a second at least.
const DISK_BYTES_PER_S: u64 = 32 << 20;
/// For as long a signal may have to wait, with a small store.
const EXAMINATION_TIMEOUT: Duration = Duration::from_secs(10);
