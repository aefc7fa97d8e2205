//! Queues: waiting certificates by time, and those that may be ordered by their deadline.

use std::collections::BTreeSet;

use crate::{AuthorityId, CertificateId, UnixSeconds};

use super::Certificate;

/// The queue of each certificate. Waiting ones are not looked at before their time.
#[derive(Debug)]
pub(super) struct Queues {
    waiting: BTreeSet<(UnixSeconds, CertificateId)>,
    asks: BTreeSet<(UnixSeconds, CertificateId)>,
    ready: Vec<Ready>,
}

/// Certificates that may be ordered of one authority, by their deadline.
#[derive(Debug, Default)]
struct Ready {
    /// Orders that the account's limit does not count.
    exempt: BTreeSet<(UnixSeconds, CertificateId)>,
    counted: BTreeSet<(UnixSeconds, CertificateId)>,
}

/// The place of a certificate, as far as orders go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In no queue, for a moment.
    None,
    /// An order is under way.
    Ordering,
    Ready(Place),
    /// Nothing is done before.
    Waiting(UnixSeconds),
}

/// A place in the queue of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) authority: AuthorityId,
    pub(super) counted: bool,
    pub(super) deadline: UnixSeconds,
}

impl Queues {
    pub(super) fn new(authorities: usize) -> Self {
        let ready = std::iter::repeat_with(Ready::default).take(authorities).collect();
        Self { waiting: BTreeSet::new(), asks: BTreeSet::new(), ready }
    }

    pub(super) fn insert(&mut self, id: CertificateId, certificate: &Certificate) {
        match certificate.state {
            State::Waiting(at) => drop(self.waiting.insert((at, id))),
            State::Ready(place) => {
                if let Some(queue) = self.ready(place.authority, place.counted) {
                    queue.insert((place.deadline, id));
                }
            }
            State::None | State::Ordering => {}
        }
    }

    pub(super) fn remove(&mut self, id: CertificateId, certificate: &Certificate) {
        match certificate.state {
            State::Waiting(at) => drop(self.waiting.remove(&(at, id))),
            State::Ready(place) => {
                if let Some(queue) = self.ready(place.authority, place.counted) {
                    queue.remove(&(place.deadline, id));
                }
            }
            State::None | State::Ordering => {}
        }
    }

    pub(super) fn insert_ask(&mut self, id: CertificateId, certificate: &Certificate) {
        if let Some(at) = certificate.info.ask_at {
            self.asks.insert((at, id));
        }
    }

    pub(super) fn remove_ask(&mut self, id: CertificateId, certificate: &Certificate) {
        if let Some(at) = certificate.info.ask_at {
            self.asks.remove(&(at, id));
        }
    }

    /// A certificate that has waited long enough.
    pub(super) fn pop_waiting(&mut self, now: UnixSeconds) -> Option<CertificateId> {
        pop_due(&mut self.waiting, now)
    }

    /// A certificate about which its authority is to be asked.
    pub(super) fn pop_ask(&mut self, now: UnixSeconds) -> Option<CertificateId> {
        pop_due(&mut self.asks, now)
    }

    pub(super) fn first_waiting(&self) -> Option<UnixSeconds> {
        self.waiting.first().map(|(at, _)| *at)
    }

    pub(super) fn first_ask(&self) -> Option<UnixSeconds> {
        self.asks.first().map(|(at, _)| *at)
    }

    /// The certificate with the first deadline among those that may be ordered of an authority.
    pub(super) fn first_ready(
        &self,
        AuthorityId(authority): AuthorityId,
        counted: bool,
    ) -> Option<(UnixSeconds, CertificateId)> {
        let ready = self.ready.get(usize::from(authority))?;
        let queue = if counted { &ready.counted } else { &ready.exempt };
        queue.first().copied()
    }

    /// Empties the queues of an authority.
    pub(super) fn drain(&mut self, AuthorityId(authority): AuthorityId) -> Vec<CertificateId> {
        let Some(ready) = self.ready.get_mut(usize::from(authority)) else { return Vec::new() };
        let Ready { exempt, counted } = std::mem::take(ready);
        exempt.into_iter().chain(counted).map(|(_, id)| id).collect()
    }

    fn ready(
        &mut self,
        AuthorityId(authority): AuthorityId,
        counted: bool,
    ) -> Option<&mut BTreeSet<(UnixSeconds, CertificateId)>> {
        let ready = self.ready.get_mut(usize::from(authority))?;
        Some(if counted { &mut ready.counted } else { &mut ready.exempt })
    }
}

fn pop_due(
    queue: &mut BTreeSet<(UnixSeconds, CertificateId)>,
    now: UnixSeconds,
) -> Option<CertificateId> {
    let (at, id) = *queue.first()?;
    (at <= now).then(|| {
        queue.pop_first();
        id
    })
}
