//! What rustls asks for tickets: seal a session, open what a client brings.

use std::{cell::RefCell, fmt, rc::Rc, sync::Arc};

use chacha20poly1305::{AeadInPlace, Tag, XChaCha20Poly1305, XNonce};
use fragile::Fragile;
use rustls::server::ProducesTickets;

use crate::{
    policy::PolicyDigest,
    tickets::{Epoch, FillRandom, LaneClock, lane::Replica},
};

/// The tickets of one lane under one policy, for `rustls::ServerConfig::ticketer`.
///
/// rustls wants it shareable; it works on its lane's thread only. On another thread it neither
/// seals nor opens, and dropping it there panics: a lane drops its own contexts.
pub struct Ticketer {
    pub(super) clock: Arc<LaneClock>,
    pub(super) lifetime_s: u32,
    pub(super) policy: PolicyDigest,
    pub(super) random: FillRandom,
    pub(super) replica: Fragile<Rc<RefCell<Replica>>>,
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    /// One lifetime: a ticket made in an epoch's last second still opens for that long.
    fn lifetime(&self) -> u32 {
        self.lifetime_s
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        if plain.len() > TICKET_BYTES_MAX - OVERHEAD_BYTES {
            return None;
        }
        let mut nonce = [0; NONCE_BYTES];
        (self.random)(&mut nonce).ok()?;
        let mut replica = self.replica.try_get().ok()?.try_borrow_mut().ok()?;
        let (epoch, key) = replica.sealing_key(self.clock.now()?, &self.policy)?;
        seal(key, epoch, nonce, plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let ticket = Ticket::parse(cipher)?;
        let mut replica = self.replica.try_get().ok()?.try_borrow_mut().ok()?;
        let key = replica.opening_key(self.clock.now()?, ticket.epoch(), &self.policy)?;
        ticket.open(key)
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticketer").field("lifetime_s", &self.lifetime_s).finish_non_exhaustive()
    }
}

fn seal(
    key: &XChaCha20Poly1305,
    Epoch(epoch): Epoch,
    nonce: [u8; NONCE_BYTES],
    plain: &[u8],
) -> Option<Vec<u8>> {
    // Reserved whole, so that the session is in no other buffer before it is sealed in place.
    let mut ticket = Vec::with_capacity(plain.len() + OVERHEAD_BYTES);
    let epoch = epoch.to_be_bytes();
    ticket.extend_from_slice(&epoch);
    ticket.extend_from_slice(&nonce);
    ticket.extend_from_slice(plain);
    let sealed = ticket.get_mut(EPOCH_BYTES + NONCE_BYTES..)?;
    let tag = key.encrypt_in_place_detached(&XNonce::from(nonce), &epoch, sealed).ok()?;
    ticket.extend_from_slice(&tag);
    Some(ticket)
}

/// The parts of what may be a ticket.
struct Ticket<'a> {
    epoch: &'a [u8; EPOCH_BYTES],
    nonce: &'a [u8; NONCE_BYTES],
    sealed: &'a [u8],
    tag: &'a [u8; TAG_BYTES],
}

impl<'a> Ticket<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > TICKET_BYTES_MAX {
            return None;
        }
        let (epoch, bytes) = bytes.split_first_chunk()?;
        let (nonce, bytes) = bytes.split_first_chunk()?;
        let (sealed, tag) = bytes.split_last_chunk()?;
        Some(Self { epoch, nonce, sealed, tag })
    }

    fn epoch(&self) -> Epoch {
        Epoch(u64::from_be_bytes(*self.epoch))
    }

    fn open(&self, key: &XChaCha20Poly1305) -> Option<Vec<u8>> {
        let mut plain = self.sealed.to_vec();
        let nonce = XNonce::from(*self.nonce);
        let tag = Tag::from(*self.tag);
        key.decrypt_in_place_detached(&nonce, self.epoch, &mut plain, &tag).ok()?;
        Some(plain)
    }
}

/// The longest ticket: room for a session with a client's chain of three RSA-4096 certificates.
pub const TICKET_BYTES_MAX: usize = 8_192;

const EPOCH_BYTES: usize = 8;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const OVERHEAD_BYTES: usize = EPOCH_BYTES + NONCE_BYTES + TAG_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_a_tickets_length_is_looked_at() {
        for (length, good) in [
            (0, false),
            (OVERHEAD_BYTES - 1, false),
            (OVERHEAD_BYTES, true),
            (TICKET_BYTES_MAX, true),
            (TICKET_BYTES_MAX + 1, false),
        ] {
            assert_eq!(Ticket::parse(&vec![0; length]).is_some(), good, "{length}");
        }
    }
}
