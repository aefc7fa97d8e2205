//! What rustls asks for tickets: seal a session, open what a client brings.

use std::{cell::RefCell, fmt, rc::Rc, sync::Arc};

use fragile::Fragile;
use rustls::server::ProducesTickets;

use crate::{
    client_certificates::{Proofs, proof},
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
        let lifetime_s = replica.map_or(0, |replica| replica.lifetime_s());
        let age_max_s = self.proofs.as_ref().and_then(Proofs::age_max_s);
        lifetime_s.min(age_max_s.unwrap_or(u32::MAX))
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let leaf = binding::noted()?;
        if self.proofs.is_none() {
            return self.seal(&leaf, plain);
        }
        let proved_at = binding::noted_proof().or(self.clock.now())?;
        self.seal(&leaf, &proof::dated(plain, proved_at))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut session = self.open(&binding::noted_to_open()?, cipher)?;
        if let Some(proofs) = &self.proofs {
            let proved_at = proof::take_date(&mut session)?;
            if !proofs.admit(&session, proved_at, &self.clock) {
                return None;
            }
            binding::note_proof(proved_at);
        }
        Some(session)
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
