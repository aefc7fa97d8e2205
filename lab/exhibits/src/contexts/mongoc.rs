//! MongoDB's C driver as the system has it: `native/mongoc-ping.c`, compiled at first use and run.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
    time::Duration,
};

use sealane_lab_harness::{native::Program, trial::Reply};
use sealane_lab_model::error::Error;
use serde::Deserialize;

use crate::contexts::{
    pings::milliseconds,
    task::{Libmongoc, Strategy},
};

/// The row of the driver that this machine has: its name, its version, and who builds a context.
///
/// # Errors
/// [`Error::Missing`] if it is not installed.
pub(super) fn row() -> Result<String, Error> {
    let version = ask("--modversion")?;
    Ok(row_of(version.trim()))
}

/// Whether a row is one of a driver that builds a context for every socket.
pub(super) fn is_per_socket(row: &str) -> bool {
    row.ends_with(&format!("({})", Strategy::PerSocket.name()))
}

fn row_of(version: &str) -> String {
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut parts = version.split('.');
    let version_of: (u32, u32) = (number(parts.next()), number(parts.next()));
    let strategy =
        if version_of < PER_POOL_SINCE { Strategy::PerSocket } else { Strategy::PerPool };
    format!("libmongoc {version} ({})", strategy.name())
}

/// Runs the pooled clients, and checks what they say.
///
/// # Errors
/// A ping failed, or what they printed does not add up.
pub(super) fn run(task: &Libmongoc) -> Result<Reply, Error> {
    if task.clients > CLIENTS_MAX {
        let text = format!("libmongoc's clients are at most {CLIENTS_MAX}, a thread each");
        return Err(Error::Unsupported(text));
    }
    if task.files.identification.is_some() {
        return Err(Error::Unsupported("libmongoc's clients show no certificate here".into()));
    }
    let words = |text: String| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut flags: Vec<String> = FLAGS.map(str::to_owned).to_vec();
    flags.extend(words(ask("--cflags")?));
    let mut libraries = words(ask("--libs")?);
    libraries.extend(LIBRARIES.map(str::to_owned));
    let program = Program {
        name: "mongoc-ping",
        title: "libmongoc's clients",
        file: "mongoc-ping.c",
        source: SOURCE,
        compiler: "cc",
        flags: &flags,
        libraries: &libraries,
    };
    let mut command = Command::new(program.compiled(check_compiler)?);
    command.arg(format!("{}/?tls=true", task.target)).arg(&task.files.ca);
    command.arg(task.clients.to_string());
    let text = program.output_of(command, TIME_MAX)?;
    let said: Said = serde_json::from_str(&text)
        .map_err(|error| Error::Check(format!("libmongoc's clients printed no result: {error}")))?;
    if said.pings != task.clients as u64 || said.build_cpu_ns > said.total_cpu_ns {
        return Err(Error::Check(format!("libmongoc's clients say what cannot be: {text}")));
    }
    let figures = [
        ("contexts_built", said.contexts_built as f64),
        ("certificates_parsed", said.certificates_parsed as f64),
        ("pings", said.pings as f64),
        ("build_cpu_ms", milliseconds(said.build_cpu_ns)),
        ("total_cpu_ms", milliseconds(said.total_cpu_ns)),
        ("build_share", 100.0 * said.build_cpu_ns as f64 / said.total_cpu_ns as f64),
        ("wall_ms", milliseconds(said.wall_ns)),
    ];
    let figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    Ok(Reply::Figures { figures, times: BTreeMap::new() })
}

/// What pkg-config knows of the library.
fn ask(question: &str) -> Result<String, Error> {
    let output = Command::new("pkg-config").args([question, PACKAGE]).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        _ => Err(missing("MongoDB's C driver", "apt-get install libmongoc-dev pkg-config")),
    }
}

fn check_compiler() -> Result<(), Error> {
    let mut command = Command::new("cc");
    command.args(["-E", "-x", "c", "-include", "openssl/ssl.h", "/dev/null"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Err(_) => Err(missing("the C compiler cc", "apt-get install gcc libc6-dev")),
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(missing("OpenSSL's headers", "apt-get install libssl-dev")),
    }
}

fn missing(program: &str, remedy: &str) -> Error {
    Error::Missing { program: program.to_owned(), remedy: remedy.to_owned() }
}

/// What the program prints.
#[derive(Debug, Deserialize)]
struct Said {
    contexts_built: u64,
    certificates_parsed: u64,
    build_cpu_ns: u64,
    total_cpu_ns: u64,
    wall_ns: u64,
    pings: u64,
}

const SOURCE: &str = include_str!("../../../native/mongoc-ping.c");
const PACKAGE: &str = "libmongoc-1.0";
/// CDRIVER-4656: clients of a pool have had one context since then.
const PER_POOL_SINCE: (u32, u32) = (1, 28);
/// The program's own functions must come before libssl's in the driver's eyes: `-rdynamic`.
const FLAGS: [&str; 4] = ["-std=gnu11", "-O2", "-pthread", "-rdynamic"];
const LIBRARIES: [&str; 2] = ["-lssl", "-lcrypto"];
/// The program's own limit.
const CLIENTS_MAX: usize = 2_000;
/// 2,000 clients took 100 s of one processor.
const TIME_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_called_by_what_its_version_does() {
        for (version, strategy) in [
            ("1.23.1", "(per-socket)"),
            ("1.27.6", "(per-socket)"),
            ("1.28.0", "(per-pool)"),
            ("1.30.4", "(per-pool)"),
            ("2.0.0-rc1", "(per-pool)"),
        ] {
            let row = row_of(version);
            assert_eq!(row, format!("libmongoc {version} {strategy}"));
            assert_eq!(is_per_socket(&row), strategy == "(per-socket)");
        }
    }
}
