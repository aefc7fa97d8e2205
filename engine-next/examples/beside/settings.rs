//! One name, its certificate, and a client that trusts it.

use std::sync::Arc;

use rcgen::generate_simple_self_signed;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};

use crate::Result;

/// What all servers and clients have in common.
pub(crate) struct Settings {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) client: Arc<ClientConfig>,
}

impl Settings {
    /// With a new key on P-256.
    pub(crate) fn generate() -> Result<Self> {
        let made = generate_simple_self_signed(vec![NAME.to_owned()])?;
        let certificate = made.cert.der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone())?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.resumption = Resumption::disabled();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
        Ok(Self { certificate, key, client: Arc::new(client) })
    }
}

/// What is asked for.
pub(crate) const NAME: &str = "sealane.example";
