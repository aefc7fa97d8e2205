//! What a library under test tells of itself: which one it is, [`Identity`], and how long calls
//! take that hold a lock of its own, [`TimedCall`].

use serde::{Deserialize, Serialize};

/// Which library was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The name on the command line, such as `openssl@3.0` or `rustls-ring`.
    pub name: String,
    /// The version as the library itself tells it.
    pub version: String,
    /// The file that was loaded; of a linked library, the lab's own binary.
    pub path: String,
    /// SHA-256 of that file, in hex.
    pub sha256: String,
    /// The flags it was built with, as far as it tells.
    pub build: String,
}

/// Calls of one function that hold a lock of the library's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimedCall {
    /// The function's name without its type's.
    pub function: String,
    /// How often it was called, warm-up included.
    pub calls: u64,
    /// How long a call took, the mean, without the clock's own time.
    pub ns: f64,
}
