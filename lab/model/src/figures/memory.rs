//! The figures of memory: each [`State`] of a connection, with its name for people.

use crate::document::MemoryResult;

/// What is measured in a document's `bytes`.
pub struct State {
    /// The figure's key there.
    pub key: &'static str,
    /// `server`, `client`, or neither: when both ends are gone.
    pub end: &'static str,
    /// What it is, for people.
    pub name: &'static str,
    /// The head of its column where there is little room.
    pub head: &'static str,
}

impl State {
    /// Bytes per connection, if measured.
    #[must_use]
    pub fn bytes(&self, result: &MemoryResult) -> Option<f64> {
        result.bytes.get(self.key).copied()
    }
}

/// All there are, in the order shown.
pub const STATES: [State; 6] = [
    State { key: "server_established", end: "server", name: "established", head: "server" },
    State { key: "server_idle", end: "server", name: "idle", head: "server idle" },
    State { key: "client_established", end: "client", name: "established", head: "client" },
    State { key: "client_idle", end: "client", name: "idle", head: "client idle" },
    State { key: "kept_after_established", end: "", name: "kept after established", head: "kept" },
    State { key: "kept_after_idle", end: "", name: "kept after idle", head: "kept, idle" },
];
