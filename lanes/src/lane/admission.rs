//! Admission of handshakes: how many a lane works on in a turn, in which order, and which of them
//! give way when a lane has more than it can make.
//!
//! A handshake costs as much as thousands of bytes. So in each turn established connections go
//! first, and handshakes get [`TURN_US`], or a quarter of the time that established connections
//! took if that is more: a lane that is busy with traffic still makes handshakes.
//!
//! Sessions that have begun go before hellos, because their signature is paid, but only
//! [`BEGUN_IN_A_ROW_MAX`] of them in a row. Hellos wait in a [`FairQueue`], for at most
//! [`HELLO_WAIT_MAX_MS`]. Those of clients that were answered and have completed no handshake are
//! at most [`WAIT_US`] of work, by the lane's own measurement; beyond that one gives way. A lane
//! that keeps up never sorts hellos: it compares two lengths, and notes in a table that a client
//! has completed its handshake.

use std::collections::VecDeque;

use crate::connection::Connection;
use crate::lane::fair_queue::{FairQueue, Place, Waiting};
use crate::lane::standing::{Host, Standings};

/// Handshakes that have something to read, and the cost of one of them on this lane.
pub(super) struct Admission {
    /// Connections with a session, which has its hello.
    begun: VecDeque<u64>,
    /// How many of these were served since the last hello.
    begun_in_a_row: usize,
    /// Connections whose hello is next, that came since the last turn.
    arrivals: VecDeque<u64>,
    /// Those that wait longer.
    queue: FairQueue,
    standings: Standings,
    /// The moving average of the time that one of these takes, times [`COST_WEIGHT`].
    weighed_cost_us: u64,
}

/// A handshake whose turn it is.
pub(super) struct Next {
    /// The token of its connection, which may be gone, or have been served in another way.
    pub(super) bits: u64,
    /// The place in the queue of hellos and the time since when, if it was in there.
    pub(super) waited: Option<(Place, u64)>,
}

/// Handshake work in one turn, before established connections are polled again. The step in which
/// it ends is completed.
pub(super) const TURN_US: u64 = 1_000;
/// How many times the time of handshakes established connections may take in a turn that is longer.
const ESTABLISHED_TIMES_MAX: u64 = 4;
/// Work for clients in poor standing that may wait.
const WAIT_US: u64 = 200_000;
/// Work that waits in a lane that is behind, so that a look at what a hello offers pays.
const BEHIND_US: u64 = 10_000;
/// A hello that has waited so long is not answered: its client has likely given up.
const HELLO_WAIT_MAX_MS: u64 = 2_000;
/// Hellos of clients that left and may stand among those that wait.
const GONE_MAX: usize = 4096;
/// Sessions that have begun and are served before the next hello.
const BEGUN_IN_A_ROW_MAX: usize = 3;
/// The cost of a handshake step before one has been measured: a signature by RSA-4096 with room.
const FIRST_COST_US: u64 = 2_000;
/// The weight of the average against one measurement.
const COST_WEIGHT: u64 = 16;

