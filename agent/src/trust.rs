//! TLS client configuration of the agent: trusted roots and client identity. [`client_config`].
//!
//! Certificates of servers are judged by the engine's verifier, which bounds a chain before it
//! searches a path in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::time_provider::DefaultTimeProvider;
use sealane_certificate_files::{CertificateFileError, Exposed, mode_for_others, read_at_most};
use sealane_engine::certificates::CertificateError;
use sealane_engine::client::{
    ClientContexts, ClientIdentity, ClientOptions, ClientOptionsError, ROOTS_BYTES_MAX, Roots,
};
use sealane_engine::client_certificates::ClientRootsError;
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, ProviderError, lane_provider};
use sealane_engine::session::SessionError;
use zeroize::Zeroizing;

use crate::settings::{Identity, RootSource};

/// TLS settings for a client that trusts `roots`, and shows a certificate if it has one.
///
/// # Errors
/// Files cannot be read, or do not hold what they should.
pub(crate) fn client_config(
    roots: &[RootSource],
    identity: Option<&Identity>,
) -> Result<ClientConfig, TrustError> {
    let mut options = ClientOptions::trusting(read_roots(roots)?);
    options.identity = identity.map(client_identity).transpose()?;
    let context = ClientContexts::new().context(&options)?;
    let config = context.replica(Arc::new(DefaultTimeProvider))?;
    Ok(Arc::unwrap_or_clone(config))
}

fn client_identity(identity: &Identity) -> Result<ClientIdentity, TrustError> {
    let IdentityTexts { chain, key } = read_identity(identity)?;
    let label = |path: &Path| path.display().to_string();
    let (chain_label, key_label) = (label(&identity.certificate), label(&identity.key));
    Ok(ClientIdentity::from_pem_pair((&chain_label, &chain), (&key_label, &key))?)
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

/// The certificate chain of this machine and its key, as PEM.
pub(crate) struct IdentityTexts {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Zeroizing<Vec<u8>>,
}

/// Reads the chain and the private key of this machine.
///
/// # Errors
/// They cannot be read, or other users can read the key.
pub(crate) fn read_identity(identity: &Identity) -> Result<IdentityTexts, TrustError> {
    let Identity { certificate, key: key_path } = identity;
    let mut chain = Vec::new();
    read_at_most(certificate, IDENTITY_BYTES_MAX, &mut chain)?;
    // With this capacity it never moves, and leaves no copy behind.
    let mut key = Zeroizing::new(Vec::with_capacity(IDENTITY_BYTES_MAX + 1));
    read_at_most(key_path, IDENTITY_BYTES_MAX, &mut key)?;
    let broken = |what: String| TrustError::Identity { path: key_path.clone(), what };
    let facts = std::fs::metadata(key_path).map_err(|error| broken(error.to_string()))?;
    if let Some(mode) = mode_for_others(&facts) {
        return Err(TrustError::Exposed(Exposed { path: key_path.clone(), mode }));
    }
    Ok(IdentityTexts { chain, key })
}

/// The authorities in these files.
fn read_roots(sources: &[RootSource]) -> Result<Roots, TrustError> {
    let read = |source: &RootSource| {
        let path = match source {
            RootSource::File(path) => path.clone(),
            RootSource::System => system_bundle().ok_or(TrustError::NoSystemBundle)?,
        };
        let mut text = Vec::new();
        read_at_most(&path, ROOTS_BYTES_MAX, &mut text)?;
        let roots = Roots::from_pem(&path.display().to_string(), &text)?;
        Ok(match source {
            RootSource::File(_) => roots,
            // The operator cannot correct the bundle of a distribution.
            RootSource::System => roots.usable(),
        })
    };
    let each = sources.iter().map(read).collect::<Result<Vec<_>, TrustError>>()?;
    Ok(Roots::joined(&each)?)
}

fn system_bundle() -> Option<PathBuf> {
    SYSTEM_BUNDLES.iter().map(Path::new).find(|path| path.is_file()).map(Path::to_owned)
}

/// Why an authority's server cannot be verified. The fault is the operator's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    /// A file does not hold the certificate or the key of the listener.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Roots or this machine's own certificate are of no use to a client.
    #[error(transparent)]
    Client(#[from] ClientOptionsError),
    /// Roots or revocation lists are of no use to the listener.
    #[error("client_roots, revocation_lists: {0}")]
    Clients(#[from] ClientRootsError),
    /// Others can read the private key.
    #[error(transparent)]
    Exposed(Exposed),
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] CertificateFileError),
    /// A file does not hold what this machine is to show.
    #[error("{}: {what}; name a file in PEM", path.display())]
    Identity { path: PathBuf, what: String },
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
    /// TLS rejects the configuration.
    #[error("{}", words(.0))]
    Tls(#[from] rustls::Error),
}

fn words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            "the key does not belong to the certificate; name the one that it was issued for".into()
        }
        error => SessionError::Tls(error.clone()).to_string(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that takes a path may be given that of a private key, also a damaged one.
    #[test]
    fn no_error_quotes_a_file() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.key");
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let (front, _) = key.split_at(key.len() / 2);
        let line = key.lines().nth(1).unwrap().to_owned();
        let damaged = [front.to_owned(), key.replacen("-----\n", &format!("{line}\n"), 1)];
        for text in damaged.iter().chain([&key, &line]) {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let identity = Identity { certificate: path.clone(), key: path.clone() };
            let roots = read_roots(&[RootSource::File(path.clone())]).map(drop).unwrap_err();
            let identity = client_identity(&identity).map(drop).unwrap_err();
            for error in [roots, identity].map(|error| format!("{error} {error:?}")) {
                assert!(!error.contains(&line[..16]) && error.contains("secret.key"), "{error}");
            }
        }
    }

    #[test]
    fn unusable_roots_are_reported_with_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roots.pem");
        let error = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let config = client_config(&[RootSource::File(path.clone())], None);
            config.map(drop).unwrap_err().to_string()
        };
        assert!(
            error("").contains("roots.pem: no certificate in it: the file is empty"),
            "{}",
            error("")
        );
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(error(broken).starts_with("roots: "), "{}", error(broken));
        assert!(error(broken).contains("roots.pem: certificate 1 is not"), "{}", error(broken));
        let absent = client_config(&[RootSource::File(folder.path().join("absent"))], None);
        assert!(absent.map(drop).unwrap_err().to_string().contains("absent"));
    }
}
