//! The configuration that a fleet gives to who serves from a store: files beside the database, for
//! a configuration is read before a store is opened.
//!
//! ```text
//!   who fills the store   --- HELD, PROPOSED --->   who serves from it --- SETTLED, Trouble
//!                         <--- Answer -----------
//! ```

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

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
    /// What `folder` has in the file [`HELD`] or [`SETTLED`]; none if it is not there.
    ///
    /// # Errors
    /// It cannot be read, or is not as [`Self::put`] writes it.
    pub fn read(folder: &Path, file: &str) -> io::Result<Option<Self>> {
        Ok(Proposed::read_from(folder, file)?.map(|proposed| proposed.given))
    }

    /// What it is remembered by: numbers are a fleet's own, and begin anew in another.
    #[must_use]
    pub fn mark(&self) -> u64 {
        let digest = Sha256::new().chain_update(self.number.to_le_bytes()).chain_update(&self.text);
        let digest: [u8; 32] = digest.finalize().into();
        let first = digest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        first.max(1)
    }

    /// Has the folder `to` know what the folder `from` does of texts that were taken, and of those
    /// with which processes ended: one comes in the place of the other.
    ///
    /// # Errors
    /// The folder `to` cannot be written.
    pub fn carry_over(from: &Path, to: &Path) -> io::Result<()> {
        Trouble::read(from).leave(to)?;
        for file in [HELD, SETTLED] {
            // What cannot be read is nothing to anybody there either.
            if let Ok(Some(given)) = Self::read(from, file) {
                given.put(to, file)?;
            }
        }
        Ok(())
    }

    /// Writes it whole, in the place of what is there. The number stands behind the text, so that
    /// lines are those of who wrote it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn put(&self, folder: &Path, file: &str) -> io::Result<()> {
        let text = format!("{}\n{NUMBER}{}\n", self.text, self.number);
        replace_file(folder, file, text.as_bytes())
    }
}

/// A configuration that is to be looked at, and served on some machines before it holds.
///
/// Whoever fills the store writes it again and again while it is proposed: one that is as it was
/// for a while comes from nobody any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// What is proposed.
    pub given: Given,
    /// Whether this machine is to serve by it.
    pub is_on_trial: bool,
}

impl Proposed {
    /// What is proposed in `folder`; none if nothing is.
    ///
    /// # Errors
    /// It cannot be read, or is not as [`Self::put`] writes it.
    pub fn read(folder: &Path) -> io::Result<Option<Self>> {
        Self::read_from(folder, PROPOSED)
    }

    fn read_from(folder: &Path, file: &str) -> io::Result<Option<Self>> {
        let opened = match File::open(folder.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = String::new();
        opened.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        let no_number = || io::Error::new(io::ErrorKind::InvalidData, "its last line is missing");
        let (before, last) = text.trim_end().rsplit_once('\n').ok_or_else(no_number)?;
        let last = last.strip_prefix(NUMBER).ok_or_else(no_number)?;
        let on_trial = last.strip_suffix(ON_TRIAL);
        let number = on_trial.unwrap_or(last).parse().map_err(|_| no_number())?;
        let (is_on_trial, len) = (on_trial.is_some(), before.len());
        text.truncate(len);
        Ok(Some(Self { given: Given { number, text }, is_on_trial }))
    }

    /// Writes it, in the place of what was proposed before.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn put(&self, folder: &Path) -> io::Result<()> {
        let Self { given: Given { number, text }, is_on_trial } = self;
        let on_trial = if *is_on_trial { ON_TRIAL } else { "" };
        let text = format!("{text}\n{NUMBER}{number}{on_trial}\n");
        replace_file(folder, PROPOSED, text.as_bytes())
    }

    /// Removes what was proposed.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn take_back(folder: &Path) -> io::Result<()> {
        remove(folder, PROPOSED)
    }
}

/// The configurations with which processes ended: what one looks at or serves by, until that has
/// done no harm for a while, and those before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// What a process looks at, by its [`Given::mark`].
    pub looked_at: Option<u64>,
    /// What it serves by; none if that is known to do no harm.
    pub taken: Option<u64>,
    /// Those with which processes ended before, the last ones at the end.
    pub failed: Vec<u64>,
}

