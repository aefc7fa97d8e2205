//! Whom the agent believes when it speaks TLS, and who it says it is: [`client_config`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use sealane_certificate_files::{CertificateFileError, Exposed, mode_for_others, read_at_most};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, ProviderError, lane_provider};
use zeroize::Zeroizing;

use crate::settings::{Identity, RootSource};

/// Settings of TLS for a client that trusts whom `roots` name, and shows a certificate if it has
/// one.
///
/// # Errors
/// Files cannot be read, or do not hold what they should.
pub(crate) fn client_config(
    roots: &[RootSource],
    identity: Option<&Identity>,
) -> Result<ClientConfig, TrustError> {
    let config = ClientConfig::builder_with_provider(Arc::new(our_provider()?))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(read_roots(roots)?);
    match identity {
        None => Ok(config.with_no_client_auth()),
        Some(identity) => {
            let (chain, key) = read_identity(identity)?;
            Ok(config.with_client_auth_cert(chain, key)?)
        }
    }
}

/// The cryptography that lanes have too.
///
/// # Errors
/// There is none.
pub(crate) fn our_provider() -> Result<CryptoProvider, ProviderError> {
    let provider = lane_provider(ProviderChoice::Auto, &Group::ALL)
        .or_else(|_| lane_provider(ProviderChoice::AwsLc, &Group::ALL))?;
    Ok(provider.crypto)
}

/// The chain and the private key with which this machine says who it is.
///
/// # Errors
/// They cannot be read, are none, or others can read the key.
pub(crate) fn read_identity(
    identity: &Identity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TrustError> {
    let Identity { certificate, key } = identity;
    let broken = |path: &Path, what: String| TrustError::Identity { path: path.to_owned(), what };
    let mut text = Zeroizing::new(Vec::with_capacity(IDENTITY_BYTES_MAX + 1));
    read_at_most(certificate, IDENTITY_BYTES_MAX, &mut text)?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| broken(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(broken(certificate, "no certificate in it".into()));
    }
    text.clear();
    read_at_most(key, IDENTITY_BYTES_MAX, &mut text)?;
    let facts = std::fs::metadata(key).map_err(|error| broken(key, error.to_string()))?;
    if let Some(mode) = mode_for_others(&facts) {
        return Err(TrustError::Exposed(Exposed { path: key.clone(), mode }));
    }
    let private = PrivateKeyDer::from_pem_slice(&text);
    Ok((chain, private.map_err(|error| broken(key, error.to_string()))?))
}

/// The authorities that are in these files.
///
/// # Errors
/// They cannot be read, or have none.
pub(crate) fn read_roots(sources: &[RootSource]) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    for source in sources {
        let path = match source {
            RootSource::File(path) => path.clone(),
            RootSource::System => system_bundle().ok_or(TrustError::NoSystemBundle)?,
        };
        let mut text = Vec::new();
        read_at_most(&path, ROOTS_BYTES_MAX, &mut text)?;
        let broken = |what: String| TrustError::Broken { path: path.clone(), what };
        if text.len() > ROOTS_BYTES_MAX {
            return Err(broken(format!("is larger than {ROOTS_BYTES_MAX} bytes")));
        }
        let before = roots.len();
        for der in CertificateDer::pem_slice_iter(&text) {
            let der = der.map_err(|error| broken(error.to_string()))?;
            match (roots.add(der), source) {
                (Err(error), RootSource::File(_)) => return Err(broken(error.to_string())),
                // What a distribution ships that no library takes is not the operator's to mend.
                (Err(_), RootSource::System) | (Ok(()), _) => {}
            }
        }
        if roots.len() == before {
            return Err(broken("no certificate in it".into()));
        }
    }
    Ok(roots)
}

fn system_bundle() -> Option<PathBuf> {
    SYSTEM_BUNDLES.iter().map(Path::new).find(|path| path.is_file()).map(Path::to_owned)
}

/// Why an authority's server cannot be verified. The fault is the operator's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    /// A file does not hold roots.
    #[error("roots: {}: {what}; name a file with certificates in PEM", path.display())]
    Broken { path: PathBuf, what: String },
    /// Others can read the private key.
    #[error(transparent)]
    Exposed(Exposed),
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] CertificateFileError),
    /// A file does not hold what this machine is to show.
    #[error("{}: {what}; name a file in PEM", path.display())]
    Identity { path: PathBuf, what: String },
    /// A file does not hold revocation lists.
    #[error("revocation_lists: {}: {what}; name a file with lists in PEM", path.display())]
    Lists { path: PathBuf, what: String },
    /// The system has no bundle where we look for one.
    #[error(
        "roots: this system keeps no bundle of authorities in {}; install one (ca-certificates), \
         or name a file in roots",
        SYSTEM_BUNDLES.join(", ")
    )]
    NoSystemBundle,
    /// A password cannot be read.
    #[error("password: {0}")]
    Password(#[from] sealane_operator::KeySourceError),
    /// There is no cryptography.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// There is no version of TLS.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// Clients cannot be verified with what is in the files.
    #[error("client_roots, revocation_lists: {0}")]
    Verifier(String),
}

/// Where systems keep the authorities that they believe: Debian and Alpine, Fedora, openSUSE, BSD.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Bytes of a file with a chain or a private key.
const IDENTITY_BYTES_MAX: usize = 256 << 10;
/// Bytes of a file of roots.
const ROOTS_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_that_are_none_are_told_with_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roots.pem");
        let said = |text: &str| {
            std::fs::write(&path, text).unwrap();
            client_config(&[RootSource::File(path.clone())], None)
                .map(drop)
                .unwrap_err()
                .to_string()
        };
        assert!(said("").contains("roots.pem: no certificate in it; name a file with"));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(said(broken).starts_with("roots: "), "{}", said(broken));
        let absent = client_config(&[RootSource::File(folder.path().join("absent"))], None);
        assert!(absent.map(drop).unwrap_err().to_string().contains("absent"));
    }
}
