//! What the cluster has of a configuration, as one machine has heard: [`Heard`].

use std::time::{Duration, Instant};

use super::Version;

/// What the cluster has at a place.
#[derive(Clone, Debug, Default)]
pub(super) struct There {
    /// The revision at which it was put there; 0: nothing is there.
    pub(super) at: i64,
    /// The revision at which the place was taken.
    pub(super) made: i64,
    /// The lease that it hangs on; 0 if it stays.
    pub(super) lease: i64,
    /// Whether it is sealed with the key that this machine seals with.
    pub(super) is_current: bool,
    /// Whether it is what only other machines can read.
    pub(super) is_foreign: bool,
    pub(super) version: Option<Version>,
}

/// What the cluster has, as this machine has heard.
#[derive(Debug, Default)]
pub(in crate::fleet) struct Heard {
    pub(super) holds: There,
    proposed: There,
    /// When the number was heard first that is proposed.
    since: Option<Instant>,
    /// Up to which number what was proposed has ended.
    over: u64,
    /// What this machine remembers, as others are told.
    pub(in crate::fleet) told: (u64, u64),
    /// Whether what holds was put again because an older key had sealed it.
    pub(super) is_resealed: bool,
    /// When what holds is put there again, because the cluster has lost it.
    pub(super) mended_at: Option<Instant>,
}

impl Heard {
    /// Hears what is proposed, or that nothing is.
    ///
    /// A command takes the place once, under the lease that is sealed with what it puts there: what
    /// hangs on another, or came anew, is somebody else's copy of what has ended, and so has what
    /// junk stands in the place of.
    pub(super) fn hear_proposed(&mut self, there: There, now: Instant) {
        let is_its = there.version.as_ref().is_some_and(|one| one.lease == there.lease);
        if !is_its || self.proposed.made != there.made {
            self.end();
        }
        let over = self.over;
        let version = there.version.filter(|one| is_its && one.number > over);
        if version.as_ref().map(|one| one.number) != self.number() {
            self.since = version.as_ref().map(|_| now);
        }
        self.proposed = There { version, ..there };
    }

    /// What is proposed, for as long as a command may take for all of it: whoever reads the
    /// cluster can keep its lease alive.
    pub(super) fn proposed(&mut self, now: Instant) -> Option<&Version> {
        if self.since.is_some_and(|since| now.duration_since(since) > PROPOSED_TIME_MAX) {
            self.end();
            (self.proposed.version, self.since) = (None, None);
        }
        self.proposed.version.as_ref()
    }

    /// The revision at which its command has taken the place.
    pub(super) const fn proposed_since(&self) -> i64 {
        self.proposed.made
    }

    /// The number of what is proposed.
    fn number(&self) -> Option<u64> {
        self.proposed.version.as_ref().map(|one| one.number)
    }

    fn end(&mut self) {
        self.over = self.over.max(self.number().unwrap_or(0));
    }
}

/// How long a configuration is proposed, at most: more than a command waits for in all its stages.
const PROPOSED_TIME_MAX: Duration = Duration::from_secs(420);

#[cfg(test)]
mod tests {
    use super::*;

    /// What was sealed once anybody can put there who writes to the cluster.
    #[test]
    fn a_copy_of_what_was_proposed_is_nothing() {
        let mut heard = Heard::default();
        let now = Instant::now();
        let mut hears = |number: u64, sealed_lease, made, lease| {
            let version = Version { number, lease: sealed_lease, ..Version::default() };
            let there = There { at: 9, made, lease, version: Some(version), ..There::default() };
            heard.hear_proposed(there, now);
            heard.proposed(now).map(|one| one.number)
        };
        assert_eq!(hears(1, 77, 5, 77), Some(1));
        assert_eq!(hears(1, 77, 5, 77), Some(1), "its command has put more there");
        assert_eq!(hears(1, 77, 5, 0), None, "without its lease");
        assert_eq!(hears(1, 77, 5, 77), None, "it has ended with that");
        assert_eq!(hears(2, 78, 6, 78), Some(2));
        assert_eq!(hears(2, 78, 6, 99), None, "on somebody else's lease");
        assert_eq!(hears(3, 79, 8, 79), Some(3));
        assert_eq!(hears(3, 79, 9, 79), None, "taken away and put there anew");
        assert_eq!(hears(4, 80, 10, 80), Some(4));
        assert_eq!(hears(5, 81, 11, 81), Some(5));
        heard.hear_proposed(There { at: 12, made: 11, lease: 81, ..There::default() }, now);
        let version = Version { number: 5, lease: 81, ..Version::default() };
        let there = There { made: 11, lease: 81, version: Some(version), ..There::default() };
        heard.hear_proposed(there, now);
        assert!(heard.proposed(now).is_none(), "junk was in its place");
    }

    #[test]
    fn what_is_kept_alive_for_longer_than_a_command_takes_is_over() {
        let mut heard = Heard::default();
        let now = Instant::now();
        let version = Version { number: 1, lease: 7, ..Version::default() };
        let there = There { at: 3, made: 3, lease: 7, version: Some(version), ..There::default() };
        heard.hear_proposed(there.clone(), now);
        // As docs/fleet.md has it.
        let later = now + Duration::from_secs(7 * 60);
        heard.hear_proposed(There { at: 4, ..there.clone() }, later);
        assert!(heard.proposed(later).is_some());
        let late = later + Duration::from_secs(1);
        assert!(heard.proposed(late).is_none());
        heard.hear_proposed(There { at: 5, ..there }, late);
        assert!(heard.proposed(late).is_none());
    }
}
