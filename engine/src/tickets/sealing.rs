//! The form of a ticket: a session sealed under a [`TicketKey`].

use std::fmt;

use hkdf::HkdfExtract;
use sha2::Sha256;
use zeroize::Zeroize as _;

use crate::tickets::{
    Epoch, LeafDigest,
    binding::LEAF_DIGEST_BYTES,
    cipher::{Cipher, TAG_BYTES, XNONCE_BYTES},
    secret::{Secret, derive},
};

/// A key for the tickets of one epoch. It opens its own tickets and no others.
///
/// A lane derives its own. It is public for other ways to rotate keys: the lab measures their cost.
pub struct TicketKey {
    epoch: Epoch,
    key: Cipher,
    nonces: Secret,
}

impl TicketKey {
    /// A key for the tickets of `epoch`; the caller zeroes `secret`.
    pub fn new(epoch: Epoch, secret: &[u8; 32]) -> Self {
        let key = Cipher::new(derive(secret, LABEL_SEAL, &[]));
        let nonces = derive(secret, LABEL_NONCE, &[]);
        Self { epoch, key, nonces }
    }

    /// The epoch that its tickets carry.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// A ticket for the session `plain`, which began with the certificate `leaf`; none if it would
    /// be longer than [`TICKET_BYTES_MAX`].
    ///
    /// `random` should not come twice, and does where a machine was copied: the nonce is made of
    /// the session as well, so that two sessions have two nonces even then.
    pub fn seal(
        &self,
        random: &[u8; NONCE_BYTES],
        leaf: &LeafDigest,
        plain: &[u8],
    ) -> Option<Vec<u8>> {
        if plain.len() > TICKET_BYTES_MAX - OVERHEAD_BYTES {
            return None;
        }
        let bound = bound_to(self.epoch, leaf);
        let nonce = self.nonce(random, &bound, plain)?;
        // Reserved whole, so that the session is in no other buffer before it is sealed in place.
        let mut ticket = Vec::with_capacity(plain.len() + OVERHEAD_BYTES);
        ticket.extend_from_slice(&self.epoch.0.to_be_bytes());
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let sealed = ticket.get_mut(EPOCH_BYTES + NONCE_BYTES..)?;
        let tag = self.key.seal(&nonce, &bound, sealed)?;
        ticket.extend_from_slice(&tag);
        Some(ticket)
    }

    /// The session in a ticket of this key that began with `leaf`. `None` if the ticket is of
    /// another key or certificate, or no ticket at all.
    pub fn open(&self, leaf: &LeafDigest, ticket: &[u8]) -> Option<Vec<u8>> {
        let Ticket { epoch, nonce, sealed, tag } = Ticket::parse(ticket)?;
        if u64::from_be_bytes(*epoch) != self.epoch.0 {
            return None;
        }
        self.key.open(nonce, &bound_to(self.epoch, leaf), sealed, tag)
    }

    /// The front of HMAC-SHA256, keyed apart from the cipher, over all that the ticket is made of.
    fn nonce(
        &self,
        random: &[u8; NONCE_BYTES],
        bound: &[u8; BOUND_BYTES],
        plain: &[u8],
    ) -> Option<[u8; NONCE_BYTES]> {
        // Extract is HMAC with the salt as its key. All but the last part have one length.
        let mut hmac = HkdfExtract::<Sha256>::new(Some(self.nonces.as_slice()));
        hmac.input_ikm(random);
        hmac.input_ikm(bound);
        hmac.input_ikm(plain);
        let (mut block, _) = hmac.finalize();
        let nonce = block.first_chunk().copied();
        block.as_mut_slice().zeroize();
        nonce
    }
}

/// The data that is authenticated with a ticket: its epoch, which is part of it, and the
/// certificate that its session began with, which is not.
fn bound_to(epoch: Epoch, leaf: &LeafDigest) -> [u8; BOUND_BYTES] {
    let mut bound = [0; BOUND_BYTES];
    let (front, rest) = bound.split_at_mut(EPOCH_BYTES);
    front.copy_from_slice(&epoch.0.to_be_bytes());
    rest.copy_from_slice(&leaf.0);
    bound
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKey").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// The epoch in a ticket, not yet authenticated. `None` if it is no ticket.
pub(super) fn epoch_of(ticket: &[u8]) -> Option<Epoch> {
    Ticket::parse(ticket).map(|ticket| Epoch(u64::from_be_bytes(*ticket.epoch)))
}

/// The parts of a possible ticket.
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

/// Bytes of each ticket's nonce, and of the random bytes that go into it.
pub const NONCE_BYTES: usize = XNONCE_BYTES;

const BOUND_BYTES: usize = EPOCH_BYTES + LEAF_DIGEST_BYTES;
const EPOCH_BYTES: usize = 8;
const LABEL_NONCE: &[u8] = b"sealane ticket 2 nonce";
const LABEL_SEAL: &[u8] = b"sealane ticket 2 seal";
const OVERHEAD_BYTES: usize = EPOCH_BYTES + NONCE_BYTES + TAG_BYTES;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

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
        let leaf = LeafDigest::of(b"leaf");
        let key = TicketKey::new(Epoch(7), &[1; 32]);
        let ticket = key.seal(&[2; NONCE_BYTES], &leaf, b"session").unwrap();
        assert_eq!(key.open(&leaf, &ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(key.open(&LeafDigest::of(b"other"), &ticket), None);
        for other in [TicketKey::new(Epoch(8), &[1; 32]), TicketKey::new(Epoch(7), &[2; 32])] {
            assert_eq!(other.open(&leaf, &ticket), None, "{other:?}");
        }
    }

    #[test]
    fn whatever_differs_the_nonce_does_though_the_random_bytes_do_not() {
        let [leaf, other] = [b"leaf1", b"leaf2"].map(|der| LeafDigest::of(der));
        let key = TicketKey::new(Epoch(7), &[1; 32]);
        let nonces: HashSet<[u8; NONCE_BYTES]> = [
            key.seal(&[2; NONCE_BYTES], &leaf, b"session"),
            key.seal(&[2; NONCE_BYTES], &leaf, b"another"),
            key.seal(&[2; NONCE_BYTES], &leaf, b"session of another length"),
            key.seal(&[2; NONCE_BYTES], &other, b"session"),
            key.seal(&[3; NONCE_BYTES], &leaf, b"session"),
            TicketKey::new(Epoch(7), &[2; 32]).seal(&[2; NONCE_BYTES], &leaf, b"session"),
        ]
        .into_iter()
        .map(|ticket| *Ticket::parse(&ticket.unwrap()).unwrap().nonce)
        .collect();
        assert_eq!(nonces.len(), 6);
    }
}
