//! Whether this machine's clock is ahead of what the others have: [`Clocks`].
//!
//! Machines reject a tombstone with a time more than a day ahead of their clocks. The machine that
//! is ahead would not notice that, so it compares the times in the statuses of other machines with
//! its own clock.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use sealane_operator::{Priority, say, say_at};
use sealane_store::AHEAD_S_MAX;

use super::status::ahead_s;
use super::{Fleet, MACHINES_MAX};
use crate::etcd::EtcdError;

/// By how many seconds this machine's clock is ahead of those of others.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    ahead_s: RefCell<HashMap<String, i64>>,
    is_ahead: Cell<bool>,
    /// When the clocks of others were looked at last, and how many machines there were.
    pub(super) looked: Cell<Option<(Instant, usize)>>,
}

impl Fleet {
    /// Checks the clocks of a few other machines from time to time, and soon after a machine has
    /// joined. A status may be half a minute old.
    pub(super) async fn look_at_clocks(&self) -> Result<(), EtcdError> {
        let count = self.machines.borrow().len();
        let is_due = self.clocks.looked.get().is_none_or(|(at, before)| {
            at.elapsed() > LOOK_EVERY || (count != before && at.elapsed() > LOOK_AGAIN)
        });
        if !is_due || count == 0 {
            return Ok(());
        }
        let others: Vec<String> = {
            let machines = self.machines.borrow();
            machines.keys().filter(|name| **name != self.settings.machine).cloned().collect()
        };
        let some = fastrand::choose_multiple(&others, LOOKED_AT_ONCE);
        let places: Vec<String> = some.iter().map(|name| self.places.status(name)).collect();
        let asked: Vec<&str> = places.iter().map(String::as_str).collect();
        let statuses = self.etcd.all_of(&asked).await?;
        let told = statuses.len();
        for status in statuses {
            if let Some(machine) = status.key.strip_prefix(&self.places.statuses()) {
                self.clocks.note(machine, ahead_s(&status.value));
            }
        }
        // A machine that has just joined reports its status in a moment.
        let seen = if told == places.len() { count } else { 0 };
        self.clocks.looked.set(Some((Instant::now(), seen)));
        Ok(())
    }
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

/// How many machines' clocks are looked at.
const LOOKED_AT_ONCE: usize = 16;
/// How soon clocks are looked at again if machines have come or gone.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How often clocks are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(300);
