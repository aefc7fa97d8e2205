//! The moment at which a certificate is renewed.

use fastrand::Rng;

use crate::{AuthorityId, DAY_S, UnixSeconds};

/// A certificate that is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The first second at which it is valid.
    pub not_before: UnixSeconds,
    /// The last second at which it is valid.
    pub not_after: UnixSeconds,
    /// The authority of the schedule's settings that issued it; none if it is of another.
    pub authority: Option<AuthorityId>,
}

impl Held {
    /// The moment to renew it unless an authority suggests another. That is after two thirds of its
    /// life, or after half of a short one.
    #[must_use]
    pub fn renew_at(&self) -> UnixSeconds {
        let life_s = self.life_s();
        let part_s = if life_s < SHORT_LIFE_S { life_s / 2 } else { life_s / 3 * 2 };
        self.not_before.plus(part_s)
    }

    /// The moment of a window at which it is renewed, drawn evenly; none if the window is no
    /// window or leads past the certificate's end.
    pub(crate) fn moment_in(&self, window: Window, random: &mut Rng) -> Option<UnixSeconds> {
        let is_sound = window.start < window.end && window.end <= self.not_after;
        is_sound.then(|| UnixSeconds(random.u64(window.start.0..=window.end.0)))
    }

    /// The latest time for a replacement: its end. If a window begins in the first half of its
    /// life, as for a certificate that is to be revoked, it is the window's end.
    pub(crate) fn deadline(&self, window: Option<Window>) -> UnixSeconds {
        let half = self.not_before.plus(self.life_s() / 2);
        match window {
            Some(window) if window.start < half && self.life_s() >= SHORT_LIFE_S => window.end,
            _ => self.not_after,
        }
    }

    /// The time when a third is left between `renew_at` and the deadline.
    pub(crate) fn urgent_at(renew_at: UnixSeconds, deadline: UnixSeconds) -> UnixSeconds {
        UnixSeconds(deadline.0 - deadline.since(renew_at) / 3)
    }

    fn life_s(&self) -> u64 {
        self.not_after.since(self.not_before)
    }
}

/// The time in which an authority would like a certificate renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first second.
    pub start: UnixSeconds,
    /// The last second.
    pub end: UnixSeconds,
}

/// A life under this is short.
const SHORT_LIFE_S: u64 = 10 * DAY_S;
