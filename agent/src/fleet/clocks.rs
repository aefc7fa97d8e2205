//! Whether this machine's clock is ahead of what the others have: [`Clocks`].
//!
//! Machines take no word of a removal whose time is more than a day ahead of their clocks. The one
//! that is ahead would see nothing of that, so it holds what the others tell of themselves against
//! its own time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use sealane_operator::{Priority, say, say_at};
use sealane_store::AHEAD_S_MAX;

use super::MACHINES_MAX;

/// By how many seconds this machine's clock is ahead of those of others.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    ahead_s: RefCell<HashMap<String, i64>>,
    is_ahead: Cell<bool>,
}

impl Clocks {
    /// Notes what a machine told of its clock just now; of none: it has gone, or told nothing.
    pub(super) fn note(&self, machine: &str, ahead_s: Option<i64>) {
        let mut all = self.ahead_s.borrow_mut();
        all.remove(machine);
        let ahead_s = ahead_s.filter(|_| all.len() < MACHINES_MAX);
        all.extend(ahead_s.map(|ahead_s| (machine.to_owned(), ahead_s)));
    }

    /// Whether it is ahead of most others by more than counts, which is told if it is news.
    pub(super) fn judge(&self) -> bool {
        let all = self.ahead_s.borrow();
        let count = all.values().filter(|ahead_s| **ahead_s > AHEAD_S_MAX).count();
        let is_ahead = 2 * count > all.len();
        match (self.is_ahead.replace(is_ahead), is_ahead) {
            (false, true) => say_at(
                Priority::Warning,
                &format!(
                    "fleet: this machine's clock is more than a day ahead of {count} of {} other \
                     machines, so what is removed here stays on them: set it right, see that it is \
                     kept so (timedatectl set-ntp true), and remove on another machine what was \
                     removed here meanwhile",
                    all.len()
                ),
            ),
            (true, false) => say("fleet: this machine's clock is as those of the others again"),
            _ => {}
        }
        is_ahead
    }
}
