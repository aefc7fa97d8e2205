//! `sealane check`: everything that is wrong with a configuration at once, and what it will cost.
//!
//! [`Report::of`] reads what `serve` would read and opens no listener; what it needs of the machine
//! comes in as a [`Machine`].

mod signing;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Resource, geteuid, getrlimit};
use rustls::crypto::CryptoProvider;
use sealane_certificate_files::Exposed;
use sealane_config::unix_socket::obstacle;
use sealane_config::{
    AccessLog, AccessLogDestination, Address, Config, Mistake, RootPlace, Spoken, Tickets,
};
use sealane_control::admin::AdminError;
use sealane_control::cost::Cost;
use sealane_control::file_tables::FileTables;
use sealane_control::process::{Account, AccountError, filter, hide_memory, landlock, locked};
use sealane_control::{cannot_listen, no_stored_roots, read_stored_roots, read_ticket_root};
use sealane_engine::certificates::{CertificateIndex, CertificateStore as _, InventoryEntry};
use sealane_engine::client::ClientContexts;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_engine::tickets::UnixSeconds;
use sealane_listeners::stores::Stores;
use sealane_listeners::{
    Answers, KnownClientRoots, LastGood, Names, RouteSummary, Summary, Surroundings, Survey,
    Surveys, days_until, resolve_all, said_of, survey,
};
use sealane_operator::timestamp::unix_now;
use sealane_operator::value::folder_of;
use sealane_store::{KeyedStore, NAMES_SOCKET, Sharing};
use serde::Serialize;
use tracing::error;

use crate::args::CheckArguments;
use crate::exit::Exit;

/// Checks and prints.
///
/// # Errors
/// The writer's.
pub fn run(arguments: &CheckArguments, out: &mut dyn Write) -> io::Result<Exit> {
    if arguments.no_files {
        return write(&Report::of_text(&arguments.config), arguments, out);
    }
    // Private keys are read.
    hide_memory();
    locked::raise_limit();
    if let Err(error) = become_who_serves(&arguments.config) {
        error!("{error}");
        return Ok(Exit::Invalid);
    }
    locked::lock();
    let unlocked = locked::warning().map(|(_, text)| of_shell(&text));
    let config = Config::load_partly(&arguments.config).0;
    let open = config.as_ref().and_then(|it| landlock::close(Some(&arguments.config), it));
    let unfiltered = config.as_ref().and_then(|config| filter::warning(&config.process));
    let mut report = Report::of(&arguments.config, &Machine::this());
    report.notes.extend(unlocked.map(Finding::general));
    let warnings = [open, unfiltered].into_iter().flatten();
    report.warnings.extend(warnings.map(Finding::general));
    write(&report, arguments, out)
}

fn write(report: &Report, arguments: &CheckArguments, out: &mut dyn Write) -> io::Result<Exit> {
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(match report.warnings.is_empty() || !arguments.strict {
        _ if !report.is_in_order() => Exit::Invalid,
        true => Exit::Ok,
        false => Exit::Warned,
    })
}

/// A warning about limits of this process. A service gets its own from its unit.
fn of_shell(text: &str) -> String {
    format!("in this shell, {text}; the limits of the packaged unit are its own")
}

/// Becomes the user that the configuration names, if this is root, so that what is found is what
/// that user finds: what cannot be read is told here, before it is served.
fn become_who_serves(file: &Path) -> Result<(), AccountError> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let Some(config) = Config::load_partly(file).0 else { return Ok(()) };
    // A name that nobody has is told with the rest.
    let Ok(Some(account)) = Account::named(&config.process) else { return Ok(()) };
    account.take_rights().map(|_| ())
}

/// What a check needs to know of the machine it runs on.
pub struct Machine<'m> {
    /// File descriptors that a table of open files may hold; none if there is no limit.
    pub descriptors_max: Option<u64>,
    /// Whose such tables there can be.
    pub file_tables: FileTables,
    /// The time.
    pub now: UnixSeconds,
    /// Looks host names up and says why it cannot.
    pub resolve: &'m dyn Fn(BTreeSet<String>) -> Answers,
}

