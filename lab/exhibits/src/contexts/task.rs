//! What a trial of `contexts` is to do: [`ContextsTask`].

use std::path::PathBuf;

use sealane_lab_harness::trial::Fixed;
use serde::{Deserialize, Serialize};

use crate::contexts::target::Target;

/// One of its kinds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "kebab-case")]
pub enum ContextsTask {
    /// Options that name no usable file.
    BadOptions(Refusals),
    /// Connections of threads that share a context, or do not.
    Connects(Connects),
    /// MongoDB's own C driver.
    Libmongoc(Libmongoc),
    /// Right and wrong names on one context, in turn.
    Names(Refusals),
    /// A ping per socket.
    Pings(Pings),
    /// The context changes while threads connect.
    Swaps(Swaps),
}

/// A client as its operator describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTask {
    /// The stack's name, or the path of a libssl.
    pub stack: String,
    /// Whom it talks to.
    pub target: Target,
    /// What it trusts and shows.
    pub files: Files,
}

/// PEM files of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// The roots.
    pub ca: PathBuf,
    /// A certificate and its key, if the server demands one.
    pub identification: Option<(PathBuf, PathBuf)>,
}

/// Clients that each ping over sockets of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pings {
    /// What each of them is.
    pub client: ClientTask,
    /// Who builds a context.
    pub strategy: Strategy,
    /// How many.
    pub clients: usize,
    /// Sockets per client, one after the other.
    pub sockets: usize,
    /// Pools that the clients are dealt to, each with options of its own that are equal.
    pub pools: usize,
    /// Threads that the clients are dealt to.
    pub threads: usize,
    /// A fault to commit, which the checks must find: a test interface.
    #[serde(default)]
    pub fault: Option<Fault>,
}

/// Who builds a context.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Every socket.
    PerSocket,
    /// Every client.
    PerClient,
    /// Every pool.
    PerPool,
    /// Every thread.
    PerLane,
    /// Whoever first has options that are not known yet.
    Digest,
}

impl Strategy {
    /// The strategy's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PerSocket => "per-socket",
            Self::PerClient => "per-client",
            Self::PerPool => "per-pool",
            Self::PerLane => "per-lane",
            Self::Digest => "digest",
        }
    }
}

/// In the order of a table: the remedy last.
pub(super) const STRATEGIES: [Strategy; 5] = [
    Strategy::PerSocket,
    Strategy::PerClient,
    Strategy::PerPool,
    Strategy::PerLane,
    Strategy::Digest,
];

/// The pooled clients of `native/mongoc-ping.c`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Libmongoc {
    /// A MongoDB server.
    pub target: Target,
    /// What they trust and show.
    pub files: Files,
    /// How many.
    pub clients: usize,
    /// Where pkg-config finds the driver; `None`: where it finds the system's.
    pub pkg_config: Option<PathBuf>,
}

/// Clients that must be refused, and in turn with them clients that must be served, of a Redis that
/// counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// What all of them are.
    pub client: ClientTask,
    /// How often each is refused.
    pub rounds: u64,
    /// A fault to commit, which the checks must find: a test interface.
    #[serde(default)]
    pub fault: Option<Fault>,
}

/// Two sets of roots that take turns, each with a server of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swaps {
    /// The stack's name, or the path of a libssl.
    pub stack: String,
    /// The server that the roots of the same number lead to.
    pub targets: [Target; 2],
    /// PEM files of roots.
    pub roots: [PathBuf; 2],
    /// Threads that connect all the while.
    pub threads: usize,
    /// How often the context changes.
    pub swaps: u64,
    /// Changes per second.
    pub per_second: u64,
    /// A fault to commit, which the checks must find: a test interface.
    #[serde(default)]
    pub fault: Option<Fault>,
}

/// Connections that threads begin and drop between marks, for an instrument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connects {
    /// The stack's name, or the path of a libssl.
    pub stack: String,
    /// What the contexts are built from.
    pub files: Files,
    /// From one context, or from one for each thread.
    pub shared: bool,
    /// Connections of each thread.
    pub fixed: Fixed,
    /// A fault to commit, which the checks must find: a test interface.
    #[serde(default)]
    pub fault: Option<Fault>,
}

/// What a trial does wrong when told to, so that tests see the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Every context that was swapped out is kept until all has been measured.
    Hoard,
    /// A context is never freed.
    Leak,
    /// Threads that should have a context each share one.
    OneContext,
    /// Every socket builds a context, whatever the strategy's name.
    Rebuild,
    /// Clients that must be served in turn with refused ones say nothing.
    Silent,
    /// A swap says that the roots changed, and leaves the old ones.
    TornSwap,
}
