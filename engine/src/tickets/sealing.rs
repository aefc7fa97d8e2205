//! What a ticket is: a session sealed under a [`TicketKey`].

use std::fmt;

use chacha20poly1305::{AeadInPlace, KeyInit, Tag, XChaCha20Poly1305, XNonce};

use crate::tickets::Epoch;

/// A key for the tickets of one epoch; it opens what it sealed and nothing else.
///
/// A lane derives its own. It is public for who rotates keys otherwise: the lab, which measures
/// what that costs.
pub struct TicketKey {
    epoch: Epoch,
    // Zeroed on drop by its crate.
    key: XChaCha20Poly1305,
}

impl TicketKey {
    /// A key for the tickets of `epoch`; the caller zeroes `secret`.
    pub fn new(epoch: Epoch, secret: &[u8; 32]) -> Self {
        Self { epoch, key: XChaCha20Poly1305::new(secret.into()) }
    }

    /// The epoch that its tickets carry.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// A ticket for the session `plain`; none if it would be longer than [`TICKET_BYTES_MAX`].
    ///
    /// No `nonce` may come twice under one key: it is 24 random bytes.
    pub fn seal(&self, nonce: [u8; NONCE_BYTES], plain: &[u8]) -> Option<Vec<u8>> {
        if plain.len() > TICKET_BYTES_MAX - OVERHEAD_BYTES {
            return None;
        }
        // Reserved whole, so that the session is in no other buffer before it is sealed in place.
        let mut ticket = Vec::with_capacity(plain.len() + OVERHEAD_BYTES);
        let epoch = self.epoch.0.to_be_bytes();
        ticket.extend_from_slice(&epoch);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let sealed = ticket.get_mut(EPOCH_BYTES + NONCE_BYTES..)?;
        let nonce = XNonce::from(nonce);
        let tag = self.key.encrypt_in_place_detached(&nonce, &epoch, sealed).ok()?;
        ticket.extend_from_slice(&tag);
        Some(ticket)
    }

    /// The session in a ticket of this key; none if it is of another key, or no ticket at all.
    pub fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let Ticket { epoch, nonce, sealed, tag } = Ticket::parse(ticket)?;
        if u64::from_be_bytes(*epoch) != self.epoch.0 {
            return None;
        }
        let mut plain = sealed.to_vec();
        let (nonce, tag) = (XNonce::from(*nonce), Tag::from(*tag));
        self.key.decrypt_in_place_detached(&nonce, epoch, &mut plain, &tag).ok()?;
        Some(plain)
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKey").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// The epoch that a ticket says it is of; none if it is no ticket.
pub(super) fn epoch_of(ticket: &[u8]) -> Option<Epoch> {
    Ticket::parse(ticket).map(|ticket| Epoch(u64::from_be_bytes(*ticket.epoch)))
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
}

/// The longest ticket: room for a session with a client's chain of three RSA-4096 certificates.
pub const TICKET_BYTES_MAX: usize = 8_192;

/// Random bytes in each ticket.
pub const NONCE_BYTES: usize = 24;

const EPOCH_BYTES: usize = 8;
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

    #[test]
    fn a_key_opens_its_own_tickets_only() {
        let key = TicketKey::new(Epoch(7), &[1; 32]);
        let ticket = key.seal([2; NONCE_BYTES], b"session").unwrap();
        assert_eq!(key.open(&ticket).as_deref(), Some(&b"session"[..]));
        for other in [TicketKey::new(Epoch(8), &[1; 32]), TicketKey::new(Epoch(7), &[2; 32])] {
            assert_eq!(other.open(&ticket), None, "{other:?}");
        }
    }
}
