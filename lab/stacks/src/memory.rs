//! The command `memory`: bytes per connection, server's and client's, established and idle.
//!
//! *Established* is right after the handshake and its tickets; *idle* is after 16 KiB have gone
//! each way. In both, an end has given back what it has no more use for, as a server does that
//! holds many: OpenSSL with `SSL_MODE_RELEASE_BUFFERS`, s2n-tls by
//! `s2n_connection_release_buffers`, and all without the memory that stands for a socket.

mod held;

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    io::{self, Write},
    time::Duration,
};

use sealane_lab_harness::{
    credentials::Credentials,
    interrupt::Interrupt,
    journal::Journal,
    options::Json,
    progress::Progress,
    trial::{Reply, Task, launch},
};
use sealane_lab_model::{
    document::{MemoryResult, Run},
    error::Error,
    figures::memory::STATES,
    scenario::{Cipher, Group, Key, Kind, Scenario, Version},
};

pub use held::Memory;

use crate::stacks;

/// The arguments of `memory`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Names (see `stacks`) or paths of a libssl [default: all that are here]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    stack: Vec<String>,
    /// What sessions leave behind: nothing, an entry in the server's cache, or tickets
    #[arg(long, default_value = "full")]
    kind: Kind,
    /// The protocol version
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "1.3")]
    tls: Vec<Version>,
    /// Record protection
    #[arg(long, default_value = "aes128-gcm")]
    cipher: Cipher,
    /// The key-exchange group
    #[arg(long, default_value = "x25519")]
    group: Group,
    /// The type of the certificates' keys
    #[arg(long, default_value = "p256")]
    key: Key,
    /// The server demands a certificate of the client
    #[arg(long)]
    client_certificate: bool,
    /// TLS 1.3 tickets that the server sends after each handshake
    #[arg(long, default_value_t = 2, value_name = "N")]
    tickets: u8,
    /// Connections held at once
    #[arg(long, default_value_t = 2_000, value_name = "N",
        value_parser = clap::value_parser!(u64).range(10..=100_000))]
    connections: u64,
    #[command(flatten)]
    json: Json,
}

/// `true` if every stack was measured that can do what was asked, and one could.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let interrupt = Interrupt::catch()?;
    let mut journal = Journal::begin(env::args().collect(), arguments.json.path());
    let measured = measure(arguments, &mut journal, &interrupt);
    if measured.is_ok() || matches!(measured, Err(Error::Interrupted)) {
        journal.save(measured.is_ok())?;
        let text = table(&journal.run);
        io::stdout().write_all(text.as_bytes()).map_err(Error::io("standard output"))?;
    }
    measured?;
    let fine = |result: &MemoryResult| match &result.failure {
        Some(failure) => failure.starts_with(UNSUPPORTED),
        None => true,
    };
    let results = &journal.run.memory;
    Ok(results.iter().all(fine) && results.iter().any(|result| result.failure.is_none()))
}

fn measure(
    arguments: &Arguments,
    journal: &mut Journal,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let names = if arguments.stack.is_empty() { stacks::known() } else { arguments.stack.clone() };
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    Credentials::make(folder.path(), arguments.key)?;
    let mut progress = Progress::new((names.len() * arguments.tls.len()) as u64);
    for name in &names {
        let identity = stacks::identity(name);
        if let Ok(identity) = &identity {
            journal.run.stacks.push(identity.clone());
        }
        for version in &arguments.tls {
            if interrupt.is_pressed() {
                return Err(Error::Interrupted);
            }
            progress.step(&format!("{name}, TLS {version:?}"));
            let scenario = arguments.scenario(*version);
            let task = Memory {
                stack: name.clone(),
                scenario: scenario.clone(),
                credentials: folder.path().to_owned(),
                connections: usize::try_from(arguments.connections).unwrap_or(usize::MAX),
            };
            let bytes = match &identity {
                Ok(_) => trial(&task),
                Err(error) => Err(Error::Check(error.to_string())),
            };
            let (bytes, failure) = match bytes {
                Ok(bytes) => (bytes, None),
                Err(error) => (BTreeMap::new(), Some(error.to_string())),
            };
            let (stack, connections) = (name.clone(), arguments.connections);
            let result = MemoryResult { stack, scenario, connections, bytes, failure };
            journal.run.memory.push(result);
            journal.save(false)?;
            progress.done();
        }
    }
    Ok(())
}

impl Arguments {
    fn scenario(&self, version: Version) -> Scenario {
        Scenario {
            kind: self.kind,
            version,
            cipher: self.cipher,
            group: self.group,
            key: self.key,
            client_certificate: self.client_certificate,
            chain: 1,
            tickets: self.tickets,
            ..Scenario::default()
        }
    }
}

/// One stack in one scenario, in a process of its own.
fn trial(task: &Memory) -> Result<BTreeMap<String, f64>, Error> {
    let time_max =
        TIME_MAX + TIME_PER_CONNECTION_MAX * u32::try_from(task.connections).unwrap_or(0);
    let mut command = launch::command(&Task::new(task)?)?;
    // Or the allocator would keep what is freed for the thread, and count it as in use.
    command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
    match launch::result(&mut command, time_max)? {
        Reply::Memory { bytes } => Ok(bytes),
        _ => Err(Error::Check("the trial told something else than bytes".into())),
    }
}

/// One row per stack and version; failures below it.
fn table(run: &Run) -> String {
    let mut text = String::new();
    let (mut rows, mut failures) = (String::new(), String::new());
    for result in &run.memory {
        let MemoryResult { stack, scenario, failure, .. } = result;
        let version = if scenario.version == Version::Tls12 { "1.2" } else { "1.3" };
        if let Some(failure) = failure {
            let _ = writeln!(failures, "{stack}, TLS {version}: NO FIGURES: {failure}");
            continue;
        }
        let _ = write!(rows, "{stack:<16} {version:>4}");
        for state in &STATES {
            let bytes = state.bytes(result).map(|bytes| format!("{bytes:.0}"));
            let _ = write!(rows, " {:>12}", bytes.as_deref().unwrap_or("-"));
        }
        rows.push('\n');
    }
    if !rows.is_empty() {
        let connections = run.memory.first().map_or(0, |result| result.connections);
        let _ = writeln!(text, "bytes per connection, {connections} connections held at once");
        let heads: String = STATES.iter().map(|state| format!(" {:>12}", state.head)).collect();
        let _ = writeln!(text, "{:<16} {:>4}{heads}", "stack", "TLS");
    }
    text + &rows + &failures
}

const UNSUPPORTED: &str = "not supported: ";
/// Loading, building contexts, and a machine under load.
const TIME_MAX: Duration = Duration::from_secs(60);
const TIME_PER_CONNECTION_MAX: Duration = Duration::from_millis(50);
