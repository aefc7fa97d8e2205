//! Whether this machine's clock is ahead of what the others have: [`Clocks`].
//!
//! Machines reject a tombstone with a time more than a day ahead of their clocks. The machine that
//! is ahead would not notice that, so it compares the times in the statuses of other machines with
//! its own clock.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Instant;

use sealane_store::AHEAD_S_MAX;
use tracing::{info, warn};

use super::places::MACHINES_MAX;

/// By how many seconds this machine's clock is ahead of those of others.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    ahead_s: RefCell<HashMap<String, i64>>,
    is_ahead: Cell<bool>,
    /// When the clocks of others were looked at last, and how many machines there were.
    pub(super) looked: Cell<Option<(Instant, usize)>>,
}

impl Clocks {
    /// Notes the clock that a machine just reported; `None`: it has gone, or reported none.
    pub(super) fn note(&self, machine: &str, ahead_s: Option<i64>) {
        let mut all = self.ahead_s.borrow_mut();
        all.remove(machine);
        let ahead_s = ahead_s.filter(|_| all.len() < MACHINES_MAX);
        all.extend(ahead_s.map(|ahead_s| (machine.to_owned(), ahead_s)));
    }

    /// Whether it is too far ahead of most others. A change is logged.
    pub(super) fn judge(&self) -> bool {
        let all = self.ahead_s.borrow();
        let count = all.values().filter(|ahead_s| **ahead_s > AHEAD_S_MAX).count();
        let is_ahead = 2 * count > all.len();
        match (self.is_ahead.replace(is_ahead), is_ahead) {
            (false, true) => warn!(
                "fleet: this machine's clock is more than a day ahead of {count} of {} other \
                     machines, so what is removed here stays on them: set it right, see that it is \
                     kept so (timedatectl set-ntp true), and remove on another machine what was \
                     removed here meanwhile",
                all.len()
            ),
            (true, false) => info!("fleet: this machine's clock is as those of the others again"),
            _ => {}
        }
        is_ahead
    }
}
