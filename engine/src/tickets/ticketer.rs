//! What rustls asks for tickets: seal a session, open what a client brings.

use std::{cell::RefCell, fmt, rc::Rc, sync::Arc};

use fragile::Fragile;
use rustls::server::ProducesTickets;

use crate::{
    client_certificates::Proofs,
    policy::PolicyDigest,
    tickets::{
        FillRandom, LaneClock, LeafDigest, binding,
        lane::Replica,
        sealing::{NONCE_BYTES, epoch_of},
    },
};

/// The tickets of one lane under one policy, for `rustls::ServerConfig::ticketer`.
///
/// rustls wants it shareable; it works on its lane's thread only. On another thread it neither
/// seals nor opens, and dropping it there panics: a lane drops its own contexts.
///
/// For rustls it seals and opens only in a turn of a
/// [`ServerSession`](crate::session::ServerSession) whose hello a
/// [`LaneResolver`](crate::certificates::LaneResolver) has answered: what that served is what the
/// ticket is bound to.
pub struct Ticketer {
    pub(super) clock: Arc<LaneClock>,
    pub(super) policy: PolicyDigest,
    /// If clients are asked for certificates.
    pub(super) proofs: Option<Proofs>,
    pub(super) random: FillRandom,
    pub(super) replica: Fragile<Rc<RefCell<Replica>>>,
}

impl Ticketer {
    /// The same, for clients that are asked for certificates: rustls gets only such sessions out of
    /// tickets as `proofs` admit.
    pub(crate) fn judging(self, proofs: Option<Proofs>) -> Self {
        Self { proofs, ..self }
    }

    /// A ticket for the session `plain`, which began with the certificate `leaf`.
    pub fn seal(&self, leaf: &LeafDigest, plain: &[u8]) -> Option<Vec<u8>> {
        let mut random = [0; NONCE_BYTES];
        (self.random)(&mut random).ok()?;
        let mut replica = self.replica.try_get().ok()?.try_borrow_mut().ok()?;
        replica.sealing_key(self.clock.now()?, &self.policy)?.seal(&random, leaf, plain)
    }

    /// The session in a ticket; none if it began with another certificate than `leaf`.
    pub fn open(&self, leaf: &LeafDigest, ticket: &[u8]) -> Option<Vec<u8>> {
        #[cfg(test)]
        OPENED.set(OPENED.get() + 1);
        let epoch = epoch_of(ticket)?;
        let mut replica = self.replica.try_get().ok()?.try_borrow_mut().ok()?;
        let now = self.clock.now()?;
        let secrets = 0..replica.secrets();
        secrets.into_iter().find_map(|secret| {
            replica.opening_key(now, epoch, secret, &self.policy)?.open(leaf, ticket)
        })
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    /// One lifetime: a ticket made in an epoch's last second still opens for that long.
    fn lifetime(&self) -> u32 {
        let replica = self.replica.try_get().ok().and_then(|replica| replica.try_borrow().ok());
        replica.map_or(0, |replica| replica.lifetime_s())
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(&binding::noted()?, plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let session = self.open(&binding::noted_to_open()?, cipher)?;
        let is_admitted = |proofs: &Proofs| proofs.admit(&session, &self.clock);
        self.proofs.as_ref().is_none_or(is_admitted).then_some(session)
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticketer").finish_non_exhaustive()
    }
}

#[cfg(test)]
thread_local! {
    /// Tickets that keys of this thread were given to open.
    pub(crate) static OPENED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
