//! What `why PID` saw of a running server: [`Live`]. All of it was measured; nothing is forecast.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One server, watched for a while.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// The process that was asked for.
    pub pid: u32,
    /// The server's name, as the kernel tells it.
    pub name: String,
    /// The file that it runs; empty if that was not to be seen.
    pub executable: String,
    /// How long it was watched.
    pub watched_seconds: f64,
    /// Whether it ended meanwhile.
    pub ended: bool,
    /// Processors that it may run on.
    pub processors_allowed: usize,
    /// Processors that all of its threads kept busy, on average.
    pub processors_used: f64,
    /// How often the state of every thread was read.
    pub samples: u32,
    /// The server and what it started, oldest first.
    pub processes: Vec<LiveProcess>,
    /// Most CPU time first.
    pub threads: Vec<LiveThread>,
    /// Threads that are in all sums and not in the list, as those with the least CPU time.
    pub threads_left_out: usize,
    /// Where its CPU time went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<LiveProfile>,
    /// Waits in `futex`: for locks, and for other threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub futex: Option<LiveFutex>,
    /// The server's system calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<LiveCalls>,
    /// What could not be seen.
    pub unseen: Vec<Unseen>,
    /// What it waits for, then what else there is to say.
    pub findings: Vec<LiveFinding>,
}

/// One process of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveProcess {
    /// The process's id.
    pub pid: u32,
    /// The process's name, as the kernel tells it.
    pub name: String,
}

/// One thread, while it was watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveThread {
    /// The id of the thread's process.
    pub pid: u32,
    /// The thread's own id.
    pub tid: u32,
    /// The thread's name, as the kernel tells it.
    pub name: String,
    /// On a processor.
    pub cpu_ns: u64,
    /// In its own code, to the clock tick.
    pub user_ns: u64,
    /// In the kernel for it, to the clock tick.
    pub system_ns: u64,
    /// Ready to run and without a processor.
    pub run_delay_ns: u64,
    /// Times that it went to sleep.
    pub voluntary_switches: u64,
    /// Times that its processor was taken from it.
    pub involuntary_switches: u64,
    /// Shares of the samples, 0 to 1: `ready` (on a processor or waiting for one), `stopped` (by a
    /// signal), `disk`, `memory map` (the kernel's lock of it), `mutex` (a `futex` of the form that
    /// mutexes and read-write locks of glibc, musl and Rust wait in), else the system call that it
    /// slept in, or `asleep` where that was not to be seen.
    pub states: BTreeMap<String, f64>,
    /// Share of the time that it slept for a lock, 0 to 1, as far as that is told from other waits
    /// in `futex`: by their form, or by their time and call paths.
    pub lock_wait: f64,
    /// Connections that it accepted, if system calls were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepts: Option<u64>,
}

/// Samples of what ran, taken by the kernel's software clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveProfile {
    /// The event, such as `task-clock`.
    pub event: String,
    /// Samples per second of CPU time that were asked for.
    pub hertz: u32,
    /// Samples taken.
    pub samples: u64,
    /// Functions by their own share of the samples, most first.
    pub functions: Vec<LiveFunction>,
    /// Call paths, most samples first.
    pub paths: Vec<LivePath>,
    /// The share of the samples that are inside a function of a lock.
    pub lock_share: f64,
    /// What the samples are about, such as `RSA`, most first; what no name tells is left out.
    pub work: Vec<LiveWork>,
}

/// One function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveFunction {
    /// The function's name, or the place in its file if it has none.
    pub function: String,
    /// The library, the program, or `kernel`.
    pub owner: String,
    /// The share of all samples, 0 to 1.
    pub share: f64,
}

/// One call path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LivePath {
    /// `function (owner)`, innermost first.
    pub path: Vec<String>,
    /// The share of all samples, 0 to 1.
    pub share: f64,
    /// `lock` if it is in a lock's function, `thread` if it waits for another thread, else empty.
    pub kind: String,
}

/// One kind of work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveWork {
    /// Such as `RSA`, `AES-GCM` or `the kernel`.
    pub work: String,
    /// The share of all samples, 0 to 1.
    pub share: f64,
}

/// Waits in the system call `futex`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveFutex {
    /// Waits that ended, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<u64>,
    /// How long they took together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ns: Option<u64>,
    /// By address, the longest waits first; only some instruments tell.
    pub addresses: Vec<LiveAddress>,
    /// Samples of waits that began.
    pub samples: u64,
    /// Where they began, most first.
    pub paths: Vec<LivePath>,
}

/// One futex.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveAddress {
    /// The process.
    pub pid: u32,
    /// In hex.
    pub address: String,
    /// Waits that ended.
    pub waits: u64,
    /// How long they took together.
    pub waited_ns: u64,
    /// Threads that waited.
    pub threads: usize,
}

/// System calls of all threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveCalls {
    /// What counted them: `bpftrace`, `perf trace`, `strace`.
    pub instrument: String,
    /// How long it counted.
    pub counted_seconds: f64,
    /// The longest first.
    pub calls: Vec<LiveCall>,
}

/// One system call by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveCall {
    /// The call's name.
    pub call: String,
    /// How many ended.
    pub count: u64,
    /// Time between their begin and their end.
    pub inside_ns: u64,
}

/// Something that this run could not see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
    /// What to do so that it can be seen.
    pub remedy: String,
}

/// One sentence with the rule that it follows from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveFinding {
    /// In short.
    pub kind: LiveKind,
    /// In words, with the figures.
    pub sentence: String,
    /// What had to hold.
    pub rule: String,
}

/// What a server waits for, in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LiveKind {
    /// Some threads accept many more connections than others.
    AcceptSkew,
    /// CPU time goes into waiting for the lock of a file table that threads share.
    FileTable,
    /// CPU time goes into taking and releasing locks.
    LockContention,
    /// Too little was seen.
    #[default]
    NotEnough,
    /// The thread computes.
    OnProcessor,
    /// More threads are ready than there are processors for them.
    ProcessorsFull,
    /// One thread does nearly all.
    SingleLoop,
    /// The thread sleeps until somebody asks something of it.
    WaitsForClients,
    /// Threads sleep until storage answers.
    WaitsForDisk,
    /// Threads sleep until another gives up a lock.
    WaitsForLock,
    /// Threads sleep until another has work for them, or a result.
    WaitsForThreads,
}
