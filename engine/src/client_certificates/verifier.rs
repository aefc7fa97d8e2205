//! How a lane checks a client's certificate.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::VerifierBuilderError;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::pinned::Pinned;
use super::{ClientRoots, ClientStanding, Distrust};
use crate::session::is_authority_as_leaf;

/// A lane's own verifier. The roots behind it are memory that all lanes read and none writes.
#[derive(Debug)]
pub(crate) struct LaneVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// None if only clients' own certificates are trusted.
    chain: Option<Arc<dyn ClientCertVerifier>>,
    pinned: Pinned,
    required: bool,
    subjects: Vec<DistinguishedName>,
}

impl LaneVerifier {
    /// A verifier against `roots`; if a certificate is not `required`, handshakes let any pass.
    pub(crate) fn new(
        roots: &ClientRoots,
        required: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        Ok(Self {
            algorithms: provider.signature_verification_algorithms,
            chain: roots.verifier(provider)?,
            pinned: roots.pinned(),
            required,
            subjects: roots.subjects().to_vec(),
        })
    }

    /// What a chain is worth at a time.
    pub(crate) fn standing(
        &self,
        chain: &[CertificateDer<'_>],
        now: Option<UnixTime>,
    ) -> ClientStanding {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return ClientStanding::Absent;
        };
        let verified = match now {
            Some(now) => self.verify(leaf, intermediates, now),
            None => Err(Error::FailedToGetCurrentTime),
        };
        match verified {
            Ok(_) => ClientStanding::Verified,
            Err(error) => ClientStanding::Unverified(Distrust::of(error, chain)),
        }
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let decided = match &self.chain {
            Some(chain) => chain.verify_client_cert(leaf, intermediates, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        let refused = match decided {
            Err(Error::InvalidCertificate(error))
                if error == CertificateError::UnknownIssuer || is_authority_as_leaf(&error) =>
            {
                error
            }
            decided => return decided,
        };
        match self.pinned.judge(leaf, now) {
            Some(judged) => judged.map(|()| ClientCertVerified::assertion()),
            None => Err(Error::InvalidCertificate(refused)),
        }
    }
}

impl ClientCertVerifier for LaneVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.required {
            self.verify(end_entity, intermediates, now)
        } else {
            Ok(ClientCertVerified::assertion())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