impl Trouble {
    /// What was left in `folder`; nothing, if that cannot be read.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let mut text = String::new();
        if let Ok(file) = File::open(folder.join(TROUBLE)) {
            // What is cut or strange leaves out less.
            let _ = file.take(TROUBLE_BYTES_MAX).read_to_string(&mut text);
        }
        let mut marks = text.split_whitespace().map(|mark| mark.parse().ok());
        // None is 0.
        let mut one = || marks.next().flatten().filter(|mark| *mark != 0);
        let (looked_at, taken) = (one(), one());
        Self { looked_at, taken, failed: marks.flatten().take(FAILED_MAX).collect() }
    }

    /// Whether anything is left in `folder`.
    #[must_use]
    pub fn is_left(folder: &Path) -> bool {
        folder.join(TROUBLE).exists()
    }

    /// What the process after the one that left it has to leave alone: a look takes no time, so
    /// where one was under way, it was that.
    #[must_use]
    pub fn ended(mut self) -> Vec<u64> {
        let last = self.looked_at.or(self.taken);
        self.failed.retain(|failed| Some(*failed) != last);
        self.failed.extend(last);
        self.failed
    }

    /// Leaves it, the last ones of what failed if that is much.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn leave(&self, folder: &Path) -> io::Result<()> {
        if *self == Self::default() {
            return remove(folder, TROUBLE);
        }
        let failed = self.failed.iter().skip(self.failed.len().saturating_sub(FAILED_MAX)).copied();
        let begun = [self.looked_at, self.taken].map(Option::unwrap_or_default);
        let marks: Vec<_> = begun.into_iter().chain(failed).map(|mark| mark.to_string()).collect();
        replace_file(folder, TROUBLE, marks.join(" ").as_bytes())
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
/// The file with the one by which a process has served for a while.
pub const SETTLED: &str = "fleet-settled.toml";

const FILE_BYTES_MAX: u64 = GIVEN_BYTES_MAX as u64 + 64;
/// What stands before the number, in the last line.
const NUMBER: &str = "# sealane-fleet ";
/// What stands behind it where a machine is to serve by what is proposed.
const ON_TRIAL: &str = " on trial";
/// Texts that are remembered, with which processes ended.
const FAILED_MAX: usize = 16;
/// The file with those, and with what a process looks at or serves by.
const TROUBLE: &str = "fleet-trouble";
const TROUBLE_BYTES_MAX: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_lines_stay() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(
            (Given::read(folder, HELD).unwrap(), Proposed::read(folder).unwrap()),
            (None, None)
        );
        for text in ["", "a = 1", "a = 1\n", "# sealane-fleet 9", &"x".repeat(GIVEN_BYTES_MAX)] {
            let given = Given { number: 7, text: text.to_owned() };
            given.put(folder, HELD).unwrap();
            assert_eq!(Given::read(folder, HELD).unwrap(), Some(given.clone()));
            for is_on_trial in [true, false] {
                let proposed = Proposed { given: given.clone(), is_on_trial };
                proposed.put(folder).unwrap();
                assert_eq!(Proposed::read(folder).unwrap(), Some(proposed));
            }
        }
        Proposed::take_back(folder).unwrap();
        Proposed::take_back(folder).unwrap();
        assert_eq!(Proposed::read(folder).unwrap(), None);
        fs::write(folder.join(HELD), "a = 1\n").unwrap();
        assert!(Given::read(folder, HELD).is_err(), "somebody else wrote it");
    }

    #[test]
    fn a_text_of_another_fleet_is_another_though_its_number_is_the_same() {
        let given = |number, text: &str| Given { number, text: text.to_owned() }.mark();
        let all = [given(1, "a"), given(1, "b"), given(2, "a")];
        assert!(all[0] != all[1] && all[0] != all[2] && all[0] == given(1, "a"));
    }

    #[test]
    fn what_processes_ended_with_is_known_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(Trouble::read(folder), Trouble::default());
        for (looked_at, taken, failed, ended) in [
            (None, Some(7), vec![], vec![7]),
            (Some(8), None, vec![5, 6], vec![5, 6, 8]),
            (Some(8), Some(7), vec![5], vec![5, 8]),
            (None, None, vec![6], vec![6]),
            (None, Some(9), vec![9, 6], vec![6, 9]),
        ] {
            let trouble = Trouble { looked_at, taken, failed };
            trouble.leave(folder).unwrap();
            assert_eq!(Trouble::read(folder), trouble);
            assert_eq!(trouble.ended(), ended);
        }
        let failed = (u64::MAX - 100..u64::MAX).collect();
        let many = Trouble { taken: Some(u64::MAX), looked_at: Some(9), failed };
        many.leave(folder).unwrap();
        let kept = Trouble::read(folder);
        assert_eq!((kept.taken, kept.looked_at), (many.taken, many.looked_at));
        assert_eq!((kept.failed.len(), kept.failed.last()), (FAILED_MAX, many.failed.last()));
        Trouble::default().leave(folder).unwrap();
        assert!(!folder.join(TROUBLE).exists());
        fs::write(folder.join(TROUBLE), "nonsense").unwrap();
        assert_eq!(Trouble::read(folder), Trouble::default());
    }
}
