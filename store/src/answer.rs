//! What who serves from a store answers to a fleet that gives it a configuration: [`Answer`], left
//! by an [`Answerer`] for as long as its process is there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::group::{replace_file, share_file};

/// What who serves says of what a fleet gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The number of what is served; 0 if none is.
    pub holds: u64,
    /// The number of what was looked at last; 0 if none was.
    pub checked: u64,
    /// What is wrong with that, in lines; empty if it is in order.
    pub refusal: String,
    /// The process that says so, told from those before it.
    pub process: u64,
    /// For how many seconds on end it has served by what is on trial, by its own clock; 0 if
    /// nothing is.
    pub trial_s: u64,
}

impl Answer {
    /// What was left in `folder`; none if nobody is there who takes what a fleet gives.
    #[must_use]
    pub fn read(folder: &Path) -> Option<Self> {
        let lock = File::open(folder.join(LOCK)).ok()?;
        // With its process an answer is gone, however that ended.
        if !matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            return None;
        }
        let mut text = Vec::new();
        let file = File::open(folder.join(ANSWER)).ok()?;
        file.take(ANSWER_BYTES_MAX as u64).read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text);
        let (numbers, refusal) = text.split_once('\n')?;
        let mut numbers = numbers.split(' ').map(str::parse);
        let mut number = || numbers.next()?.ok();
        let (holds, checked, process, trial_s) = (number()?, number()?, number()?, number()?);
        Some(Self { holds, checked, refusal: refusal.to_owned(), process, trial_s })
    }

    /// Whether the configuration `number` is in order where this was said; none if it was not
    /// looked at.
    #[must_use]
    pub fn accepts(&self, number: u64) -> Option<bool> {
        (self.checked == number).then_some(self.refusal.is_empty())
    }
}

/// The one process that answers in a store's folder.
#[derive(Debug)]
pub struct Answerer {
    folder: PathBuf,
    lock: File,
}

impl Answerer {
    /// Becomes the one; none while another process is it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn of(folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(LOCK);
        let open =
            || OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path);
        let lock = open()?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => {}
        }
        // What the process before it said is nothing of this one's.
        match fs::remove_file(folder.join(ANSWER)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        share_file(folder, &lock)?;
        Ok(Some(Self { folder: folder.to_owned(), lock }))
    }

    /// The folder in which it answers.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it still is the one: not if somebody has removed its files.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let place = |facts: fs::Metadata| (facts.dev(), facts.ino());
        let at = fs::metadata(self.folder.join(LOCK)).map(place).ok();
        at.is_some() && at == self.lock.metadata().map(place).ok()
    }

    /// Leaves an answer, in the place of what was said before.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn leave(&self, answer: &Answer) -> io::Result<()> {
        let Answer { holds, checked, refusal, process, trial_s } = answer;
        let mut text = format!("{holds} {checked} {process} {trial_s}\n{refusal}");
        text.truncate(text.floor_char_boundary(ANSWER_BYTES_MAX));
        replace_file(&self.folder, ANSWER, text.as_bytes())
    }
}

const ANSWER: &str = "fleet-answer";
/// Bytes of an answer, at most: more mistakes than people read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// The file that the process has locked which answers.
const LOCK: &str = "fleet-lock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_about_one_number_and_of_one_process() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(Answer::read(folder), None);
        let answerer = Answerer::of(folder).unwrap().unwrap();
        assert_eq!(Answer::read(folder), None, "nothing was said yet");
        let answer =
            Answer { holds: 3, checked: 5, refusal: "a\nb".to_owned(), process: 9, trial_s: 4 };
        answerer.leave(&answer).unwrap();
        assert_eq!(Answer::read(folder), Some(answer.clone()));
        assert_eq!([3, 5].map(|number| answer.accepts(number)), [None, Some(false)]);
        let answer = Answer { refusal: String::new(), ..answer };
        answerer.leave(&answer).unwrap();
        assert_eq!(answer.accepts(5), Some(true));
        assert!(Answerer::of(folder).unwrap().is_none(), "one at a time");
        assert_eq!(Answer::read(folder), Some(answer));
        drop(answerer);
        assert_eq!(Answer::read(folder), None, "it has ended");
        let next = Answerer::of(folder).unwrap().unwrap();
        assert_eq!(Answer::read(folder), None, "what was said was of another");
        fs::remove_file(folder.join(LOCK)).unwrap();
        assert!(!next.is_there());
    }
}
