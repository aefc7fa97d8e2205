//! The queue of hellos that wait for a lane with more of them than it can answer at once.
//!
//! Hellos of clients in good standing go first, then those of unknown clients, then the others;
//! of equal standing those that offer a session, whose handshake is cheap. Among the rest the
//! newest goes first, whose client is the least likely to leave before it is served, and in turn
//! with it one by deficit round robin (Shreedhar and Varghese, 1995): each address prefix spends
//! its credit of time, by the measured cost of its handshakes. Every [`LOWEST_FIRST_EACH`]th goes
//! to the lowest class that waits, so that none starves.

use std::collections::{HashMap, VecDeque};

use crate::lane::standing::{Prefix, Standing};

/// Hellos in the order in which they are answered. The caller bounds their number.
pub(super) struct FairQueue {
    /// The first is served first.
    classes: [Class; CLASSES],
    len: usize,
    /// Counts the hellos that have been taken.
    taken: u32,
}

/// A hello that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// The token of its connection, which may be gone.
    pub(super) bits: u64,
    pub(super) since_ms: u64,
}

/// The place of a hello in the queue: its cost is charged there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    class: usize,
    prefix: Prefix,
}

/// Hellos of equal rank.
#[derive(Default)]
struct Class {
    flows: HashMap<Prefix, Flow>,
    /// The prefixes that wait, in the order of their turns.
    ring: VecDeque<Prefix>,
    /// The prefixes of the last hellos that came, the newest last; some have been taken.
    arrivals: VecDeque<Prefix>,
    /// The hellos of all flows.
    len: usize,
    /// Whether the last one that was taken was the newest.
    takes_newest: bool,
}

/// The waiting hellos of a prefix.
struct Flow {
    /// The oldest first.
    waiting: VecDeque<Waiting>,
    /// Time that it may still take before it is the next one's turn; below 0 it has taken more.
    credit_us: i64,
}

/// Three standings, and in each of them hellos with and without an offered session.
const CLASSES: usize = 6;
/// The first class of clients in poor standing.
const POOR: usize = 4;
/// Every so many hellos the lowest class that waits goes first.
const LOWEST_FIRST_EACH: u32 = 16;
/// The most that one handshake is charged, in turns of its prefix. It bounds the rounds in which
/// nobody is served.
const CHARGED_TURNS_MAX: u64 = 16;

impl Place {
    pub(super) fn new(standing: Standing, offers_session: bool, prefix: Prefix) -> Self {
        let class = match standing {
            Standing::Good => 0,
            Standing::Unknown => 2,
            Standing::Poor => POOR,
        };
        Self { class: class + usize::from(!offers_session), prefix }
    }
}

