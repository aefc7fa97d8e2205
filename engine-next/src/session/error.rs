//! Why a session ended, in words for whoever runs it.

use std::error::Error as _;

use super::faults::{CertificateError, Error};
use super::words::words;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The traffic keys may not encrypt more: a TLS 1.2 peer moved more data than AES-GCM allows.
    #[error("the session's keys are used up; the client has to connect again")]
    KeysExhausted,
    /// Plaintext was offered before the handshake was complete: a fault of ours.
    #[error("the session is not established yet")]
    NotEstablished,
    /// A record or message of more bytes than so many, which the session may keep at this point.
    #[error("the peer began a message that needs more than {0} bytes before it can be read")]
    PartialTooLong(usize),
    /// The caller lent a plaintext buffer smaller than the ciphertext: a fault of ours.
    #[error("the lent plaintext buffer is smaller than the ciphertext")]
    PlainTooSmall,
    /// The handshake failed or a record was wrong; rustls says who is to blame.
    #[error("{}", words(.0))]
    Tls(#[from] Error),
}

/// Whether rustls refused a certificate as a peer's own because it is an authority's.
pub(super) fn is_authority_as_leaf(error: &CertificateError) -> bool {
    unnamed(error) == Some(&webpki_next::Error::CaUsedAsEndEntity)
}

/// Whether rustls refused a chain because an authority in it allows fewer of them below itself.
pub(super) fn is_path_too_long(error: &CertificateError) -> bool {
    unnamed(error) == Some(&webpki_next::Error::PathLenConstraintViolated)
}

/// The error of webpki that stands behind one of rustls, if rustls has no word for it.
fn unnamed(error: &CertificateError) -> Option<&webpki_next::Error> {
    match error {
        CertificateError::Other(other) => other.source()?.downcast_ref(),
        _ => None,
    }
}
