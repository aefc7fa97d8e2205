//! Results of `gate`: what was counted beside what it may be.

use serde::{Deserialize, Serialize};

use super::{KernelRow, LockSite, SharedLine};

/// One entry of a budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GateResult {
    /// The entry's name in the budget.
    pub name: String,
    /// `server`, `stack` or `test`.
    pub subject: String,
    /// The stack's name, or the program that was run.
    pub program: String,
    /// What figures are divided by: `connection`, `handshake` or `operation`.
    pub unit: String,
    /// Whether it was counted and nothing exceeded its limit.
    pub kept: bool,
    /// Each limit and what was counted.
    pub figures: Vec<GateFigure>,
    /// What broke the budget, in words.
    pub excess: Vec<String>,
    /// Lines that at least two threads wrote.
    pub lines: Vec<SharedLine>,
    /// The busiest locks and where they are taken.
    pub sites: Vec<LockSite>,
    /// Who writes shared file tables, if that has a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<KernelRow>,
    /// Why it could not be counted.
    pub failure: Option<String>,
}

/// One limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GateFigure {
    /// `instructions`, `mutexes`, `read locks`, `shared writes`, `write locks` or
    /// `writes of a shared file table`.
    pub figure: String,
    /// The side of a stack, `client` or `server`.
    pub side: Option<String>,
    /// Per unit.
    pub counted: f64,
    /// What the budget allows.
    pub max: f64,
    /// How much more it allows.
    pub tolerance_percent: f64,
}