impl FairQueue {
    pub(super) fn new() -> Self {
        Self { classes: Default::default(), len: 0, taken: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a hello; `turn_us` is the time that a prefix gets in one turn.
    pub(super) fn push(&mut self, place: Place, waiting: Waiting, turn_us: u64) {
        let Class { flows, ring, arrivals, len, .. } = &mut self.classes[place.class];
        let flow = flows.entry(place.prefix).or_insert_with(|| {
            ring.push_back(place.prefix);
            Flow { waiting: VecDeque::new(), credit_us: turn_us.cast_signed() }
        });
        flow.waiting.push_back(waiting);
        *len += 1;
        arrivals.push_back(place.prefix);
        if arrivals.len() > *len {
            arrivals.pop_front();
        }
        self.len += 1;
    }

    /// Takes the next hello.
    pub(super) fn next(&mut self, turn_us: u64) -> Option<(Waiting, Place)> {
        self.taken = self.taken.wrapping_add(1);
        let mut waiting = (0..CLASSES).filter(|class| self.classes[*class].len > 0);
        let class = match self.taken.is_multiple_of(LOWEST_FIRST_EACH) {
            true => waiting.next_back(),
            false => waiting.next(),
        }?;
        let (waiting, prefix) = self.classes[class].next(turn_us)?;
        self.len -= 1;
        Some((waiting, Place { class, prefix }))
    }

    /// Charges the prefix of a hello for the time that its answer took.
    pub(super) fn charge(&mut self, place: Place, cost_us: u64, turn_us: u64) {
        // A prefix without further hellos starts anew with its next.
        if let Some(flow) = self.classes[place.class].flows.get_mut(&place.prefix) {
            let charged_us = cost_us.min(turn_us.saturating_mul(CHARGED_TURNS_MAX));
            flow.credit_us = flow.credit_us.saturating_sub_unsigned(charged_us);
        }
    }

    /// Takes the hello that gives way when more than `poor_max` of clients in poor standing wait:
    /// the oldest of the prefix that has most of them.
    pub(super) fn evict(&mut self, poor_max: usize) -> Option<Waiting> {
        if self.poor_len() <= poor_max {
            return None;
        }
        let class = self.classes[POOR..].iter_mut().rfind(|class| class.len > 0)?;
        let longest = class.flows.iter().max_by_key(|(_, flow)| flow.waiting.len());
        let prefix = *longest?.0;
        self.len -= 1;
        class.take(prefix, VecDeque::pop_front)
    }

    /// Whether another hello of this place would be among those that give way: it is in the lowest
    /// class, and its prefix has as many waiting as the average.
    pub(super) fn gives_way(&self, place: Place, poor_max: usize) -> bool {
        let Class { flows, ring, len, .. } = &self.classes[place.class];
        let is_lowest = place.class == CLASSES - 1;
        let flow = flows.get(&place.prefix).filter(|_| is_lowest && self.poor_len() >= poor_max);
        flow.is_some_and(|flow| flow.waiting.len() * ring.len() >= *len)
    }

    /// Drops the hellos that do not wait any more.
    pub(super) fn retain(&mut self, waits: impl Fn(&Waiting) -> bool) {
        for class in &mut self.classes {
            class.retain(&waits);
        }
        self.len = self.classes.iter().map(|class| class.len).sum();
    }

    /// Hellos of clients in poor standing.
    fn poor_len(&self) -> usize {
        self.classes[POOR..].iter().map(|class| class.len).sum()
    }
}

impl Class {
    /// Takes the newest hello of the newest prefix, and the next time the oldest of the prefix
    /// whose turn it is.
    fn next(&mut self, turn_us: u64) -> Option<(Waiting, Prefix)> {
        self.takes_newest = !self.takes_newest;
        while self.takes_newest
            && let Some(prefix) = self.arrivals.pop_back()
        {
            if let Some(waiting) = self.take(prefix, VecDeque::pop_back) {
                return Some((waiting, prefix));
            }
        }
        loop {
            let prefix = *self.ring.front()?;
            let flow = self.flows.get_mut(&prefix)?;
            if flow.credit_us > 0 {
                return self.take(prefix, VecDeque::pop_front).map(|waiting| (waiting, prefix));
            }
            flow.credit_us = flow.credit_us.saturating_add_unsigned(turn_us.max(1));
            self.ring.rotate_left(1);
        }
    }

    /// Takes one of the hellos of a prefix, which leaves the ring with its last.
    fn take(
        &mut self,
        prefix: Prefix,
        pop: impl FnOnce(&mut VecDeque<Waiting>) -> Option<Waiting>,
    ) -> Option<Waiting> {
        let flow = self.flows.get_mut(&prefix)?;
        let taken = pop(&mut flow.waiting)?;
        self.len -= 1;
        if flow.waiting.is_empty() {
            self.flows.remove(&prefix);
            self.leave_ring(prefix);
        }
        if self.len == 0 {
            self.arrivals.clear();
        }
        Some(taken)
    }

    fn retain(&mut self, waits: impl Fn(&Waiting) -> bool) {
        self.flows.retain(|_, flow| {
            flow.waiting.retain(&waits);
            !flow.waiting.is_empty()
        });
        self.ring.retain(|prefix| self.flows.contains_key(prefix));
        self.arrivals.retain(|prefix| self.flows.contains_key(prefix));
        self.len = self.flows.values().map(|flow| flow.waiting.len()).sum();
    }

    fn leave_ring(&mut self, prefix: Prefix) {
        if self.ring.front() == Some(&prefix) {
            self.ring.pop_front();
        } else if let Some(at) = self.ring.iter().rposition(|other| *other == prefix) {
            self.ring.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::standing::Host;

    const TURN_US: u64 = 1_000;

    fn place(standing: Standing, network: u8) -> Place {
        let address = std::net::SocketAddr::from(([192, 0, network, 1], 1));
        Place::new(standing, false, Host::of(Some(address)).prefix())
    }

    fn push(queue: &mut FairQueue, place: Place, bits: u64) {
        queue.push(place, Waiting { bits, since_ms: 0 }, TURN_US);
    }

    /// Takes all hellos; each costs what `cost_us` says of its bits.
    fn drain(queue: &mut FairQueue, cost_us: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some((waiting, place)) = queue.next(TURN_US) {
            queue.charge(place, cost_us(waiting.bits), TURN_US);
            order.push(waiting.bits);
        }
        assert_eq!(queue.len(), 0);
        order
    }

    #[test]
    fn better_standing_goes_first() {
        let mut queue = FairQueue::new();
        push(&mut queue, place(Standing::Poor, 1), 1);
        push(&mut queue, place(Standing::Unknown, 1), 2);
        push(&mut queue, place(Standing::Good, 1), 3);
        let session = Place { class: 0, ..place(Standing::Good, 2) };
        push(&mut queue, session, 4);
        assert_eq!(drain(&mut queue, |_| TURN_US), [4, 3, 2, 1]);
    }

    #[test]
    fn prefixes_take_turns_behind_the_newest() {
        let mut queue = FairQueue::new();
        for bits in 0..6 {
            push(&mut queue, place(Standing::Unknown, 1), bits);
        }
        for (network, bits) in [(2, 20), (3, 30), (4, 40), (5, 50)] {
            push(&mut queue, place(Standing::Unknown, network), bits);
        }
        assert_eq!(drain(&mut queue, |_| TURN_US), [50, 0, 40, 20, 30, 1, 5, 2, 4, 3]);
        assert!(queue.classes[3].arrivals.is_empty());
    }

    #[test]
    fn costly_handshakes_take_turns_less_often() {
        let mut class = Class::default();
        let mut queue = FairQueue::new();
        for bits in 0..4 {
            push(&mut queue, place(Standing::Unknown, 1), bits);
            push(&mut queue, place(Standing::Unknown, 2), 10 + bits);
        }
        std::mem::swap(&mut class, &mut queue.classes[3]);
        let mut order = Vec::new();
        loop {
            // Without the newest in between.
            class.takes_newest = true;
            let Some((waiting, prefix)) = class.next(TURN_US) else { break };
            if let Some(flow) = class.flows.get_mut(&prefix) {
                flow.credit_us -= if waiting.bits < 10 { 3_000 } else { 1_000 };
            }
            order.push(waiting.bits);
        }
        assert_eq!(order, [0, 10, 11, 12, 1, 13, 2, 3]);
    }

    #[test]
    fn lowest_class_is_not_starved() {
        let mut queue = FairQueue::new();
        for bits in 0..u64::from(2 * LOWEST_FIRST_EACH) {
            push(&mut queue, place(Standing::Good, 1), bits);
        }
        push(&mut queue, place(Standing::Poor, 2), 100);
        push(&mut queue, place(Standing::Poor, 2), 101);
        let order = drain(&mut queue, |_| TURN_US);
        let each = LOWEST_FIRST_EACH as usize;
        let poor = |at: usize| order[at] >= 100;
        assert!(poor(each - 1) && poor(2 * each - 1), "{order:?}");
    }

    #[test]
    fn longest_queue_of_poor_standing_gives_way() {
        let mut queue = FairQueue::new();
        for bits in 0..9 {
            push(&mut queue, place(Standing::Unknown, 1), bits);
        }
        for (network, bits) in [(2, 20), (3, 30), (3, 31), (4, 40)] {
            push(&mut queue, place(Standing::Poor, network), bits);
        }
        assert!(queue.gives_way(place(Standing::Poor, 3), 4));
        assert!(!queue.gives_way(place(Standing::Poor, 3), 5), "there is room");
        assert!(!queue.gives_way(place(Standing::Poor, 2), 4), "less than the average waits");
        assert!(!queue.gives_way(place(Standing::Poor, 5), 4), "nothing waits");
        assert!(!queue.gives_way(place(Standing::Unknown, 1), 4), "a better standing");
        assert_eq!(queue.evict(3).map(|gone| gone.bits), Some(30));
        assert_eq!(queue.evict(3), None);
        assert_eq!(queue.len(), 12);
    }

    #[test]
    fn hellos_of_clients_that_left_are_dropped() {
        let mut queue = FairQueue::new();
        for bits in 0..6 {
            push(&mut queue, place(Standing::Unknown, 1 + u8::from(bits >= 4)), bits);
        }
        queue.retain(|waiting| waiting.bits == 1 || waiting.bits == 3);
        assert_eq!(queue.len(), 2);
        assert_eq!(drain(&mut queue, |_| TURN_US), [3, 1]);
    }
}
