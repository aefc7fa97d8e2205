//! One run's results as one JSON document, [`Run`]: what every measuring command writes and
//! `report` reads.
//!
//! Times are nanoseconds, sizes bytes, unless a field's name says otherwise. A field that is not
//! known is absent. A reader refuses a document whose `schema` it does not know.

mod file;
mod gate;
mod invalid;
mod kernel;
mod live;
mod strategies;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    library::Identity,
    scenario::{Negotiated, Scenario},
};

pub use file::{bytes, text};
pub use gate::{GateFigure, GateResult};
pub use invalid::{Bottleneck, Invalid, NoVerdict};
pub use kernel::{
    FILE_TABLE, KernelCall, KernelContention, KernelGrowth, KernelLedger, KernelOrigin, KernelRow,
    KernelWait,
};
pub use live::{
    Live, LiveAddress, LiveCall, LiveCalls, LiveFinding, LiveFunction, LiveFutex, LiveKind,
    LivePath, LiveProcess, LiveProfile, LiveThread, LiveWork, Unseen,
};
pub use strategies::{Judgement, OverTime, Reason, Second};

/// The name and version of this format. The number grows when a field changes its meaning or goes
/// away; new fields do not change it.
pub const SCHEMA: &str = "sealane-lab/1";
/// The class of lines of the allocator, which are summed apart.
pub const ALLOCATOR: &str = "allocator";
/// The share of its speed per thread that a stack has to keep to be called level.
pub const KNEE: f64 = 0.7;
/// How the name of a line on the heap begins.
pub const NAMELESS_MEMORY: &str = "memory written by ";
/// The command whose strategies are Node's modes.
pub const NODE_COMMAND: &str = "node";

/// Everything that one command measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// How long it took.
    pub seconds: f64,
    /// The command line, so that the run can be repeated.
    pub command: Vec<String>,
    /// `false` if it was stopped before its last round; what is here is whole rounds all the same.
    pub complete: bool,
    /// The lab itself.
    pub tool: Tool,
    /// Where it ran.
    pub machine: Machine,
    /// How quiet the machine was.
    pub noise: Noise,
    /// Every stack that took part.
    #[serde(default)]
    pub stacks: Vec<Identity>,
    /// What `handshake` measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handshakes: Vec<HandshakeSeries>,
    /// What `bulk` measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bulk: Vec<BulkSeries>,
    /// What `count` counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<CountResult>,
    /// What `count --kernel` counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_ledgers: Vec<KernelLedger>,
    /// What `gate` held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateResult>,
    /// What `why PID` saw.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<Live>,
    /// What `servers` measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<Servers>,
    /// What `tables`, `tickets`, `ring`, `offload`, `certificates`, `contexts` and `node` measured:
    /// the ways to do one thing, side by side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strategies: Vec<Strategies>,
    /// What had to hold of `bulk` over sockets, and whether it did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<StrategyCheck>,
    /// Pairs that were measured in the same rounds, with the verdict on each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
}

/// The lab's own version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// The crate's version.
    pub version: String,
    /// How it was built: `release` or `debug`.
    pub profile: String,
}

/// The machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may run on.
    pub processors: usize,
    /// Threads per core, as the kernel tells.
    pub threads_per_core: usize,
    /// The order in which threads are pinned: one processor per core first, then siblings.
    pub pin_order: Vec<usize>,
    /// Kernel release.
    pub kernel: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The hypervisor, if the processor says that there is one.
    pub virtualised: bool,
    /// The frequency governor, if there is one.
    pub governor: Option<String>,
}

/// How quiet the machine was, before and during the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// One-minute load averages at the start and at the end.
    pub load_average: [f64; 2],
    /// Share of processor time that the hypervisor took, in percent, over the run.
    pub steal_percent: f64,
    /// Coefficient of variation of a fixed spin's duration, before the run.
    pub spin_variation: f64,
}

/// One stack in one scenario, by number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandshakeSeries {
    /// [`Identity::name`].
    pub stack: String,
    /// What was asked of it.
    pub scenario: Scenario,
    /// What both ends read back.
    pub negotiated: Option<Negotiated>,
    /// One per thread count, ascending.
    pub points: Vec<HandshakePoint>,
    /// Time per handshake at the highest thread count, server's and client's.
    pub times: Option<HandshakeTimes>,
    /// Why there are no figures; then `points` is empty.
    pub failure: Option<String>,
}

