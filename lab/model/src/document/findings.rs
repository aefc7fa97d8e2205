//! Results of `findings`: what each stack's threads share, out of recordings.

use serde::{Deserialize, Serialize};

use super::{BySide, Forecast};
use crate::scenario::Scenario;

/// What one stack shares per handshake. A side's figures hold the making and dropping of its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// [`Identity::name`](crate::library::Identity::name).
    pub stack: String,
    /// The version, as the library tells it.
    pub version: String,
    /// What was asked of it.
    pub scenario: Scenario,
    /// Where the figures come from.
    pub recorded: Recorded,
    /// Instructions per handshake.
    pub instructions: BySide<f64>,
    /// Cache lines that at least two threads write.
    pub lines: BySide<u64>,
    /// Atomic updates of them, per handshake.
    pub updates: BySide<f64>,
    /// Plain stores to them, per handshake.
    pub stores: BySide<f64>,
    /// Updates and stores by class of line, the most first.
    pub causes: Vec<Amount>,
    /// Acquisitions of locks that lie in such lines, by kind: `read`, `write`, `mutex`.
    pub locks: Vec<Amount>,
    /// The lines that are updated most, by either side; at most [`HOT_LINES_MAX`].
    pub hottest: Vec<HotLine>,
    /// Shared lines that are in none of the figures, by reason.
    pub left_out: Vec<Amount>,
    /// What the model makes of the recording; absent where it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Forecast>,
}

/// How a recording came about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// RFC 3339 in UTC.
    pub started: String,
    /// The machine's processor.
    pub processor: String,
    /// The command line that makes it again.
    pub command: Vec<String>,
    /// Handshakes in it.
    pub operations: u64,
    /// SHA-256 of the library, in hex.
    pub sha256: String,
}

/// So much of one thing, per handshake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    /// What the figure is of.
    pub of: String,
    /// How much.
    pub by: BySide<f64>,
}

/// One cache line that threads contend for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotLine {
    /// The class, as in [`Recording::lines`](crate::recording::Recording::lines).
    pub class: String,
    /// The variable, or who writes it.
    pub symbol: String,
    /// Library or binary.
    pub owner: String,
    /// Atomic updates per handshake.
    pub updates: BySide<f64>,
    /// Plain stores per handshake.
    pub stores: BySide<f64>,
    /// Where it is written, the busiest call path first; at most [`SITES_MAX`].
    pub sites: Vec<Site>,
}

/// One call path to a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// Innermost function first; at most [`PATH_FUNCTIONS_MAX`].
    pub path: Vec<String>,
    /// Writes per handshake that come this way.
    pub writes: BySide<f64>,
}

/// Lines of one stack that are told of.
pub const HOT_LINES_MAX: usize = 6;
/// Call paths of one line.
pub const SITES_MAX: usize = 8;
/// Functions of one call path.
pub const PATH_FUNCTIONS_MAX: usize = 8;
