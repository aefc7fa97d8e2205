//! From bytes to what a handshake needs: [`Decoded`] certificates and [`certified`] keys.

use std::sync::Arc;

use rustls::{
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::CertifiedKey,
};
use sealane_lab_model::error::Error;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate that was parsed whole, extensions included, and what is kept of it.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) der: CertificateDer<'static>,
    pub(super) serial: Box<[u8]>,
    /// The issuer's name, encoded.
    pub(super) issuer: Box<[u8]>,
}

impl Decoded {
    /// Parses it.
    ///
    /// # Errors
    /// The bytes are no certificate.
    pub(super) fn new(der: &CertificateDer<'static>) -> Result<Self, Error> {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|error| Error::Check(format!("decode a certificate: {error}")))?;
        Ok(Self {
            der: der.clone(),
            serial: certificate.raw_serial().into(),
            issuer: certificate.issuer().as_raw().into(),
        })
    }
}

/// Decodes a key, and joins it to its chain.
///
/// # Errors
/// The provider does not take the key.
pub(super) fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, Error> {
    let key = provider
        .key_provider
        .load_private_key(key.clone_key())
        .map_err(|error| Error::Check(format!("decode a key: {error}")))?;
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}
