//! The verdict on a client's certificates, in the words of Node's `authorizationError`.

use sealane_engine::client_certificates::{ClientStanding, Distrust};

/// The code for `standing`; empty if nothing is wrong. `chain_len` is the number of certificates
/// that the client showed.
pub fn code(standing: &ClientStanding, chain_len: usize) -> &'static str {
    let distrust = match standing {
        ClientStanding::NotAsked | ClientStanding::Verified => return "",
        // Questionable, but it is Node's text.
        ClientStanding::Absent => return "UNABLE_TO_GET_ISSUER_CERT",
        ClientStanding::Unverified(distrust) => distrust,
    };
    code_of(distrust, chain_len)
}

/// The code for a chain of `chain_len` certificates that is not believed.
pub fn code_of(distrust: &Distrust, chain_len: usize) -> &'static str {
    match distrust {
        Distrust::BadCrlSignature => "CRL_SIGNATURE_FAILURE",
        Distrust::BadPurpose => "INVALID_PURPOSE",
        Distrust::BadSignature => "CERT_SIGNATURE_FAILURE",
        Distrust::CrlExpired => "CRL_HAS_EXPIRED",
        Distrust::Expired => "CERT_HAS_EXPIRED",
        Distrust::NotYetValid => "CERT_NOT_YET_VALID",
        // The addon asks for no names.
        Distrust::NameConstraints | Distrust::NotNamed | Distrust::Other(_) => "CERT_REJECTED",
        Distrust::PathTooLong => "PATH_LENGTH_EXCEEDED",
        Distrust::RevocationUnknown => "UNABLE_TO_GET_CRL",
        Distrust::Revoked => "CERT_REVOKED",
        Distrust::SelfSigned => "DEPTH_ZERO_SELF_SIGNED_CERT",
        Distrust::SelfSignedInChain => "SELF_SIGNED_CERT_IN_CHAIN",
        Distrust::UnknownIssuer if chain_len == 1 => "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
        Distrust::UnknownIssuer => "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_certificate_that_is_missing_or_not_believed_has_a_code() {
        assert_eq!(code(&ClientStanding::NotAsked, 0), "");
        assert_eq!(code(&ClientStanding::Verified, 2), "");
        assert_eq!(code(&ClientStanding::Absent, 0), "UNABLE_TO_GET_ISSUER_CERT");
        let unknown = ClientStanding::Unverified(Distrust::UnknownIssuer);
        assert_eq!(code(&unknown, 1), "UNABLE_TO_VERIFY_LEAF_SIGNATURE");
        assert_eq!(code(&unknown, 2), "UNABLE_TO_GET_ISSUER_CERT_LOCALLY");
    }
}
