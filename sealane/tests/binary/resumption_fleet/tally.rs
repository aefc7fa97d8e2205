//! What clients of machines have seen that share a ticket root: [`Tally`]. The agent's tests have
//! it too.

use std::thread;
use std::time::{Duration, Instant};

/// What clients have seen.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) handshakes: u64,
    /// Those with a ticket within its lifetime.
    pub(super) offered: u64,
    /// Those that resumed by such a ticket.
    pub(super) resumed: u64,
    /// Those that did so at another machine than the one that gave it.
    pub(super) resumed_elsewhere: u64,
    /// Those that resumed by an older ticket.
    pub(super) resumed_late: u64,
}

impl Tally {
    /// What a client has seen that comes again and again until then; `visit` says whether it
    /// resumed, and at which machine.
    pub(super) fn of_visits(
        lifetime: Duration,
        pause: Duration,
        until: Instant,
        mut visit: impl FnMut() -> (bool, u8),
    ) -> Self {
        let mut tally = Self::default();
        let mut before: Option<(Instant, u8)> = None;
        while Instant::now() < until {
            let begun = Instant::now();
            let (resumed, machine) = visit();
            tally.handshakes += 1;
            if let Some((begun_before, machine_before)) = before {
                // A ticket is younger than the connection that it came by. A machine that stood
                // still meanwhile is no fault of the fleet.
                if begun_before.elapsed() < lifetime {
                    tally.offered += 1;
                    tally.resumed += u64::from(resumed);
                    tally.resumed_elsewhere += u64::from(resumed && machine != machine_before);
                } else {
                    tally.resumed_late += u64::from(resumed);
                }
            }
            before = Some((begun, machine));
            thread::sleep(pause);
        }
        tally
    }

    /// Fails unless all that were offered a ticket within its lifetime resumed, on whichever of so
    /// many machines.
    pub(super) fn hold(&self, machines: usize) {
        assert_eq!(self.resumed, self.offered, "each within its lifetime: {self:?}");
        assert!(self.offered > 100, "{self:?}");
        let elsewhere_expected = if machines == 1 { 0 } else { self.resumed / 4 };
        assert!(self.resumed_elsewhere >= elsewhere_expected, "{self:?}");
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            handshakes: sum.handshakes + one.handshakes,
            offered: sum.offered + one.offered,
            resumed: sum.resumed + one.resumed,
            resumed_elsewhere: sum.resumed_elsewhere + one.resumed_elsewhere,
            resumed_late: sum.resumed_late + one.resumed_late,
        })
    }
}
