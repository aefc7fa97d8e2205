//! Where the keys and certificates of a run lie: made once by the lab, read by every trial, so that
//! all stacks sign and verify the same.

use std::path::{Path, PathBuf};

/// The name in the server's certificate.
pub const SERVER_NAME: &str = "localhost";

/// The files of one key type, in a folder: a root, and a leaf with its key for each side.
#[derive(Clone, Debug)]
pub struct Credentials {
    folder: PathBuf,
}

impl Credentials {
    /// Those that [`make`](Self::make) wrote to `folder` before.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Where they lie.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The root's certificate, PEM.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.folder.join("root.pem")
    }

    /// A leaf's certificate, PEM, without the root.
    #[must_use]
    pub fn certificate(&self, side: Side) -> PathBuf {
        self.folder.join(format!("{}.pem", side.word()))
    }

    /// A leaf's key, PKCS #8 in PEM.
    #[must_use]
    pub fn key(&self, side: Side) -> PathBuf {
        self.folder.join(format!("{}.key", side.word()))
    }
}

/// Whose certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client's, shown only if the server demands one.
    Client,
    /// The server's.
    Server,
}

impl Side {
    fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}
