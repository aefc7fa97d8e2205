//! Sealing keys from a file, a credential of systemd, or a program.

use std::env;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use sealane_certificate_files::{Exposed, MARK, mode_for_others, open_regular};
use sealane_store::{SealingKeyError, SealingKeys};
use zeroize::Zeroizing;

use crate::key::{Key, List, PathKind, Text};
use crate::mistake::Problem;
use crate::reader::Table;
use crate::value;

/// Where the keys come from that open certificate stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// What a program writes to its standard output: its path, then its arguments.
    Command(Vec<String>),
    /// A credential of systemd, by its name.
    Credential(String),
    /// A file.
    File(PathBuf),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Its arguments may be a secret, as a token is.
            Self::Command(words) => write!(f, "command {}", words.first().map_or("", |word| word)),
            Self::Credential(name) => write!(f, "credential {name}"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Reads the table of a source of sealing keys: one of `file`, `credential` and `command`.
pub fn store_key(table: &Table<'_>) -> Option<KeySource> {
    secret_source(table, "file = \"/etc/sealane/store.key\"")
}

/// Reads the table of a source: one of `file`, `credential` and `command`; with an example.
pub fn secret_source(table: &Table<'_>, example: &str) -> Option<KeySource> {
    let (file, credential) = (table.value(&FILE), table.value(&CREDENTIAL));
    match (file, credential, table.value(&COMMAND)) {
        (Some(file), None, None) => file.path().map(KeySource::File),
        (None, Some(name), None) => CREDENTIAL.read(&name).map(KeySource::Credential),
        (None, None, Some(command)) => COMMAND.read(&command).map(KeySource::Command),
        (None, None, None) => {
            table.required(&FILE, example);
            None
        }
        (first, second, third) => {
            for extra in [first, second, third].into_iter().flatten().skip(1) {
                let what = "a second source";
                extra.wrong(Problem::new(what, "keep one of file, credential and command"));
            }
            None
        }
    }
}

/// The keys of a source.
pub static SECRET_KEYS: [&Key; 3] = [&FILE, &CREDENTIAL, &COMMAND];

static FILE: Key<PathKind> =
    Key::new("file", PathKind, "A file with the secret. Other users must not be able to read it.")
        .examples(&["\"/etc/sealane/store.key\""]);

static CREDENTIAL: Key<Text<String>> = Key::new(
    "credential",
    Text("name of a credential", value::credential_name),
    "Instead of file: a credential of systemd, by the name in \
     LoadCredential=store-key:/etc/sealane/store.key.",
)
.examples(&["\"store-key\""])
.alternative();

static COMMAND: Key<List<Text<String>>> = Key::new(
    "command",
    List(Text("text", value::word), 64),
    "Instead of file: a program and its arguments. It prints the secret within 5 seconds. No shell \
     is involved.",
)
.examples(&["[\"/usr/bin/pass\", \"show\", \"sealane\"]"])
.alternative();

/// Reads the keys that `source` names; a program gets a bounded time.
///
/// # Errors
/// They cannot be read, or are no keys. No error quotes them.
pub fn sealing_keys(source: &KeySource) -> Result<SealingKeys, KeySourceError> {
    SealingKeys::from_text(&secret_text(source)?)
        .map_err(|error| KeySourceError::NoKeys { from: source.to_string(), error })
}

/// Reads the text that `source` names, such as a password; a program gets a bounded time.
///
/// # Errors
/// It cannot be read. No error quotes it.
pub fn secret_text(source: &KeySource) -> Result<Zeroizing<String>, KeySourceError> {
    match source {
        KeySource::Command(words) => output_of(words),
        KeySource::Credential(name) => {
            let folder = env::var_os("CREDENTIALS_DIRECTORY");
            let folder =
                folder.ok_or_else(|| KeySourceError::NoCredentials { name: name.clone() })?;
            // The service manager sees to who can read it.
            text_of(&PathBuf::from(folder).join(name), Check::Size)
        }
        KeySource::File(path) => text_of(path, Check::SizeAndMode),
    }
}

/// Makes a key file for this user alone with one new key in it; leaves one that is there alone.
///
/// # Errors
/// The system refuses.
pub fn create_key_file(path: &Path) -> Result<bool, KeySourceError> {
    let unwritable = |error| KeySourceError::Unwritable { path: path.into(), error };
    let (_, text) = SealingKeys::generate()
        .map_err(|error| KeySourceError::NoKeys { from: path.display().to_string(), error })?;
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        opened => {
            let mut file = opened.map_err(unwritable)?;
            file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(unwritable)?;
        }
    }
    Ok(true)
}

/// Why there are no sealing keys. The fault is the operator's.
#[derive(Debug, thiserror::Error)]
pub enum KeySourceError {
    /// The program did not do its part.
    #[error("{command}: {what}")]
    Command {
        /// The program, without its arguments.
        command: String,
        /// What it did instead.
        what: String,
    },
    /// A file that others can read.
    #[error(transparent)]
    Exposed(Exposed),
    /// Not started by systemd with credentials.
    #[error(
        "credential {name}: CREDENTIALS_DIRECTORY is not set; start Sealane by a systemd unit with \
         LoadCredential={name}:PATH"
    )]
    NoCredentials {
        /// The credential.
        name: String,
    },
    /// The text holds none.
    #[error("{from}: {error}")]
    NoKeys {
        /// Where the text comes from.
        from: String,
        /// What is wrong with it.
        error: SealingKeyError,
    },
    /// The system refuses.
    #[error(
        "{}: cannot be read: {error}; see that it is there and this user may read it",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The system refuses.
    #[error("{}: cannot be made: {error}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Size,
    SizeAndMode,
}

