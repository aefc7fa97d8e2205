//! How TLS is spoken to the backends of a listener: the roots that they are held against, and the
//! client certificate that they are shown, into the context of a client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealane_certificate_files::{CertificateFileError, Exposed, read_at_most};
use sealane_config::{self as config, BackendTls, CertificateSource, RootSource, Route, Trust};
use sealane_engine::certificates::PEM_BYTES_MAX;
use sealane_engine::client::{
    ClientContext, ClientIdentity, ClientOptions, ClientOptionsError, ROOTS_BYTES_MAX, Roots,
    Verification,
};
use sealane_engine::policy::Group;
use thiserror::Error;
use zeroize::Zeroizing;

use super::{Found, Material, Reading, Survey, said_of_route};

pub(super) const MATERIAL: Material = Material { files, read };

fn files(listener: &config::Listener) -> Vec<PathBuf> {
    listener.destinations().filter_map(|(_, to)| to.backend_tls.as_ref()).flat_map(of_tls).collect()
}

fn of_tls(tls: &BackendTls) -> Vec<PathBuf> {
    let certificate = tls.client_certificate.iter();
    let mut files: Vec<PathBuf> = certificate.flat_map(CertificateSource::files).collect();
    if let Trust::Roots(sources) = &tls.trust {
        files.extend(sources.iter().filter_map(root_path));
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
    let loaded = load(tls, reading);
    for found in loaded.found {
        survey.note(reading, Found { text: named(found.text), ..found });
    }
    survey.warn(loaded.warnings.into_iter().map(named));
    for expiry in &loaded.expiries {
        let label = named(expiry.source.clone());
        survey.warn_if_soon(&label, expiry.not_after_s, reading.around.now);
    }
    survey.expiries.extend(loaded.expiries);
    let options = loaded.options?;
    let error = match reading.around.clients.context(&options) {
        Ok(context) => return Some(context),
        Err(error) => error,
    };
    let known = last_good(tls, options, reading);
    let kept = known.and_then(|known| reading.around.clients.context(&known).ok());
    let path = of_tls(tls).into_iter().next().unwrap_or_default();
    let (is_kept, source, text) = (kept.is_some(), path.clone(), named(error.to_string()));
    survey.note(reading, Found { is_kept, path, source, text, without: WITHOUT });
    kept
}

/// The options with the last good state of all files of `tls`.
fn last_good(
    tls: &BackendTls,
    options: ClientOptions,
    reading: &mut Reading<'_, '_>,
) -> Option<ClientOptions> {
    let before = &*reading.around.last_good;
    let roots = match &tls.trust {
        Trust::Anybody => options.roots.clone(),
        Trust::Roots(sources) => {
            let paths = sources.iter().filter_map(root_path);
            let known: Option<Vec<Roots>> =
                paths.map(|path| before.roots.get(&path).cloned()).collect();
            Roots::joined(&known?).ok().filter(|roots| !roots.is_empty())?
        }
    };
    let path = tls.client_certificate.as_ref().map(CertificateSource::path);
    let identity = match path {
        Some(path) => Some(before.identities.get(path)?.clone()),
        None => None,
    };
    for path in of_tls(tls) {
        let (roots, identity) = (before.roots.get(&path), before.identities.get(&path));
        reading.good.roots.extend(roots.map(|roots| (path.clone(), roots.clone())));
        reading.good.identities.extend(identity.map(|identity| (path, identity.clone())));
    }
    Some(ClientOptions { identity, roots, ..options })
}

fn root_path(source: &RootSource) -> Option<PathBuf> {
    match source {
        RootSource::File(path) => Some(path.clone()),
        RootSource::System => system_bundle(),
    }
}

/// Reads the files that `tls` names.
fn load(tls: &BackendTls, reading: &mut Reading<'_, '_>) -> LoadedTrust {
    let mut loaded = LoadedTrust::default();
    let roots = match &tls.trust {
        Trust::Anybody => {
            loaded.warnings.push(ANYBODY.to_owned());
            Some(Roots::none())
        }
        Trust::Roots(sources) => loaded.roots(sources, reading),
    };
    let key = tls.client_certificate.as_ref().map(CertificateSource::key);
    let exposed = key.and_then(Exposed::find);
    loaded.warnings.extend(exposed.map(|exposed| exposed.to_string()));
    let identity = tls.client_certificate.as_ref().map(|source| loaded.identity(source, reading));
    // Without the certificate that a backend wants, there is nothing to speak with.
    let is_incomplete = matches!(identity, Some(None));
    if let Some(roots) = roots.filter(|_| !is_incomplete) {
        loaded.options = Some(ClientOptions {
            alpn: tls.alpn.clone(),
            groups: Group::ALL.to_vec(),
            identity: identity.flatten(),
            provider: reading.crypto,
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
    let expired = loaded.expiries.iter().filter(|expiry| expiry.not_after_s < reading.now_s());
    loaded.warnings.extend(expired.map(Expiry::warning));
    loaded
}

/// What was read.
#[derive(Default)]
struct LoadedTrust {
    /// Files that cannot be used as they are.
    found: Vec<Found>,
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
    /// The roots of all sources that can be read; none if no source can.
    fn roots(&mut self, sources: &[RootSource], reading: &mut Reading<'_, '_>) -> Option<Roots> {
        let mut all = Vec::new();
        for source in sources {
            let path = root_path(source);
            let read = match &path {
                Some(path) => read_roots(path),
                None => Err(TrustError::NoSystemBundle),
            };
            let path = path.unwrap_or_else(|| SYSTEM_BUNDLES[0].into());
            let settled = reading.settle(|good| &mut good.roots, &path, read);
            self.note(&path, settled.is_kept, settled.error);
            let Some(roots) = settled.value else { continue };
            // The dates of the system's authorities are the distribution's to watch.
            if let (RootSource::File(_), Ok(Some(not_after_s))) = (source, roots.soonest_expiry_s())
            {
                let source = path.to_string_lossy().into_owned();
                self.expiries.push(Expiry { not_after_s, source, usage: Usage::Root });
            }
            all.push(roots);
        }
        match Roots::joined(&all) {
            _ if all.is_empty() => None,
            Ok(joined) => Some(joined),
            Err(error) => {
                let path = sources.iter().find_map(|source| match source {
                    RootSource::File(path) => Some(path.clone()),
                    RootSource::System => None,
                });
                self.note(&path.unwrap_or_default(), false, Some(error.into()));
                None
            }
        }
    }

    fn identity(
        &mut self,
        source: &CertificateSource,
        reading: &mut Reading<'_, '_>,
    ) -> Option<ClientIdentity> {
        let read = read_identity(source);
        let settled = reading.settle(|good| &mut good.identities, source.path(), read);
        self.note(source.path(), settled.is_kept, settled.error);
        let identity = settled.value?;
        let certificate = identity.certificate();
        let label = certificate.label();
        if certificate.not_before_s() > reading.now_s() {
            self.warnings.push(format!(
                "{label}: is not valid yet; backends will refuse it: is this machine's clock right?"
            ));
        }
        let not_after_s = certificate.not_after_s();
        self.expiries.push(Expiry { not_after_s, source: label.to_owned(), usage: Usage::Client });
        Some(identity)
    }

    fn note(&mut self, path: &Path, is_kept: bool, error: Option<TrustError>) {
        let found = error.map(|error| {
            let (path, source, text) = (path.to_owned(), path.to_owned(), error.to_string());
            Found { is_kept, path, source, text, without: WITHOUT }
        });
        self.found.extend(found);
    }
}

fn read_roots(path: &Path) -> Result<Roots, TrustError> {
    let mut text = Vec::new();
    read_at_most(path, ROOTS_BYTES_MAX, &mut text)?;
    let roots = Roots::from_pem(&path.to_string_lossy(), &text)?;
    roots.soonest_expiry_s()?;
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
pub const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

const WITHOUT: &str = "backends that need it get no connections";
const ANYBODY: &str = "insecure_accept_any_certificate: whoever answers is believed to be the \
                       backend, and can read and change everything; name its authority in roots \
                       instead";
