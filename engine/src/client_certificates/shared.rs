//! A verifier of clients' certificates for servers that are not lanes: [`ClientRoots::verifier`].

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName, Error, OtherError};

use super::{ClientRoots, Distrust};
use crate::handshake_signatures::check_handshake_signatures;

impl ClientRoots {
    /// A verifier that requires a certificate, for a server with sessions that move between
    /// threads. It judges a chain as lanes do, and reads no more of it.
    pub fn verifier(&self, provider: &CryptoProvider) -> Arc<dyn ClientCertVerifier> {
        let algorithms = provider.signature_verification_algorithms;
        Arc::new(SharedVerifier { algorithms, roots: self.clone() })
    }
}

/// A verifier that all threads may use.
#[derive(Debug)]
pub(crate) struct SharedVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    roots: ClientRoots,
}

impl ClientCertVerifier for SharedVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.roots.subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let judged = self.roots.judge(end_entity, intermediates, now, &self.algorithms);
        judged.map(|_| ClientCertVerified::assertion()).map_err(of_server)
    }

    check_handshake_signatures!();
}

/// A list that has ended is a fault of the server. rustls answers `unknown_ca` to it, which sends
/// the client's operator to the wrong place, so it becomes `certificate_unknown`.
fn of_server(error: Error) -> Error {
    match Distrust::of(error.clone(), &[]) {
        ended @ Distrust::CrlExpired => {
            Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(ended))))
        }
        _ => error,
    }
}
