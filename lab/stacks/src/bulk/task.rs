//! What one trial carries and how: [`BulkTask`].

use std::path::PathBuf;

use sealane_lab_model::{error::Error, scenario::Scenario};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One transfer, in a process of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkTask {
    /// The stack's name, or a libssl's path.
    pub stack: String,
    /// Who drives the sockets.
    pub runtime: Runtime,
    /// One loop for all threads, or one each.
    pub loops: Option<Loops>,
    /// A fault of the past to bring back.
    pub emulate: Emulation,
    /// What both ends agree on.
    pub scenario: Scenario,
    /// The number of threads.
    pub threads: usize,
    /// Connections.
    pub connections: usize,
    /// Messages per connection.
    pub messages: u64,
    /// Bytes per message.
    pub message_bytes: usize,
    /// How the bytes that arrive are compared with those that were sent.
    pub verify: Verify,
    /// What a test breaks.
    pub fault: Option<Fault>,
    /// The processor of each thread, in turn; empty if they are not pinned.
    pub processors: Vec<usize>,
    /// Where keys and certificates are.
    pub credentials: PathBuf,
    /// Headers for a libssl that Asio is linked with.
    pub include: Option<PathBuf>,
}

impl BulkTask {
    /// Refuses what would take all memory or all time of a machine.
    ///
    /// # Errors
    /// Which limit, by name.
    pub fn check(&self) -> Result<(), Error> {
        let limits = [
            ("threads", self.threads as u64, THREADS_MAX as u64),
            ("connections", self.connections as u64, CONNECTIONS_MAX as u64),
            ("messages", self.messages, MESSAGES_MAX),
            ("bytes per message", self.message_bytes as u64, MESSAGE_BYTES_MAX as u64),
            ("bytes of buffers", self.buffers_bytes(), BUFFERS_BYTES_MAX),
        ];
        for (what, is, most) in limits {
            if is == 0 || is > most {
                let wanted = format!("{what}: {is} is not from 1 to {most}");
                return Err(Error::Unsupported(wanted));
            }
        }
        let Some(fault) = self.fault else { return Ok(()) };
        if fault.connection >= self.connections {
            let text = "the fault's connection is not among them: they count from 0";
            return Err(Error::Unsupported(text.into()));
        }
        if fault.after_bytes >= self.messages.saturating_mul(self.message_bytes as u64) {
            let text = "the fault comes after the connection's last byte";
            return Err(Error::Unsupported(text.into()));
        }
        Ok(())
    }

    /// Plaintext bytes of all connections.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.connections as u64)
            .saturating_mul(self.messages)
            .saturating_mul(self.message_bytes as u64)
    }

    /// A sender keeps a message, and under Asio a receiver too.
    fn buffers_bytes(&self) -> u64 {
        2 * self.connections as u64 * self.message_bytes as u64
    }

    /// Seconds after which a transfer that has not ended is given up.
    #[must_use]
    pub fn seconds_max(&self) -> u64 {
        PATIENCE_S + self.bytes() / SLOWEST_BYTES_PER_S
    }
}

/// Threads of one trial.
const THREADS_MAX: usize = 1_024;
/// Connections of one trial.
const CONNECTIONS_MAX: usize = 4_096;
/// Messages of one connection.
const MESSAGES_MAX: u64 = 1_000_000_000;
/// Bytes of one message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Memory that messages take, all connections together.
const BUFFERS_BYTES_MAX: u64 = 4 << 30;
/// What a trial may take beside the transfer itself.
const PATIENCE_S: u64 = 60;
/// A debug build on a busy machine is faster.
const SLOWEST_BYTES_PER_S: u64 = 2_000_000;

/// Who drives the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// Sealane's lanes.
    Lanes,
    /// Asio, in C++, with OpenSSL or any libssl.
    Asio,
}

impl Runtime {
    /// What runs when `loops` is asked of it, if it can.
    #[must_use]
    pub fn with(self, loops: Loops) -> Option<Self> {
        match (self, loops) {
            (Self::Asio, _) | (Self::Lanes, Loops::PerLane) => Some(self),
            (Self::Lanes, Loops::Shared) => None,
        }
    }
}

/// How event loops and threads go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Loops {
    /// One loop that all threads work on.
    Shared,
    /// Each thread has a loop to itself; a connection stays on its own.
    PerLane,
}

/// A fault of the past, played by Asio's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Emulation {
    /// The library as it is today.
    None,
    /// The lock around OpenSSL 1.0's error queues, in a library that has none.
    ErrorLock,
    /// OpenSSL 1.0's own locks handed to whoever waits longest, as OS X did.
    FairLocks,
}

/// How what arrives is compared with what was sent; inside the clock, and told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// Byte by byte with what it should be, as fast as memory goes.
    Compare,
    /// SHA-256 over each connection: of what arrives, inside the clock, and of what is to be sent,
    /// before it.
    Sha256,
}

/// What a test breaks, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// On which connection, from 0.
    pub connection: usize,
    /// At which byte of its plaintext.
    pub after_bytes: u64,
}

/// See [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A bit of a record is flipped on its way.
    Corrupt,
    /// A bit is flipped before encryption.
    CorruptPlaintext,
    /// The client resets its connection.
    Reset,
}

/// The word for one of the values above, in a document and on the command line.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}
