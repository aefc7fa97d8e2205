//! The verdict on a client's certificates.

use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, Error};

use crate::anchors::unnamed;
use crate::certificates::is_self_issued;
use crate::session::{SessionError, is_authority_as_leaf};

/// The verdict on a client's certificates at a moment.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientStanding {
    /// The client showed no certificate.
    Absent,
    /// The policy asks for none.
    NotAsked,
    /// The client showed certificates, and the roots do not vouch for them.
    Unverified(Distrust),
    /// The roots vouch for them.
    Verified,
}

/// The reason why a client's certificates are not trusted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Distrust {
    /// An extension limits it to another purpose.
    #[error("the client's certificate is not for clients; issue one with the purpose clientAuth")]
    BadPurpose,
    /// The issuer's key did not sign it.
    #[error(
        "a signature in the client's chain is wrong: a trusted authority has the issuer's name but \
         another key"
    )]
    BadSignature,
    /// The only lists for it are not signed by its issuer's key, or that key may not sign lists.
    #[error(
        "a revocation list is not signed by the key that issued the client's certificate, or its \
         issuer may not sign lists; fetch the list again"
    )]
    BadCrlSignature,
    /// A revocation list should have been renewed by now.
    #[error("a revocation list is out of date; fetch the next one")]
    CrlExpired,
    /// It, or one of its issuers, has expired.
    #[error("the client's certificate, or one of its issuers', has expired; renew it")]
    Expired,
    /// The validity of it, or of one of its issuers, has not begun.
    #[error(
        "the client's certificate, or one of its issuers', is not valid yet; is this machine's \
         clock right?"
    )]
    NotYetValid,
    /// Anything else.
    #[error("the client's certificate cannot be verified: {0}")]
    Other(Error),
    /// A name of it or of one of its issuers violates an authority's name constraints.
    #[error(
        "a name in the client's chain is outside of what one of its authorities may issue for (its \
         name constraints)"
    )]
    NameConstraints,
    /// The certificate has none of the names that may come in.
    #[error(
        "the client's certificate has none of the names that are admitted; admit one of its own, \
         or issue another"
    )]
    NotNamed,
    /// An authority allows fewer authorities below itself.
    #[error(
        "there are more authorities in the client's chain than one of them allows below itself \
         (its path length)"
    )]
    PathTooLong,
    /// No revocation list covers it.
    #[error("no revocation list covers the client's certificate or one of its issuers; add it")]
    RevocationUnknown,
    /// The issuer revoked the certificate.
    #[error("the client's certificate, or one of its issuers', has been revoked")]
    Revoked,
    /// The certificate issued itself and is not among the trusted ones.
    #[error("the client's certificate is self-signed and not trusted")]
    SelfSigned,
    /// The chain ends in an authority that is not among the trusted ones.
    #[error("the client's chain ends in an authority that is not trusted")]
    SelfSignedInChain,
    /// No trusted authority issued it, and the chain ends before an authority.
    #[error(
        "no trusted authority issued the client's certificate; trust the one that did, and let the \
         client send its intermediate certificates"
    )]
    UnknownIssuer,
}

impl Distrust {
    /// The reason why a handshake that requires a certificate failed with `error`, if the client's
    /// certificate was the reason. The chain is gone by then, so a self-signed certificate is not
    /// recognized as such.
    pub fn of_handshake(error: &SessionError) -> Option<Self> {
        match error {
            SessionError::Tls(error @ Error::InvalidCertificate(_)) => {
                Some(Self::of(error.clone(), &[]))
            }
            _ => None,
        }
    }

    /// In one word, for logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::BadCrlSignature => "crl_signature",
            Self::BadPurpose => "purpose",
            Self::BadSignature => "signature",
            Self::CrlExpired => "crl_expired",
            Self::Expired => "expired",
            Self::NameConstraints => "name_constraints",
            Self::NotNamed => "name",
            Self::NotYetValid => "not_yet_valid",
            Self::Other(_) => "unusable",
            Self::PathTooLong => "path_length",
            Self::RevocationUnknown => "crl_missing",
            Self::Revoked => "revoked",
            Self::SelfSigned | Self::SelfSignedInChain | Self::UnknownIssuer => "unknown_ca",
        }
    }

    /// The reason why rustls rejected `chain`.
    pub(super) fn of(error: Error, chain: &[CertificateDer<'_>]) -> Self {
        use CertificateError as E;
        use webpki::Error as W;
        let Error::InvalidCertificate(refusal) = &error else { return Self::Other(error) };
        match refusal {
            E::ApplicationVerificationFailure => Self::NotNamed,
            E::BadSignature => Self::BadSignature,
            E::Expired | E::ExpiredContext { .. } => Self::Expired,
            E::ExpiredRevocationList | E::ExpiredRevocationListContext { .. } => Self::CrlExpired,
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => Self::BadPurpose,
            E::NotValidYet | E::NotValidYetContext { .. } => Self::NotYetValid,
            E::Revoked => Self::Revoked,
            E::UnknownIssuer => Self::unknown_issuer(chain),
            E::UnknownRevocationStatus => Self::RevocationUnknown,
            _ if is_authority_as_leaf(refusal)
                && chain.first().is_some_and(|leaf| is_self_issued(leaf)) =>
            {
                Self::SelfSigned
            }
            _ => match unnamed(refusal) {
                Some(W::InvalidCrlSignatureForPublicKey | W::IssuerNotCrlSigner) => {
                    Self::BadCrlSignature
                }
                Some(W::NameConstraintViolation) => Self::NameConstraints,
                Some(W::PathLenConstraintViolated) => Self::PathTooLong,
                _ => Self::Other(error),
            },
        }
    }

    fn unknown_issuer(chain: &[CertificateDer<'_>]) -> Self {
        match chain.iter().position(|certificate| is_self_issued(certificate)) {
            Some(0) => Self::SelfSigned,
            Some(_) => Self::SelfSignedInChain,
            None => Self::UnknownIssuer,
        }
    }
}