/// One thread count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandshakePoint {
    /// Threads, each with both ends of its connections.
    pub threads: usize,
    /// The processor of each thread; empty if not pinned.
    pub pinned: Vec<usize>,
    /// In the order measured.
    pub rounds: Vec<HandshakeRound>,
}

/// One fixed window of one trial, summed over its threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HandshakeRound {
    /// The place of this trial in the run's interleaved order.
    pub order: u32,
    /// Length of the window that all threads worked through.
    pub window_ns: u64,
    /// Handshakes of each thread that ended inside the window.
    pub per_thread: Vec<u64>,
    /// Handshakes that were done but not counted (not of the kind asked for).
    pub discarded: u64,
    /// Handshakes of the warm-up.
    pub warm_up: u64,
    /// Wall time inside the server's end.
    pub server_ns: u64,
    /// Wall time inside the client's end.
    pub client_ns: u64,
    /// Wall time of building and dropping connections, server's.
    pub server_setup_ns: u64,
    /// Wall time of building and dropping connections, client's.
    pub client_setup_ns: u64,
    /// Wall time of the harness: checks, clock, histogram.
    pub other_ns: u64,
    /// CPU time of all threads.
    pub cpu_ns: u64,
    /// From the first thread's first handshake to the last thread's.
    pub start_spread_ns: u64,
    /// Times of each thread: `server_ns`, `client_ns`, `server_setup_ns`, `client_setup_ns`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_thread_ns: Vec<[u64; 4]>,
    /// Medians per handshake: server, client, other. Unlike the sums they do not tell who happened
    /// to run when a thread was preempted, so CPU time is divided among the sides by them.
    #[serde(default)]
    pub median_ns: [u64; 3],
    /// Why the round does not count, if it does not.
    pub invalid: Option<Invalid>,
}

/// Merged histograms of one series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandshakeTimes {
    /// At this many threads.
    pub threads: usize,
    /// Time in the server per handshake.
    pub server: Histogram,
    /// Time in the client per handshake.
    pub client: Histogram,
}

/// A distribution: HdrHistogram's own V2 form, and points of it for readers without a library.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Values recorded.
    pub count: u64,
    /// HdrHistogram V2, deflated, base64; nanoseconds, 3 significant digits.
    pub hdr: String,
    /// `[percentile, nanoseconds]`, ascending, from 0 to 100, at most 100 of them.
    pub percentiles: Vec<[f64; 2]>,
}

/// One way to carry bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BulkSeries {
    /// [`Identity::name`].
    pub stack: String,
    /// `lanes` or `asio`.
    pub runtime: String,
    /// Who drove the sockets, with its version, where that is not the lab itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// `shared` or `per-lane`.
    pub loops: Option<String>,
    /// `error-lock`, if that fault is emulated.
    pub emulate: Option<String>,
    /// What was asked of it.
    pub scenario: Scenario,
    /// Threads.
    pub threads: usize,
    /// Connections.
    pub connections: usize,
    /// Messages per connection.
    pub messages: u64,
    /// Bytes per message.
    pub message_bytes: u64,
    /// How what arrived was compared with what was sent, inside the clock: `sha256` or `compare`
    /// (byte by byte).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<String>,
    /// What both ends read back.
    pub negotiated: Option<Negotiated>,
    /// In the order measured.
    pub rounds: Vec<BulkRound>,
    /// Why there are no figures; then `rounds` is empty.
    pub failure: Option<String>,
}

/// One transfer of everything; all bytes were compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BulkRound {
    /// The place in the interleaved order.
    pub order: u32,
    /// Plaintext bytes that arrived, all connections together.
    pub bytes: u64,
    /// From the first message to the last byte.
    pub wall_ns: u64,
    /// CPU time of the process in that time.
    pub cpu_ns: u64,
    /// Connections whose records were not all handled by one thread.
    pub migrated: u64,
    /// Threads that handled records.
    #[serde(default)]
    pub threads: u64,
    /// CPU time of the checks of what arrived, which is part of `cpu_ns`.
    #[serde(default)]
    pub check_ns: u64,
    /// Times that locks were taken which the driver brings: the emulated one, or those of OpenSSL
    /// before 1.1.0.
    #[serde(default)]
    pub lock_calls: u64,
    /// The same by the lock's name, as the library has it; `emulated` is the driver's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub locks: BTreeMap<String, u64>,
    /// Why the round does not count, if it does not.
    pub invalid: Option<Invalid>,
}

