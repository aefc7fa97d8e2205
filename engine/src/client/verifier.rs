//! Verification of a server's certificate by a lane.

use std::sync::Arc;

use rustls::Error;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{EndEntityCert, ExpirationPolicy, KeyUsage};

use super::context::ClientContext;
use crate::anchors::{Asked, refusal};
use crate::handshake_signatures::check_handshake_signatures;
use crate::peer_chain::PeerChain;
use crate::pinned::is_common_name;
use crate::revocation::RevocationLists;

/// A lane's own verifier. The roots behind it are memory that all lanes read and none writes.
#[derive(Debug)]
pub(crate) struct LaneVerifier {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// Each holder of the configuration with this verifier, such as a connection, also holds the
    /// context. So the context is freed after its last connection.
    pub(super) context: Arc<ClientContext>,
}

impl ServerCertVerifier for LaneVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(anchors) = self.context.believed() {
            let chain = PeerChain::parse(end_entity, intermediates)?;
            let asked = Asked {
                algorithms: &self.algorithms,
                crl_expiration: ExpirationPolicy::Enforce,
                crls: &RevocationLists::default(),
                now,
                usage: KeyUsage::server_auth(),
            };
            match anchors.verify(end_entity, &chain, &asked) {
                Ok(own) => own.verify_is_valid_for_subject_name(name).map_err(refusal)?,
                Err(error) => {
                    self.context.pinned().admit(end_entity, error, now)?;
                    check_name_of_pinned(end_entity, name)?;
                }
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    check_handshake_signatures!();
}

fn check_name_of_pinned(own: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    let certificate = EndEntityCert::try_from(own).map_err(refusal)?;
    match certificate.verify_is_valid_for_subject_name(name) {
        Err(_) if is_common_name(own, name) => Ok(()),
        judged => judged.map_err(refusal),
    }
}
