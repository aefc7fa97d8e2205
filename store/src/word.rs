//! What whoever fills a store has to say to those who serve from it: a file beside the database, so
//! that it is read without the map of a database that may be damaged.

use std::fs::{self, File};
use std::io::{self, Read as _};

use crate::group::replace_file;
use crate::store::Store;

impl Store {
    /// Leaves word, in the place of what was said before; none takes that back.
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

    /// The word that was left, its first [`WORD_BYTES_MAX`] bytes.
    #[must_use]
    pub fn word(&self) -> Option<String> {
        let mut word = Vec::new();
        let file = File::open(self.path().join(WORD_FILE)).ok()?;
        file.take(WORD_BYTES_MAX).read_to_end(&mut word).ok()?;
        Some(String::from_utf8_lossy(&word).into_owned())
    }
}

/// Bytes of a word, at most.
pub const WORD_BYTES_MAX: u64 = 4096;
/// The file with what the agent says of a fleet that does not answer: since when, in Unix time, a
/// space, and what is wrong.
const WORD_FILE: &str = "fleet-away";
