//! The command `certificates`: three ways to come from a name to a decoded certificate, under
//! traffic that is nothing but full handshakes (Heroku's fault of 2016, in Erlang's `ssl`).
//!
//! * `central`, the fault: one thread, `owner`, decodes and stores for everybody, from PEM and
//!   again for each connection, and looks at every live entry when one closes.
//! * `per-connection`, the published remedy: every connection decodes for itself; nothing is shared
//!   and nothing kept.
//! * `lane`, Sealane's way: the engine's index of names and encoded keys, which all lanes read, and
//!   what each lane decoded on first use. The index is in memory here: where the encoded
//!   certificates lie, in files or in a sealed store, is not what is compared.
//!
//! ```text
//! generation: N x (leaf, 2 authorities, key), encoded --> server: T threads, one resolver each
//! client: K connections at a time, each of a name --TLS--> full handshake, tiny answer, close
//! ```
//! What is counted as decoded is every certificate that was parsed for a connection: for `central`
//! and `per-connection` the whole chain each time; for `lane` the leaf that its key is held
//! against, once per lane and name. The engine's index has parsed each distinct certificate once
//! before, for all lanes together, which stands apart as `indexed`.

mod checks;
mod client;
mod decode;
pub mod decoding;
mod generation;
mod names;
mod over_time;
mod owner;
mod plan;
mod rates;
mod resolver;
mod server;
pub mod task;

use std::path::PathBuf;

use sealane_lab_harness::{
    options::Shuffled,
    strategies::{self, Strict},
};
use sealane_lab_model::error::Error;
use sealane_lab_sharing::count;
use serde::{Deserialize, Serialize};

use crate::certificates::checks::checks;

/// The arguments of `certificates`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Who decodes [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    strategy: Vec<Strategy>,
    /// Names, each with a certificate of its own
    #[arg(long, value_name = "N", default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(2..=100_000))]
    certs: u32,
    /// The names, one on a line of this file, the one that is asked for most first; they are then
    /// asked for by a Zipf distribution
    #[arg(long, value_name = "FILE", conflicts_with = "certs")]
    names: Option<PathBuf>,
    /// Exponent of that distribution: names are asked for in proportion to place^-S. For the
    /// documents of the web it was 0.986 (Cunha, Bestavros, Crovella, "Characteristics of WWW
    /// Client-based Traces", 1995)
    #[arg(long, value_name = "S", default_value_t = 1.0, requires = "names",
        value_parser = exponent)]
    zipf: f64,
    /// Connections that are counted in each round
    #[arg(long, value_name = "M", default_value_t = 2_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    conns: u32,
    /// Certificates of connections that are held open meanwhile; the most are compared with the
    /// fewest
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "100,10000",
        value_parser = clap::value_parser!(u32).range(0..=100_000))]
    live: Vec<u32>,
    /// Once more with an owner that also sleeps so long over each chain, which is injected; 0: not
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(0..=OWNER_COST_MS_MAX))]
    owner_cost_ms: u32,
    /// Also counts what is allocated per handshake by those that decode for each; takes valgrind
    #[arg(long)]
    allocations: bool,
    /// Also searches for the highest rate, in an open loop, at which 99% of round trips take at
    /// most so many milliseconds
    #[arg(long, value_name = "MS",
        value_parser = clap::value_parser!(u32).range(1..=KEEP_P99_MS_MAX))]
    keep_p99_ms: Option<u32>,
    /// Once more for twice so long: the owner decodes first, and in the middle what takes its place
    /// is deployed; its times are told by second
    #[arg(long, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=DEPLOYMENT_SECONDS_MAX))]
    deployment: Option<u64>,
    /// The server's threads
    #[arg(long, value_name = "T", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=AT_ONCE_MAX))]
    threads: u32,
    /// Connections under way at once
    #[arg(long, value_name = "K", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=AT_ONCE_MAX))]
    clients: u32,
    #[command(flatten)]
    strict: Strict,
    #[command(flatten)]
    shuffled: Shuffled,
    /// A fault to commit, which a check must find: a test interface
    #[arg(long, hide = true)]
    fault: Option<Fault>,
}

/// Who decodes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// One thread for everybody
    Central,
    /// Every connection for itself
    PerConnection,
    /// Each lane what it is asked for, once
    Lane,
}

/// A test interface: what goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// No connection tells the owner that it is over.
    LeakedReference,
    /// The first name gets its own certificate with its neighbour's key.
    MixedPair,
    /// The first name gets its neighbour's certificate.
    Neighbour,
}

/// `true` if every row has figures and no check failed.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    if arguments.allocations {
        count::needs_valgrind()?;
    }
    let names = match &arguments.names {
        Some(file) => names::read(file)?,
        None => names::numbered(arguments.certs),
    };
    let certs = u32::try_from(names.len()).unwrap_or(u32::MAX);
    let arguments = &Arguments { certs, ..arguments.clone() };
    let (mut journal, interrupt) = arguments.shuffled.begin()?;
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    generation::write(folder.path(), &names)?;
    let mut strategies =
        strategies::measure(arguments.plan(folder.path())?, &mut journal, &interrupt)?;
    over_time::gather(&mut strategies)?;
    if arguments.allocations {
        let file = generation::file_of(folder.path(), &names[0]);
        decoding::count_allocations(&mut strategies, &file, &interrupt)?;
    }
    if let Some(p99_max_ms) = arguments.keep_p99_ms {
        rates::find(arguments, folder.path(), p99_max_ms, &mut strategies, &interrupt)?;
    }
    let processors = journal.run.machine.processors;
    strategies.checks = checks(&strategies, arguments, processors)?;
    strategies::conclude(&mut journal, strategies, arguments.strict)
}

/// An exponent of a Zipf distribution.
fn exponent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(exponent) if (0.0..=ZIPF_MAX).contains(&exponent) => Ok(exponent),
        _ => Err(format!("give a number from 0, all names alike, to {ZIPF_MAX}")),
    }
}

/// Beyond it, hardly any name but the first would be asked for.
const ZIPF_MAX: f64 = 4.0;
/// Threads, and connections. With the cost below, the last one waits for less than the 20 s after
/// which a client gives up.
const AT_ONCE_MAX: i64 = 128;
const DEPLOYMENT_SECONDS_MAX: u64 = 300;
/// A client gives up then.
const KEEP_P99_MS_MAX: i64 = 20_000;
const OWNER_COST_MS_MAX: i64 = 100;
