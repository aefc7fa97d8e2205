//! The error that ended a session, in words for the operator.

use super::faults::{
    AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible, PeerMisbehaved,
};
use super::words::words;
use crate::anchors::unnamed;

/// The error that ended a session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The traffic keys may not encrypt more: a TLS 1.2 peer moved more data than AES-GCM allows.
    #[error("the session's keys are used up; the client has to connect again")]
    KeysExhausted,
    /// Plaintext was offered before the handshake was complete: a fault of ours.
    #[error("the session is not established yet")]
    NotEstablished,
    /// A record or message of more than this many bytes, which are the most that the session may
    /// keep at this point.
    #[error("the peer began a message that needs more than {0} bytes before it can be read")]
    PartialTooLong(usize),
    /// The caller lent a plaintext buffer smaller than the ciphertext: a fault of ours.
    #[error("the lent plaintext buffer is smaller than the ciphertext")]
    PlainTooSmall,
    /// The handshake failed or a record was wrong. The error of rustls names the party at fault.
    #[error("{}", words(.0))]
    Tls(#[from] Error),
    /// The caller lent too small a buffer: a fault of ours.
    #[error("the lent buffer is too small: {0} bytes are needed")]
    WireTooSmall(usize),
}

impl SessionError {
    /// The alert for the peer where rustls has not sent one, or `None` if the peer's own alert
    /// ended the session.
    pub(super) fn alert(&self) -> Option<AlertDescription> {
        use PeerMisbehaved as P;
        Some(match self {
            Self::Tls(Error::AlertReceived(_)) => return None,
            Self::Tls(Error::InvalidMessage(message)) if is_wrong_record(message) => {
                AlertDescription::UnexpectedMessage
            }
            Self::Tls(Error::InvalidMessage(message)) => (*message).into(),
            Self::Tls(Error::PeerIncompatible(_)) => AlertDescription::HandshakeFailure,
            // Records that are valid by themselves, in the wrong place or too often.
            Self::Tls(
                Error::InappropriateHandshakeMessage { .. }
                | Error::InappropriateMessage { .. }
                | Error::PeerMisbehaved(
                    P::IllegalMiddleboxChangeCipherSpec
                    | P::IllegalTlsInnerPlaintext
                    | P::MessageInterleavedWithHandshakeMessage
                    | P::TooManyEmptyFragments
                    | P::TooManyKeyUpdateRequests
                    | P::TooManyWarningAlertsReceived,
                ),
            ) => AlertDescription::UnexpectedMessage,
            // It did not open.
            Self::Tls(Error::PeerMisbehaved(
                P::RejectedEarlyDataInterleavedWithHandshakeMessage,
            )) => AlertDescription::BadRecordMac,
            Self::Tls(Error::PeerMisbehaved(_)) => AlertDescription::IllegalParameter,
            Self::PartialTooLong(_) => AlertDescription::DecodeError,
            _ => AlertDescription::InternalError,
        })
    }

    /// The alert for a fault for which rustls sends another one.
    pub(super) fn corrected_alert(&self) -> Option<AlertDescription> {
        let is_wrong = match self {
            Self::Tls(Error::InvalidMessage(message)) => is_wrong_record(message),
            Self::Tls(Error::PeerIncompatible(why)) => {
                *why == PeerIncompatible::NoSignatureSchemesInCommon
            }
            _ => false,
        };
        if is_wrong { self.alert() } else { None }
    }
}

/// Whether rustls could not decode a record because no such record may come (RFC 8446 section 5,
/// RFC 5246 section 7.1).
fn is_wrong_record(message: &InvalidMessage) -> bool {
    use InvalidMessage as M;
    matches!(
        message,
        M::InvalidCcs | M::InvalidContentType | M::TrailingData("ChangeCipherSpecPayload")
    )
}

/// The error that ends a session, and its alert for the peer. There is none if the peer's own alert
/// ended it.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) error: SessionError,
    pub(super) alert: Option<AlertDescription>,
}

impl Refusal {
    pub(super) fn new(alert: AlertDescription, error: impl Into<Error>) -> Self {
        Self { error: SessionError::Tls(error.into()), alert: Some(alert) }
    }

    pub(super) fn in_silence(error: Error) -> Self {
        Self { error: SessionError::Tls(error), alert: None }
    }
}

impl From<SessionError> for Refusal {
    fn from(error: SessionError) -> Self {
        let alert = error.alert();
        Self { error, alert }
    }
}

/// Whether rustls refused a certificate as a peer's own because it is an authority's.
pub(crate) fn is_authority_as_leaf(error: &CertificateError) -> bool {
    unnamed(error) == Some(&webpki::Error::CaUsedAsEndEntity)
}

/// Whether rustls refused a chain because an authority in it allows fewer of them below itself.
pub(super) fn is_path_too_long(error: &CertificateError) -> bool {
    unnamed(error) == Some(&webpki::Error::PathLenConstraintViolated)
}
