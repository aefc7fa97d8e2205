//! A CA and a certificate for this machine's own names, made once and used until they run out.
//!
//! The CA's key signs one certificate and is then forgotten: whoever trusts the CA in a browser
//! need not fear that the key is ever found.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::pki_types::{ServerName, UnixTime};
use sealane_engine::certificates::DefaultCertificate;
use sealane_engine::certificates::IndexBuilder;
use sealane_engine::client::{ClientContexts, ClientOptions, Roots};
use sealane_engine::policy::Policy;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use thiserror::Error;
use zeroize::Zeroizing;

/// Where the demo's certificates are.
pub(super) struct DemoFiles {
    /// The CA's certificate, to verify with.
    pub(super) ca: PathBuf,
    /// The server's certificate with its key.
    pub(super) certificate: PathBuf,
}

impl DemoFiles {
    /// Sees to it that both files are in `directory`, fit each other, and last for
    /// [`VALIDITY_LEFT_MIN`].
    pub(super) fn provide(directory: &Path) -> Result<Self, DemoFilesError> {
        let files =
            Self { ca: directory.join("ca.pem"), certificate: directory.join("localhost.pem") };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if !files.last_until(now + VALIDITY_LEFT_MIN) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(|source| DemoFilesError::Write { path: directory.to_owned(), source })?;
            files.make(now)?;
        }
        Ok(files)
    }

    /// Whether a client that trusts the CA will accept the certificate at `then`. Anything that is
    /// wrong with the files means no: they are the demo's own and are made again.
    fn last_until(&self, then: Duration) -> bool {
        let Ok(provider) = lane_provider(ProviderChoice::default(), &Policy::default().groups)
        else {
            return false;
        };
        let read = |path: &Path| fs::read(path).map(Zeroizing::new);
        let (Ok(ca), Ok(certificate)) = (read(&self.ca), read(&self.certificate)) else {
            return false;
        };
        let mut builder = IndexBuilder::new(&provider.crypto, 0);
        builder.add("localhost.pem", &certificate);
        let index = builder.finish(DefaultCertificate::First).index;
        let Some(certificate) = index.iter().next() else { return false };
        let Some(leaf) = certificate.chain().next() else { return false };
        certificate.verify(&provider.crypto).is_ok() && verifies(&ca, leaf, then)
    }

    fn make(&self, now: Duration) -> Result<(), DemoFilesError> {
        let made = Made::new(now)?;
        write(&self.ca, 0o644, made.ca.as_bytes())?;
        write(&self.certificate, 0o600, made.certificate.as_bytes())
    }
}

/// Why there are no certificates.
#[derive(Debug, Error)]
pub(super) enum DemoFilesError {
    /// A fault of Sealane.
    #[error("the demo's certificates cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    /// The system refuses.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

fn verifies(ca: &[u8], leaf: &[u8], then: Duration) -> bool {
    let verifier = Roots::from_pem("ca.pem", ca)
        .and_then(|roots| ClientContexts::new().context(&ClientOptions::trusting(roots)))
        .and_then(|context| context.server_verifier());
    let (Ok(verifier), Ok(name)) = (verifier, ServerName::try_from("localhost")) else {
        return false;
    };
    let then = UnixTime::since_unix_epoch(then);
    verifier.verify_server_cert(&leaf.into(), &[], &name, &[], then).is_ok()
}

/// Both files' texts.
struct Made {
    ca: String,
    certificate: Zeroizing<String>,
}

impl Made {
    fn new(now: Duration) -> Result<Self, DemoFilesError> {
        let ca_key = key()?;
        let mut ca = parameters(now, &[])?;
        ca.distinguished_name.push(DnType::CommonName, "Sealane demo CA");
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let ca_text = ca.self_signed(&*ca_key)?.pem();
        let key = key()?;
        let mut certificate = parameters(now, &NAMES)?;
        certificate.distinguished_name.push(DnType::CommonName, "Sealane demo");
        certificate.use_authority_key_identifier_extension = true;
        certificate.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        certificate.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let signed = certificate.signed_by(&*key, &Issuer::from_params(&ca, &*ca_key))?;
        let key_text = Zeroizing::new(key.serialize_pem());
        let certificate = Zeroizing::new([&signed.pem(), key_text.as_str()].concat());
        Ok(Self { ca: ca_text, certificate })
    }
}

fn key() -> Result<Zeroizing<KeyPair>, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map(Zeroizing::new)
}

/// Both live equally long: a CA that outlived its only certificate would be of no use.
fn parameters(now: Duration, names: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    let epoch = date_time_ymd(1970, 1, 1);
    parameters.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
    parameters.not_after = epoch + now + VALIDITY;
    Ok(parameters)
}

/// Replaces the file whole, so that nobody sees half of it, nor an old file's mode.
fn write(path: &Path, mode: u32, text: &[u8]) -> Result<(), DemoFilesError> {
    let new = path.with_extension("new");
    let replace = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text)?;
        fs::rename(&new, path)
    };
    replace().map_err(|source| DemoFilesError::Write { path: path.to_owned(), source })
}

/// Names of this machine by itself; those under demo.localhost are there to be played with.
const NAMES: [&str; 4] = ["localhost", "*.demo.localhost", "127.0.0.1", "::1"];
/// The validity of certificates when they are made.
const VALIDITY: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// The validity that certificates must have left to be used again.
const VALIDITY_LEFT_MIN: Duration = Duration::from_secs(24 * 60 * 60);
/// A client's clock may be so much behind.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests;
