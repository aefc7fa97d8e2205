//! Checks of a ticket that continues a session with a client's certificate.
//!
//! rustls verifies nothing when a session resumes. The policy's digest, which binds tickets, has
//! the roots but not the revocation lists, because lists are fetched again every hour. So a ticket
//! is judged when it is opened. One that is rejected counts as none: the handshake is full, and the
//! client shows its present certificate. If that is no better, the client gets an alert with the
//! reason.
//!
//! A ticket holds the time of the full handshake, when the client last proved that it holds its
//! key: a policy may let sessions resume for a shorter time than all others.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::time_provider::TimeProvider as _;

use super::LaneVerifier;
use crate::tickets::{LaneClock, UnixSeconds};

/// Judges the tickets of clients that were asked for certificates, for one lane.
#[derive(Debug)]
pub(crate) struct Proofs {
    verifier: Arc<LaneVerifier>,
}

impl Proofs {
    /// By the lane's own `verifier`.
    pub(crate) fn new(verifier: Arc<LaneVerifier>) -> Self {
        Self { verifier }
    }

    /// The longest time after a full handshake in which sessions resume, if it has a separate
    /// limit.
    pub(crate) fn age_max_s(&self) -> Option<u32> {
        let age_max = self.verifier.roots().rules().proof_age_max?;
        Some(u32::try_from(age_max.as_secs()).unwrap_or(u32::MAX))
    }

    /// Whether `session`, as rustls wrote it into a ticket, may go on. A certificate that is only
    /// asked for is not judged here: that is left to the caller that asked.
    pub(crate) fn admit(&self, session: &[u8], proved_at: UnixSeconds, clock: &LaneClock) -> bool {
        let age_s = clock.now().map(|now| now.0.saturating_sub(proved_at.0));
        if self.age_max_s().is_some_and(|max_s| age_s.is_none_or(|age_s| age_s > max_s.into())) {
            return false;
        }
        if !self.verifier.requires() {
            return true;
        }
        let chain = chain_of(session).unwrap_or_default();
        let Some((leaf, intermediates)) = chain.split_first() else { return false };
        self.verifier.admit(leaf, intermediates, clock.current_time()).is_ok()
    }
}

/// The client's chain in a session that rustls 0.23 wrote, or `None` if the form is another one.
///
/// rustls does not show this chain before it has resumed the session. Its version is pinned, and a
/// test of the engine resumes a session by the chain that is read here.
fn chain_of(session: &[u8]) -> Option<Vec<CertificateDer<'_>>> {
    let mut rest = Reader(session);
    if rest.flag()? {
        let _server_name = rest.prefixed(1)?;
    }
    let _version_and_suite = rest.take(4)?;
    let _master_secret = rest.prefixed(1)?;
    let _extended_master_secret = rest.flag()?;
    if !rest.flag()? {
        return Some(Vec::new());
    }
    let mut certificates = Reader(rest.prefixed(3)?);
    let mut chain = Vec::new();
    while !certificates.0.is_empty() {
        chain.push(CertificateDer::from(certificates.prefixed(3)?));
    }
    Some(chain)
}

/// The bytes that have not been read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn flag(&mut self) -> Option<bool> {
        self.take(1).map(|byte| byte == [1])
    }

    /// Bytes behind their number, which is itself written in `width` bytes.
    fn prefixed(&mut self, width: usize) -> Option<&'a [u8]> {
        let len = self.take(width)?.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: &[u8] =
        b"\x01\x06a.test\x03\x04\x13\x01\x02ms\x01\x01\x00\x00\x09\x00\x00\x02ab\x00\x00\x01crest";
    const NAMELESS: &[u8] = b"\x00\x03\x03\xc0\x2b\x02ms\x01\x00rest";

    #[test]
    fn the_chain_is_found_behind_what_comes_before_it() {
        let chain = chain_of(NAMED).unwrap();
        assert_eq!(chain.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>(), [&b"ab"[..], b"c"]);
        assert_eq!(chain_of(NAMELESS), Some(Vec::new()));
    }

    #[test]
    fn what_is_cut_short_has_no_chain() {
        for len in 0..NAMED.len() - b"rest".len() {
            assert_eq!(chain_of(&NAMED[..len]), None, "{len}");
        }
    }
}
