//! MongoDB's C driver, before its remedy and after: `native/mongoc-ping.c`, compiled at first use
//! and run.

use std::{
    collections::BTreeMap,
    iter,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use sealane_lab_harness::{native::Program, trial::Reply};
use sealane_lab_model::error::Error;
use sealane_lab_stacks::inventory;
use serde::Deserialize;

use crate::contexts::{pings::milliseconds, task::Libmongoc};

/// A driver that this machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Driver {
    /// The driver's name and version. What it does is seen, not read from these.
    pub(super) name: String,
    /// The folder in which pkg-config finds it; `None` is where it looks by itself.
    pub(super) pkg_config: Option<PathBuf>,
}

/// The system's driver, and the one that `stacks build` made; those that are here.
pub(super) fn drivers() -> Vec<Driver> {
    let folders = iter::once(None).chain(inventory::libmongoc().map(Some));
    let driver = |pkg_config: Option<PathBuf>| {
        let version = ask(pkg_config.as_deref(), "--modversion").ok()?;
        Some(Driver { name: format!("libmongoc {}", version.trim()), pkg_config })
    };
    let mut drivers: Vec<Driver> = folders.filter_map(driver).collect();
    drivers.dedup_by(|one, other| one.name == other.name);
    drivers
}

/// Why there is none.
pub(super) fn none() -> Error {
    missing("MongoDB's C driver", "apt-get install libmongoc-dev pkg-config")
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
    let folder = task.pkg_config.as_deref();
    flags.extend(words(ask(folder, "--cflags")?));
    let mut libraries = words(ask(folder, "--libs")?);
    // Where that one lies, so that the system's is not taken in its place.
    let library = folder.and_then(Path::parent);
    libraries.extend(library.map(|folder| format!("-Wl,-rpath,{}", folder.display())));
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

/// What pkg-config knows of the library, in `folder` first.
fn ask(folder: Option<&Path>, question: &str) -> Result<String, Error> {
    let mut command = Command::new("pkg-config");
    command.args([question, PACKAGE]).stdin(Stdio::null());
    if let Some((folder, prefix)) = folder.and_then(|it| Some((it, it.parent()?.parent()?))) {
        // It was built for another folder, and moved here when it was whole.
        command.arg(format!("--define-variable=prefix={}", prefix.display()));
        command.env("PKG_CONFIG_PATH", folder);
    }
    match command.output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        _ => Err(none()),
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
/// The program's own functions must come before libssl's in the driver's eyes: `-rdynamic`.
const FLAGS: [&str; 4] = ["-std=gnu11", "-O2", "-pthread", "-rdynamic"];
const LIBRARIES: [&str; 2] = ["-lssl", "-lcrypto"];
/// The program's own limit.
const CLIENTS_MAX: usize = 2_000;
/// 2,000 clients took 100 s of one processor.
const TIME_MAX: Duration = Duration::from_secs(600);