impl Machine<'static> {
    /// The machine that this process runs on.
    pub fn this() -> Self {
        let descriptors_max = getrlimit(Resource::Nofile).current;
        let file_tables = FileTables::of_this_machine();
        Self { descriptors_max, file_tables, now: unix_now(), resolve: &resolve_all }
    }
}

/// The result of a check.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The configuration that was checked.
    pub file: PathBuf,
    /// Problems to correct before it can be served.
    pub errors: Vec<Finding>,
    /// Settings that can be served, but are probably not intended.
    pub warnings: Vec<Finding>,
    /// Facts about this check that may not hold for the service.
    pub notes: Vec<Finding>,
    /// The listeners that are in order.
    pub listeners: Vec<ListenerReport>,
    /// The resources that it will use; none if too much is wrong for an estimate.
    pub cost: Option<Cost>,
}

impl Report {
    /// Checks `file`, with those that it includes and no others.
    pub fn of_text(file: &Path) -> Self {
        let mut report = Self::of_mistakes(file, Config::load_partly(file).1);
        report.notes.push(Finding::general("the files that it names were not opened".to_owned()));
        report
    }

    fn of_mistakes(file: &Path, mistakes: Vec<Mistake>) -> Self {
        Self {
            file: file.to_owned(),
            errors: mistakes.into_iter().map(Finding::mistake).collect(),
            warnings: Vec::new(),
            notes: Vec::new(),
            listeners: Vec::new(),
            cost: None,
        }
    }

    /// Checks `file`.
    pub fn of(file: &Path, machine: &Machine<'_>) -> Self {
        let (config, mistakes) = Config::load_partly(file);
        let mut report = Self::of_mistakes(file, mistakes);
        let Some(config) = config else {
            return report;
        };
        report.check_process(&config);
        let mut around = Surroundings {
            client_roots: &mut KnownClientRoots::default(),
            clients: &mut ClientContexts::new(),
            last_good: &mut LastGood::default(),
            names: &mut Names::default(),
            now: machine.now,
            resolve: machine.resolve,
            stores: &mut Stores::default(),
        };
        let Surveys {
            crypto, errors, faults, listeners, tickets, undercuts_within, warnings, ..
        } = survey(&config, &mut around);
        report.errors.extend(errors.into_iter().chain(undercuts_within).map(Finding::general));
        report.warnings.extend(warnings.into_iter().map(Finding::general));
        report.errors.extend(faults.iter().map(|fault| Finding::general(fault.finding())));
        if let Some(store) = tickets {
            report.check_stored_roots(&store, &config.tickets, machine.now);
        }
        for survey in &listeners {
            report.check_listener(survey, crypto);
            report.listeners.push(ListenerReport::of(survey, crypto, machine.now));
        }
        if listeners.is_empty() {
            return report;
        }
        let stored = report.listeners.iter().filter_map(|each| each.store.as_ref());
        let stored = stored.map(|store| store.certificates).sum();
        let indexes = listeners.iter().filter_map(|survey| survey.certificates.as_deref());
        let cost = Cost::of(&config, indexes, stored, &machine.file_tables);
        let limit = cost.descriptors.warning(&config, machine.descriptors_max);
        report.warnings.extend(machine.file_tables.warning().map(Finding::general));
        report.notes.extend(limit.map(|text| Finding::general(of_shell(&text))));
        report.cost = Some(cost);
        report
    }

    /// Whether it can be served.
    pub fn is_in_order(&self) -> bool {
        self.errors.is_empty()
    }

