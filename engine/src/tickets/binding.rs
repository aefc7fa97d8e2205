//! What a ticket is bound to: the server's certificate that its session began with, and when that
//! was.
//!
//! rustls hands its ticketer a session's bytes and nothing else. But it asks the lane's resolver
//! for a certificate at every hello, also one that resumes, and in the same turn for what is in the
//! ticket. So the resolver notes here what it served, and the ticketer reads it. Tickets are sealed
//! turns later, at the end of the handshake: until then the session keeps its [`Binding`], and puts
//! it back for each of its turns. Between turns nothing is noted, and nothing is sealed or opened.

use std::cell::Cell;

use sha2::{Digest, Sha256};

use super::UnixSeconds;
use crate::certificates::LeafTraits;
use crate::policy::Scheme;

/// Tells a server's own certificate from all others: SHA-256 over it as it is sent, without its
/// issuers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafDigest(pub(super) [u8; LEAF_DIGEST_BYTES]);

impl LeafDigest {
    /// The binding to a certificate in DER.
    pub fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }
}

/// What one session keeps of what it was served.
#[derive(Debug, Default)]
pub(crate) struct Binding {
    /// Until its handshake is over.
    bound: Option<Box<Bound>>,
    /// Traits of the leaf, kept as long as it lives: who is told of it asks later.
    traits: Option<LeafTraits>,
    /// The same: how a full handshake is signed with it.
    scheme: Option<Scheme>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bound {
    leaf: Option<LeafDigest>,
    /// When the full handshake was that this session goes back to, if a ticket says so.
    proved_at: Option<UnixSeconds>,
}

impl Binding {
    /// Lets a session take its turn: what it is bound to is noted meanwhile, and kept if it
    /// changed.
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

    /// What kind of certificate the session was served, if it can be told.
    pub(crate) fn traits(&self) -> Option<LeafTraits> {
        self.traits
    }

    /// Whether there is a certificate that the client could not check.
    pub(crate) fn is_unsigned(&self) -> bool {
        self.scheme.is_none() && self.bound.as_deref().is_some_and(|bound| bound.leaf.is_some())
    }

    /// How the handshake is signed, if it is full.
    pub(crate) fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }
}

/// Notes what the session whose turn it is was served, and how its key signs for that client.
pub(crate) fn note(leaf: LeafDigest, traits: Option<LeafTraits>, scheme: Option<Scheme>) {
    if let Noted::Turn(bound) = NOTED.get() {
        NOTED.set(Noted::Turn(Bound { leaf: Some(leaf), ..bound }));
        SERVED.set(Some((traits, scheme)));
    }
}

/// Notes when the full handshake was that the session whose turn it is goes back to.
pub(super) fn note_proof(proved_at: UnixSeconds) {
    if let Noted::Turn(bound) = NOTED.get() {
        NOTED.set(Noted::Turn(Bound { proved_at: Some(proved_at), ..bound }));
    }
}

/// What the session whose turn it is was served; none if it is nobody's turn.
pub(super) fn noted() -> Option<LeafDigest> {
    match NOTED.get() {
        Noted::NoTurn => None,
        Noted::Turn(bound) => bound.leaf,
    }
}

/// When the full handshake was that the session whose turn it is goes back to; none if it is full
/// itself.
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
