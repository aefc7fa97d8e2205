//! Where TLS is done, and how work and bytes get there: [`Strategy`].

use serde::{Deserialize, Serialize};

/// Where TLS is done, in the words of the command line; the remedy last.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// In the loop itself, between two connections
    Inline,
    /// On workers, each with a queue behind a lock and a wake-up per event, and bytes behind locks:
    /// TLSnappy before its ring
    Queue,
    /// On workers, with rings for notices and for bytes, and at most a wake-up per batch
    Ring,
}