    /// What is not a listener's own.
    fn check_process(&mut self, config: &Config) {
        if let Some(problem) = config.access_log.as_ref().and_then(access_log_problem) {
            self.errors.push(Finding::general(problem));
        }
        let is_pipe = config.access_log.as_ref().and_then(access_log_pipe);
        self.warnings.extend(is_pipe.map(Finding::general));
        self.check_sockets(config);
        if let Err(error) = Account::named(&config.process) {
            self.errors.push(Finding::general(error.to_string()));
        }
        self.check_ticket_root(&config.tickets);
    }

    /// Looks where sockets are to be made, and makes none.
    fn check_sockets(&mut self, config: &Config) {
        if let Some(socket) = &config.admin.socket
            && let Some(source) = obstacle(&socket.path).filter(|_| !may_come(&socket.path))
        {
            let error = AdminError { address: Address::Unix(socket.path.clone()), source };
            self.errors.push(Finding::general(error.to_string()));
        }
        for listener in &config.listeners {
            for address in &listener.addresses {
                let Address::Unix(path) = address else { continue };
                let refused = obstacle(path).filter(|_| !may_come(path));
                let refused = refused.map(|error| cannot_listen(address, &error));
                let finding = refused.map(|text| Finding::of_listener(&listener.name, &text));
                self.errors.extend(finding);
            }
        }
    }

    /// No message quotes the file: it is a secret.
    fn check_ticket_root(&mut self, tickets: &Tickets) {
        let Some(RootPlace::File(file)) = &tickets.root else { return };
        match read_ticket_root(file, tickets) {
            Ok(Some(_)) => {}
            Ok(None) => self.warnings.push(Finding::general(format!(
                "tickets.root: {} is not there yet; is its path right?",
                file.display()
            ))),
            Err(text) => self.errors.push(Finding::general(text)),
        }
        let exposed = Exposed::find(file);
        let warning = exposed.map(|exposed| Finding::general(format!("tickets.root: {exposed}")));
        self.warnings.extend(warning);
    }

    /// That there are none yet is no mistake: whoever puts them there may do so at any time.
    fn check_stored_roots(&mut self, store: &KeyedStore, tickets: &Tickets, now: UnixSeconds) {
        match read_stored_roots(store, tickets, now) {
            Ok(Some(_)) => {}
            Ok(None) => self.warnings.push(Finding::general(no_stored_roots(store))),
            Err(text) => self.errors.push(Finding::general(text)),
        }
    }