/// What one handshake does, counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountResult {
    /// [`Identity::name`], or `sealane serve` for the running terminator.
    pub stack: String,
    /// What was asked of it.
    pub scenario: Scenario,
    /// What the figures are per, if not a handshake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Instructions per handshake, by side (`server`, `client`).
    pub instructions: Option<BySide<f64>>,
    /// How far the repeats' instructions lie apart, as a share of them: random bytes decide how
    /// long some computations are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_spread: Option<BySide<f64>>,
    /// Calls of lock functions per handshake.
    pub locks: Option<LockCounts>,
    /// Writes to cache lines that another thread writes too, per handshake.
    pub shared_writes: Option<SharedWrites>,
    /// How many times it was counted, and whether all gave the same integers.
    pub repeats: u32,
    /// See `repeats`.
    pub exact: bool,
    /// Why there are no figures.
    pub failure: Option<String>,
}

/// A figure for each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BySide<T> {
    /// The server's.
    pub server: T,
    /// The client's.
    pub client: T,
}

/// Lock acquisitions per handshake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockCounts {
    /// Read-write locks taken to read.
    pub read: BySide<f64>,
    /// Read-write locks taken to write.
    pub write: BySide<f64>,
    /// Mutexes and spin locks.
    pub mutex: BySide<f64>,
    /// Locks that at least two threads took.
    #[serde(default)]
    pub shared: u64,
    /// The busiest locks and where they are taken, most first.
    pub sites: Vec<LockSite>,
}

/// One lock and one call path to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockSite {
    /// A name for the lock, the same in every run.
    pub lock: String,
    /// `read`, `write` or `mutex`.
    pub kind: String,
    /// Acquisitions per handshake.
    pub calls: BySide<f64>,
    /// Innermost function first.
    pub path: Vec<String>,
}

/// Shared writes per handshake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedWrites {
    /// All, without the allocator's, the start and the end of a connection included.
    pub total: BySide<f64>,
    /// The allocator's, which vary with chance.
    pub allocator: BySide<f64>,
    /// Lines that both threads wrote.
    pub lines: Vec<SharedLine>,
}

/// One cache line of 64 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedLine {
    /// `lock`, `reference-count`, `allocator`, `global`.
    pub class: String,
    /// The variable, or for heap memory who writes it.
    pub symbol: String,
    /// The library or binary that owns it.
    pub owner: String,
    /// Writes per handshake.
    pub writes: BySide<f64>,
    /// The functions that write, most writes first.
    pub writers: Vec<String>,
}

/// Real terminators under load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Servers {
    /// The cases in the order of the table, with unit and what they are.
    pub cases: Vec<ServerCase>,
    /// One per terminator.
    pub servers: Vec<Server>,
    /// One per proxy without TLS, in the same rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plain: Vec<Server>,
    /// By case: the primitives' CPU plus the TCP work of a proxy without TLS, in the case's unit,
    /// one value per round.
    pub floor: BTreeMap<String, Floor>,
    /// Which processors the servers ran on, and which the client.
    #[serde(default)]
    pub placement: String,
    /// Figures that do not count, for all servers of the same round and case, each with its cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discarded: Vec<String>,
}

/// One kind of load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerCase {
    /// The name on the command line.
    pub name: String,
    /// For a heading.
    pub title: String,
    /// What the figures count, such as `us CPU per handshake`.
    pub unit: String,
    /// How much was asked of the server: `full`, a closed loop; `half` or another share, an open
    /// loop at that much of what the same server did at full load in the same round; or a rate,
    /// the same for all. Absent where there is none, and in documents of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
}

/// What a terminator could not do for less.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// The primitives' CPU.
    pub primitives: Vec<f64>,
    /// A proxy without TLS: sockets, both sides.
    pub tcp: Vec<f64>,
    /// That proxy, the cheapest of those that were measured.
    #[serde(default)]
    pub proxy: String,
}

