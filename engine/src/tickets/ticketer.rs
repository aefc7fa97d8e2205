//! The ticketer for rustls: seals a session, opens a client's ticket.

use std::{cell::RefCell, fmt, rc::Rc, sync::Arc};

use fragile::Fragile;
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

use crate::{
    client_certificates::Proofs,
    policy::PolicyDigest,
    tickets::{
        FillRandom, LaneClock, LeafDigest, UnixSeconds, binding,
        lane::Replica,
        sealing::{NONCE_BYTES, epoch_of},
    },
};

/// The tickets of one lane under one policy, for `rustls::ServerConfig::ticketer`.
///
/// rustls requires it to be `Sync`, but it works on its lane's thread only. On another thread it
/// neither seals nor opens, and dropping it there panics: a lane drops its own contexts.
///
/// For rustls it seals and opens only in a turn of a
/// [`ServerSession`](crate::session::ServerSession), after a
/// [`LaneResolver`](crate::certificates::LaneResolver) has answered the hello. The ticket is bound
/// to the certificate of that answer.
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
        lifetime_s.min(age_max_s.unwrap_or(SESSION_AGE_MAX_S)).min(SESSION_AGE_MAX_S)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let leaf = binding::noted()?;
        let proved_at = binding::noted_proof().or(self.clock.now())?;
        self.seal(&leaf, &dated(plain, proved_at))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut session = self.open(&binding::noted_to_open()?, cipher)?;
        let proved_at = take_date(&mut session)?;
        let age_s = self.clock.now()?.0.saturating_sub(proved_at.0);
        if age_s > u64::from(SESSION_AGE_MAX_S) {
            return None;
        }
        if let Some(proofs) = &self.proofs
            && !proofs.admit(&session, proved_at, &self.clock)
        {
            return None;
        }
        binding::note_proof(proved_at);
        Some(session)
    }
}

/// The tickets of a lane for clients without extended master secret: it issues none, and one of a
/// session that had it opens, so that rustls ends the handshake (RFC 7627 section 5.3).
#[derive(Debug)]
pub(crate) struct OpeningTicketer(pub(crate) Ticketer);

impl ProducesTickets for OpeningTicketer {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _plain: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(cipher)
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticketer").finish_non_exhaustive()
    }
}

/// A session as it is sealed: with the time of its full handshake behind it, which goes on from
/// ticket to ticket.
fn dated(session: &[u8], proved_at: UnixSeconds) -> Zeroizing<Vec<u8>> {
    // Reserved whole, so that the session is in no other buffer.
    let mut dated = Zeroizing::new(Vec::with_capacity(session.len() + DATE_BYTES));
    dated.extend_from_slice(session);
    dated.extend_from_slice(&proved_at.0.to_be_bytes());
    dated
}

/// Takes the time off a session that was sealed with it.
fn take_date(dated: &mut Vec<u8>) -> Option<UnixSeconds> {
    let (session, date) = dated.split_last_chunk::<DATE_BYTES>()?;
    let (session_len, date) = (session.len(), u64::from_be_bytes(*date));
    dated.truncate(session_len);
    Some(UnixSeconds(date))
}

/// The longest time after its full handshake in which a session resumes. rustls gives each resumed
/// session new tickets. Without this limit a client that comes back in time would never prove
/// anything again, and one of TLS 1.2 would keep its master secret (RFC 8446 section 4.6.1).
pub const SESSION_AGE_MAX_S: u32 = 7 * 86_400;
const DATE_BYTES: usize = 8;

#[cfg(test)]
thread_local! {
    /// Tickets that keys of this thread were given to open.
    pub(crate) static OPENED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
