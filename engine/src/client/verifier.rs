//! How a lane checks a server's certificate.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use super::context::ClientContext;

/// A lane's own verifier. The roots behind it are memory that all lanes read and none writes.
#[derive(Debug)]
pub(super) struct LaneVerifier {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// Checks chain, dates and name; none if nothing is asked of the certificate.
    pub(super) chain: Option<Arc<WebPkiServerVerifier>>,
    /// Whoever holds the configuration with this verifier, a connection among them, holds the
    /// context: it is freed after its last connection.
    pub(super) _context: Arc<ClientContext>,
}

impl ServerCertVerifier for LaneVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.chain {
            Some(chain) => chain.verify_server_cert(end_entity, intermediates, name, ocsp, now),
            None => Ok(ServerCertVerified::assertion()),
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
