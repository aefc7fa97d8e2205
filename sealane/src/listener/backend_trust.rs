//! How TLS is spoken to the backends of a listener: the roots that they are held against, and the
//! client certificate that they are shown, into the context of a client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealane_certificate_files::{CertificateFileError, Exposed, read_at_most};
use sealane_engine::certificates::PEM_BYTES_MAX;
use sealane_engine::client::{
    ClientContext, ClientIdentity, ClientOptions, ClientOptionsError, ROOTS_BYTES_MAX, Roots,
    Verification,
};
use sealane_engine::policy::Group;
use sealane_engine::provider::ProviderChoice;
use thiserror::Error;
use zeroize::Zeroizing;

use super::{Material, Reading, Survey, said_of_route};
use crate::config::{self, BackendTls, CertificateSource, RootSource, Route, Trust};

pub(super) const MATERIAL: Material = Material { files, read };

fn files(listener: &config::Listener) -> Vec<PathBuf> {
    listener.destinations().filter_map(|(_, to)| to.backend_tls.as_ref()).flat_map(of_tls).collect()
}

fn of_tls(tls: &BackendTls) -> Vec<PathBuf> {
    let certificate = tls.client_certificate.iter();
    let mut files: Vec<PathBuf> = certificate.flat_map(CertificateSource::files).collect();
    if let Trust::Roots(sources) = &tls.trust {
        files.extend(sources.iter().filter_map(|source| match source {
            RootSource::File(path) => Some(path.clone()),
            RootSource::System => system_bundle(),
        }));
    }
    files
}

fn read(survey: &mut Survey<'_>, reading: &mut Reading<'_, '_>) {
    for (route, destination) in survey.listener.destinations() {
        let tls = destination.backend_tls.as_ref();
        let context = tls.and_then(|tls| context(survey, reading, route, tls));
        survey.backend_tls.push(context);
    }
}

fn context(
    survey: &mut Survey<'_>,
    reading: &mut Reading<'_, '_>,
    route: Option<&Route>,
    tls: &BackendTls,
) -> Option<Arc<ClientContext>> {
    let named = |text: String| said_of_route(route, &format!("backend_tls: {text}"));
    let loaded = load(tls, reading.crypto, reading.now_s());
    survey.errors.extend(loaded.errors.iter().map(|error| named(error.to_string())));
    survey.warn(loaded.warnings.into_iter().map(named));
    for expiry in &loaded.expiries {
        let label = named(expiry.source.clone());
        survey.warn_if_soon(&label, expiry.not_after_s, reading.around.now);
    }
    survey.expiries.extend(loaded.expiries);
    let made = reading.around.clients.context(&loaded.options?);
    made.map_err(|error| survey.errors.push(named(error.to_string()))).ok()
}

/// Reads what `tls` names; `now_s` is Unix time, for warnings about validity.
fn load(tls: &BackendTls, provider: ProviderChoice, now_s: i64) -> LoadedTrust {
    let mut loaded = LoadedTrust {
        errors: Vec::new(),
        expiries: Vec::new(),
        options: None,
        warnings: Vec::new(),
    };
    let roots = match &tls.trust {
        Trust::Anybody => {
            loaded.warnings.push(ANYBODY.to_owned());
            Some(Roots::none())
        }
        Trust::Roots(sources) => loaded.roots(sources),
    };
    let key = tls.client_certificate.as_ref().map(CertificateSource::key);
    let exposed = key.and_then(Exposed::find);
    loaded.warnings.extend(exposed.map(|exposed| exposed.to_string()));
    let identity = tls.client_certificate.as_ref().map(|source| loaded.identity(source, now_s));
    if let Some(roots) = roots.filter(|_| loaded.errors.is_empty()) {
        loaded.options = Some(ClientOptions {
            alpn: tls.alpn.clone(),
            groups: Group::ALL.to_vec(),
            identity: identity.flatten(),
            provider,
            require_extended_master_secret: tls.require_extended_master_secret,
            resumption: true,
            roots,
            verification: match tls.trust {
                Trust::Anybody => Verification::DangerousNone,
                Trust::Roots(_) => Verification::Full,
            },
            versions: tls.versions,
        });
    }
    let expired = loaded.expiries.iter().filter(|expiry| expiry.not_after_s < now_s);
    loaded.warnings.extend(expired.map(Expiry::warning));
    loaded
}

/// What was read.
struct LoadedTrust {
    /// Why there are no options.
    errors: Vec<TrustError>,
    /// When what was read expires.
    expiries: Vec<Expiry>,
    /// For a context of the engine's.
    options: Option<ClientOptions>,
    /// What the operator should know.
    warnings: Vec<String>,
}

