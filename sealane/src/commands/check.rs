//! `sealane check`: everything that is wrong with a configuration at once, and what it will cost.
//!
//! [`Report::of`] reads what `serve` would read and opens no listener; what it needs of the machine
//! comes in as a [`Machine`].

mod text;

use std::fs;
use std::io::{self, Write};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use sealane_certificate_files::{Exposed, LoadedCertificates};
use sealane_engine::certificates::Certificate;
use sealane_engine::client::ClientContexts;
use sealane_engine::provider::{Provider, ProviderChoice, ProviderError, lane_provider};
use sealane_engine::tickets::{TEXT_BYTES_MAX, TicketRoot, UnixSeconds};
use sealane_store::{KeyedStore, Listed, SealingKeys};
use serde::Serialize;

use crate::args::CheckArguments;
use crate::config::{
    AccessLog, AccessLogDestination, BackendAddress, Config, Listener, Mistake, Tickets,
};
use crate::exit::Exit;
use crate::listener::backend_trust;
use crate::listener::certificates as certificate_files;
use crate::stores::{self, Checks, Stores};

use crate::cost::Cost;

/// Checks and prints.
///
/// # Errors
/// The writer's.
pub fn run(arguments: &CheckArguments, out: &mut dyn Write) -> io::Result<Exit> {
    let report = Report::of(&arguments.config, &Machine::this());
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(if report.is_in_order() { Exit::Ok } else { Exit::Invalid })
}

/// What a check needs to know of the machine it runs on.
pub struct Machine<'m> {
    /// File descriptors that a process may have; none if there is no limit.
    pub descriptors_max: Option<u64>,
    /// The time.
    pub now: UnixSeconds,
    /// Looks a host name up and says why it cannot.
    pub resolve: &'m dyn Fn(&str, u16) -> io::Result<()>,
}

impl Machine<'static> {
    /// The machine that this process runs on.
    pub fn this() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            descriptors_max: getrlimit(Resource::Nofile).current,
            now: UnixSeconds(since.as_secs()),
            resolve: &|name, port| match (name, port).to_socket_addrs()?.next() {
                Some(_) => Ok(()),
                None => Err(io::Error::other("the name has no address")),
            },
        }
    }
}

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The configuration that was checked.
    pub file: PathBuf,
    /// What must be corrected before it can be served.
    pub errors: Vec<Finding>,
    /// What can be served, but is probably not meant.
    pub warnings: Vec<Finding>,
    /// The listeners that are in order.
    pub listeners: Vec<ListenerReport>,
    /// What it will take; none if too much is wrong to tell.
    pub cost: Option<Cost>,
}

impl Report {
    /// Checks `file`.
    pub fn of(file: &Path, machine: &Machine<'_>) -> Self {
        let (config, mistakes) = Config::load_partly(file);
        let mut report = Self {
            file: file.to_owned(),
            errors: mistakes.into_iter().map(Finding::mistake).collect(),
            warnings: Vec::new(),
            listeners: Vec::new(),
            cost: None,
        };
        let Some(config) = config else {
            return report;
        };
        report.check_process(&config);
        let mut certificates = Vec::new();
        let mut stores = Stores::default();
        let keys = stores::keys_of(&config).unwrap_or_else(|error| {
            report.errors.push(Finding::general(format!("store_key: {error}")));
            None
        });
        for listener in &config.listeners {
            let provider = match key_provider(config.crypto, listener) {
                Ok(provider) => provider,
                Err(error) => {
                    report.error(listener, &error.to_string());
                    continue;
                }
            };
            let (limits, now_s) = (&config.limits, now_s(machine.now));
            let loaded = certificate_files::load(listener, limits, &provider.crypto, now_s);
            report.check_certificates(listener, &loaded, &provider, machine.now);
            let store =
                report.check_store(keys.as_ref(), listener, &loaded, &mut stores, machine.now);
            report.check_backends(listener, machine);
            report.check_backend_tls(listener, machine.now);
            report.listeners.push(ListenerReport::of(listener, &loaded, store, machine.now));
            certificates.push(loaded.index);
        }
        if config.listeners.is_empty() {
            return report;
        }
        let stored = report.listeners.iter().filter_map(|each| each.store.as_ref());
        let stored = stored.map(|store| store.certificates).sum();
        let cost = Cost::of(&config, &certificates, stored);
        report.warnings.extend(cost.warning(machine.descriptors_max).map(Finding::general));
        report.cost = Some(cost);
        report
    }

