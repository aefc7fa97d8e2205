//! Errors in the roots and revocation lists for clients, with the remedy for each.

use super::roots::{CRL_BYTES_MAX, CRLS_MAX};
use crate::client::ClientOptionsError;
use crate::pem::{Damage, Foreign};

/// An error because of which roots and revocation lists make no
/// [`ClientRoots`](super::ClientRoots). The fault is the operator's.
#[derive(Debug, thiserror::Error)]
pub enum ClientRootsError {
    /// A revocation list that is none, or of a kind that cannot be honoured.
    #[error(
        "{label}: list {position} cannot be used ({reason}); ask its authority for a complete \
         list of version 2"
    )]
    BadCrl {
        /// The label of the text.
        label: String,
        /// In the text, counted from 1.
        position: usize,
        /// The parser's error.
        reason: String,
    },
    /// A part of a PEM text with lists cannot be read.
    #[error("{label}:{line}: {damage}")]
    BrokenCrlPem {
        /// The label of the text.
        label: String,
        /// The number of the line, counted from 1.
        line: usize,
        /// The kind of damage.
        damage: Damage,
    },
    /// Texts too large to be revocation lists.
    #[error("crl: {bytes} bytes in all; at most {CRL_BYTES_MAX} are read")]
    CrlsTooLarge {
        /// Their size.
        bytes: usize,
    },
    /// A text without a list.
    #[error("{label}: no revocation list (PEM section X509 CRL) in it: {found}")]
    NoCrlInText {
        /// The label of the text.
        label: String,
        /// The format of the text.
        found: Foreign,
    },
    /// No authority to trust.
    #[error(
        "ca: none is given, so no client could be trusted; give the certificates of the \
         authorities that issue to clients"
    )]
    NoRoots,
    /// One of the roots.
    #[error(transparent)]
    Roots(#[from] ClientOptionsError),
    /// Too many lists.
    #[error("crl: {count} lists; at most {CRLS_MAX} are used")]
    TooManyCrls {
        /// Lists found.
        count: usize,
    },
}
