//! What can end a measurement: an [`Error`] says which check or step failed and why.

use std::{io, path::PathBuf};

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server under test did something that the client did not ask for.
    #[error("check failed: {0}")]
    Check(String),
    /// A program that the operator must build or install is not there.
    #[error("{program} is missing; run: {remedy}")]
    Missing {
        /// The program's name.
        program: String,
        /// The command that brings it.
        remedy: String,
    },
    /// The operator pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, or the file's name.
        what: String,
        /// Why it did not work.
        source: io::Error,
    },
    /// A file of results is broken, or of a kind that this program does not know.
    #[error("{file}: {reason}")]
    Document {
        /// The file's name.
        file: String,
        /// Where and why, and the remedy.
        reason: String,
    },
    /// The stack or this machine cannot do what the scenario asks.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The server under test ended, or never answered, after its start.
    #[error("the server did not start: {reason}\n{log}")]
    Start {
        /// What was waited for.
        reason: String,
        /// The end of its output.
        log: String,
    },
}

impl Error {
    /// For `map_err`: what was being done when the system refused.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// For `map_err`, with a file's name.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let what = path.into().display().to_string();
        move |source| Self::Io { what, source }
    }
}