impl Admission {
    pub(super) fn new() -> Self {
        Self {
            begun: VecDeque::new(),
            begun_in_a_row: 0,
            arrivals: VecDeque::new(),
            queue: FairQueue::new(),
            standings: Standings::new(),
            weighed_cost_us: FIRST_COST_US * COST_WEIGHT,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.len() == 0
    }

    /// Queues the connection, unless it is queued.
    pub(super) fn queue(&mut self, connection: &mut Connection) {
        if std::mem::replace(&mut connection.queued, true) {
            return;
        }
        if connection.awaits_hello() {
            self.arrivals.push_back(connection.token);
        } else {
            self.begun.push_back(connection.token);
        }
    }

    /// How many connections wait.
    pub(super) fn len(&self) -> usize {
        self.begun.len() + self.arrivals.len() + self.queue.len()
    }

    /// The hello that came first and has no place in the queue yet.
    pub(super) fn arrival(&mut self) -> Option<u64> {
        self.arrivals.pop_front()
    }

    /// The place of a hello from `host`.
    pub(super) fn place(&mut self, host: Host, offers_session: bool, now_ms: u64) -> Place {
        Place::new(self.standings.of(host, now_ms), offers_session, host.prefix())
    }

    /// Puts a hello into its place.
    pub(super) fn line_up(&mut self, bits: u64, place: Place, now_ms: u64) {
        let turn_us = self.hello_us();
        self.queue.push(place, Waiting { bits, since_ms: now_ms }, turn_us);
    }

    /// The next handshake. A lane that keeps up never fills the queue, and takes arrivals as they
    /// came.
    pub(super) fn next(&mut self) -> Option<Next> {
        let has_hellos = self.queue.len() + self.arrivals.len() > 0;
        let is_turn_of_begun = self.begun_in_a_row < BEGUN_IN_A_ROW_MAX || !has_hellos;
        if let Some(bits) = is_turn_of_begun.then(|| self.begun.pop_front()).flatten() {
            self.begun_in_a_row += 1;
            return Some(Next { bits, waited: None });
        }
        self.begun_in_a_row = 0;
        match self.queue.next(self.hello_us()) {
            Some((Waiting { bits, since_ms }, place)) => {
                Some(Next { bits, waited: Some((place, since_ms)) })
            }
            None => self.arrivals.pop_front().map(|bits| Next { bits, waited: None }),
        }
    }

    /// Notes the time that the hello of `place` took, and whether its client got an answer.
    pub(super) fn note_hello(
        &mut self,
        place: Place,
        cost_us: u64,
        answered: Option<Host>,
        now_ms: u64,
    ) {
        self.queue.charge(place, cost_us, self.hello_us());
        self.weighed_cost_us -= self.weighed_cost_us / COST_WEIGHT;
        self.weighed_cost_us += cost_us;
        if let Some(host) = answered {
            self.standings.note_answered(host, now_ms);
        }
    }

    /// Notes a handshake that a client has completed.
    pub(super) fn note_completed(&mut self, host: Host, now_ms: u64) {
        self.standings.note_completed(host, now_ms);
    }

    /// Drops hellos that do not wait any more, by `waits`, once they are many more than the open
    /// `connections`.
    pub(super) fn drop_gone(&mut self, connections: usize, waits: impl Fn(u64) -> bool) {
        if self.queue.len() > connections + GONE_MAX {
            self.queue.retain(|waiting| waits(waiting.bits));
        }
    }

    /// The hello that gives way, if more of clients in poor standing wait than may.
    pub(super) fn evict(&mut self) -> Option<Waiting> {
        self.queue.evict(self.poor_max())
    }

    /// Whether a new client from `host` would give way at once. A lane that keeps up compares two
    /// numbers here.
    pub(super) fn turns_away(&mut self, host: Host, now_ms: u64) -> bool {
        let poor_max = self.poor_max();
        if self.queue.len() < poor_max {
            return false;
        }
        let place = self.place(host, false, now_ms);
        self.queue.gives_way(place, poor_max)
    }

    /// Whether more work waits than a few turns have room for.
    pub(super) fn is_behind(&self) -> bool {
        self.queue.len() as u64 * self.hello_us() > BEHIND_US
    }

    /// Whether a hello has waited so long that no answer is worth its cost.
    pub(super) fn is_late(since_ms: u64, now_ms: u64) -> bool {
        now_ms.saturating_sub(since_ms) > HELLO_WAIT_MAX_MS
    }

    /// Hellos of clients in poor standing that may wait: as many as the lane finishes in
    /// [`WAIT_US`].
    fn poor_max(&self) -> usize {
        usize::try_from(WAIT_US / self.hello_us()).unwrap_or(usize::MAX).max(1)
    }

    /// Hellos that wait for another turn.
    pub(super) fn hellos_waiting(&self) -> usize {
        self.queue.len()
    }

    /// The time that a hello takes, by the moving average.
    pub(super) fn hello_us(&self) -> u64 {
        (self.weighed_cost_us / COST_WEIGHT).max(1)
    }
}

/// Handshake work in a turn in which established connections took `established_us`.
pub(super) fn handshakes_us(established_us: u64) -> u64 {
    TURN_US.max(established_us / ESTABLISHED_TIMES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(admission: &mut Admission) -> Vec<u64> {
        std::iter::from_fn(|| admission.next().map(|next| next.bits)).collect()
    }

    #[test]
    fn long_turn_gives_handshakes_a_quarter() {
        let turns = [0, 4_000, 100_000].map(handshakes_us);
        assert_eq!(turns, [TURN_US, TURN_US, 25_000]);
    }

    #[test]
    fn poor_standing_waits_for_what_is_done_in_200_ms() {
        let mut admission = Admission::new();
        let place = admission.place(Host::of(None), false, 0);
        assert_eq!(admission.poor_max(), 100);
        for _ in 0..200 {
            admission.note_hello(place, 700, None, 0);
        }
        assert_eq!(admission.poor_max(), 285);
        for _ in 0..200 {
            admission.note_hello(place, 3_000_000, None, 0);
        }
        assert_eq!(admission.poor_max(), 1, "one goes on always");
        for _ in 0..500 {
            admission.note_hello(place, 0, None, 0);
        }
        assert_eq!(admission.poor_max(), 200_000);
    }

    #[test]
    fn begun_sessions_leave_hellos_their_turn() {
        let mut admission = Admission::new();
        admission.arrivals.extend([1, 2]);
        admission.begun.extend(10..18);
        assert_eq!(order(&mut admission), [10, 11, 12, 1, 13, 14, 15, 2, 16, 17]);
        assert!(admission.is_idle());
    }

    #[test]
    fn full_queue_turns_clients_in_poor_standing_away() {
        let mut admission = Admission::new();
        let [flood, other] = [1, 2]
            .map(|network| Host::of(Some(std::net::SocketAddr::from(([192, 0, network, 1], 1)))));
        let place = admission.place(flood, false, 0);
        for _ in 0..3 {
            admission.note_hello(place, FIRST_COST_US, Some(flood), 0);
        }
        let later_ms = 1_000;
        for bits in 0..100 {
            assert!(!admission.turns_away(flood, later_ms), "{bits} wait");
            let place = admission.place(flood, false, later_ms);
            admission.line_up(bits, place, later_ms);
        }
        assert!(admission.turns_away(flood, later_ms));
        assert!(!admission.turns_away(other, later_ms));
        assert_eq!(admission.evict(), None);
        let place = admission.place(flood, false, later_ms);
        admission.line_up(100, place, later_ms);
        let place = admission.place(other, false, later_ms);
        admission.line_up(200, place, later_ms);
        assert_eq!(admission.evict().map(|gone| gone.bits), Some(0));
        assert_eq!(order(&mut admission)[..3], [200, 100, 1]);
    }

    #[test]
    fn gone_hellos_are_bounded() {
        let mut admission = Admission::new();
        let place = admission.place(Host::of(None), false, 0);
        for bits in 0..=GONE_MAX as u64 {
            admission.drop_gone(0, |_| false);
            admission.line_up(bits, place, 0);
        }
        assert_eq!(admission.hellos_waiting(), GONE_MAX + 1);
        admission.drop_gone(0, |bits| bits == 7);
        assert_eq!(admission.hellos_waiting(), 1);
    }
}
