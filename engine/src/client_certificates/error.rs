//! What can be wrong with the roots and revocation lists for clients, and what to do about it.

use super::roots::{CRL_BYTES_MAX, CRLS_MAX};
use crate::client::ClientOptionsError;
use crate::pem::{Damage, Foreign};

/// Why roots and revocation lists make no [`ClientRoots`](super::ClientRoots). The fault is the
/// operator's.
#[derive(Debug, thiserror::Error)]
pub enum ClientRootsError {
    /// A revocation list that is none, or of a kind that cannot be honoured.
    #[error(
        "{label}: list {position} cannot be used ({reason}); ask its authority for a complete \
         list of version 2"
    )]
    BadCrl {
        /// Which of the texts.
        label: String,
        /// In the text, counted from 1.
        position: usize,
        /// What is wrong.
        reason: String,
    },
    /// A part of a PEM text with lists cannot be read.
    #[error("{label}:{line}: {damage}")]
    BrokenCrlPem {
        /// Which of the texts.
        label: String,
        /// The number of the line, counted from 1.
        line: usize,
        /// What is damaged.
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
        /// Which of the texts.
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
