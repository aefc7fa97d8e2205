//! Converts JavaScript's options of a context to the engine's [`Context`], with all mistakes at
//! once.

mod chosen;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::CryptoProvider;
use sealane_certificate_files::{
    self as certificate_files, Bound, CertificateFileError, CertificateSource,
};
use sealane_engine::certificates::{
    CERTIFICATES_MAX, CertificateError, CertificateIndex, CertificateWarning, DefaultCertificate,
    IndexBuilder, PemContents,
};
use sealane_engine::client_certificates::ClientRoots;
use sealane_engine::context::{Context, ContextId, LaneContext, LaneResources};
use sealane_engine::policy::{ClientCertificates, Policy, UnknownNames};
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_engine::tickets::{TicketRoot, UnixSeconds};
use zeroize::Zeroizing;

/// A PEM text; it may hold a key.
pub type Pem = Zeroizing<Vec<u8>>;

/// The options as written.
#[derive(Default)]
pub struct Written {
    /// Chains.
    pub cert: Vec<Pem>,
    /// Private keys.
    pub key: Vec<Pem>,
    /// Files and directories with both.
    pub directory: Vec<PathBuf>,
    /// Authorities of clients.
    pub ca: Vec<Pem>,
    /// Whether clients get the names of those.
    pub ca_named: bool,
    /// Revocation lists of these authorities.
    pub crl: Vec<Pem>,
    /// Whether clients are asked for a certificate.
    pub request_cert: bool,
    /// Whether those without a good one are refused.
    pub reject_unauthorized: bool,
    /// Protocols, a character for each byte.
    pub alpn: Vec<String>,
    /// The oldest version.
    pub min_version: Option<String>,
    /// The newest version.
    pub max_version: Option<String>,
    /// IANA's names; none: all.
    pub suites: Vec<String>,
    /// IANA's names; none: all.
    pub groups: Vec<String>,
    /// IANA's names; none: all.
    pub schemes: Vec<String>,
    /// Whether the server's order of suites decides.
    pub honor_cipher_order: bool,
    /// Whether sessions are resumed.
    pub tickets: bool,
    /// Whether secrets are logged.
    pub key_log: bool,
    /// Whether a client that asks for an unknown name is refused.
    pub refuse_unknown_names: bool,
}

/// A context that lanes can serve, and its oddities.
pub struct Built {
    /// For the lanes.
    pub context: Arc<Context>,
    /// In words.
    pub warnings: Vec<String>,
}

/// An error in an option. The fault is the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The option.
    pub field: &'static str,
    /// The error code that Node's users know.
    pub code: &'static str,
    /// The error and the remedy.
    pub message: String,
}

impl Mistake {
    fn of_value(field: &'static str, message: String) -> Self {
        Self { field, code: "ERR_INVALID_ARG_VALUE", message }
    }
}

