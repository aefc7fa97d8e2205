//! Whether every lane still reads its mail: told to a service manager that wants to know, which
//! ends a process that does not say so and starts it anew, and to whoever serves on trial.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::start::LaneHandle;

use crate::operator::{Priority, say_at};
use crate::relay::Relay;
use crate::systemd;

/// A question to all lanes now and then.
pub(super) struct Watchdog {
    /// Between two questions: the service manager is told several times within what it waits for.
    /// None: it wants nothing.
    every: Option<Duration>,
    looked: Instant,
    asked: Instant,
    /// The number of the question.
    number: u64,
    /// Since when all lanes have answered each question at once, if they have answered any.
    well: Option<Well>,
    /// Whether it was said that a lane is silent.
    was_silent: bool,
}

/// A time in which all lanes have answered each question at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Well {
    since: Instant,
    /// When the last question was asked that they have answered; if they were late, when that was
    /// seen.
    until: Instant,
}

impl Well {
    /// How much of it is later than `at`.
    pub(super) fn time_since(self, at: Instant) -> Duration {
        self.until.saturating_duration_since(self.since.max(at))
    }
}

impl Watchdog {
    /// What the service manager of this process wants.
    pub(super) fn of_this_process() -> Self {
        let patience = sd_notify::watchdog_enabled().filter(|patience| !patience.is_zero());
        let every = patience.map(|patience| patience / TOLD_WITHIN_PATIENCE);
        let (looked, asked) = (Instant::now(), Instant::now());
        Self { every, looked, asked, number: 0, well: None, was_silent: false }
    }

    /// How long nothing has to be done for the manager, at most this long.
    pub(super) fn wait(&self, at_most: Duration) -> Duration {
        self.every.map_or(at_most, |every| every.saturating_sub(self.looked.elapsed()).min(at_most))
    }

    /// Since when all lanes are known to read their mail at once, and until when.
    pub(super) const fn well(&self) -> Option<Well> {
        self.well
    }

    /// Whether a lane has stood still for a while, as far as it was asked.
    pub(super) fn is_silent(&self, lanes: &[LaneHandle<Relay>]) -> bool {
        self.asked.elapsed() > LATE && lanes.iter().any(|lane| self.is_owed_by(lane))
    }

    /// Tells the manager that all lanes have answered, if they have, and asks again; soon, if
    /// somebody else waits for that.
    pub(super) fn look(&mut self, lanes: &[LaneHandle<Relay>], is_urgent: bool) {
        let urgent = is_urgent.then_some(URGENT_EVERY);
        let Some(period) = self.every.into_iter().chain(urgent).min() else { return };
        if self.looked.elapsed() < period {
            return;
        }
        self.looked = Instant::now();
        match lanes.iter().find(|lane| self.is_owed_by(lane)) {
            Some(lane) => self.tell_silence(lane.number),
            None => {
                self.was_silent = false;
                let is_late = self.looked.duration_since(self.asked) > LATE;
                let since = self.well.filter(|_| !is_late).map_or(self.looked, |well| well.since);
                self.well =
                    Some(Well { since, until: if is_late { self.looked } else { self.asked } });
                if self.every.is_some() {
                    systemd::tell(&[NotifyState::Watchdog]);
                }
                self.number += 1;
                self.asked = self.looked;
                for lane in lanes {
                    lane.post(Mail::Answer(self.number));
                }
            }
        }
    }

    /// Whether this lane has not answered; one that has ended is looked after elsewhere.
    fn is_owed_by(&self, lane: &LaneHandle<Relay>) -> bool {
        !lane.has_ended() && lane.counters.answered.value() != self.number
    }

    fn tell_silence(&mut self, lane: usize) {
        let is_long = self.every.is_some_and(|every| self.asked.elapsed() >= every);
        if is_long && !self.was_silent {
            self.was_silent = true;
            let text = format!(
                "lane {lane} does not answer; unless it does, the service manager will end this \
                 process; this is a fault of Sealane"
            );
            say_at(Priority::Error, &text);
        }
    }
}

/// An answer that takes longer is one of a lane that stood still, or nobody looked for it.
const LATE: Duration = Duration::from_secs(3);
const TOLD_WITHIN_PATIENCE: u32 = 3;
/// Between two questions of which somebody waits for the answer.
const URGENT_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_time_in_which_lanes_answered_counts() {
        let base = Instant::now();
        let at = |s| base + Duration::from_secs(s);
        let well = Well { since: at(10), until: at(30) };
        let counted = [0, 10, 25, 30, 40].map(|begun| well.time_since(at(begun)).as_secs());
        assert_eq!(counted, [20, 20, 5, 0, 0]);
    }
}
