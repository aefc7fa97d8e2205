//! The certificates that a peer showed, bounded and in one line: [`PeerChain`].
//!
//! Path building asks of each certificate at each depth whether it issued the one below, and reads
//! it again to know. Certificates that all fit each other multiply. 10 of one name among 1,400 that
//! do not fit, 39 KB in all, held a lane for 10 seconds. Hence two steps in front of it, the same
//! for clients' chains and for backends':
//!
//! ```text
//!   as sent --> PeerChain::parse    at most PEER_CERTIFICATES_MAX, PEER_CHAIN_BYTES_MAX; each is
//!                                   read once, and one that cannot be read ends the handshake
//!           --> PeerChain::line     one line from the peer's own certificate upwards: each names
//!                                   the next as its issuer, and no name comes twice
//!           --> path building       with that line only: nothing is left to choose
//! ```
//!
//! Servers send roots that are not needed, certificates twice, and out of order. So the line is
//! picked out of the sent certificates, in any order. Leaving out those that it does not need can
//! only make a chain fail, never pass. Where two certificates have the issuer's name (cross
//! signatures), the choice is OpenSSL's: by key identifier, then by dates, then by order. Before
//! order comes one that a trusted authority issued.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, Error, OtherError};

use crate::certificates::Linked;

/// A peer's certificates, each read once.
pub struct PeerChain<'a> {
    others: Vec<Linked<'a>>,
    own: Linked<'a>,
}

impl<'a> PeerChain<'a> {
    /// Reads a peer's certificates: its own, and those that it sent behind it.
    ///
    /// # Errors
    /// There are more than [`PEER_CERTIFICATES_MAX`] or [`PEER_CHAIN_BYTES_MAX`] allow, which is
    /// checked before any is read, or one of them is of no use.
    pub fn parse(
        own: &'a CertificateDer<'_>,
        others: &'a [CertificateDer<'_>],
    ) -> Result<Self, ChainFault> {
        let count = 1 + others.len();
        if count > PEER_CERTIFICATES_MAX {
            return Err(ChainFault::TooManyCertificates { count });
        }
        let bytes = own.len() + others.iter().map(|der| der.len()).sum::<usize>();
        if bytes > PEER_CHAIN_BYTES_MAX {
            return Err(ChainFault::TooManyBytes { bytes });
        }
        let read = |der: &'a CertificateDer<'_>, position| {
            Linked::parse(der).map_err(|reason| ChainFault::Unreadable { position, reason })
        };
        let own = read(own, 1)?;
        let others = others.iter().zip(2..).map(|(der, position)| read(der, position));
        let others = others.collect::<Result<_, _>>()?;
        if !own.has_version_3 {
            return Err(ChainFault::OldVersion);
        }
        Ok(Self { others, own })
    }

    /// The issuers of the peer's own certificate, the nearest first, out of the sent ones and of
    /// `known`. `known` comes first where both would do. `is_anchor` is true for the names of
    /// trusted authorities.
    ///
    /// They are at most [`PEER_CERTIFICATES_MAX`] - 1, and no two have one subject.
    pub(crate) fn line<'s>(
        &'s self,
        known: &'s [KnownIssuer],
        is_anchor: impl Fn(&[u8]) -> bool,
        now: UnixTime,
    ) -> Vec<Linked<'s>> {
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let mut line: Vec<Linked<'s>> = Vec::with_capacity(PEER_CERTIFICATES_MAX - 1);
        let mut below = self.own;
        while line.len() < PEER_CERTIFICATES_MAX - 1 {
            let all = known.iter().map(KnownIssuer::linked).chain(self.others.iter().copied());
            let fitting = all.filter(|each| {
                each.may_have_issued(&below) && line.iter().all(|used| used.subject != each.subject)
            });
            // Of equals, the first.
            let best =
                fitting.min_by_key(|each| (!each.is_valid_at(now_s), !is_anchor(each.issuer)));
            let Some(best) = best else { break };
            line.push(best);
            below = best;
        }
        line
    }

    /// The peer's own certificate.
    pub fn own(&self) -> CertificateDer<'a> {
        CertificateDer::from(self.own.der)
    }

    /// The same, with its place in the chain.
    pub(crate) fn own_linked(&self) -> Linked<'a> {
        self.own
    }
}

