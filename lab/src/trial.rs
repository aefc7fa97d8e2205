//! One trial, in a process of its own with one stack: the hidden command `trial`, and the
//! [`Task`] that it reads and the [`Line`]s that it prints, as JSON.
//!
//! ```text
//! sealane-lab trial '{"task":"handshakes","stack":"rustls-ring","scenario":{...},
//!                     "credentials":"FOLDER","threads":2,"pin":[0,1],"window_ms":1000}'
//! sealane-lab trial '{"task":"handshakes", ... ,"fixed":{"warm_up":1,"count":1}}'
//! sealane-lab trial '{"task":"identity","stack":"rustls-ring"}'
//! ```
//! A scenario is a [`Scenario`] in JSON; `-` reads the task from standard input. The second form is
//! for instruments: every thread does exactly `warm_up` handshakes, then all wait for each other,
//! then each does exactly `count` with [`phase`] marks around each side's work, building and
//! dropping of connections included; one thread at a time, in the order of their numbers. The first
//! line printed is always [`Line::Started`], the last one the result; after [`Line::Failed`] the
//! exit status is not 0.

mod account;
pub mod fault;
pub mod launch;
mod pair;
mod threads;
mod turns;

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::{
    bulk::{
        self,
        task::{BulkOutcome, BulkTask},
    },
    certificates::task::{self as certificates, CertificateTask},
    contexts::{self, ContextsTask},
    document::{HandshakeRound, Histogram},
    error::Error,
    memory::held,
    node::{self, NodeTask},
    offload::{self, OffloadTask},
    phase,
    ring::{
        in_turn::{self, InTurn},
        trial::{self as ring, RingTask},
    },
    scenario::{Negotiated, Scenario},
    stack::{Identity, TimedCall},
    stacks,
    tables::{self, TablesTask},
    tickets::{self, TicketsTask},
    trial::fault::Fault,
};

/// Its arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// What to do, as JSON; `-` reads it from standard input
    task: String,
}

/// What a trial is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "kebab-case")]
pub enum Task {
    /// Bytes in memory or over sockets.
    Bulk(BulkTask),
    /// Connections to a server of many names.
    Certificates(CertificateTask),
    /// Client contexts, by who builds them.
    Contexts(ContextsTask),
    /// Handshakes for a while, or a fixed number.
    Handshakes(Handshakes),
    /// Bytes into a ring and out of it, on one thread.
    InTurn(InTurn),
    /// Which library a stack is.
    Identity {
        /// Its name or path.
        stack: String,
    },
    /// Connections, held.
    Memory(Memory),
    /// A server of Node's, or beside it, and clients.
    Node(NodeTask),
    /// A server with one loop, and clients.
    Offload(OffloadTask),
    /// Bytes from one thread to another.
    Ring(RingTask),
    /// Threads that change their file table.
    Tables(TablesTask),
    /// Tickets, issued and resumed.
    Tickets(TicketsTask),
}

/// Connections of one stack in one scenario, held at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The stack's name or path.
    pub stack: String,
    /// The same for every stack.
    pub scenario: Scenario,
    /// The folder of [`Credentials`](crate::credentials::Credentials), of the scenario's key type.
    pub credentials: PathBuf,
    /// How many.
    pub connections: usize,
}

/// Handshakes of one stack in one scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshakes {
    /// The stack's name or path.
    pub stack: String,
    /// The same for every stack.
    pub scenario: Scenario,
    /// The folder of [`Credentials`](crate::credentials::Credentials), of the scenario's key type.
    pub credentials: PathBuf,
    /// Threads, each with both ends of its connections.
    pub threads: usize,
    /// The processor of each thread, in order; empty: not pinned.
    #[serde(default)]
    pub pin: Vec<usize>,
    /// Length of the window; unused with `fixed`.
    #[serde(default = "window_ms")]
    pub window_ms: u64,
    /// An exact number of handshakes instead of a window.
    #[serde(default)]
    pub fixed: Option<Fixed>,
    /// A fault to commit, which the harness must find: a test interface.
    #[serde(default)]
    pub fault: Option<Fault>,
    /// Whether calls that hold a lock of the stack's own are timed, see [`Stack::time_holds`].
    ///
    /// [`Stack::time_holds`]: crate::stack::Stack::time_holds
    #[serde(default)]
    pub time_holds: bool,
}

