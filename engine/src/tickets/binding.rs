//! The values that a ticket is bound to: the server's certificate that its session began with, and
//! the time of its full handshake.
//!
//! rustls hands its ticketer a session's bytes and nothing else. But it asks the lane's resolver
//! for a certificate at every hello, also one that resumes, and in the same turn asks for the
//! session in the ticket. So the resolver notes its certificate here, and the ticketer reads it.
//! Tickets are sealed turns later, at the end of the handshake. Until then the session keeps its
//! [`Binding`], and puts it back for each of its turns. Between turns nothing is noted, and nothing
//! is sealed or opened.

use std::cell::Cell;

use sha2::{Digest, Sha256};

use super::UnixSeconds;
use crate::certificates::LeafTraits;
use crate::policy::Scheme;

/// Identifies a server's own certificate: SHA-256 over it as it is sent, without its issuers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafDigest(pub(super) [u8; LEAF_DIGEST_BYTES]);

impl LeafDigest {
    /// The binding to a certificate in DER.
    pub fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }
}

/// The values that one session keeps of its certificate.
#[derive(Debug, Default)]
pub(crate) struct Binding {
    /// Until its handshake is over.
    bound: Option<Box<Bound>>,
    /// Traits of the leaf, kept as long as the session lives, because callers ask for them later.
    traits: Option<LeafTraits>,
    /// The same: how a full handshake is signed with it.
    scheme: Option<Scheme>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bound {
    leaf: Option<LeafDigest>,
    /// The time of the full handshake that this session goes back to, if a ticket has it.
    proved_at: Option<UnixSeconds>,
}

impl Binding {
    /// Lets a session take its turn: its binding is noted for this time, and kept if it changed.
    pub(crate) fn during<T>(&mut self, turn: impl FnOnce() -> T) -> T {
        let before = self.bound.as_deref().copied().unwrap_or_default();
        NOTED.set(Noted::Turn(before));
        OPENINGS_LEFT.set(OPENINGS_MAX);
        let outcome = turn();
        if let Noted::Turn(after) = NOTED.replace(Noted::NoTurn)
            && after != before
        {
            self.bound = Some(Box::new(after));
        }
        if let Some((traits, scheme)) = SERVED.take() {
            (self.traits, self.scheme) = (traits, scheme);
        }
        outcome
    }

    /// The handshake is over: no ticket follows.
    pub(crate) fn release(&mut self) {
        self.bound = None;
    }

    /// The kind of certificate that the session was served, if known.
    pub(crate) fn traits(&self) -> Option<LeafTraits> {
        self.traits
    }

    /// Whether there is a certificate that the client could not check.
    pub(crate) fn is_unsigned(&self) -> bool {
        self.scheme.is_none() && self.bound.as_deref().is_some_and(|bound| bound.leaf.is_some())
    }

    /// The scheme of the handshake's signature, if the handshake is full.
    pub(crate) fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }
}

/// Notes the certificate that the session of this turn was served, and the scheme of its key for
/// that client.
pub(crate) fn note(leaf: LeafDigest, traits: Option<LeafTraits>, scheme: Option<Scheme>) {
    if let Noted::Turn(bound) = NOTED.get() {
        NOTED.set(Noted::Turn(Bound { leaf: Some(leaf), ..bound }));
        SERVED.set(Some((traits, scheme)));
    }
}

/// Notes the time of the full handshake that the session of this turn goes back to.
pub(super) fn note_proof(proved_at: UnixSeconds) {
    if let Noted::Turn(bound) = NOTED.get() {
        NOTED.set(Noted::Turn(Bound { proved_at: Some(proved_at), ..bound }));
    }
}

/// The certificate that the session of this turn was served, or `None` outside of turns.
pub(super) fn noted() -> Option<LeafDigest> {
    match NOTED.get() {
        Noted::NoTurn => None,
        Noted::Turn(bound) => bound.leaf,
    }
}

/// The time of the full handshake that the session of this turn goes back to, or `None` if its own
/// is full.
pub(super) fn noted_proof() -> Option<UnixSeconds> {
    match NOTED.get() {
        Noted::NoTurn => None,
        Noted::Turn(bound) => bound.proved_at,
    }
}

/// Like [`noted`], for a ticket that is opened in this turn; none when it has opened its share.
///
/// A hello has room for some 170 tickets, and rustls tries one after the other.
pub(super) fn noted_to_open() -> Option<LeafDigest> {
    let left = OPENINGS_LEFT.get().checked_sub(1)?;
    OPENINGS_LEFT.set(left);
    noted()
}

#[derive(Clone, Copy)]
enum Noted {
    NoTurn,
    Turn(Bound),
}

thread_local! {
    static NOTED: Cell<Noted> = const { Cell::new(Noted::NoTurn) };
    static SERVED: Cell<Option<(Option<LeafTraits>, Option<Scheme>)>> = const { Cell::new(None) };
    static OPENINGS_LEFT: Cell<u8> = const { Cell::new(0) };
}

/// Tickets that are opened in one turn, which holds one hello at most. BoringSSL looks at the first
/// alone; OpenSSL's client offers two, others one.
const OPENINGS_MAX: u8 = 4;

pub(super) const LEAF_DIGEST_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_finds_what_it_was_served_and_nobody_else_does() {
        let [one, two] = [b"one", b"two"].map(|der| LeafDigest::of(der));
        let [mut first, mut second] = [Binding::default(), Binding::default()];
        note(one, None, None);
        assert_eq!(noted(), None, "it is nobody's turn");
        first.during(|| {
            assert_eq!(noted(), None);
            note(one, None, None);
            assert_eq!(noted(), Some(one));
        });
        assert_eq!(noted(), None);
        second.during(|| note(two, None, None));
        first.during(|| assert_eq!(noted(), Some(one)));
        second.during(|| assert_eq!(noted(), Some(two)));
        first.release();
        first.during(|| assert_eq!(noted(), None));
    }
}