impl Written {
    /// Parses and validates everything.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn build(&self) -> Result<Built, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let policy = self.policy(&mut mistakes);
        let (certificates, warnings) = self.certificates(&mut mistakes);
        let context = Arc::new(Context {
            id: ContextId::fresh(),
            policy,
            certificates: Arc::new(certificates),
            key_log: self.key_log,
            store: None,
            provider: ProviderChoice::Auto,
            tickets: if self.tickets { TICKETS } else { 0 },
        });
        if mistakes.is_empty() {
            mistakes.extend(materialise(&context).err());
        }
        if mistakes.is_empty() { Ok(Built { context, warnings }) } else { Err(mistakes) }
    }

    fn policy(&self, mistakes: &mut Vec<Mistake>) -> Policy {
        let default = Policy::default();
        let groups = chosen::groups(&self.groups, mistakes);
        Policy {
            alpn: chosen::alpn(&self.alpn, mistakes),
            alpn_mismatch: default.alpn_mismatch,
            client_order: !self.honor_cipher_order,
            clients: self.clients(mistakes),
            groups: if groups.is_empty() { default.groups } else { groups },
            require_extended_master_secret: default.require_extended_master_secret,
            schemes: chosen::schemes(&self.schemes, mistakes),
            suites: chosen::suites(&self.suites, mistakes),
            unknown_names: if self.refuse_unknown_names {
                UnknownNames::Refuse
            } else {
                UnknownNames::ServeDefault
            },
            versions: chosen::versions(
                self.min_version.as_deref(),
                self.max_version.as_deref(),
                mistakes,
            ),
        }
    }

    fn clients(&self, mistakes: &mut Vec<Mistake>) -> ClientCertificates {
        if !self.request_cert {
            return ClientCertificates::NotAsked;
        }
        let ca: Vec<&[u8]> = self.ca.iter().map(|text| text.as_slice()).collect();
        let crl: Vec<&[u8]> = self.crl.iter().map(|text| text.as_slice()).collect();
        let roots = ClientRoots::from_pem(&ca, &crl);
        match roots.map(|roots| if self.ca_named { roots } else { roots.unnamed() }) {
            Ok(roots) if self.reject_unauthorized => ClientCertificates::Required(Arc::new(roots)),
            Ok(roots) => ClientCertificates::Asked(Arc::new(roots)),
            Err(error) => {
                let message = error.to_string();
                let field = if message.starts_with("crl") { "crl" } else { "ca" };
                mistakes.push(Mistake::of_value(field, message));
                ClientCertificates::NotAsked
            }
        }
    }

    fn certificates(&self, mistakes: &mut Vec<Mistake>) -> (CertificateIndex, Vec<String>) {
        let provider = match lane_provider(ProviderChoice::Auto, &Policy::default().groups) {
            Ok(provider) => provider.crypto,
            Err(error) => {
                mistakes.push(Mistake::of_value("cert", error.to_string()));
                rustls::crypto::aws_lc_rs::default_provider()
            }
        };
        let mut builder = IndexBuilder::new(&provider, now_s()).take_slow_keys();
        if self.cert.is_empty() && !self.key.is_empty() {
            let message = "key: there is no certificate for it; give cert".to_owned();
            mistakes.push(Mistake::of_value("key", message));
        }
        for (index, chain) in self.cert.iter().enumerate() {
            self.add_pair(&mut builder, &provider, index, chain);
        }
        let sources: Vec<_> = self.directory.iter().cloned().map(CertificateSource::Path).collect();
        let bound = Bound { max: CERTIFICATES_MAX, remedy: "serve the others from another server" };
        let errors = certificate_files::add(&sources, bound, &mut builder);
        let has_errors = !errors.is_empty();
        mistakes.extend(errors.iter().map(|error| {
            let message = format!("certificates: {error}");
            Mistake { field: "certificates", code: code_of_file(error), message }
        }));
        let default = if self.cert.is_empty() && self.directory.is_empty() {
            DefaultCertificate::Absent
        } else {
            DefaultCertificate::First
        };
        let indexed = builder.finish(default);
        // That nothing is left follows from the files that could not be read.
        let follows =
            |error: &&CertificateError| has_errors && **error == CertificateError::NoneGiven;
        mistakes.extend(indexed.errors.iter().filter(|e| !follows(e)).map(mistake_of));
        (indexed.index, indexed.warnings.iter().map(CertificateWarning::to_string).collect())
    }

    /// Adds a chain with its own key, or the one of `key` that belongs to it.
    fn add_pair(
        &self,
        builder: &mut IndexBuilder<'_>,
        provider: &CryptoProvider,
        index: usize,
        chain: &Pem,
    ) {
        let label = format!("cert[{index}]");
        let holds_key = PemContents::parse(&label, chain).is_ok_and(|text| text.key.is_some());
        let others = (0..self.key.len()).filter(|other| *other != index);
        let tried = std::iter::once(index).chain(others).filter(|key| *key < self.key.len());
        let fits = |key: &usize| {
            let mut trial = IndexBuilder::new(provider, 0).take_slow_keys();
            trial.add_pair(&label, chain, "key", &self.key[*key]);
            let errors = trial.finish(DefaultCertificate::Absent).errors;
            !errors.iter().any(|error| matches!(error, CertificateError::KeyMismatch { .. }))
        };
        let mut tried = tried.peekable();
        let first = tried.peek().copied();
        match tried.find(fits).or(first) {
            Some(key) if !holds_key => {
                builder.add_pair(&label, chain, &format!("key[{key}]"), &self.key[key]);
            }
            // Without a key it is refused, in words.
            _ => builder.add(&label, chain),
        }
    }
}

/// Tickets for each full handshake.
const TICKETS: usize = 2;

fn mistake_of(error: &CertificateError) -> Mistake {
    let code = match error {
        CertificateError::KeyMismatch { .. } => "ERR_OSSL_X509_KEY_VALUES_MISMATCH",
        CertificateError::NotPem { .. } => "ERR_OSSL_PEM_NO_START_LINE",
        _ => "ERR_INVALID_ARG_VALUE",
    };
    let message = error.to_string();
    let field = if message.starts_with("key") { "key" } else { "cert" };
    Mistake { field, code, message }
}

fn code_of_file(error: &CertificateFileError) -> &'static str {
    match error {
        CertificateFileError::Certificate(error) => mistake_of(error).code,
        CertificateFileError::Denied { .. } => "EACCES",
        CertificateFileError::Unreadable { source, .. } => match source.kind() {
            ErrorKind::NotFound => "ENOENT",
            _ => "ERR_INVALID_ARG_VALUE",
        },
        _ => "ERR_INVALID_ARG_VALUE",
    }
}

/// Makes a replica as every lane will, so that it cannot fail there.
fn materialise(context: &Arc<Context>) -> Result<(), Mistake> {
    let now = UnixSeconds(u64::try_from(now_s()).unwrap_or_default());
    let root = TicketRoot::shared(&[[0; 48]], TRIAL_LIFETIME_S);
    let root = root.map_err(|error| Mistake::of_value("tickets", error.to_string()))?;
    let resources = LaneResources::new(root, now, std::num::NonZeroUsize::MIN);
    LaneContext::new(context, &resources)
        .map(drop)
        .map_err(|error| Mistake::of_value("suites", error.to_string()))
}

const TRIAL_LIFETIME_S: u32 = 600;

fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
