//! The configuration that a fleet gives to who serves from a store: files beside the database, for
//! a configuration is read before a store is opened. Whoever fills the store writes what is
//! [`HELD`] and what is [`PROPOSED`], and whoever serves from it answers.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use crate::group::replace_file;

/// A configuration that a fleet gives, with a number that rises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The number by which it is known.
    pub number: u64,
    /// The text, as it was written.
    pub text: String,
}

impl Given {
    /// What `folder` has in the file [`HELD`] or [`PROPOSED`]; none if it is not there.
    ///
    /// # Errors
    /// It cannot be read, or is not as [`Self::put`] writes it.
    pub fn read(folder: &Path, file: &str) -> io::Result<Option<Self>> {
        let opened = match File::open(folder.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = String::new();
        opened.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        let no_number = || io::Error::new(io::ErrorKind::InvalidData, "its last line is missing");
        let (before, last) = text.trim_end().rsplit_once('\n').ok_or_else(no_number)?;
        let number = last.strip_prefix(NUMBER).and_then(|number| number.parse().ok());
        let number = number.ok_or_else(no_number)?;
        text.truncate(before.len());
        Ok(Some(Self { number, text }))
    }

    /// Writes it whole, in the place of what is there. The number stands behind the text, so that
    /// lines are those of who wrote it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn put(&self, folder: &Path, file: &str) -> io::Result<()> {
        replace_file(folder, file, format!("{}\n{NUMBER}{}\n", self.text, self.number).as_bytes())
    }

    /// Removes what is there.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn take_back(folder: &Path, file: &str) -> io::Result<()> {
        remove(folder, file)
    }
}

/// What who serves says of what a fleet gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The number of what is served; 0 if none is.
    pub holds: u64,
    /// The number of what was looked at last; 0 if none was.
    pub checked: u64,
    /// What is wrong with that, in lines; empty if it is in order.
    pub refusal: String,
}

impl Answer {
    /// What was left in `folder`; none if nobody there takes what a fleet gives.
    #[must_use]
    pub fn read(folder: &Path) -> Option<Self> {
        let mut text = Vec::new();
        let file = File::open(folder.join(ANSWER)).ok()?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text);
        let (numbers, refusal) = text.split_once('\n')?;
        let (holds, checked) = numbers.split_once(' ')?;
        Some(Self {
            holds: holds.parse().ok()?,
            checked: checked.parse().ok()?,
            refusal: refusal.to_owned(),
        })
    }

    /// Leaves it, in the place of what was said before.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn leave(&self, folder: &Path) -> io::Result<()> {
        let text = format!("{} {}\n{}", self.holds, self.checked, self.refusal);
        replace_file(folder, ANSWER, text.as_bytes())
    }

    /// Takes back what was said.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn take_back(folder: &Path) -> io::Result<()> {
        remove(folder, ANSWER)
    }

    /// Whether the configuration `number` is in order where this was said; none if it was not
    /// looked at.
    #[must_use]
    pub fn accepts(&self, number: u64) -> Option<bool> {
        (self.checked == number).then_some(self.refusal.is_empty())
    }
}

fn remove(folder: &Path, file: &str) -> io::Result<()> {
    match fs::remove_file(folder.join(file)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Bytes of a configuration that a fleet gives, at most.
pub const GIVEN_BYTES_MAX: usize = 256 << 10;
/// The file with the configuration that holds.
pub const HELD: &str = "fleet.toml";
/// The file with the one that is to be looked at.
pub const PROPOSED: &str = "fleet-proposed.toml";

const ANSWER: &str = "fleet-answer";
const FILE_BYTES_MAX: u64 = GIVEN_BYTES_MAX as u64 + 64;
/// What stands before the number, in the last line.
const NUMBER: &str = "# sealane-fleet ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_lines_stay() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(Given::read(folder, HELD).unwrap(), None);
        for text in ["", "a = 1", "a = 1\n", "# sealane-fleet 9", &"x".repeat(GIVEN_BYTES_MAX)] {
            let given = Given { number: 7, text: text.to_owned() };
            given.put(folder, HELD).unwrap();
            assert_eq!(Given::read(folder, HELD).unwrap(), Some(given));
        }
        Given::take_back(folder, HELD).unwrap();
        assert_eq!(Given::read(folder, HELD).unwrap(), None);
        fs::write(folder.join(HELD), "a = 1\n").unwrap();
        assert!(Given::read(folder, HELD).is_err(), "somebody else wrote it");
    }

    #[test]
    fn an_answer_is_about_one_number() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Answer::read(folder.path()), None);
        let answer = Answer { holds: 3, checked: 5, refusal: "a\nb".to_owned() };
        answer.leave(folder.path()).unwrap();
        assert_eq!(Answer::read(folder.path()), Some(answer.clone()));
        assert_eq!([3, 5].map(|number| answer.accepts(number)), [None, Some(false)]);
        let answer = Answer { refusal: String::new(), ..answer };
        answer.leave(folder.path()).unwrap();
        assert_eq!(answer.accepts(5), Some(true));
        Answer::take_back(folder.path()).unwrap();
        assert_eq!(Answer::read(folder.path()), None);
    }
}