    /// Whether it can be served.
    pub fn is_in_order(&self) -> bool {
        self.errors.is_empty()
    }

    /// What is not a listener's own.
    fn check_process(&mut self, config: &Config) {
        // Whether a library runs here does not depend on the listener.
        if let Some(listener) = config.listeners.first()
            && let Err(error) = lane_provider(config.crypto, &listener.policy.groups)
        {
            self.errors.push(Finding::general(format!("crypto: {error}")));
        }
        if let Some(problem) = config.access_log.as_ref().and_then(access_log_problem) {
            self.errors.push(Finding::general(problem));
        }
        match ticket_root_problem(&config.tickets) {
            Ok(()) => {}
            Err(RootProblem::Absent(text)) => self.warnings.push(Finding::general(text)),
            Err(RootProblem::Wrong(text)) => self.errors.push(Finding::general(text)),
        }
        let exposed = config.tickets.root.as_deref().and_then(Exposed::find);
        let warning = exposed.map(|exposed| Finding::general(format!("tickets.root: {exposed}")));
        self.warnings.extend(warning);
    }

    fn check_certificates(
        &mut self,
        listener: &Listener,
        loaded: &LoadedCertificates,
        provider: &Provider,
        now: UnixSeconds,
    ) {
        for error in &loaded.errors {
            self.error(listener, &error.to_string());
        }
        for warning in &loaded.warnings {
            self.warning(listener, &warning.to_string());
        }
        for certificate in loaded.index.iter() {
            if let Err(error) = certificate.verify(&provider.crypto) {
                self.error(listener, &error.to_string());
            }
        }
        for certificate in loaded.index.iter() {
            let days = days_left(certificate, now);
            if (0..EXPIRY_WARNING_DAYS).contains(&days) {
                let label = certificate.label();
                self.warning(listener, &format!("{label}: expires in {days} days; renew it"));
            }
        }
    }

    /// Opens the store of `listener`. Its private keys are left to `sealane certificates verify`:
    /// with 100,000 of them that takes minutes.
    fn check_store(
        &mut self,
        keys: Option<&SealingKeys>,
        listener: &Listener,
        loaded: &LoadedCertificates,
        stores: &mut Stores,
        now: UnixSeconds,
    ) -> Option<StoreReport> {
        let store = match stores.of(listener, keys, &mut Checks::default()) {
            Ok(store) => store?,
            Err(error) => {
                self.error(listener, &error.to_string());
                return None;
            }
        };
        for warning in stores::warnings(&store, listener, &loaded.index) {
            self.warning(listener, &warning);
        }
        match StoreReport::of(&store, now) {
            Ok((report, soonest)) => {
                for certificate in &soonest {
                    let days = days_between(now, certificate.not_after_s);
                    if days < EXPIRY_WARNING_DAYS {
                        self.warning(listener, &expiring(certificate, days));
                    }
                }
                Some(report)
            }
            Err(error) => {
                self.error(listener, &error.to_string());
                None
            }
        }
    }

    fn check_backends(&mut self, listener: &Listener, machine: &Machine<'_>) {
        for backend in &listener.backends {
            match backend {
                BackendAddress::Host { name, port } => {
                    if let Err(error) = (machine.resolve)(name, *port) {
                        let text = format!(
                            "backend {backend} cannot be looked up: {error}; correct the name, or \
                             write its address"
                        );
                        self.error(listener, &text);
                    }
                }
                BackendAddress::Unix(path) if !path.exists() => {
                    let text = format!("backend {backend} is not there yet; is its path right?");
                    self.warning(listener, &text);
                }
                BackendAddress::Tcp(_) | BackendAddress::Unix(_) => {}
            }
        }
    }

