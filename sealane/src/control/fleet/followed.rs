//! Files that another process replaces.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

/// A file that another process replaces.
pub(super) struct Followed<T> {
    pub(super) content: Option<T>,
    /// How it looked last, if it was there; the outer none: nobody has looked.
    facts: Option<Option<Facts>>,
    /// When it was replaced under this process's eyes.
    pub(super) since: Option<Instant>,
}

impl<T> Default for Followed<T> {
    fn default() -> Self {
        Self { content: None, facts: None, since: None }
    }
}

impl<T> Followed<T> {
    /// Reads it again if it was replaced, or has come or gone.
    pub(super) fn follow(
        &mut self,
        path: &Path,
        read: impl FnOnce() -> io::Result<Option<T>>,
    ) -> io::Result<()> {
        let now = facts(path);
        if self.facts != Some(now) {
            self.content = read()?;
            self.since = self.facts.map(|_| Instant::now());
            self.facts = Some(now);
        }
        Ok(())
    }
}

/// What differs of a file that was replaced: its inode, and when.
pub(super) type Facts = (u64, i64, i64);

/// Those of a file; none if it is not there.
pub(super) fn facts(path: &Path) -> Option<Facts> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.ino(), facts.ctime(), facts.ctime_nsec()))
}