/// Handshakes per thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// Before the counted ones; at least 1 for a kind that resumes.
    pub warm_up: u64,
    /// Between the marks.
    pub count: u64,
}

/// What a trial prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Line {
    /// All bytes have arrived and were compared.
    Bulk(BulkOutcome),
    /// The process runs.
    Started {
        /// [`phase::address`] of this process.
        marks: usize,
    },
    /// The exact number of handshakes is done.
    Fixed {
        /// All threads' counted handshakes.
        operations: u64,
        /// All threads' handshakes before them.
        warm_up: u64,
        /// What both ends read back, the same every time.
        negotiated: Negotiated,
        /// If it was asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        holds: Vec<TimedCall>,
    },
    /// The window is closed.
    Window {
        /// Its figures; the order is the caller's.
        round: HandshakeRound,
        /// What both ends read back, the same every time.
        negotiated: Negotiated,
        /// Time in the server per handshake, building and dropping its end included.
        server: Histogram,
        /// The same of the client.
        client: Histogram,
    },
    /// Which library it is.
    Identity(Identity),
    /// What one strategy did, as in [`StrategyRow`](crate::document::StrategyRow).
    Figures {
        /// By name, one value each.
        figures: BTreeMap<String, f64>,
        /// Times by name.
        #[serde(default)]
        times: BTreeMap<String, Histogram>,
    },
    /// Bytes per connection, as in [`MemoryResult`](crate::document::MemoryResult).
    Memory {
        /// By end and state.
        bytes: BTreeMap<String, f64>,
    },
    /// There is no result.
    Failed {
        /// Whether the stack cannot do what was asked, rather than failed at it.
        unsupported: bool,
        /// Why.
        reason: String,
    },
}

/// Does one task; `true` if there is a result. Failures of the stack are printed as a line.
///
/// # Errors
/// The task cannot be read, or standard output is gone.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let mut text = arguments.task.clone();
    if text == "-" {
        text.clear();
        io::stdin()
            .take(TASK_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(Error::io("standard input"))?;
    }
    let task: Task = serde_json::from_str(&text)
        .map_err(|error| Error::Check(format!("the task is not one: {error}")))?;
    print(&Line::Started { marks: phase::address() })?;
    let result = match &task {
        Task::Bulk(bulk) => bulk::trial(bulk).map(Line::Bulk),
        Task::Certificates(task) => certificates::run(task),
        Task::Contexts(job) => contexts::trial(job),
        Task::Handshakes(handshakes) => threads::run(handshakes),
        Task::Identity { stack } => {
            stacks::load(stack).map(|stack| Line::Identity(stack.identity()))
        }
        Task::InTurn(task) => in_turn::run(task),
        Task::Memory(task) => held::run(task),
        Task::Node(task) => node::trial(task),
        Task::Offload(task) => offload::trial(task),
        Task::Ring(task) => ring::run(task),
        Task::Tables(task) => tables::trial(task),
        Task::Tickets(task) => tickets::trial(task),
    };
    let line = result.unwrap_or_else(|error| match error {
        Error::Unsupported(reason) => Line::Failed { unsupported: true, reason },
        Error::Check(reason) => Line::Failed { unsupported: false, reason },
        other => Line::Failed { unsupported: false, reason: other.to_string() },
    });
    if let Task::Handshakes(Handshakes { fault: Some(Fault::Garbage), .. }) = task {
        return io::stdout()
            .write_all(b"17 handshakes\n")
            .map_err(Error::io("output"))
            .map(|()| true);
    }
    print(&line)?;
    Ok(!matches!(line, Line::Failed { .. }))
}

/// At once, so that a crash afterwards takes nothing with it.
fn print(line: &Line) -> Result<(), Error> {
    let mut text = serde_json::to_string(line)
        .map_err(|error| Error::Check(format!("a result as JSON: {error}")))?;
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::io("standard output"))
}

fn window_ms() -> u64 {
    WINDOW_DEFAULT_MS
}

/// Length of a window, unless it is said.
pub const WINDOW_DEFAULT_MS: u64 = 1_000;
/// More than any machine has processors, by half.
pub const THREADS_MAX: usize = 4_096;
/// No task is as long.
const TASK_BYTES_MAX: u64 = 1 << 20;
