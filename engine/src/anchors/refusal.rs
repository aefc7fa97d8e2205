//! Converts webpki's errors about a chain into those of rustls.

use std::sync::Arc;

use rustls::{CertificateError, Error, OtherError};
use webpki::Error as E;

/// The error of rustls for one of webpki, from which rustls chooses the alert. rustls keeps its own
/// translation to itself.
pub(crate) fn refusal(error: E) -> Error {
    Error::InvalidCertificate(match error {
        E::BadDer | E::BadDerTime | E::TrailingData(_) => CertificateError::BadEncoding,
        E::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
        E::CertNotValidForName(names) => CertificateError::NotValidForNameContext {
            expected: names.expected,
            presented: names.presented,
        },
        E::CertNotValidYet { time, not_before } => {
            CertificateError::NotValidYetContext { time, not_before }
        }
        E::CertRevoked => CertificateError::Revoked,
        E::CrlExpired { time, next_update } => {
            CertificateError::ExpiredRevocationListContext { time, next_update }
        }
        E::InvalidCertValidity => CertificateError::Expired,
        E::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        E::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        E::UnknownIssuer => CertificateError::UnknownIssuer,
        E::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus,
        E::UnsupportedSignatureAlgorithmContext(context) => {
            CertificateError::UnsupportedSignatureAlgorithmContext {
                signature_algorithm_id: context.signature_algorithm_id,
                supported_algorithms: context.supported_algorithms,
            }
        }
        E::UnsupportedSignatureAlgorithmForPublicKeyContext(context) => {
            CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                signature_algorithm_id: context.signature_algorithm_id,
                public_key_algorithm_id: context.public_key_algorithm_id,
            }
        }
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}

/// The error of webpki behind one of rustls, if rustls has no variant for it.
pub(crate) fn unnamed(error: &CertificateError) -> Option<&E> {
    match error {
        CertificateError::Other(other) => other.0.downcast_ref(),
        _ => None,
    }
}

/// The fault of a certificate or a list that cannot be read, in plain words.
pub(crate) fn words(error: &E) -> String {
    let words = match error {
        E::BadDer | E::BadDerTime | E::TrailingData(_) => "it is damaged, or not DER",
        E::UnsupportedCertVersion => "it is not of version 3",
        E::UnsupportedCriticalExtension => "it has a critical extension that is not known",
        E::UnsupportedCrlVersion => "it is not of version 2",
        E::UnsupportedDeltaCrl => "it is a delta list, which has only the changes of another",
        E::UnsupportedCrlIssuingDistributionPoint => {
            "it is for a distribution point whose name is relative to its issuer's"
        }
        E::UnsupportedIndirectCrl => "it is an indirect list, for certificates of other issuers",
        E::UnsupportedRevocationReasonsPartitioning => "it is for some reasons of revocation only",
        other => return spaced(&format!("{other:?}")),
    };
    words.to_owned()
}

/// The name of an error as words: `MalformedExtensions` is "malformed extensions".
pub(crate) fn spaced(name: &str) -> String {
    let name = name.split(['(', '{', ' ']).next().unwrap_or_default();
    let mut words = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        if c.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_words() {
        assert_eq!(words(&E::MalformedExtensions), "malformed extensions");
        assert!(words(&E::UnsupportedDeltaCrl).starts_with("it is a delta list"));
        let refused = refusal(E::NameConstraintViolation);
        let Error::InvalidCertificate(refused) = refused else { panic!("{refused}") };
        assert_eq!(unnamed(&refused).map(words).as_deref(), Some("name constraint violation"));
    }
}
