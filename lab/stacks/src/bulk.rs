//! The command `bulk`: MB/s of TLS stacks over loopback sockets, by runtime, loops and threads.
//!
//! ```text
//! Arguments --plan--> BulkTask per cell --a process each, in rounds--> BulkSeries --> table, files
//! ```
//! A figure exists only if every byte that arrived was
//! compared with what was sent.

pub(crate) mod asio;
mod compat;
mod content;
mod control;
mod judge;
mod on_lanes;
mod plan;
mod rounds;
pub(crate) mod sockets;
mod table;
pub mod task;

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use sealane_lab_harness::{
    credentials::Credentials,
    options::{Resume, Shuffled},
    strategies::Strict,
    trial::{Body, BulkOutcome, Reply},
};
use sealane_lab_model::{
    error::Error,
    figures::{Shown, Tally},
    scenario::{Cipher, Group, Key, Kind, Share, Version},
};

pub use table::{csv, text};

use crate::{
    bulk::{
        asio::Library,
        task::{BulkTask, Emulation, FaultKind, Loops, Runtime, Verify},
    },
    stacks::{self, libssl},
};

/// The arguments of `bulk`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Stacks by name, or libssl by path; default: sealane and the system's OpenSSL
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    stack: Vec<String>,
    /// Threads, which do the work of both ends; default: as many as processors
    #[arg(long, value_delimiter = ',', value_name = "N")]
    threads: Vec<usize>,
    /// Bytes per message, such as 16384, 64K or 10M
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = plan::bytes,
          default_value = "1M")]
    size: Vec<usize>,
    /// Connections
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "8")]
    connections: Vec<usize>,
    /// Messages per connection
    #[arg(long, value_name = "N", default_value_t = 100)]
    messages: u64,
    /// Who drives the sockets
    #[arg(long, value_delimiter = ',', value_enum, default_value = "lanes,asio")]
    runtime: Vec<Runtime>,
    /// One event loop for all threads, or one for each
    #[arg(long, value_delimiter = ',', value_enum, default_value = "shared,per-lane")]
    strategy: Vec<Loops>,
    /// Faults of the past, under Asio: the lock around OpenSSL 1.0's error queues, or its own locks
    /// as OS X handed them out
    #[arg(long, value_delimiter = ',', value_enum, default_value = "none")]
    emulate: Vec<Emulation>,
    /// How arriving bytes are checked, inside the clock
    #[arg(long, value_enum, default_value = "sha256")]
    verify: Verify,
    /// Leaves threads to the scheduler
    #[arg(long)]
    no_pin: bool,
    /// The only version that both ends offer
    #[arg(long = "tls", value_enum, default_value = "1.3")]
    version: Version,
    /// The only cipher that both ends offer
    #[arg(long, value_enum, default_value = "aes128-gcm")]
    cipher: Cipher,
    /// The only group that both ends offer
    #[arg(long, value_enum, default_value = "x25519")]
    group: Group,
    /// The type of the server's key
    #[arg(long, value_enum, default_value = "p256")]
    key: Key,
    /// TLS 1.3 tickets behind the handshake, which a one-way reader must cope with
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=4))]
    tickets: u8,
    /// One pair of TLS contexts for all threads, or one each
    #[arg(long, value_enum, default_value = "context")]
    share: Share,
    /// Headers for a libssl by path under Asio; default: beside it, or the system's
    #[arg(long, value_name = "FOLDER")]
    include: Option<PathBuf>,
    /// Prints the lines of the write-up's program in place of the table
    #[arg(long, value_enum)]
    compat: Option<compat::Tool>,
    #[command(flatten)]
    strict: Strict,
    #[command(flatten)]
    shuffled: Shuffled,
    #[command(flatten)]
    resume: Resume,
    /// Writes a line per cell there
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// What a test breaks
    #[arg(long, hide = true, value_enum)]
    fault: Option<FaultKind>,
    /// On which connection, from 0
    #[arg(long, hide = true, default_value_t = 0)]
    fault_connection: usize,
    /// At which byte of its plaintext
    #[arg(long, hide = true, default_value_t = 0)]
    fault_after: u64,
}