fn text_of(path: &Path, check: Check) -> Result<Zeroizing<String>, KeySourceError> {
    let unreadable = |error| KeySourceError::Unreadable { path: path.into(), error };
    let file = open_regular(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if let (Check::SizeAndMode, Some(mode)) = (check, mode_for_others(&metadata)) {
        return Err(KeySourceError::Exposed(Exposed { path: path.into(), mode }));
    }
    read_text(file).map_err(unreadable)
}

/// What a program writes. It is waited for on this thread, for a bounded time, and its output is
/// read on another, so that a program that writes nothing does not hold up more than that.
fn output_of(words: &[String]) -> Result<Zeroizing<String>, KeySourceError> {
    let command = KeySource::Command(words.to_vec()).to_string();
    let failed = |what: String| KeySourceError::Command { command: command.clone(), what };
    let (program, arguments) =
        words.split_first().ok_or_else(|| failed("no program is named".into()))?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let (sender, text) = channel();
    let output = child.stdout.take();
    let read = move || {
        // Whoever asked may have given up.
        let _ = sender.send(output.map_or(Ok(Zeroizing::default()), read_text));
    };
    let reader = std::thread::Builder::new().name("sealing-key".into()).spawn(read);
    let until = Instant::now() + COMMAND_TIMEOUT;
    let text = reader.is_ok().then(|| text.recv_timeout(COMMAND_TIMEOUT).ok()).flatten();
    let status = text.is_some().then(|| status_by(&mut child, until)).flatten();
    let (Some(text), Some(status)) = (text, status) else {
        // It may have ended this very moment.
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed(format!("not done within {} s", COMMAND_TIMEOUT.as_secs())));
    };
    if !status.success() {
        return Err(failed(format!("it failed: {status}")));
    }
    text.map_err(|error| failed(format!("its output cannot be read: {error}")))
}

fn status_by(child: &mut Child, until: Instant) -> Option<std::process::ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(COMMAND_TICK),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Into a buffer that never moves, so that no copy of a key stays behind.
fn read_text(from: impl Read) -> io::Result<Zeroizing<String>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_SOURCE_BYTES_MAX + 1));
    from.take(KEY_SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > KEY_SOURCE_BYTES_MAX {
        return Err(io::Error::other("it is too long for a key"));
    }
    match str::from_utf8(bytes.strip_prefix(MARK).unwrap_or(&bytes)) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(io::Error::other("it is not text")),
    }
}

/// How often a program that closed its output is asked whether it has ended.
const COMMAND_TICK: Duration = Duration::from_millis(5);
/// A program that prints a key; for as long a signal may have to wait.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a text with sealing keys.
const KEY_SOURCE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn command(words: &[&str]) -> KeySource {
        KeySource::Command(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn error(source: &KeySource) -> String {
        let text = sealing_keys(source).unwrap_err().to_string();
        assert!(!text.contains("AQEB"), "{text}");
        text
    }

    #[test]
    fn files_are_for_their_owner_and_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let source = KeySource::File(path.clone());
        assert!(error(&source).contains("cannot be read"));
        assert!(create_key_file(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let current = sealing_keys(&source).unwrap().current();
        assert!(!create_key_file(&path).unwrap());
        assert_eq!(sealing_keys(&source).unwrap().current(), current);
        let set_mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o640);
        assert!(sealing_keys(&source).is_ok());
        set_mode(0o644);
        assert!(error(&source).contains("every user of this machine may read"));
        set_mode(0o600);
        fs::write(&path, "AQEBAQ==").unwrap();
        assert!(error(&source).contains("line 1 is not a sealing key"));
        assert!(error(&KeySource::File(folder.path().into())).contains("a directory, not a file"));
        assert!(error(&KeySource::File("/dev/zero".into())).contains("it is a device, not a file"));
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        assert!(error(&KeySource::File(pipe)).contains("it is a named pipe, not a file"));
    }

    #[test]
    fn programs_are_bounded_and_their_failures_said() {
        assert!(sealing_keys(&command(&["echo", KEY])).is_ok());
        assert!(error(&command(&["/absent/program"])).contains("cannot be started"));
        assert!(error(&command(&["false"])).contains("it failed"));
        assert!(error(&command(&["true"])).contains("no sealing key in it"));
        assert!(error(&command(&["test", KEY, "=", "x"])).contains("command test: it failed"));
        assert!(error(&command(&["echo", KEY, "more"])).contains("not a sealing key"));
        assert!(
            error(&command(&["cat", "/dev/zero"])).contains("its output cannot be read")
                || error(&command(&["cat", "/dev/zero"])).contains("it failed")
        );
    }
}
