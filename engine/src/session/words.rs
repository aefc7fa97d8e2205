//! The reason why a peer was rejected, in words for the operator.

use super::error::{is_authority_as_leaf, is_path_too_long};
use super::faults::{AlertDescription, CertificateError, Error, UnixTime};
use crate::anchors::{spaced, unnamed, words as library_words};
use crate::days::days;

/// The error, and the remedy where there is one.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(refusal) => {
            format!("the peer's certificate is refused: {}", refused(refusal))
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server accepts only clients that have a certificate; give one with its key".into()
        }
        Error::AlertReceived(alert) => {
            let alert = spaced(&format!("{alert:?}"));
            format!("the peer ended the session with the alert \"{alert}\"; its log may say why")
        }
        Error::InvalidMessage(what) => {
            format!(
                "the peer sent a message that is not valid TLS: {}",
                spaced(&format!("{what:?}"))
            )
        }
        Error::PeerIncompatible(what) => {
            format!("the peer is incompatible: {}", spaced(&format!("{what:?}")))
        }
        Error::PeerMisbehaved(what) => {
            format!("the peer broke the protocol: {}", spaced(&format!("{what:?}")))
        }
        other => other.to_string(),
    }
}

/// The fault of a certificate that did not pass verification, and the remedy.
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
        error if is_path_too_long(error) => {
            "more authorities stand in its chain than one of them allows below itself (its path \
             length)"
                .into()
        }
        E::Other(other) => unnamed(error).map_or_else(|| other.to_string(), library_words),
        other => spaced(&other.to_string()),
    }
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
