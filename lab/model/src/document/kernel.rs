//! Results of `count --kernel`: what the threads or processes of a server share in the kernel.

use serde::{Deserialize, Serialize};

use super::Unseen;

/// One server's ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelLedger {
    /// The server's name on the command line.
    pub server: String,
    /// The version, as the program tells.
    pub version: String,
    /// The command line it was started with.
    pub command: Vec<String>,
    /// Workers, threads or lanes that were asked for.
    pub workers: u64,
    /// Connections of the shortest length, one after the other; the others have twice and three
    /// times as many.
    pub connections: u64,
    /// One for each kind of object.
    pub rows: Vec<KernelRow>,
    /// How tables grew while connections came that stayed; absent if that was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<KernelGrowth>,
    /// How many times it was counted.
    pub repeats: u32,
    /// Whether all repeats gave the same integers.
    pub exact: bool,
    /// Waits for locks of the kernel, measured under load; absent if they could not be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<KernelContention>,
    /// What could not be seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<Unseen>,
    /// Why there are no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Where it comes from, in a document that took it from another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<KernelOrigin>,
}

/// When and where a ledger was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelOrigin {
    /// RFC 3339 in UTC.
    pub started: String,
    /// Kernel release.
    pub kernel: String,
    /// Processors that the run might use.
    pub processors: u64,
    /// The command line that makes it again.
    pub command: Vec<String>,
}

/// One kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRow {
    /// `epoll instance`, `file table`, `futex`, `listening socket`, `memory map` or `timer`.
    pub object: String,
    /// Objects of that kind that several threads share, and that one of them wrote.
    pub shared: u64,
    /// Threads that share one, the most of any.
    pub threads: u64,
    /// How many of these wrote it.
    pub writers: u64,
    /// Operations per connection that write shared ones.
    pub per_connection: u64,
    /// The same by system call, the most first; less than one in two connections is 0.
    pub calls: Vec<KernelCall>,
    /// Operations per connection that write such objects of one thread alone; of file tables and
    /// memory maps only.
    pub apart: u64,
    /// Whether all repeats gave the same integers; else the smallest stand here.
    pub exact: bool,
    /// What would remove the sharing.
    pub removal: String,
}

/// One system call that writes a shared object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCall {
    /// The call's name; `of nobody` and `that fails` are those that found no connection, or failed.
    pub call: String,
    /// To the nearest whole number.
    pub per_connection: u64,
    /// In each of the three lengths.
    pub lengths: [u64; 3],
}

/// Growths of file tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelGrowth {
    /// Connections that came and stayed.
    pub held: u64,
    /// Doublings of tables that several threads share: each waits for all processors.
    pub shared: u64,
    /// Doublings of tables of one thread alone, which wait for nobody.
    pub apart: u64,
}

/// What was waited for in the kernel, by object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelContention {
    /// Connections in that time.
    pub connections: u64,
    /// Clients at once.
    pub at_once: u64,
    /// The longest waits first.
    pub waits: Vec<KernelWait>,
}

/// Waits for one object's lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelWait {
    /// The object, as in a row, or the function of the kernel that waited.
    pub object: String,
    /// How often it was waited for.
    pub waits: u64,
    /// How long together.
    pub waited_ns: u64,
}

/// The object of a row that tells of file tables.
pub const FILE_TABLE: &str = "file table";
