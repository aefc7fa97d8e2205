//! Reports to the service manager that every lane still reads its mail. The manager restarts a
//! process that stops reporting.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::start::LaneHandle;
use sealane_traffic::backends::RelaySettings;
use tracing::error;

use crate::systemd;

/// A question to all lanes at regular times.
pub(super) struct Watchdog {
    /// The time between two questions: several fit into the time that the manager waits.
    every: Duration,
    asked: Instant,
    /// The number of the question.
    number: u64,
    /// Whether a lane was silent when it was last looked at.
    was_silent: bool,
}

impl Watchdog {
    /// The watchdog that the service manager of this process asks for, if it asks for one.
    pub(super) fn of_this_process() -> Option<Self> {
        let patience = sd_notify::watchdog_enabled().filter(|patience| !patience.is_zero())?;
        let every = patience / TOLD_WITHIN_PATIENCE;
        Some(Self { every, asked: Instant::now(), number: 0, was_silent: false })
    }

    /// The time until the next question is due.
    pub(super) fn wait(&self) -> Duration {
        self.every.saturating_sub(self.asked.elapsed())
    }

    /// Reports to the manager if all lanes have answered, and asks them again.
    pub(super) fn look(&mut self, lanes: &[LaneHandle<RelaySettings>]) {
        if !self.wait().is_zero() {
            return;
        }
        self.asked = Instant::now();
        // The control plane handles a lane that has ended.
        let is_silent = |lane: &&LaneHandle<RelaySettings>| {
            !lane.has_ended() && lane.counters.answered.value() != self.number
        };
        let silent = lanes.iter().find(is_silent);
        if let Some(lane) = silent.filter(|_| !self.was_silent) {
            let number = lane.number;
            let text = format!(
                "lane {number} does not answer; unless it does, the service manager will end this \
                 process; this is a fault of Sealane"
            );
            error!("{text}");
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
