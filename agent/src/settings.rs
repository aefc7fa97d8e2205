//! What an operator asks of the agent: read from a TOML file into [`Settings`].

mod file;
mod fleet;
mod identity;
mod lists;
mod on_demand;
mod parts;
mod push;
#[cfg(test)]
mod tests;
mod url;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use identity::Identity;
pub use push::{NamePattern, PushRole, PushSettings, PushVerb};
use sealane_operator::{KeySource, Mistake, Mistakes, Place, read_text};

/// Everything a running agent is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who issues certificates, the first one asked first; at least one where there is no `push`.
    pub authorities: Vec<Authority>,
    /// What is issued; no set of names twice.
    pub certificates: Vec<WantedCertificate>,
    /// The machines that this one shares certificates with, if there are any.
    pub fleet: Option<FleetSettings>,
    /// Files with more of what is issued. [`Self::load`] has read them into the certificates.
    pub lists: Vec<NameList>,
    /// How certificates come for names that clients ask for and nobody has listed, if they do.
    pub on_demand: Option<OnDemandSettings>,
    /// Where clients push certificates, if they may.
    pub push: Option<PushSettings>,
    /// The folder of the certificate store.
    pub store: PathBuf,
    /// Where the keys to its seals come from.
    pub store_key: KeySource,
}

impl Settings {
    /// Reads a file and the lists that it names; every mistake in them is reported at once.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn load(file: &Path) -> Result<Self, Mistakes> {
        let text = read_text(file, |_| None).map_err(|problem| {
            let place = Some(Place::whole(file));
            Mistakes(vec![Mistake { place, field: String::new(), problem }])
        })?;
        let (settings, mut mistakes) = file::parse(file, &text);
        let settings = settings.map(|mut settings| {
            mistakes.extend(lists::read(&mut settings));
            settings
        });
        settings.filter(|_| mistakes.is_empty()).ok_or(Mistakes(mistakes))
    }

    /// Whether the agent starts programs of the operator's.
    #[must_use]
    pub fn starts_programs(&self) -> bool {
        let mut challenges = self
            .certificates
            .iter()
            .map(|wanted| &wanted.challenge)
            .chain(self.lists.iter().map(|list| &list.challenge))
            .chain(self.on_demand.iter().map(|on_demand| &on_demand.challenge));
        let login = self.fleet.as_ref().and_then(|fleet| fleet.etcd.login.as_ref());
        let mut keys = login.map(|login| &login.password).into_iter().chain([&self.store_key]);
        let permission = self.on_demand.as_ref().map(|on_demand| &on_demand.permission);
        challenges.any(|one| matches!(one, Challenge::Dns01(_)))
            || keys.any(|key| matches!(key, KeySource::Command(_)))
            || matches!(permission, Some(Permission::Command(_)))
    }

    /// Reads the text of a file, and no list; `file` names it in mistakes, and relative paths start
    /// beside it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Mistakes> {
        let (settings, mistakes) = file::parse(file, text);
        settings.filter(|_| mistakes.is_empty()).ok_or(Mistakes(mistakes))
    }
}

/// A certificate authority, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Whom it writes to, as URLs.
    pub contact: Vec<String>,
    /// The URL of its directory.
    pub directory: String,
    /// An account with it that the agent's is bound to.
    pub external_account: Option<ExternalAccount>,
    /// The kind of key that certificates of it have.
    pub key: KeyKind,
    /// The kind of certificate that is asked for, by its name in the directory.
    pub profile: Option<String>,
    /// Whom its own server's certificate is held against.
    pub roots: Vec<RootSource>,
}

/// An account that an authority has made otherwise, for whoever has its key (RFC 8555, 7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The name of the key.
    pub kid: String,
    /// The file with the key, in base64url.
    pub key_file: PathBuf,
}

/// Machines that share certificates, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// The cluster that they share.
    pub etcd: EtcdSettings,
    /// How long an order is this machine's, after the last word from it.
    pub lease: Duration,
    /// The name of this machine, which no other has.
    pub machine: String,
    /// What stands before each of their keys; ends with `/`.
    pub prefix: String,
    /// How long an epoch of ticket keys lasts, in whole seconds.
    pub ticket_lifetime: Duration,
    /// How long a root of ticket keys holds until another takes its place.
    pub ticket_root_every: Duration,
}

/// A cluster of etcd, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    /// URLs for clients, without a path.
    pub endpoints: Vec<String>,
    /// What this machine shows it.
    pub identity: Option<Identity>,
    /// Who this machine is to it.
    pub login: Option<EtcdLogin>,
    /// Whom its certificates are held against.
    pub roots: Vec<RootSource>,
}

/// A user of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdLogin {
    /// Where the password comes from.
    pub password: KeySource,
    /// The user's name.
    pub user: String,
}

/// A kind of key that certificates have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA on P-256.
    #[default]
    P256,
    /// ECDSA on P-384.
    P384,
    /// RSA of 2,048 bits.
    Rsa2048,
}

/// Authorities that are trusted to vouch for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootSource {
    /// Those in a PEM file.
    File(PathBuf),
    /// Those that the system trusts.
    System,
}

/// A certificate that is to be there at all times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCertificate {
    /// How it is shown that the names are the operator's.
    pub challenge: Challenge,
    /// The names, in the order written.
    pub names: Vec<String>,
}

/// A file with a certificate to a line: its names, parted by spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameList {
    /// How it is shown that the names are the operator's.
    pub challenge: Challenge,
    /// The file.
    pub file: PathBuf,
}

/// How certificates come for names that clients ask for and nobody has listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemandSettings {
    /// Where names are taken of those who serve on this machine: in the store's folder, or at their
    /// admin sockets.
    pub admin: Vec<PathBuf>,
    /// How it is shown that the names are the operator's.
    pub challenge: Challenge,
    /// Who says for which names.
    pub permission: Permission,
    /// About how many names it is asked in a time.
    pub rate: (u32, Duration),
    /// Names that are asked about or ordered at the same time.
    pub waiting_max: usize,
}

/// Who says for which names there may be a certificate on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// A command: its path, then its arguments, and the name behind them.
    Command(Vec<String>),
    /// A service that is asked over HTTP.
    Service {
        /// Whom its certificate is held against.
        roots: Vec<RootSource>,
        /// The URL, which the name is added to as a query.
        url: String,
    },
}

/// A way to show that a name is the operator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// A record of DNS, which a command makes and takes away: its path, then its arguments.
    Dns01(Vec<String>),
    /// An answer over HTTP, which `sealane serve` gives out of the store.
    Http01,
    /// A handshake, which `sealane serve` makes out of the store.
    TlsAlpn01,
}

/// Names of one certificate.
pub const NAMES_MAX: usize = 100;
