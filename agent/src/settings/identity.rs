//! The identity of a program in TLS.

use std::path::PathBuf;

/// A certificate with its private key, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file with the chain.
    pub certificate: PathBuf,
    /// The file with the private key.
    pub key: PathBuf,
}
