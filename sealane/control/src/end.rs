//! The end of the process, in order: balancers hear of it while clients are served, listeners
//! close, connections finish, what is left is cut.

use std::time::{Duration, Instant};

use sealane_config::value::duration_text;
use sealane_lanes::mailbox::Mail;
use signal_hook::consts::SIGHUP;
use tracing::{info, warn};

use super::lane_group::LanesEnd;
use super::{Control, Event, Outcome, ServeError};
use crate::state::Phase;
use crate::systemd;

/// A process that was told to end, and serves on for a while.
pub(super) struct Leaving {
    since: Instant,
    /// The delays as they were then: a service manager that was told how long the end takes waits
    /// no longer.
    drain_delay: Duration,
    health_delay: Duration,
}

impl Control {
    /// What the first signal does.
    pub(super) fn begin_to_leave(&self) -> Leaving {
        let limits = &self.running.config().limits;
        systemd::tell_end(limits.drain_delay + limits.drain_timeout);
        if !limits.drain_delay.is_zero() {
            let delay = duration_text(limits.drain_delay);
            info!("leaving: clients are served for {delay} more; a second signal ends that");
        }
        let (drain_delay, health_delay) = (limits.drain_delay, limits.health_delay);
        Leaving { since: Instant::now(), drain_delay, health_delay }
    }

    /// Lets balancers hear of it when it is time, and tells how long clients are served still.
    pub(super) fn leave(&self, leaving: &Leaving) -> Duration {
        let passed = leaving.since.elapsed();
        let health = leaving.health_delay.saturating_sub(passed);
        let left = leaving.drain_delay.saturating_sub(passed);
        if health.is_zero() {
            self.state.lock().phase = Phase::Draining;
            return left;
        }
        health.min(left)
    }

    /// Ends in order, as a signal would make it, but at once.
    ///
    /// # Errors
    /// A lane was lost.
    pub fn stop(self) -> Result<Outcome, ServeError> {
        self.drain()
    }

    pub(super) fn drain(mut self) -> Result<Outcome, ServeError> {
        let timeout = self.running.config().limits.drain_timeout;
        systemd::tell_end(timeout);
        info!("draining: no new connections; a second signal ends at once");
        // The files of unix sockets go before connections there would be refused.
        self.bound.close();
        self.state.lock().phase = Phase::Draining;
        self.lanes.post_each(|_| Mail::Drain(timeout));
        while !self.lanes.have_ended() {
            self.lanes.report_to_watchdog();
            match self.events.recv_timeout(DRAIN_TICK) {
                Ok(Event::Notice(line)) => warn!("{line}"),
                Ok(Event::Signal(signal)) if signal != SIGHUP => {
                    self.lanes.post_each(|_| Mail::Stop);
                }
                Ok(_) | Err(_) => {}
            }
        }
        let LanesEnd { cut, lost } = self.lanes.join();
        if let Some(log) = self.log
            && !log.stop()
        {
            let text = "the access log's destination did not take the last lines";
            warn!("{text}");
        }
        if let Some(admin) = self.admin {
            admin.stop();
        }
        match lost {
            Some(number) => Err(ServeError::LaneLost(number)),
            None if cut == 0 => Ok(Outcome::Drained),
            None => Ok(Outcome::Cut(cut)),
        }
    }
}

/// How often a drain looks whether the lanes have ended.
const DRAIN_TICK: Duration = Duration::from_millis(20);
