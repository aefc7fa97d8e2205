//! The orders of an agent: due, under way, and those of an agent before that go on.

use std::collections::{HashMap, VecDeque};

use sealane_renewal::{AuthorityId, CertificateId, ORDERS_IN_FLIGHT_MAX, Ticket};

/// All orders, of which at most [`ORDERS_IN_FLIGHT_MAX`] are under way.
#[derive(Default)]
pub(super) struct Orders {
    /// Orders that the schedule wants, and those that wait for room.
    due: VecDeque<Due>,
    /// Orders of an agent before, which are gone on with first.
    resumed: VecDeque<CertificateId>,
    under_way: HashMap<CertificateId, UnderWay>,
}

/// An order that the schedule wants.
#[derive(Clone, Copy)]
pub(super) struct Due {
    pub(super) ticket: Ticket,
    pub(super) id: CertificateId,
    pub(super) authority: AuthorityId,
    pub(super) replaces: bool,
}

/// An order under way: the authority, and the ticket of the schedule that waits for it.
struct UnderWay {
    directory: String,
    ticket: Option<Ticket>,
}

/// The relation of an order that is due to those under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The order is the one that is under way.
    Joined,
    /// The order may begin.
    Free,
    /// The order waits for room, or for one of another authority.
    Waits,
}

impl Orders {
    pub(super) fn has_room(&self) -> bool {
        self.under_way.len() < ORDERS_IN_FLIGHT_MAX
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether an order of this certificate is under way.
    pub(super) fn is_under_way(&self, id: CertificateId) -> bool {
        self.under_way.contains_key(&id)
    }

    /// Goes on with these orders of an agent before, in place of those of the last call.
    pub(super) fn resume(&mut self, ids: Vec<CertificateId>) {
        self.resumed = ids.into();
    }

    /// The next order to go on with, if there is room.
    pub(super) fn next_resumed(&mut self) -> Option<CertificateId> {
        if self.has_room() { self.resumed.pop_front() } else { None }
    }

    pub(super) fn add_due(&mut self, due: Due) {
        self.due.push_back(due);
    }

    /// All orders that are due; those that wait are added again.
    pub(super) fn take_due(&mut self) -> VecDeque<Due> {
        std::mem::take(&mut self.due)
    }

    /// Finds the place of an order that is due. The one that is under way gets its ticket.
    pub(super) fn place(&mut self, id: CertificateId, directory: &str, ticket: Ticket) -> Place {
        let has_room = self.has_room();
        match self.under_way.get_mut(&id) {
            Some(under_way) if under_way.directory == directory => {
                under_way.ticket = Some(ticket);
                Place::Joined
            }
            None if has_room => Place::Free,
            _ => Place::Waits,
        }
    }

    pub(super) fn begin(&mut self, id: CertificateId, directory: String, ticket: Option<Ticket>) {
        self.under_way.insert(id, UnderWay { directory, ticket });
    }

    /// Ends an order; returns the ticket of the schedule that waits for its outcome.
    pub(super) fn end(&mut self, id: CertificateId) -> Option<Ticket> {
        self.under_way.remove(&id).and_then(|under_way| under_way.ticket)
    }

    /// Forgets the schedule: no outcome is reported to it. Orders under way go on.
    pub(super) fn forget_schedule(&mut self) {
        self.due.clear();
        for under_way in self.under_way.values_mut() {
            under_way.ticket = None;
        }
    }
}

#[cfg(test)]
impl Orders {
    /// How many are under way, and how many are due.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.under_way.len(), self.due.len())
    }

    pub(super) fn resumed(&self) -> Vec<CertificateId> {
        self.resumed.iter().copied().collect()
    }
}
