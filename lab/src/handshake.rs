//! The command `handshake`: handshakes per second and thread, in memory, by stack, scenario and
//! number of threads, in interleaved rounds of one process each.

pub(crate) mod figures;
mod measure;
mod plan;
mod table;
pub mod task;

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
};

use clap::Parser;

pub use measure::measure;
pub use plan::Settings;
pub use table::text;
pub use task::Handshakes;
use task::fault::Fault;

use crate::{
    compat,
    error::Error,
    interrupt::Interrupt,
    journal::Journal,
    scenario::{Cipher, Group, Key, Kind, Share, Version},
    trial::{THREADS_MAX, WINDOW_DEFAULT_MS},
};

/// Its arguments.
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
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Length of the window in which handshakes count
    #[arg(long, default_value_t = WINDOW_DEFAULT_MS, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(10..=600_000))]
    window_ms: u64,
    /// The order of the trials [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Leaves it to the kernel where threads run
    #[arg(long)]
    no_pin: bool,
    /// Writes the document there, after every round
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Goes on with a document that Ctrl-C or a crash left incomplete
    #[arg(long, value_name = "FILE", exclusive = true)]
    resume: Option<PathBuf>,
    /// Prints another tool's lines; needs exactly one stack
    #[arg(long, value_name = "TOOL")]
    compat: Option<compat::Tool>,
    /// Makes trials commit this fault, for tests of the harness
    #[arg(long, hide = true)]
    fault: Option<Fault>,
    /// Of that stack's trials only
    #[arg(long, hide = true, requires = "fault")]
    fault_of: Option<String>,
}

/// `true` if every stack was measured in every scenario that it can do.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let (mut journal, arguments) = match &arguments.resume {
        Some(path) => {
            let journal = Journal::resume(path)?;
            let again = Again::try_parse_from(journal.run.command.iter().skip(1))
                .map_err(|error| Error::Check(format!("{}: {error}", path.display())))?;
            (journal, again.arguments)
        }
        None => begin(arguments),
    };
    let settings = Settings::new(&arguments)?;
    let interrupt = Interrupt::catch()?;
    let seed = arguments.seed.unwrap_or_default();
    if cfg!(debug_assertions) {
        let _ = writeln!(io::stderr(), "{DEBUG_WARNING}");
    }
    let _ = writeln!(io::stderr(), "order of the trials: --seed {seed}");
    let measured = measure(&settings, arguments.rounds, seed, &mut journal, &interrupt);
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

/// A new journal, whose command line repeats the run with the same seed.
fn begin(arguments: &Arguments) -> (Journal, Arguments) {
    let mut arguments = arguments.clone();
    let mut command: Vec<String> = env::args().collect();
    if arguments.seed.is_none() {
        let seed = u64::from(fastrand::u32(..));
        arguments.seed = Some(seed);
        command.extend(["--seed".to_owned(), seed.to_string()]);
    }
    (Journal::begin(command, arguments.json.as_deref()), arguments)
}

/// A number of threads on a command line.
pub(crate) fn thread_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=THREADS_MAX).contains(&count) => Ok(count),
        _ => Err(format!("a number of threads is between 1 and {THREADS_MAX}")),
    }
}

/// A document's command line.
#[derive(Parser)]
struct Again {
    #[command(flatten)]
    arguments: Arguments,
}

const DEBUG_WARNING: &str =
    "this is a debug build: what is linked into it is slow; measure with cargo run --release";
