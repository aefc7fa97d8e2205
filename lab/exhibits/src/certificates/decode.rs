//! From a file's text to what a handshake needs: [`Decoded`] certificates and [`certified`] keys.

use std::{fmt, sync::Arc};

use rustls::{
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
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
    /// Parses a whole chain from its PEM, which is what a handshake costs whoever keeps nothing.
    ///
    /// # Errors
    /// The text holds something that is no certificate.
    pub(super) fn chain(text: &[u8]) -> Result<Vec<Self>, Error> {
        let wrong =
            |error: &dyn fmt::Display| Error::Check(format!("decode a certificate: {error}"));
        let decode = |der: Result<CertificateDer<'static>, pem::Error>| -> Result<Self, Error> {
            let der = der.map_err(|error| wrong(&error))?;
            let (_, certificate) =
                X509Certificate::from_der(&der).map_err(|error| wrong(&error))?;
            let serial = certificate.raw_serial().into();
            let issuer = certificate.issuer().as_raw().into();
            Ok(Self { der, serial, issuer })
        };
        CertificateDer::pem_slice_iter(text).map(decode).collect()
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
