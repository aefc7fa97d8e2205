//! What can end a measurement: an [`Error`] says which check or step failed and why.

use std::{io, path::PathBuf};

/// Why a server has no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The server under test did something that the client did not ask for.
    #[error("check failed: {0}")]
    Check(String),
    /// A program that the operator must build or install is not there.
    #[error("{program} is missing; run: {remedy}")]
    Missing { program: String, remedy: String },
    /// The operator pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// The server under test ended, or never answered, after its start.
    #[error("the server did not start: {reason}\n{log}")]
    Start { reason: String, log: String },
}

impl Error {
    /// For `map_err`: what was being done when the system refused.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// For `map_err`, with a file's name.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let what = path.into().display().to_string();
        move |source| Self::Io { what, source }
    }
}
