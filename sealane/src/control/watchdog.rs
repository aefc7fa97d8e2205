//! Whether every lane still reads its mail, told to a service manager that wants to know: it ends a
//! process that does not say so, and starts it anew.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::start::LaneHandle;

use crate::operator::{Priority, say_at};
use crate::relay::Relay;
use crate::systemd;

/// A question to all lanes now and then.
pub(super) struct Watchdog {
    /// Between two questions: it is told several times within what the manager waits for.
    every: Duration,
    asked: Instant,
    /// The number of the question.
    number: u64,
    /// Whether a lane was silent when it was last looked at.
    was_silent: bool,
}

impl Watchdog {
    /// What the service manager of this process wants, if it does.
    pub(super) fn of_this_process() -> Option<Self> {
        let patience = sd_notify::watchdog_enabled().filter(|patience| !patience.is_zero())?;
        let every = patience / TOLD_WITHIN_PATIENCE;
        Some(Self { every, asked: Instant::now(), number: 0, was_silent: false })
    }

    /// How long nothing has to be done.
    pub(super) fn wait(&self) -> Duration {
        self.every.saturating_sub(self.asked.elapsed())
    }

    /// Tells the manager that all lanes have answered, if they have, and asks again.
    pub(super) fn look(&mut self, lanes: &[LaneHandle<Relay>]) {
        if !self.wait().is_zero() {
            return;
        }
        self.asked = Instant::now();
        // One that has ended is looked after elsewhere.
        let is_silent = |lane: &&LaneHandle<Relay>| {
            !lane.has_ended() && lane.counters.answered.value() != self.number
        };
        let silent = lanes.iter().find(is_silent);
        if let Some(lane) = silent.filter(|_| !self.was_silent) {
            let number = lane.number;
            let text = format!(
                "lane {number} does not answer; unless it does, the service manager \
                                will end this process; this is a fault of Sealane"
            );
            say_at(Priority::Error, &text);
        }
        self.was_silent = silent.is_some();
        if !self.was_silent {
            systemd::tell(&[NotifyState::Watchdog]);
            self.number += 1;
            for lane in lanes {
                lane.post(Mail::Answer(self.number));
            }
        }
    }
}

const TOLD_WITHIN_PATIENCE: u32 = 3;
