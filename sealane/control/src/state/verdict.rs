//! The result of a reload: [`Verdict`].

use serde::{Deserialize, Serialize};

/// What came of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The generation that is served now.
    pub generation: u64,
    /// How long it took.
    pub took_ms: u64,
    /// Every mistake; if there is one, nothing has changed.
    pub errors: Vec<String>,
    /// Materials that cannot be used as they are, while everything else that was read is served.
    #[serde(default)]
    pub faults: Vec<String>,
    /// What is served, but probably not meant.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// Whether what was read is served.
    pub fn is_accepted(&self) -> bool {
        self.errors.is_empty()
    }

    /// The outcome as written in `/state`.
    pub fn outcome(&self) -> &'static str {
        if self.is_accepted() { "accepted" } else { "refused" }
    }
}
