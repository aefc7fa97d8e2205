//! Admission of handshakes: how many a lane works on in a turn, in which order, and when it leaves
//! further clients in the kernel's queue.
//!
//! A handshake costs as much as thousands of bytes. So in each turn established connections go
//! first, and handshakes get [`TURN_US`], or a quarter of the time that established connections
//! took if that is more: a lane that is busy with traffic still makes handshakes.
//! Hellos that wait for the lane are in a queue of at most [`WAIT_US`] of work. Sessions
//! that have begun go before hellos, because their signature is mostly paid, but only
//! [`BEGUN_IN_A_ROW_MAX`] of them: a client that was asked to repeat its hello has its signature
//! still to come.
//! Of the hellos, the newest and the oldest get equal shares: the newest client is the least likely
//! to leave before it is served, and the oldest is served although others keep coming.

use std::collections::VecDeque;

use crate::connection::Connection;
use crate::connection::phase::Phase;

/// Handshakes that have something to read, and the cost of one of them on this lane.
pub(super) struct Admission {
    /// Connections with a session.
    begun: VecDeque<u64>,
    /// How many of these were served since the last hello.
    begun_in_a_row: usize,
    /// Whether the last one that was taken was a hello: only a hello's cost is measured.
    has_taken_hello: bool,
    /// Connections without a session, oldest first.
    hellos: VecDeque<u64>,
    /// The moving average of the time that one of these takes, times [`COST_WEIGHT`].
    weighed_cost_us: u64,
    takes_newest: bool,
}

/// Handshake work in one turn, before established connections are polled again. The step in which
/// it ends is completed.
pub(super) const TURN_US: u64 = 5_000;
/// How many times the time of handshakes established connections may take in a turn that is longer.
const ESTABLISHED_TIMES_MAX: u64 = 4;
/// Work that may wait in the lane: clients beyond it stay in the kernel's queue.
const WAIT_US: u64 = 200_000;
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
            has_taken_hello: false,
            hellos: VecDeque::new(),
            weighed_cost_us: FIRST_COST_US * COST_WEIGHT,
            takes_newest: false,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.begun.is_empty() && self.hellos.is_empty()
    }

    /// Puts the connection into its queue, unless it is in one.
    pub(super) fn queue(&mut self, connection: &mut Connection) {
        if std::mem::replace(&mut connection.queued, true) {
            return;
        }
        match connection.phase {
            Phase::Handshake => self.begun.push_back(connection.token),
            _ => self.hellos.push_back(connection.token),
        }
    }

    /// How many connections wait.
    pub(super) fn len(&self) -> usize {
        self.begun.len() + self.hellos.len()
    }

    /// The next connection by its bits, which may be gone, or have been served in another way.
    pub(super) fn next(&mut self) -> Option<u64> {
        let is_turn_of_begun = self.begun_in_a_row < BEGUN_IN_A_ROW_MAX || self.hellos.is_empty();
        if let Some(bits) = is_turn_of_begun.then(|| self.begun.pop_front()).flatten() {
            (self.begun_in_a_row, self.has_taken_hello) = (self.begun_in_a_row + 1, false);
            return Some(bits);
        }
        (self.begun_in_a_row, self.has_taken_hello) = (0, true);
        self.takes_newest = !self.takes_newest;
        if self.takes_newest { self.hellos.pop_back() } else { self.hellos.pop_front() }
    }

    /// Notes the time that the connection of the last [`Self::next`] took.
    pub(super) fn note_cost(&mut self, cost_us: u64) {
        if !self.has_taken_hello {
            return;
        }
        self.weighed_cost_us -= self.weighed_cost_us / COST_WEIGHT;
        self.weighed_cost_us += cost_us;
    }

    /// Whether as many hellos wait as may; `is_waiting` tells whether one of these bits still does.
    pub(super) fn is_full(
        &mut self,
        handshakes_max: usize,
        is_waiting: impl Fn(u64) -> bool,
    ) -> bool {
        let hellos_max = self.hellos_max().min(handshakes_max);
        if self.hellos.len() < hellos_max {
            return false;
        }
        self.hellos.retain(|bits| is_waiting(*bits));
        self.hellos.len() >= hellos_max
    }

    /// Hellos that the lane finishes in [`WAIT_US`].
    fn hellos_max(&self) -> usize {
        let cost_us = (self.weighed_cost_us / COST_WEIGHT).max(1);
        usize::try_from(WAIT_US / cost_us).unwrap_or(usize::MAX).max(1)
    }
}

/// Handshake work in a turn in which established connections took `established_us`.
pub(super) fn handshakes_us(established_us: u64) -> u64 {
    TURN_US.max(established_us / ESTABLISHED_TIMES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_turn_gives_handshakes_a_quarter() {
        let turns = [0, 20_000, 100_000].map(handshakes_us);
        assert_eq!(turns, [TURN_US, TURN_US, 25_000]);
    }

    #[test]
    fn queue_holds_what_is_done_in_200_ms() {
        let mut admission = Admission { has_taken_hello: true, ..Admission::new() };
        assert_eq!(admission.hellos_max(), 100);
        for _ in 0..200 {
            admission.note_cost(700);
        }
        assert_eq!(admission.hellos_max(), 285);
        for _ in 0..200 {
            admission.note_cost(3_000_000);
        }
        assert_eq!(admission.hellos_max(), 1, "one goes on always");
        for _ in 0..500 {
            admission.note_cost(0);
        }
        assert_eq!(admission.hellos_max(), 200_000);
    }

    #[test]
    fn begun_sessions_precede_hellos_of_both_ends() {
        let mut admission = Admission::new();
        admission.hellos.extend([1, 2, 3, 4]);
        admission.begun.extend([8, 9]);
        let order: Vec<u64> = std::iter::from_fn(|| admission.next()).collect();
        assert_eq!(order, [8, 9, 4, 1, 3, 2]);
        assert!(admission.is_idle());
    }

    #[test]
    fn begun_sessions_leave_hellos_their_turn() {
        let mut admission = Admission::new();
        admission.hellos.extend([1, 2]);
        admission.begun.extend(10..18);
        let order: Vec<u64> = std::iter::from_fn(|| admission.next()).collect();
        assert_eq!(order, [10, 11, 12, 2, 13, 14, 15, 1, 16, 17]);
    }
}