    /// What was found of a listener. Beyond that, and so no error, every private key is decoded: of
    /// many, a start leaves that to the first hello that needs it. Those of a store are left to
    /// `sealane certificates verify`: with 100,000 of them that takes minutes.
    fn check_listener(&mut self, survey: &Survey<'_>, crypto: ProviderChoice) {
        let finding = |text: &String| Finding::of_listener(&survey.listener.name, text);
        self.errors.extend(survey.errors.iter().map(finding));
        self.errors.extend(survey.faults.iter().map(|fault| finding(&fault.text)));
        self.warnings.extend(survey.warnings.iter().flatten().map(finding));
        self.notes.extend(survey.notes.iter().map(finding));
        let Ok(provider) = lane_provider(crypto, &survey.listener.policy.groups) else { return };
        let certificates =
            survey.certificates.as_deref().into_iter().flat_map(CertificateIndex::iter);
        let wrong = certificates.filter_map(|each| each.verify(&provider.crypto).err());
        let told = wrong.map(|error| finding(&format!("{error}; until then nobody gets it")));
        self.warnings.extend(told);
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
    /// Where in the file the mistake is, if it is one of the file.
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

    fn of_listener(name: &str, text: &str) -> Self {
        Self { message: said_of(name, text), listener: Some(name.to_owned()), mistake: None }
    }
}

/// What a listener will serve.
#[derive(Debug, Serialize)]
pub struct ListenerReport {
    /// The listener's name.
    pub name: String,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// Where plaintext goes.
    pub backends: Vec<String>,
    /// How a backend is chosen.
    pub balance: &'static str,
    /// How many certificates there are.
    pub certificates: u64,
    /// The listener's limits that are not as they are by default, by their keys.
    pub limits: BTreeMap<&'static str, String>,
    /// How many of each kind of key.
    pub key_types: Vec<KeyTypeCount>,
    /// How many server names they cover, a wildcard counted as one.
    pub names: u64,
    /// Whether TLS is passed on, but for clients with a route that ends it.
    pub passthrough: bool,
    /// From where it takes PROXY headers, which it then requires.
    pub proxy_from: Option<Vec<String>>,
    /// The PROXY header that its backends get.
    pub proxy_header: &'static str,
    /// What clients get that ask for certain names: the first of many.
    pub routes: Vec<RouteSummary>,
    /// How many routes there are.
    pub routes_total: usize,
    /// The certificate that expires first, of those from files.
    pub soonest_expiry: Option<Expiry>,
    /// What its clients speak.
    pub speaks: Spoken,
    /// The store that it serves from beside them.
    pub store: Option<StoreReport>,
    /// The settings of TLS that differ from their defaults, by their keys.
    pub tls: BTreeMap<&'static str, String>,
}

impl ListenerReport {
    fn of(survey: &Survey<'_>, crypto: ProviderChoice, now: UnixSeconds) -> Self {
        let provider = lane_provider(crypto, &survey.listener.policy.groups).ok();
        let summary = Summary::from(survey);
        let Summary { name, addresses, backends, balance, certificates, .. } = summary;
        let store = summary.store.and_then(|store| {
            let inventory = store.certificates.inventory(1).ok()?;
            let socket = survey.listener.on_demand.then(|| store.path.join(NAMES_SOCKET));
            let sharing = Sharing::of(&store.path).ok();
            Some(StoreReport {
                on_demand: socket.map(|socket| OnDemandReport {
                    socket,
                    group: sharing.and_then(|sharing| sharing.group),
                }),
                path: store.path,
                certificates: inventory.certificates,
                names: inventory.names,
                soonest_expiry: inventory
                    .soonest
                    .first()
                    .map(|entry| Expiry::of(entry, &entry.names_text(), now)),
            })
        });
        Self {
            name,
            addresses,
            backends,
            balance,
            certificates: certificates.certificates,
            limits: summary.limits,
            key_types: KeyTypeCount::of(
                survey.certificates.as_deref(),
                provider.as_ref().map(|provider| &provider.crypto),
            ),
            names: certificates.names,
            passthrough: summary.passthrough,
            proxy_from: summary.proxy_from,
            proxy_header: summary.proxy_header,
            routes: summary.routes,
            routes_total: summary.routes_total,
            soonest_expiry: certificates
                .soonest
                .first()
                .map(|entry| Expiry::of(entry, &entry.source, now)),
            speaks: summary.speaks,
            store,
            tls: summary.tls,
        }
    }
}

/// Where names that clients ask for are told.
#[derive(Debug, Serialize)]
pub struct OnDemandReport {
    /// The socket, which is there while it is served.
    pub socket: PathBuf,
    /// The group that may take names there, beside this user.
    pub group: Option<u32>,
}

/// What is in a store.
#[derive(Debug, Serialize)]
pub struct StoreReport {
    /// Where names are told that it has no certificate for, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_demand: Option<OnDemandReport>,
    /// The store's folder.
    pub path: PathBuf,
    /// How many certificates there are.
    pub certificates: u64,
    /// How many server names they cover, a wildcard counted as one.
    pub names: u64,
    /// The certificate that expires first.
    pub soonest_expiry: Option<Expiry>,
}

/// How many certificates have a kind of key.
#[derive(Debug, Serialize)]
pub struct KeyTypeCount {
    /// The kind.
    pub key_type: String,
    /// How many have it.
    pub count: usize,
    /// Signatures that one lane can make in a second, and so the most full handshakes.
    pub signatures_per_second: Option<u64>,
}

impl KeyTypeCount {
    /// The most frequent first.
    fn of(index: Option<&CertificateIndex>, provider: Option<&CryptoProvider>) -> Vec<Self> {
        let mut counts: Vec<Self> = Vec::new();
        for certificate in index.into_iter().flat_map(CertificateIndex::iter) {
            let key_type = certificate.key_type().to_string();
            match counts.iter_mut().find(|known| known.key_type == key_type) {
                Some(known) => known.count += 1,
                None => {
                    let signatures_per_second =
                        provider.and_then(|it| signing::signatures_per_second(certificate, it));
                    counts.push(Self { key_type, count: 1, signatures_per_second });
                }
            }
        }
        counts.sort_by(|a, b| (b.count, &a.key_type).cmp(&(a.count, &b.key_type)));
        counts
    }
}

/// When a certificate expires.
#[derive(Debug, Serialize)]
pub struct Expiry {
    /// The certificate's file.
    pub certificate: String,
    /// The last second of validity, in Unix time.
    pub not_after_s: i64,
    /// Whole days until then; negative if it is over.
    pub days_left: i64,
    /// Seconds until then.
    #[serde(skip)]
    left_s: i64,
}

impl Expiry {
    fn of(entry: &InventoryEntry, certificate: &str, now: UnixSeconds) -> Self {
        let not_after_s = entry.not_after_s;
        let days_left = days_until(not_after_s, now);
        let left_s = not_after_s.saturating_sub(i64::try_from(now.0).unwrap_or(i64::MAX));
        Self { certificate: certificate.to_owned(), not_after_s, days_left, left_s }
    }
}

fn access_log_problem(log: &AccessLog) -> Option<String> {
    let AccessLogDestination::File(path) = &log.destination else {
        return None;
    };
    let folder = folder_of(path);
    let wrong = |what: &str, remedy: &str| {
        Some(format!("access_log.path: {} {what}; {remedy}", path.display()))
    };
    let unwritable = |error: &io::Error| {
        wrong(&format!("cannot be opened: {error}"), "let this user write there, or name another")
    };
    match (fs::metadata(folder), fs::metadata(path)) {
        (_, Ok(metadata)) if metadata.is_dir() => wrong("is a directory", "name a file in it"),
        (Err(error), _) => wrong(&format!("has no folder: {error}"), "make it"),
        (Ok(folder), _) if !folder.is_dir() => wrong("is not in a folder", "name a file in one"),
        // To open a pipe would show to the process that reads it.
        (Ok(_), Ok(file)) if !file.is_file() => None,
        (Ok(_), Ok(_)) => fs::OpenOptions::new()
            .append(true)
            .open(path)
            .err()
            .and_then(|error| unwritable(&error)),
        (Ok(_), Err(error)) if error.kind() != io::ErrorKind::NotFound => unwritable(&error),
        (Ok(_), Err(_)) => {
            let target = fs::read_link(path).map(|target| folder.join(target));
            let folder = target.as_deref().map_or(folder, folder_of);
            let to_make = Access::WRITE_OK | Access::EXEC_OK;
            access(folder, to_make).err().and_then(|error| unwritable(&error.into()))
        }
    }
}

/// Whether a service manager may make the folder of `path` at the start (`RuntimeDirectory=`).
fn may_come(path: &Path) -> bool {
    let folder = folder_of(path);
    !folder.exists() && ["/run", "/var/run"].iter().any(|runtime| folder.starts_with(runtime))
}

fn access_log_pipe(log: &AccessLog) -> Option<String> {
    let AccessLogDestination::File(path) = &log.destination else {
        return None;
    };
    let is_pipe = fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    is_pipe.then(|| {
        let path = path.display();
        format!("access_log.path: {path} is a pipe; lines are lost while no process reads it")
    })
}

#[cfg(test)]
mod tests;