/// One terminator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Name in the table.
    pub name: String,
    /// The version, as the program tells.
    pub version: String,
    /// The TLS library it is linked with.
    pub tls_library: String,
    /// The command line it was started with.
    pub command: Vec<String>,
    /// What it is set to for the sake of speed, in its own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// By [`ServerCase::name`].
    pub cases: BTreeMap<String, ServerResult>,
    /// Why there are no figures.
    pub failure: Option<String>,
}

/// One terminator in one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerResult {
    /// The case's figure, one per round; lower is better.
    pub figure: Vec<f64>,
    /// Operations per second, one per round, where the case has a rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate: Vec<f64>,
    /// From the intended time on, in an open loop; else from the start of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Histogram>,
    /// From the actual start of the operation, where `latency` counts from the intended one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Histogram>,
    /// Share of the client's processor time that was used, 0 to 1, one per round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_busy: Vec<f64>,
    /// Share of the processors' time that its workers could fill and did, 0 to 1, one per round:
    /// the load in other words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_busy: Vec<f64>,
    /// Processor time of each worker in the last round, most first: how evenly work is dealt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_cpu_ns: Vec<u64>,
    /// Why there is no figure, if the server cannot do what the case asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_offered: Option<String>,
    /// Why there is no figure, if the load that the case asks was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What else the last round had to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why the rate says nothing about the server, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<NoVerdict>,
}

/// Named ways to share one thing, or not to share it, measured in the same rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Strategies {
    /// The command: `tables`, `tickets`, `ring`, `references`, `offload`, `certificates`,
    /// `contexts` or `node`.
    pub command: String,
    /// What all rows have in common, such as `lifetime`: `1 s`.
    pub settings: BTreeMap<String, String>,
    /// What the rows tell, in the order of the table.
    pub figures: Vec<Figure>,
    /// One per strategy and variant.
    pub rows: Vec<StrategyRow>,
    /// What had to hold, and whether it did.
    pub checks: Vec<StrategyCheck>,
}

/// What one column of [`Strategies`] holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// The key of [`StrategyRow::figures`], such as `cpu_ns`.
    pub name: String,
    /// For a heading, such as `CPU per ticket`.
    pub title: String,
    /// The unit of the values, as shown: `ns`, `us`, `ms`, `kB`, `MB/s`, `per second`, `%`, or
    /// empty for a plain count.
    pub unit: String,
    /// Whether it was counted, event by event, rather than measured by a clock. A count of how
    /// threads met, such as waits for a lock, differs from run to run all the same.
    pub counted: bool,
    /// Which is better: `less`, `more`, or nothing if neither is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<String>,
}

/// One strategy with one set of parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StrategyRow {
    /// The strategy's name on the command line.
    pub strategy: String,
    /// What else tells this row from others, such as `threads`: `2`; rows that agree in it are
    /// compared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variant: BTreeMap<String, String>,
    /// By [`Figure::name`], one value per round; a count may stand once.
    pub figures: BTreeMap<String, Vec<f64>>,
    /// Times by name, such as `handover`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub times: BTreeMap<String, Histogram>,
    /// Times by when they ended, if something happened meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_time: Option<OverTime>,
    /// The place of each round's trial in the run's interleaved order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<u32>,
    /// Why there are no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// One acceptance check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyCheck {
    /// The check's number, such as `C6`.
    pub id: String,
    /// What has to hold, as a sentence.
    pub claim: String,
    /// Whether it did; absent if this machine, or what was asked, cannot show it.
    pub holds: Option<bool>,
    /// The figures that show it, or why nothing does.
    pub shown: String,
}

/// Two rows of one run, neighbours in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What was compared, such as `server CPU per handshake`.
    pub measure: String,
    /// The row in question.
    pub of: String,
    /// The row it is compared with.
    pub to: String,
    /// Median of the rounds' ratios.
    pub ratio: f64,
    /// 95% bootstrap interval of that median, over rounds.
    pub interval: [f64; 2],
    /// One sentence; "no difference shown" if the interval holds 1.
    pub verdict: String,
}
