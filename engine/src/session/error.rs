//! Why a session ended, in words for whoever runs it.

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, PeerMisbehaved};

use crate::anchors::unnamed;
use crate::certificates::days;

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
    /// The caller lent too small a buffer: a fault of ours.
    #[error("the lent buffer is too small: {0} bytes are needed")]
    WireTooSmall(usize),
}

impl SessionError {
    /// What the peer is told where rustls has not told it; nothing if it was the peer that spoke
    /// last.
    pub(super) fn alert(&self) -> Option<AlertDescription> {
        use PeerMisbehaved as P;
        Some(match self {
            Self::Tls(Error::AlertReceived(_)) => return None,
            Self::Tls(Error::InvalidMessage(message)) => (*message).into(),
            Self::Tls(Error::PeerIncompatible(_)) => AlertDescription::HandshakeFailure,
            // Records that are right by themselves, in the wrong place or too often.
            Self::Tls(Error::PeerMisbehaved(
                P::IllegalMiddleboxChangeCipherSpec
                | P::MessageInterleavedWithHandshakeMessage
                | P::RejectedEarlyDataInterleavedWithHandshakeMessage
                | P::TooManyEmptyFragments
                | P::TooManyWarningAlertsReceived,
            )) => AlertDescription::UnexpectedMessage,
            Self::Tls(Error::PeerMisbehaved(_)) => AlertDescription::IllegalParameter,
            Self::PartialTooLong(_) => AlertDescription::DecodeError,
            _ => AlertDescription::InternalError,
        })
    }
}

fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(refusal) => {
            format!("the peer's certificate is refused: {}", refused(refusal))
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server accepts only clients that have a certificate; give one with its key".into()
        }
        Error::AlertReceived(alert) => {
            format!("the peer ended the session with the alert {alert:?}; its log may say why")
        }
        other => other.to_string(),
    }
}

/// What is wrong with a certificate that did not pass verification, and the remedy.
fn refused(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::BadEncoding => {
            "one of its certificates is not valid X.509; issue or copy it again".into()
        }
        E::Expired => "it has expired; renew it".into(),
        E::ExpiredContext { time, not_after } => {
            format!(
                "it, or the trusted root above it, expired {} ago; renew that one",
                between(*not_after, *time)
            )
        }
        E::NotValidForName => "it is for another name than the one asked for".into(),
        E::NotValidForNameContext { expected, presented } => format!(
            "it is not for {} but for {}; ask for a name that it has, or issue it for this one",
            expected.to_str(),
            listed(presented)
        ),
        E::NotValidYet => "its validity has not begun; is this machine's clock right?".into(),
        E::NotValidYetContext { time, not_before } => format!(
            "it is valid only in {}; is this machine's clock right?",
            between(*time, *not_before)
        ),
        E::UnknownIssuer => "none of the trusted roots issued it; trust the root that did, and \
                             let the peer send its intermediate certificates"
            .into(),
        E::BadSignature => "a signature is wrong: the trusted root has the issuer's name but \
                            another key (trust the root that issued it), or the peer does not \
                            hold its key"
            .into(),
        error if is_authority_as_leaf(error) => {
            "it is an authority's (CA:TRUE) and may not name a server itself; issue another from it"
                .into()
        }
        E::InvalidPurpose => {
            "it is for something else; issue one whose purposes have this one".into()
        }
        error if unnamed(error) == Some(&webpki::Error::PathLenConstraintViolated) => {
            "more authorities stand in its chain than one of them allows below itself (its path \
             length)"
                .into()
        }
        E::Other(other) => other.to_string(),
        other => other.to_string(),
    }
}

/// Whether rustls refused a certificate as a peer's own because it is an authority's.
pub(crate) fn is_authority_as_leaf(error: &CertificateError) -> bool {
    unnamed(error) == Some(&webpki::Error::CaUsedAsEndEntity)
}

fn between(earlier: UnixTime, later: UnixTime) -> String {
    let seconds = later.as_secs().saturating_sub(earlier.as_secs());
    days(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// Names from a stranger's certificate: a few, and of each no more than a name may have.
fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "no name at all".into();
    }
    let shown = names.iter().take(NAMES_SHOWN_MAX).map(|name| {
        // rustls writes DnsName("one.test").
        let name = name.split_once('(').map_or(name.as_str(), |(_, name)| name);
        let name = name.trim_matches(['"', ')']);
        name.chars().filter(char::is_ascii_graphic).take(NAME_CHARS_MAX).collect::<String>()
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => shown,
        others => format!("{shown} and {others} more"),
    }
}

/// Characters of a host name (RFC 1035 section 2.3.4).
const NAME_CHARS_MAX: usize = 255;
/// Names of a refused certificate that an error lists.
const NAMES_SHOWN_MAX: usize = 4;