/// `true` if every cell has figures, and the checks are as well as was asked.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let begun = arguments.resume.journal("bulk", arguments, &arguments.shuffled.json)?;
    let (mut journal, arguments) = begun;
    let folder = tempfile::tempdir().map_err(Error::io("a folder for keys"))?;
    Credentials::make(folder.path(), arguments.key)?;
    let tasks = arguments.plan(folder.path(), &journal.run.machine.pin_order)?;
    let measured = rounds::measure(&arguments, &tasks, &mut journal);
    if measured.is_ok() && arguments.compat.is_none() {
        let processors = journal.run.machine.processors;
        journal.run.checks = judge::judge(&journal.run.bulk, processors, &rounds::resets(&tasks));
        journal.save(true)?;
    }
    let run = &journal.run;
    if let Some(path) = &arguments.csv {
        fs::write(path, csv(&run.bulk)).map_err(Error::file(path))?;
    }
    let mut text = String::new();
    match arguments.compat {
        None => text = self::text(run),
        Some(compat::Tool::Asio) => {
            for series in &run.bulk {
                text.push_str(&compat::lines(series)?);
                if Shown::of(&series.rounds).is_hint() {
                    let (name, tally) = (table::name(series), Tally::of(&series.rounds));
                    let _ = writeln!(io::stderr(), "{name}: every round was disturbed: {tally}");
                }
            }
        }
    }
    io::stdout().write_all(text.as_bytes()).map_err(Error::io("standard output"))?;
    measured?;
    let all = run.bulk.iter().all(|series| !Shown::of(&series.rounds).is_empty());
    Ok(all && arguments.strict.allows(&run.bulk_judgement()))
}

impl Body for BulkTask {
    const NAME: &'static str = "bulk";

    fn perform(&self) -> Result<Reply, Error> {
        carry(self).map(Reply::Bulk)
    }
}

/// Carries what `task` says, in this process, with one stack.
///
/// # Errors
/// Everything that makes a figure wrong or impossible.
fn carry(task: &BulkTask) -> Result<BulkOutcome, Error> {
    task.check()?;
    if task.scenario.client_certificate || task.scenario.kind != Kind::Full {
        let text = "bulk shakes hands in full and without client certificates";
        return Err(Error::Unsupported(text.into()));
    }
    let credentials = Credentials::at(&task.credentials);
    if !plan::drives(task.runtime, &task.stack) {
        return Err(Error::Unsupported(plan::NO_DRIVER.into()));
    }
    if task.runtime == Runtime::Asio {
        return asio::run(task, &library(task)?);
    }
    let stack = stacks::load(&task.stack)?;
    let prepared = stack.prepare(&task.scenario, &credentials)?;
    let (negotiated, round) = on_lanes::run(task, prepared.into())?;
    Ok(BulkOutcome { stack: stack.identity(), driver: None, negotiated, round })
}

/// The libssl that Asio is to be linked with.
fn library(task: &BulkTask) -> Result<Library, Error> {
    let include = task.include.as_deref();
    if task.stack == "openssl" {
        return Ok(Library::new(&task.stack, None, include));
    }
    let Some(path) = libssl::path_of(&task.stack) else {
        stacks::load(&task.stack)?;
        return Err(Error::Unsupported(format!("Asio cannot drive {}", task.stack)));
    };
    let path = path?;
    // Whoever can load it knows that it is a libssl at all; an older one, only its own driver can.
    match sealane_libssl::Library::open(&path) {
        Ok(_) | Err(sealane_libssl::Error::Older { .. }) => {}
        Err(error) => return Err(libssl::failed(error)),
    }
    Ok(Library::new(&task.stack, Some(&path), include))
}
