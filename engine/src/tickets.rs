//! Stateless session tickets: every lane, and every machine that shares a root, seals and opens
//! them with keys derived from the time, so a rotation needs no message and no lock.
//!
//! A [`TicketRoot`] is the secret of one epoch, or a list of shared secrets. A [`LaneTickets`] is a
//! lane's replica of it. A [`Ticketer`] answers rustls on that lane for one policy. [`LaneClock`]
//! is the lane's time.
//!
//! ```text
//! epoch = floor(unix seconds / lifetime)                      the same second for everyone
//!
//! R_e --HKDF "next"--> R_e+1 --HKDF "next"--> R_e+2           one way: R_e is then erased
//!  |                    |
//!  +--HKDF "key", policy digest--> key of (epoch e, policy)   other policy: other key
//!
//! key --HKDF "seal"--> of the cipher      key --HKDF "nonce"--> of HMAC
//!
//! nonce  = HMAC(24 random bytes | epoch | certificate | session), its first 24 bytes
//! ticket = epoch (8 bytes) | nonce (24) | sealed session | tag (16)
//!          session: rustls session state | time of its full handshake (8 bytes, Unix time)
//!          authenticated with it: epoch | certificate (SHA-256 of the server's own, 32 bytes)
//! ```
//!
//! # Which tickets open
//! Tickets of the clock's epoch, of the one before, and of the next (from a machine with a clock
//! that is ahead) open. So a ticket lives for one to two lifetimes, and the hint to the client is
//! one. A replica holds the root of the oldest epoch that it accepts and nothing before it. An
//! attacker with the memory of now cannot open tickets that were sealed before that epoch. A TLS
//! 1.2 client that comes back gets the same master secret in a ticket of the new epoch: RFC 5077
//! leaves no other way. TLS 1.3 makes a fresh secret each time.
//!
//! However often its tickets are renewed, a session resumes for at most [`SESSION_AGE_MAX_S`] after
//! its full handshake.
//!
//! # How a root is replaced
//! With a stolen root, all tickets from its epoch on can be opened. So roots are replaced. A new
//! one is announced to all machines that share the one in use, with the epoch from which it holds.
//! The key of an epoch comes from the youngest root that holds by then. All change to it at the
//! same second, as they change keys. Tickets of the epoch before still open, because a replica
//! holds both roots until no epoch that it accepts needs the old one.
//!
//! # Binding
//! A ticket is bound to the listener's policy by its key. It is bound to the server name by rustls,
//! which writes the name into the ticket and makes a full handshake for another one. It is bound to
//! the certificate that the session began with, by its digest. So it resumes only where a full
//! handshake of the same hello would show the very same certificate, and a client gains no access
//! by resumption that it would not get without. At a listener or on a machine that serves another
//! certificate for the name, or after the certificate was removed or replaced, the handshake is
//! full. Then the client judges the new certificate. For unknown names, and for none, the same
//! holds of the default certificate. Of several kinds of key for a name it is the one that this
//! client would be shown.
//!
//! The digest is of the whole certificate and not of its key alone: a certificate may be replaced
//! because of an error in it, under the same key. A renewal costs each client one full handshake.
//! The digest has neither the chain nor the encoded key: machines with one certificate may differ
//! in both. `tickets/binding.rs` takes the digest to the ticketer.
//!
//! # Shared secrets
//! ```text
//! S_1, S_2, ..., up to SHARED_KEYS_MAX              the operator hands them out
//!  |
//!  +--HKDF "shared", epoch, policy digest--> key of (secret, epoch, policy)
//! ```
//!
//! [`TicketRoot::shared`] is for processes that get their keys from elsewhere and may start at any
//! time. With equal secrets and lifetimes they open each other's tickets. The first secret seals
//! and each opens, and epochs count as above, but nothing is ratcheted. With a stolen secret, every
//! ticket that was ever sealed with it can be opened. So forward secrecy requires that the operator
//! replaces the secrets, by [`LaneTickets::replace`]: the new one in front, old ones dropped after
//! two lifetimes. There are keys for every time that a clock may show. The next section is about
//! ratcheted roots.
//!
//! # A clock that is wrong
//! - Backward by an epoch: the older root is still held, and nothing changes.
//! - Further back: no ticket is issued or opened, so handshakes are full. The keys of that time are
//!   erased and stay so.
//! - Forward by up to [`RATCHET_STEPS_MAX`] epochs: the replica follows.
//! - Further forward: no ticket is issued or opened. Nothing is erased, so that one false reading
//!   does not destroy the root.
//!
//! [`LaneTickets::rotate`] reports the second and the last.
//!
//! # The bound
//! Sealing is XChaCha20-Poly1305 with nonces of 192 bits that are indistinguishable from random
//! ones, because lanes and machines that share a key cannot share a counter. The session goes into
//! its nonce. So two copies of a machine that go on with the same random bytes have the same nonce
//! for the same ticket only. 1,000,000 tickets/s for 12 h (43,200 s) are 4.3e10 = 2^35.4 per lane;
//! on 2^10 lanes of 2^10 machines q = 2^55.4 under one key. Two nonces collide with probability at
//! most q^2 / 2^193 = 2^-82. With the longest lifetime (7 days) and clocks that are an epoch apart
//! (a key is then used for two lifetimes) q = 2^60.2, and still 2^-72. AES-GCM's 96 random bits
//! would end at 2^32 tickets (NIST SP 800-38D): 72 minutes of one lane. One message may have 2^38
//! bytes. Ours have at most [`TICKET_BYTES_MAX`], and ChaCha20 sets no limit to the number of
//! messages. A forger that tries v tickets of at most 2^9 blocks of 16 bytes wins with probability
//! at most v * 2^9 / 2^103. At 1,000,000 tries/s on each of those 2^20 lanes for three epochs of 12
//! h (v = 2^57) that is 2^-37. A ticket names its epoch, so of a shared root as many keys are tried
//! as there are secrets: 2^3 at most, and 2^-34. The bound of the nonces is for one key, and stays.
//!
//! # The cost
//! Nanoseconds for a session of 110 bytes (a client without a certificate), of 256 and of 1,200, on
//! a shared 2-core VM (x86-64, AVX-512), least of 41 interleaved rounds of 400:
//!
//! ```text
//!                                                        seal               open
//! XChaCha20-Poly1305 of the portable crate         2127  2184  3548   1823  1767  2641
//! the same by HChaCha20 and AWS-LC: taken           712   869  1747    363   411   799
//! AES-256-GCM, its key by HChaCha20                 695   818  1450    380   379   545
//! AES-256-GCM-SIV, its key by HMAC; no nonce made   374   376   660    410   400   628
//! ```
//!
//! The second row is in use. It is the same cipher to the last byte, so every bound above stays as
//! it was, and tickets that were sealed by the portable crate open. The last row is 0.3 us a ticket
//! less. But there the nonce is the random bytes alone, and copies of a machine are kept apart by
//! 128 bits of tag. Making the nonce is 0.33, 0.44 and 0.94 us of the sealing, the key of a nonce
//! 0.1, and to expand that in AWS-LC another 0.1. The digest of a certificate takes 0.75 us, once
//! for each decoded key. One step of the ratchet takes 0.27 us, so [`RATCHET_STEPS_MAX`] steps hold
//! a lane up for about 1 ms. A ticket that no secret of a shared root opens costs as many tries as
//! there are secrets, and a derivation for each key that is not held. A try costs as much as
//! opening.

mod binding;
mod cipher;
mod clock;
mod lane;
mod root;
mod sealing;
mod secret;
mod ticketer;

pub use binding::LeafDigest;
pub(crate) use binding::{Binding, note as note_served};
pub use clock::{LaneClock, UnixSeconds};
pub use lane::{FillRandom, KEYS_HELD_MAX, LaneTickets};
pub use root::{
    Epoch, LIFETIME_DEFAULT_S, LIFETIME_S_MAX, LIFETIME_S_MIN, RATCHET_STEPS_MAX, ROOTS_MAX,
    SHARED_KEYS_MAX, TEXT_BYTES_MAX, TicketRoot, TicketRootError,
};
pub use sealing::{NONCE_BYTES, TICKET_BYTES_MAX, TicketKey};
#[cfg(test)]
pub(crate) use ticketer::OPENED;
pub(crate) use ticketer::OpeningTicketer;
pub use ticketer::{SESSION_AGE_MAX_S, Ticketer};

#[cfg(test)]
mod tests;
