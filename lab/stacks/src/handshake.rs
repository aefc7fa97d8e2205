//! The command `handshake`: handshakes per second and thread, in memory, by stack, scenario and
//! number of threads, in interleaved rounds of one process each.

mod comparisons;
mod measure;
mod plan;
mod table;
pub mod task;

use std::io::{self, Write};

use sealane_lab_harness::{
    interrupt::Interrupt,
    options::{Resume, Shuffled},
    trial::{THREADS_MAX, WINDOW_DEFAULT_MS},
};
use sealane_lab_model::{
    error::Error,
    scenario::{Cipher, Group, Key, Kind, Share, Version},
};

pub use measure::measure;
pub use plan::Settings;
pub use table::text;
pub use task::Handshakes;
use task::fault::Fault;

use crate::compat;

/// The arguments of `handshake`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Names (see `stacks`) or paths of a libssl; the first is what the others are compared with
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    stack: Vec<String>,
    /// How the handshake goes
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "full")]
    kind: Vec<Kind>,
    /// The protocol version
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "1.3")]
    tls: Vec<Version>,
    /// Record protection
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "aes128-gcm")]
    cipher: Vec<Cipher>,
    /// The key-exchange group
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "x25519")]
    group: Vec<Group>,
    /// The type of the certificates' keys
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "p256")]
    key: Vec<Key>,
    /// The server demands a certificate of the client
    #[arg(long)]
    client_certificate: bool,
    /// TLS 1.3 tickets that the server sends after each handshake
    #[arg(long, default_value_t = 2, value_name = "N")]
    tickets: u8,
    /// What the threads share: one context at each end, also what clients resume, or nothing
    #[arg(long, default_value = "context")]
    share: Share,
    /// Numbers of threads [default: 1 to 1.5 x cores]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = thread_count)]
    threads: Vec<usize>,
    /// Length of the window in which handshakes count
    #[arg(long, default_value_t = WINDOW_DEFAULT_MS, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(10..=600_000))]
    window_ms: u64,
    /// Leaves it to the kernel where threads run
    #[arg(long)]
    no_pin: bool,
    #[command(flatten)]
    shuffled: Shuffled,
    #[command(flatten)]
    resume: Resume,
    /// Prints another tool's lines, without openssl-bench's counters; needs exactly one stack
    #[arg(long, value_name = "TOOL")]
    compat: Option<compat::Tool>,
    /// Makes trials commit this fault, for tests of the harness
    #[arg(long, hide = true)]
    fault: Option<Fault>,
    /// Limits the fault to that stack's trials
    #[arg(long, hide = true, requires = "fault")]
    fault_of: Option<String>,
}

/// `true` if every stack was measured in every scenario that it can do.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let begun = arguments.resume.journal("handshake", arguments, &arguments.shuffled.json)?;
    let (mut journal, arguments) = begun;
    let settings = Settings::new(&arguments)?;
    let interrupt = Interrupt::catch()?;
    if cfg!(debug_assertions) {
        let _ = writeln!(io::stderr(), "{DEBUG_WARNING}");
    }
    let (rounds, seed) = (arguments.shuffled.number(), arguments.shuffled.seed());
    let measured = measure(&settings, rounds, seed, &mut journal, &interrupt);
    if let Err(error) = &measured
        && !matches!(error, Error::Interrupted)
    {
        return measured.map(|()| false);
    }
    journal.save(measured.is_ok())?;
    table::write_troubles(&journal.run)?;
    let lines = match arguments.compat {
        Some(tool) => table::compat(tool, &journal.run),
        None => text(&journal.run),
    };
    io::stdout().write_all(lines.as_bytes()).map_err(Error::io("standard output"))?;
    measured?;
    Ok(table::is_whole(&journal.run))
}

/// A number of threads on a command line.
pub fn thread_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=THREADS_MAX).contains(&count) => Ok(count),
        _ => Err(format!("a number of threads is between 1 and {THREADS_MAX}")),
    }
}

const DEBUG_WARNING: &str =
    "this is a debug build: what is linked into it is slow; measure with cargo run --release";
