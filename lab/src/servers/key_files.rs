//! The certificate that all servers of a round show: [`KeyFiles`].

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::{
    credentials::{Credentials, Side},
    error::Error,
    load::Roots,
    scenario::Key,
};

/// A certificate for all servers.
pub(crate) struct KeyFiles {
    /// Certificate, then key.
    pub(crate) pem: PathBuf,
    /// The certificate alone.
    pub(crate) leaf: CertificateDer<'static>,
    /// The root that signed it.
    pub(crate) roots: Roots,
}

impl KeyFiles {
    /// Makes one of that type in `folder`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn make(folder: &Path, key: Key) -> Result<Self, Error> {
        let credentials = Credentials::make(folder, key)?;
        let read = |path: PathBuf| fs::read_to_string(&path).map_err(Error::file(path));
        let certificate = read(credentials.certificate(Side::Server))?;
        let pem = folder.join("both.pem");
        let text = certificate.clone() + &read(credentials.key(Side::Server))?;
        fs::write(&pem, text).map_err(Error::file(&pem))?;
        let leaf = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|error| Error::Check(format!("the lab's own certificate: {error}")))?;
        Ok(Self { pem, leaf, roots: Roots::read(&credentials.root())? })
    }
}
