//! How a lane checks a client's certificate.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::roots::Trust;
use super::{ClientRoots, ClientStanding, Distrust};
use crate::peer_chain::PeerChain;

/// A lane's own verifier. The roots behind it are memory that all lanes read and none writes.
#[derive(Debug)]
pub(crate) struct LaneVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    required: bool,
    subjects: Vec<DistinguishedName>,
    trust: Arc<Trust>,
}

impl LaneVerifier {
    /// A verifier against `roots`; if a certificate is not `required`, handshakes let any pass.
    pub(crate) fn new(roots: &ClientRoots, required: bool, provider: &CryptoProvider) -> Self {
        Self {
            algorithms: provider.signature_verification_algorithms,
            required,
            subjects: roots.subjects().to_vec(),
            trust: roots.trust(),
        }
    }

    /// Whether handshakes fail without a chain that the roots vouch for.
    pub(super) fn requires(&self) -> bool {
        self.required
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
            Some(now) => self.trust.verify(leaf, intermediates, now, &self.algorithms),
            None => Err(Error::FailedToGetCurrentTime),
        };
        match verified {
            Ok(_) => ClientStanding::Verified,
            Err(error) => ClientStanding::Unverified(Distrust::of(error, chain)),
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
            return self.trust.verify(end_entity, intermediates, now, &self.algorithms);
        }
        // Whoever judges it afterwards, in whatever language, reads it without a surprise.
        PeerChain::parse(end_entity, intermediates)?;
        Ok(ClientCertVerified::assertion())
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