/// When a file's certificate that matters between us and backends expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The last second of validity, in Unix time; of several the first to come.
    pub not_after_s: i64,
    /// The file.
    pub source: String,
    /// What it is for.
    pub usage: Usage,
}

/// What a certificate is for between us and backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// We show it to backends.
    Client,
    /// An authority whose certificates we believe.
    Root,
}

impl Usage {
    /// In metrics and state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Root => "root",
        }
    }
}

impl Expiry {
    /// That it has expired.
    fn warning(&self) -> String {
        match self.usage {
            Usage::Client => {
                format!("{}: has expired; backends will refuse it: renew it", self.source)
            }
            Usage::Root => format!(
                "{}: an authority in it has expired, and vouches for nobody any more; replace it",
                self.source
            ),
        }
    }
}

/// Why TLS to backends cannot be spoken as configured. The fault is the operator's.
#[derive(Debug, Error)]
enum TrustError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] CertificateFileError),
    /// What a file holds is of no use.
    #[error(transparent)]
    Options(#[from] ClientOptionsError),
    /// The system has no bundle where we look for one.
    #[error(
        "roots: this system keeps no bundle of authorities in {}; install one (ca-certificates), \
         or name a file in [listener.destination.backend_tls] roots",
        SYSTEM_BUNDLES.join(", ")
    )]
    NoSystemBundle,
}

impl LoadedTrust {
    fn roots(&mut self, sources: &[RootSource]) -> Option<Roots> {
        let read: Vec<Roots> = sources
            .iter()
            .filter_map(|source| {
                read_roots(source, &mut self.expiries).map_err(|e| self.errors.push(e)).ok()
            })
            .collect();
        Roots::joined(&read).map_err(|error| self.errors.push(error.into())).ok()
    }

    fn identity(&mut self, source: &CertificateSource, now_s: i64) -> Option<ClientIdentity> {
        let identity = read_identity(source).map_err(|error| self.errors.push(error)).ok()?;
        let certificate = identity.certificate();
        let label = certificate.label();
        if certificate.not_before_s() > now_s {
            self.warnings.push(format!(
                "{label}: is not valid yet; backends will refuse it: is this machine's clock right?"
            ));
        }
        let not_after_s = certificate.not_after_s();
        self.expiries.push(Expiry { not_after_s, source: label.to_owned(), usage: Usage::Client });
        Some(identity)
    }
}

/// The dates of the system's authorities are the distribution's to watch.
fn read_roots(source: &RootSource, expiries: &mut Vec<Expiry>) -> Result<Roots, TrustError> {
    let path = match source {
        RootSource::File(path) => path.clone(),
        RootSource::System => system_bundle().ok_or(TrustError::NoSystemBundle)?,
    };
    let mut text = Vec::new();
    read_at_most(&path, ROOTS_BYTES_MAX, &mut text)?;
    let label = path.to_string_lossy().into_owned();
    let roots = Roots::from_pem(&label, &text)?;
    if let (RootSource::File(_), Some(not_after_s)) = (source, roots.soonest_expiry_s()?) {
        expiries.push(Expiry { not_after_s, source: label, usage: Usage::Root });
    }
    Ok(roots)
}

fn read_identity(source: &CertificateSource) -> Result<ClientIdentity, TrustError> {
    let read = |path: &Path| -> Result<_, TrustError> {
        // Large enough for any file, so that it never moves and leaves a copy of a key behind.
        let mut text = Zeroizing::new(Vec::with_capacity(PEM_BYTES_MAX + 1));
        read_at_most(path, PEM_BYTES_MAX, &mut text)?;
        Ok((path.to_string_lossy().into_owned(), text))
    };
    Ok(match source {
        CertificateSource::Pair { chain, key } => {
            let ((chain_label, chain), (key_label, key)) = (read(chain)?, read(key)?);
            ClientIdentity::from_pem_pair((&chain_label, &chain), (&key_label, &key))?
        }
        CertificateSource::Path(path) => {
            let (label, text) = read(path)?;
            ClientIdentity::from_pem(&label, &text)?
        }
    })
}

fn system_bundle() -> Option<PathBuf> {
    SYSTEM_BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// Where systems keep the authorities that they believe: Debian and Alpine, Fedora, openSUSE, BSD.
pub(crate) const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

const ANYBODY: &str = "insecure_accept_any_certificate: whoever answers is believed to be the \
                       backend, and can read and change everything; name its authority in roots \
                       instead";