    fn check_backend_tls(&mut self, listener: &Listener, now: UnixSeconds) {
        let Some(tls) = &listener.backend_tls else { return };
        // Whether the chosen library runs here is reported by itself.
        let loaded = backend_trust::load(tls, ProviderChoice::AwsLc, now_s(now));
        let named = |text: &str| format!("backend_tls: {text}");
        for error in &loaded.errors {
            self.error(listener, &named(&error.to_string()));
        }
        for warning in &loaded.warnings {
            self.warning(listener, &named(warning));
        }
        if let Some(options) = &loaded.options
            && let Err(error) = ClientContexts::new().context(options)
        {
            self.error(listener, &named(&error.to_string()));
        }
        for expiry in &loaded.expiries {
            let days = days_between(now, expiry.not_after_s);
            if (0..EXPIRY_WARNING_DAYS).contains(&days) {
                let text = format!("{}: expires in {days} days; renew it", expiry.source);
                self.warning(listener, &named(&text));
            }
        }
    }

    fn error(&mut self, listener: &Listener, text: &str) {
        self.errors.push(Finding::of_listener(listener, text));
    }

    fn warning(&mut self, listener: &Listener, text: &str) {
        self.warnings.push(Finding::of_listener(listener, text));
    }
}

/// One thing that was found.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// All of it in one line.
    pub message: String,
    /// The listener it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// Its place, if it is a mistake in the file.
    #[serde(flatten)]
    pub mistake: Option<Mistake>,
}

impl Finding {
    fn general(message: String) -> Self {
        Self { message, listener: None, mistake: None }
    }

    fn mistake(mistake: Mistake) -> Self {
        Self { message: mistake.to_string(), listener: None, mistake: Some(mistake) }
    }

    fn of_listener(listener: &Listener, text: &str) -> Self {
        let name = listener.name.clone();
        let message = format!("listener {name}: {text}");
        Self { message, listener: Some(name), mistake: None }
    }
}

/// What a listener will serve.
#[derive(Debug, Serialize)]
pub struct ListenerReport {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// Where plaintext goes.
    pub backends: Vec<String>,
    /// How a backend is chosen.
    pub balance: &'static str,
    /// How many certificates there are.
    pub certificates: usize,
    /// How many of each kind of key.
    pub key_types: Vec<KeyTypeCount>,
    /// How many server names they cover, a wildcard counted as one.
    pub names: usize,
    /// The certificate that expires first, of those from files.
    pub soonest_expiry: Option<Expiry>,
    /// The store that it serves from beside them.
    pub store: Option<StoreReport>,
}

impl ListenerReport {
    fn of(
        listener: &Listener,
        loaded: &LoadedCertificates,
        store: Option<StoreReport>,
        now: UnixSeconds,
    ) -> Self {
        let index = &loaded.index;
        let mut key_types: Vec<KeyTypeCount> = Vec::new();
        for certificate in index.iter() {
            let key_type = certificate.key_type().to_string();
            match key_types.iter_mut().find(|known| known.key_type == key_type) {
                Some(known) => known.count += 1,
                None => key_types.push(KeyTypeCount { key_type, count: 1 }),
            }
        }
        key_types.sort_by(|a, b| (b.count, &a.key_type).cmp(&(a.count, &b.key_type)));
        let soonest = index.iter().min_by_key(|certificate| certificate.not_after_s());
        Self {
            name: listener.name.clone(),
            addresses: listener.addresses.iter().map(ToString::to_string).collect(),
            backends: listener.backend_labels().collect(),
            balance: listener.balance.name(),
            certificates: index.len(),
            key_types,
            names: index.name_count(),
            soonest_expiry: soonest.map(|certificate| Expiry {
                certificate: certificate.label().to_owned(),
                not_after_s: certificate.not_after_s(),
                days_left: days_left(certificate, now),
            }),
            store,
        }
    }
}

/// What is in a store.
#[derive(Debug, Serialize)]
pub struct StoreReport {
    /// Its folder.
    pub path: PathBuf,
    /// How many certificates there are.
    pub certificates: u64,
    /// How many server names they cover, a wildcard counted as one.
    pub names: u64,
    /// The certificate that expires first.
    pub soonest_expiry: Option<Expiry>,
}