/// An intermediate certificate that peers need not send, because it is known here.
#[derive(Clone, Debug)]
pub struct KnownIssuer {
    crl_points: Option<Box<[u8]>>,
    der: Box<[u8]>,
    issuer: Box<[u8]>,
    issuer_key_id: Option<Box<[u8]>>,
    key_id: Option<Box<[u8]>>,
    may_sign_lists: bool,
    name_constraints: Option<Box<[u8]>>,
    not_after_s: i64,
    not_before_s: i64,
    public_key: Box<[u8]>,
    serial: Box<[u8]>,
    subject: Box<[u8]>,
}

impl KnownIssuer {
    /// Reads one.
    ///
    /// # Errors
    /// It is no certificate, for this reason.
    pub fn parse(der: &[u8]) -> Result<Self, &'static str> {
        let linked = Linked::parse(der)?;
        Ok(Self {
            crl_points: linked.crl_points.map(Box::from),
            der: der.into(),
            issuer: linked.issuer.into(),
            issuer_key_id: linked.issuer_key_id.map(Box::from),
            key_id: linked.key_id.map(Box::from),
            may_sign_lists: linked.may_sign_lists,
            name_constraints: linked.name_constraints.map(Box::from),
            not_after_s: linked.not_after_s,
            not_before_s: linked.not_before_s,
            public_key: linked.public_key.into(),
            serial: linked.serial.into(),
            subject: linked.subject.into(),
        })
    }

    fn linked(&self) -> Linked<'_> {
        Linked {
            crl_points: self.crl_points.as_deref(),
            der: &self.der,
            has_version_3: true,
            issuer: &self.issuer,
            issuer_key_id: self.issuer_key_id.as_deref(),
            key_id: self.key_id.as_deref(),
            may_sign_lists: self.may_sign_lists,
            name_constraints: self.name_constraints.as_deref(),
            not_after_s: self.not_after_s,
            not_before_s: self.not_before_s,
            public_key: &self.public_key,
            serial: &self.serial,
            subject: &self.subject,
        }
    }
}

/// A reason to reject a peer's certificates before verification. The fault is the peer's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// The peer's own certificate is of a version without a field for its purpose.
    #[error(
        "its own certificate is not of X.509 version 3, so it cannot say what it is for; issue it \
         with extensions (openssl x509 -req -extfile FILE)"
    )]
    OldVersion,
    /// Too large.
    #[error(
        "its chain has {bytes} bytes, and at most {PEER_CHAIN_BYTES_MAX} are read; let it send \
         its own certificate and the intermediates, and nothing else"
    )]
    TooManyBytes {
        /// Bytes of all certificates of the chain.
        bytes: usize,
    },
    /// Too many.
    #[error(
        "its chain has {count} certificates, and at most {PEER_CERTIFICATES_MAX} are read; let it \
         send its own certificate and the intermediates, and nothing else"
    )]
    TooManyCertificates {
        /// Certificates of the chain, the peer's own included.
        count: usize,
    },
    /// One of them is no certificate.
    #[error(
        "certificate {position} of its chain is not a valid X.509 certificate ({reason}); issue or \
         copy it again"
    )]
    Unreadable {
        /// Counted from 1, the peer's own certificate.
        position: usize,
        /// The parser's error.
        reason: &'static str,
    },
}

impl From<ChainFault> for Error {
    /// rustls sends `bad_certificate` for one that cannot be read, and `certificate_unknown` for
    /// the rest.
    fn from(fault: ChainFault) -> Self {
        Self::InvalidCertificate(match fault {
            ChainFault::Unreadable { .. } => CertificateError::BadEncoding,
            fault => CertificateError::Other(OtherError(Arc::new(fault))),
        })
    }
}

/// The most certificates that a peer may show, its own included. They are also the most that path
/// building goes through. Public authorities' chains have 2 to 4, and a root, a cross signature and
/// a repetition fit too.
pub const PEER_CERTIFICATES_MAX: usize = 7;
/// Bytes of all certificates that a peer may show. Four of RSA 4096 have about 8,000, four of
/// ML-DSA-87 about 30,000.
pub const PEER_CHAIN_BYTES_MAX: usize = 32 * 1024;

#[cfg(test)]
mod tests;
