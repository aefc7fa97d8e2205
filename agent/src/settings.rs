//! What an operator asks of the agent: read from a TOML file into [`Settings`].

mod authority;
mod certificate;
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

pub use authority::{Authority, ExternalAccount, KeyKind};
pub use certificate::{NAMES_MAX, NameList, WantedCertificate};
pub use fleet::{EtcdLogin, EtcdSettings, FleetSettings};
pub use identity::Identity;
pub use on_demand::{OnDemandSettings, Permission};
pub use parts::{Challenge, RootSource};
pub use push::{NamePattern, PushRole, PushSettings, PushVerb};
use sealane_operator::{KeySource, Mistake, Mistakes, Place, read_text};

/// The JSON Schema of the agent's file, for editors.
#[must_use]
pub fn schema() -> serde_json::Value {
    file::KEYS.schema("Configuration of Sealane's agent")
}

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
