//! Examines a store in a process of its own before it is mapped in this one: a damaged file may end
//! a process that maps it.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, setpriority_process};
use sealane_store::{DATA_FILE, StoreError, examine};
use serde_json::{Value, json};

use super::owner::other_owner;

/// Lets another process read all of the store in the folder `path`. As root, that process has the
/// rights of the folder's owner.
///
/// # Errors
/// The store is not in order, or that cannot be found out.
pub fn examine_apart(path: &Path) -> Result<(), Refused> {
    Examination::begin(path)?.wait()
}

/// Another process that reads a store. It is ended if nobody waits for it.
#[derive(Debug)]
pub struct Examination {
    child: Child,
    limits: Limits,
    output: Receiver<Said>,
    path: PathBuf,
}

/// The most that an examination may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Until no process writes to the store.
    lock: Duration,
    /// From then on.
    reading: Duration,
}

/// What the other process wrote, and when that was read.
#[derive(Debug)]
enum Said {
    Begun(Instant),
    Answer(String),
}

impl Examination {
    /// Starts the process.
    ///
    /// # Errors
    /// The system refuses.
    pub fn begin(path: &Path) -> Result<Self, Refused> {
        let failed = |what: String| Refused::Unknown { path: path.into(), what };
        // Also if the file of this program was replaced since it started.
        let mut command = Command::new("/proc/self/exe");
        command.args(["certificates", "examine", "--"]).arg(path);
        let owner = other_owner(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Refused::Absent(StoreError::Absent { path: path.into() }.to_string())
            }
            _ => failed(error.to_string()),
        });
        if let Some((user, group)) = owner? {
            command.uid(user).gid(group);
        }
        let limits = Limits { lock: LOCK_TIMEOUT, reading: reading_limit(path) };
        Self::of(&mut command, path, limits)
            .map_err(|error| failed(format!("cannot be started: {error}")))
    }

    fn of(command: &mut Command, path: &Path, limits: Limits) -> io::Result<Self> {
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.stdin(Stdio::null()).spawn()?;
        let (sender, output) = channel();
        let from = child.stdout.take();
        let examination = Self { child, limits, output, path: path.into() };
        // On another thread, so that a process that writes nothing holds nobody up.
        let read = move || from.map_or(Ok(()), |from| pass_on(from, &sender));
        std::thread::Builder::new().name("examination".into()).spawn(read)?;
        Ok(examination)
    }

    /// Lets other work of this machine go first; not all, for who writes to the store waits.
    pub fn yield_to_others(&self) {
        let process = Pid::from_child(&self.child);
        // Else it only takes more of the machine for a while.
        let _ = setpriority_process(Some(process), LESS_PRIORITY);
    }

    /// Waits for what was found. The store may be opened if there is no error.
    ///
    /// # Errors
    /// The store is not in order, or that cannot be found out.
    pub fn wait(mut self) -> Result<(), Refused> {
        let answer = self.answer().map_err(|what| self.unknown(what))?;
        // It closed its output, so it ends now.
        let status = self.child.wait().map_err(|error| self.unknown(error.to_string()))?;
        verdict(&self.path, status, &answer)
    }

    /// What the process wrote, if it did so in time.
    fn answer(&self) -> Result<String, String> {
        let Limits { lock, reading } = self.limits;
        let begun = match self.output.recv_timeout(lock) {
            Ok(Said::Begun(at)) => at,
            Ok(Said::Answer(text)) => return Ok(text),
            Err(RecvTimeoutError::Disconnected) => return Ok(String::new()),
            Err(RecvTimeoutError::Timeout) => {
                let limit_s = lock.as_secs();
                return Err(format!("another process wrote to it for longer than {limit_s} s"));
            }
        };
        let left = (begun + reading).saturating_duration_since(Instant::now());
        match self.output.recv_timeout(left) {
            Ok(Said::Answer(text)) => Ok(text),
            Ok(Said::Begun(_)) | Err(RecvTimeoutError::Disconnected) => Ok(String::new()),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("it was not read within {} s", reading.as_secs()))
            }
        }
    }

    fn unknown(&self, what: String) -> Refused {
        Refused::Unknown { path: self.path.clone(), what }
    }
}

