//! The name and version of a library under test, as it reports them: [`Identity`].

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
