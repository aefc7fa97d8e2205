//! The guard of an open store: whether its files are still those that were opened.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::state::Stamp;

/// The files that are open, and whether they may be read.
pub(super) struct Guard {
    /// The device and the number of the data file.
    file: (u64, u64),
    has_lost_lock: AtomicBool,
    is_withdrawn: AtomicBool,
    /// How the lock file looked when it was opened, if it was.
    lock: Option<Stamp>,
}

impl Guard {
    pub(super) fn new(file: (u64, u64), lock: Option<Stamp>) -> Self {
        let (has_lost_lock, is_withdrawn) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { file, has_lost_lock, is_withdrawn, lock }
    }

    pub(super) fn withdraw(&self, is_withdrawn: bool) {
        self.is_withdrawn.store(is_withdrawn, Ordering::Release);
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::Acquire)
    }

    /// Notes that the lock file was cut or replaced. Returns the length that it had.
    pub(super) fn lose_lock(&self) -> u64 {
        self.has_lost_lock.store(true, Ordering::Release);
        self.withdraw(true);
        self.lock.map_or(0, |opened| opened.len)
    }

    /// Whether a data file that looks like `now` is the one that is open.
    pub(super) fn is_open_file(&self, now: Stamp) -> bool {
        now.file == self.file
    }

    /// Whether a lock file that looks like `now` is the one that was opened, and no shorter.
    pub(super) fn has_its_lock(&self, now: Option<Stamp>) -> bool {
        let is_it =
            |opened: Stamp| now.is_some_and(|now| now.file == opened.file && now.len >= opened.len);
        !self.has_lost_lock.load(Ordering::Acquire) && self.lock.is_none_or(is_it)
    }
}
