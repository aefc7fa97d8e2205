//! The command `contexts`: who builds a TLS client context, and what that costs, against a real
//! Redis and a server of MongoDB's protocol.
//!
//! ```text
//! per-socket  per-client  per-pool  per-lane  digest     one trial each: N clients, a ping each
//!     200         200         1         T        1       contexts, counted where they are built
//! ```
//! Beside the strategies stands MongoDB's own C driver, as Debian has it and as it is since 1.28:
//! the write-up's before and after. The checks are those of the write-up on its remedy, E1 to E8.

mod checks;
mod connection;
mod connects;
mod counted;
mod library;
mod mongoc;
mod openssl;
mod ping;
mod pings;
mod refusals;
mod sealane;
mod servers;
mod setting;
mod swaps;
mod target;
mod task;

use std::path::PathBuf;

use sealane_lab_harness::{
    options::Shuffled,
    strategies::{self, Strict},
    trial::{Body, Reply},
};
use sealane_lab_model::error::Error;
use sealane_lab_sharing::count;
use sealane_lab_stacks::stacks;

use setting::Setting;
use target::Choice;
use task::{Fault, Strategy};

pub use task::ContextsTask;

/// The arguments of `contexts`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Who builds a context [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    strategy: Vec<Strategy>,
    /// Whom clients ping: redis and mongodb are started here, redis://HOST:PORT,
    /// mongodb://HOST:PORT and tls://HOST:PORT are there [default: redis, and mongodb if built]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    target: Vec<Choice>,
    /// openssl, sealane, the path of a libssl; libmongoc, for mongodb [default: these, if here]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    stack: Vec<String>,
    /// Clients; up to 256 at once, each on a thread of its own
    #[arg(long, default_value_t = 200, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// Sockets that each client opens, one after the other
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    sockets: u32,
    /// Pools that the clients are dealt to
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pools: u32,
    /// Threads of the strategy per-lane [default: as many as processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    lanes: Option<u32>,
    /// Roots, PEM; a server that is started here is trusted beside them [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The clients' certificate, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The certificate's key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Swaps of the context while 8 threads connect, 100 per second
    #[arg(long, default_value_t = 100, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    swaps: u64,
    /// Also counts writes to cache lines that another thread writes too; takes valgrind
    #[arg(long)]
    shared_writes: bool,
    #[command(flatten)]
    strict: Strict,
    #[command(flatten)]
    shuffled: Shuffled,
    /// Makes trials commit this fault, for tests of the checks
    #[arg(long, hide = true)]
    fault: Option<Fault>,
}

/// `true` if every strategy has figures and no check failed.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    if arguments.shared_writes {
        count::needs_valgrind()?;
    }
    let (mut journal, interrupt) = arguments.shuffled.begin()?;
    let setting = Setting::new(arguments)?;
    for stack in setting.stacks() {
        // What cannot be loaded is told by its rows.
        journal.run.stacks.extend(stacks::identity(stack));
    }
    let mut strategies = strategies::measure(setting.plan()?, &mut journal, &interrupt)?;
    setting.judge(&mut strategies, &interrupt)?;
    strategies::conclude(&mut journal, strategies, arguments.strict)
}

impl Body for ContextsTask {
    const NAME: &'static str = "contexts";

    fn perform(&self) -> Result<Reply, Error> {
        match self {
            ContextsTask::BadOptions(client) => refusals::bad_options(client),
            ContextsTask::Connects(task) => connects::run(task),
            ContextsTask::Libmongoc(task) => mongoc::run(task),
            ContextsTask::Names(task) => refusals::names(task),
            ContextsTask::Pings(task) => pings::run(task),
            ContextsTask::Swaps(task) => swaps::run(task),
        }
    }
}