impl Drop for Examination {
    fn drop(&mut self) {
        // Both fail if it was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads what the other process writes, to its end.
fn pass_on(from: ChildStdout, to: &Sender<Said>) -> io::Result<()> {
    let mut lines = BufReader::new(from.take(ANSWER_BYTES_MAX));
    let mut text = String::new();
    lines.read_line(&mut text)?;
    if text.trim_end() == BEGUN {
        text.clear();
        // Whoever asked may have given up.
        let _ = to.send(Said::Begun(Instant::now()));
    }
    lines.read_to_string(&mut text)?;
    let _ = to.send(Said::Answer(text));
    Ok(())
}

/// What is to be thought of a process that ended so, and wrote that.
fn verdict(path: &Path, status: ExitStatus, text: &str) -> Result<(), Refused> {
    let failed = |what: String| Refused::Unknown { path: path.into(), what };
    match status.signal() {
        Some(signal) if FAULTS.contains(&signal) => {
            return Err(Refused::Ended { path: path.into(), signal });
        }
        Some(signal) => return Err(failed(format!("ended by {}", name(signal)))),
        None => {}
    }
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    let said = |field: &str| answer.get(field).and_then(Value::as_str).map(str::to_owned);
    match (answer.get("certificates"), said("absent"), said("refused"), said("failed")) {
        (Some(_), None, None, None) => Ok(()),
        (_, Some(absent), ..) => Err(Refused::Absent(absent)),
        (_, _, Some(refused), _) => Err(Refused::Said(refused)),
        (.., Some(what)) => Err(failed(what)),
        (None, None, None, None) => Err(failed(format!("no answer, {status}"))),
    }
}

/// What the other process does: waits until nobody writes to the store, says so, examines it, and
/// writes what it found as JSON.
///
/// # Errors
/// The writer's.
pub fn answer(path: &Path, out: &mut dyn Write) -> io::Result<()> {
    let mut told = Ok(());
    let begun = || told = writeln!(out, "{BEGUN}").and_then(|()| out.flush());
    let found = examine(path, begun);
    told?;
    let answer = match found {
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
        "{}: damaged: the check of it ended by {}; restore a backup with: sealane certificates \
         restore, or import the certificates' files with: sealane certificates import --create",
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
fn reading_limit(path: &Path) -> Duration {
    let len = fs::metadata(path.join(DATA_FILE)).map_or(0, |facts| facts.size());
    READING_TIMEOUT + Duration::from_secs(len / DISK_BYTES_PER_S)
}

/// An answer, with a path in it.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// The line before the answer: from here on nobody is waited for.
const BEGUN: &str = "begun";
/// The niceness of what nobody waits for: a quarter of a core's time beside one that is busy.
const LESS_PRIORITY: i32 = 5;
/// What a disk reads in a second at least, from one end of a file to the other.
const DISK_BYTES_PER_S: u64 = 32 << 20;
/// Signals by which a process ends itself: others come from outside, as from a system that is out
/// of memory, and tell nothing of the file.
const FAULTS: [i32; 5] = [4, 6, 7, 8, 11];
/// Writers hold the folder's lock for a transaction, and while they wait for the last reader of
/// what they erase, up to 10 s.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// For as long a signal may have to wait, with a small store.
const READING_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a process that runs `script`.
    fn examined(script: &str, limits: Limits) -> Result<(), Refused> {
        let mut command = Command::new("sh");
        Examination::of(command.args(["-c", script]), Path::new("/store"), limits).unwrap().wait()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_the_other_process_says_counts_and_how_it_ends_unless_others_end_it() {
        let limits = Limits { lock: LONG, reading: LONG };
        let found = |script: &str| examined(script, limits);
        found("echo begun; echo '{\"certificates\":1}'").unwrap();
        let damaged = found("echo begun; echo '{\"refused\":\"page 3\"}'");
        assert!(matches!(damaged, Err(Refused::Said(said)) if said == "page 3"));
        let absent = found("echo begun; echo '{\"absent\":\"none\"}'");
        assert!(matches!(absent, Err(Refused::Absent(_))), "{absent:?}");
        for signal in ["ABRT", "BUS", "FPE", "ILL", "SEGV"] {
            let ended = found(&format!("echo begun; kill -{signal} $$"));
            assert!(matches!(ended, Err(Refused::Ended { .. })), "{signal}: {ended:?}");
        }
        for script in [
            "kill -KILL $$",
            "echo begun; kill -TERM $$",
            "echo begun; echo '{\"failed\":\"no memory\"}'",
            "echo begun",
            "exit 1",
        ] {
            let unknown = found(script);
            assert!(matches!(unknown, Err(Refused::Unknown { .. })), "{script}: {unknown:?}");
        }
    }

    #[test]
    fn a_store_that_is_written_to_is_waited_for_and_then_the_clock_starts() {
        let none = Duration::ZERO;
        let waits = "sleep 60";
        let error = examined(waits, Limits { lock: none, reading: LONG }).unwrap_err().to_string();
        assert!(error.contains("another process wrote to it"), "{error}");
        let reads = "echo begun; sleep 60";
        let error = examined(reads, Limits { lock: LONG, reading: none }).unwrap_err().to_string();
        assert!(error.contains("it was not read within 0 s"), "{error}");
        // The wait for the lock is longer than the limit of reading, and not charged to it.
        let limits = Limits { lock: LONG, reading: Duration::from_secs(2) };
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let script = format!(
            "mkfifo {0}; cat {0}; printf 'begun\\n{{\"certificates\":1}}\\n'",
            pipe.display()
        );
        let mut command = Command::new("sh");
        let command = command.args(["-c", &script]);
        let examination = Examination::of(command, folder.path(), limits).unwrap();
        std::thread::sleep(limits.reading);
        // There is a pipe soon, if not yet.
        while fs::OpenOptions::new().append(true).open(&pipe).is_err() {
            std::thread::yield_now();
        }
        examination.wait().unwrap();
    }
}
