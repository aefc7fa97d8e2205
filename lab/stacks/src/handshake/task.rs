//! The trial of `handshake`, in a process of its own with one stack: handshakes of every thread for
//! a while, or a fixed number of them, [`Handshakes`].

mod account;
pub mod fault;
mod pair;
mod threads;
mod turns;

use std::{
    io::{self, Write},
    path::PathBuf,
};

use sealane_lab_harness::trial::{Body, Fixed, Reply, WINDOW_DEFAULT_MS};
use sealane_lab_model::{error::Error, scenario::Scenario};
use serde::{Deserialize, Serialize};

use fault::Fault;

/// Handshakes of one stack in one scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshakes {
    /// The stack's name or path.
    pub stack: String,
    /// The same for every stack.
    pub scenario: Scenario,
    /// The folder of [`Credentials`](sealane_lab_harness::credentials::Credentials), of the
    /// scenario's key type.
    pub credentials: PathBuf,
    /// Threads, each with both ends of its connections.
    pub threads: usize,
    /// The processor of each thread, in order; empty: not pinned.
    #[serde(default)]
    pub pin: Vec<usize>,
    /// Length of the window; unused with `fixed`.
    #[serde(default = "window_ms")]
    pub window_ms: u64,
    /// An exact number of handshakes instead of a window, with marks around each side's work,
    /// building and dropping of connections included; one thread at a time, in the order of their
    /// numbers.
    #[serde(default)]
    pub fixed: Option<Fixed>,
    /// MiB of one connection of each thread instead of handshakes, server to client; with `fixed`.
    #[serde(default)]
    pub bulk: bool,
    /// A fault to commit, which the harness must find: a test interface.
    #[serde(default)]
    pub fault: Option<Fault>,
}

impl Body for Handshakes {
    const NAME: &'static str = "handshakes";

    fn perform(&self) -> Result<Reply, Error> {
        let line = threads::run(self);
        if self.fault == Some(Fault::Garbage) {
            io::stdout().write_all(b"17 handshakes\n").map_err(Error::io("standard output"))?;
        }
        line
    }
}

fn window_ms() -> u64 {
    WINDOW_DEFAULT_MS
}
