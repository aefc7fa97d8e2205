//! What can be wrong with the roots and revocation lists for clients, and what to do about it.

use super::roots::{CRL_BYTES_MAX, CRLS_MAX};
use crate::client::ClientOptionsError;

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
    /// A section of a PEM text with lists cannot be decoded.
    #[error("{label}: PEM section {position} is damaged: {reason}; copy the file again")]
    BrokenCrlPem {
        /// Which of the texts.
        label: String,
        /// Among its lists, counted from 1.
        position: usize,
        /// What is damaged.
        reason: &'static str,
    },
    /// Texts too large to be revocation lists.
    #[error("crl: {bytes} bytes in all; at most {CRL_BYTES_MAX} are read")]
    CrlsTooLarge {
        /// Their size.
        bytes: usize,
    },
    /// A text without a list.
    #[error("{label}: no list in it; it needs a PEM section X509 CRL")]
    NoCrlInText {
        /// Which of the texts.
        label: String,
    },
    /// Nobody to trust.
    #[error(
        "ca: none is given, so no client could be trusted; give the certificates of the \
         authorities that issue to clients"
    )]
    NoRoots,
    /// One of the roots.
    #[error(transparent)]
    Roots(#[from] ClientOptionsError),
    /// More lists than anybody has authorities for clients.
    #[error("crl: {count} lists; at most {CRLS_MAX} are used")]
    TooManyCrls {
        /// Lists found.
        count: usize,
    },
}
