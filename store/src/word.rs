//! A message from the agent to the serving process. It is a file next to the database, so it is
//! read without the map of a database that may be damaged.

use std::fs;
use std::io::{self, Read as _};

use crate::group::replace_file;
use crate::regular::open_regular;
use crate::store::Store;

impl Store {
    /// Leaves a message in the place of the one before. None removes that one.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn leave_word(&self, word: Option<&str>) -> io::Result<()> {
        let Some(word) = word else {
            return match fs::remove_file(self.path().join(WORD_FILE)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        replace_file(self.path(), WORD_FILE, word.as_bytes())
    }

    /// The message, its first [`WORD_BYTES_MAX`] bytes.
    #[must_use]
    pub fn word(&self) -> Option<String> {
        let mut word = Vec::new();
        let file = open_regular(&self.path().join(WORD_FILE)).ok()?;
        file.take(WORD_BYTES_MAX).read_to_end(&mut word).ok()?;
        Some(String::from_utf8_lossy(&word).into_owned())
    }
}

/// Bytes of a message, at most.
pub const WORD_BYTES_MAX: u64 = 4096;
/// The file with the agent's report of a fleet that does not answer: since when, in Unix time, a
/// space, and the error.
const WORD_FILE: &str = "fleet-away";
