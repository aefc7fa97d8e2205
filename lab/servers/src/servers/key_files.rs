//! The certificate that all servers of a round show: [`KeyFiles`].

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use sealane_lab_harness::credentials::{Credentials, Side};
use sealane_lab_model::{error::Error, scenario::Key};

use crate::load::Roots;

/// A certificate for all servers.
pub struct KeyFiles {
    /// Certificate, then key.
    pub pem: PathBuf,
    /// The certificate alone.
    pub leaf: CertificateDer<'static>,
    /// The root that signed it.
    pub roots: Roots,
}

impl KeyFiles {
    /// Makes one of that type in `folder`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn make(folder: &Path, key: Key) -> Result<Self, Error> {
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