impl StoreReport {
    /// With the first certificates to expire.
    fn of(
        store: &KeyedStore,
        now: UnixSeconds,
    ) -> Result<(Self, Vec<Listed>), sealane_store::StoreError> {
        let store = store.store();
        let summary = store.summary()?;
        let soonest = store.by_expiry(None, EXPIRIES_SHOWN_MAX)?;
        let report = Self {
            path: store.path().to_owned(),
            certificates: summary.certificates,
            names: summary.names,
            soonest_expiry: soonest.first().map(|certificate| Expiry {
                certificate: certificate.names.join(", "),
                not_after_s: certificate.not_after_s,
                days_left: days_between(now, certificate.not_after_s),
            }),
        };
        Ok((report, soonest))
    }
}

/// How many certificates have a kind of key.
#[derive(Debug, Serialize)]
pub struct KeyTypeCount {
    /// The kind.
    pub key_type: String,
    /// How many have it.
    pub count: usize,
}

/// When a certificate expires.
#[derive(Debug, Serialize)]
pub struct Expiry {
    /// Its file.
    pub certificate: String,
    /// The last second of validity, in Unix time.
    pub not_after_s: i64,
    /// Whole days until then; negative if it is over.
    pub days_left: i64,
}

enum RootProblem {
    Absent(String),
    Wrong(String),
}

fn access_log_problem(log: &AccessLog) -> Option<String> {
    let AccessLogDestination::File(path) = &log.destination else {
        return None;
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let wrong = |what: &str, remedy: &str| {
        Some(format!("access_log.path: {} {what}; {remedy}", path.display()))
    };
    match (fs::metadata(folder), fs::metadata(path)) {
        (_, Ok(metadata)) if metadata.is_dir() => wrong("is a directory", "name a file in it"),
        (Err(error), _) => wrong(&format!("has no folder: {error}"), "make it"),
        (Ok(_), _) => None,
    }
}

/// No message quotes the file: it is a secret.
fn ticket_root_problem(tickets: &Tickets) -> Result<(), RootProblem> {
    let Some(path) = &tickets.root else {
        return Ok(());
    };
    let name = path.display();
    let wrong = |text: String| RootProblem::Wrong(format!("tickets.root: {name}: {text}"));
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => RootProblem::Absent(format!(
            "tickets.root: {name} is not there yet; is its path right?"
        )),
        _ => wrong(format!("{error}; see that this user may read it")),
    })?;
    if !metadata.is_file() || metadata.len() > TEXT_BYTES_MAX as u64 {
        return Err(wrong("is not the file of a ticket root; name another".into()));
    }
    let text = fs::read_to_string(path).map(zeroize::Zeroizing::new);
    let text = text.map_err(|error| wrong(format!("{error}; see that this user may read it")))?;
    let root = TicketRoot::from_text(&text).map_err(|error| wrong(error.to_string()))?;
    let (written, configured) = (u64::from(root.lifetime_s()), tickets.lifetime.as_secs());
    if written != configured {
        let text = format!(
            "is for a lifetime of {written} s, tickets.lifetime says {configured} s; make them \
             equal"
        );
        return Err(wrong(text));
    }
    Ok(())
}

/// What decodes the keys of `listener`. That the chosen library does not run on this machine is
/// reported by itself, and is no reason to leave the keys unchecked.
fn key_provider(crypto: ProviderChoice, listener: &Listener) -> Result<Provider, ProviderError> {
    let groups = &listener.policy.groups;
    lane_provider(crypto, groups).or_else(|_| lane_provider(ProviderChoice::AwsLc, groups))
}

fn days_left(certificate: &Certificate, now: UnixSeconds) -> i64 {
    days_between(now, certificate.not_after_s())
}

fn days_between(now: UnixSeconds, not_after_s: i64) -> i64 {
    not_after_s.saturating_sub(now_s(now)).div_euclid(DAY_S)
}

fn expiring(certificate: &Listed, days: i64) -> String {
    let names = certificate.names.join(", ");
    match days {
        ..0 => format!("{names}: expired {} days ago; renew it", -days),
        _ => format!("{names}: expires in {days} days; renew it"),
    }
}

fn now_s(now: UnixSeconds) -> i64 {
    i64::try_from(now.0).unwrap_or(i64::MAX)
}

const DAY_S: i64 = 86_400;
/// Certificates of a store that a check looks at, those that expire first.
const EXPIRIES_SHOWN_MAX: usize = 100;
/// Two weeks are enough to find out why a renewal failed.
const EXPIRY_WARNING_DAYS: i64 = 14;

#[cfg(test)]
mod tests;
