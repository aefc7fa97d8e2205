//! What an operator asks for: read from a TOML file or from flags into a [`Config`].
//!
//! Two steps, as everywhere that text comes in: the reader walks what was written and collects
//! every mistake with its place; what comes out is a [`Config`] with nothing left to check but the
//! world around it. No file but the configuration and what it includes is opened, no socket, no
//! thread.
#![forbid(unsafe_code)]

mod access_log;
mod addresses;
mod admin;
mod backend;
mod backend_tls;
mod certificates;
mod check;
mod claims;
mod client_trust;
mod contradictions;
mod demand;
mod destination;
mod file;
mod include;
mod lanes;
mod limits;
mod listener;
mod listener_limits;
mod listeners;
pub mod network;
pub mod networks;
mod policy;
mod process;
mod proxy;
pub mod proxy_header;
mod route;
mod spoken;
#[cfg(test)]
mod tests;
mod tickets;
mod timeouts;
pub mod unix_socket;
pub mod value;

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use sealane_engine::policy::Policy;
use sealane_engine::provider::ProviderChoice;

use addresses::SOCKET_MODE_DEFAULT;
use backend::share_tls;
use certificates::STORES_REMEDY;
use include::read_text;

pub use access_log::{AccessLog, AccessLogDestination, LoggedEnds};
pub use admin::{Admin, AdminSocket};
pub use backend::{BackendAddress, WrittenBackend};
pub use backend_tls::{BackendTls, RootSource, Trust};
pub use check::{Check, CheckKind};
pub use client_trust::{ClientDemand, ClientTrust};
pub use demand::undercuts_here;
pub use destination::{BACKENDS_MAX, Balance, Destination, RESOLVE_DEFAULT, Share};
pub use file::{LANES_MAX, schema};
pub use limits::Limits;
pub use listener::Listener;
pub use listener_limits::{ListenerLimits, NETWORKS_MAX, NetworkSource, PerClient, Steering};
pub use network::Network;
pub use policy::{HANDSHAKE_KEYS, chosen_policy};
pub use process::Process;
pub use proxy::AcceptProxy;
pub use proxy_header::{ProxyHeader, Tlv, Tlvs};
pub use route::{Route, base_of, unconditional};
pub use sealane_certificate_files::CertificateSource;
pub use sealane_lanes::kernel::Address;
pub use sealane_operator::reader::written_at;
pub use sealane_operator::{KeySource, Mistake, Mistakes, Place, Problem};
pub use spoken::{ChallengeSource, Spoken};
pub use tickets::{RootPlace, Tickets};

/// Everything a running Sealane is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where a line per connection goes; none unless asked for.
    pub access_log: Option<AccessLog>,
    /// Where metrics, health and state are served; nowhere unless asked for.
    pub admin: Admin,
    /// The cryptographic library of every lane.
    pub crypto: ProviderChoice,
    /// The files and folders that were included.
    pub included: Vec<PathBuf>,
    /// How many event loops run, one thread each.
    pub lanes: NonZeroUsize,
    /// What is bounded, and by how much.
    pub limits: Limits,
    /// What is listened on; at least one, no address twice, no name twice.
    pub listeners: Vec<Listener>,
    /// Whether each lane is bound to a core of its own.
    pub pin_lanes: bool,
    /// Who the process is, and who may look into it.
    pub process: Process,
    /// Where the keys that open certificate stores come from; there if a listener has a store.
    pub store_key: Option<KeySource>,
    /// How sessions are resumed.
    pub tickets: Tickets,
    /// Whether a change of a file is a reload.
    pub watch: bool,
}

impl Config {
    /// The folders of all stores, some of them more than once.
    pub fn stores(&self) -> impl Iterator<Item = &Path> {
        let of_listeners = self.listeners.iter().filter_map(|listener| listener.store.as_deref());
        of_listeners.chain(self.tickets.root.as_ref().and_then(RootPlace::store))
    }

    /// The folder of the store into which certificates on demand come, if they do.
    pub fn on_demand_store(&self) -> Option<&Path> {
        let mut listeners = self.listeners.iter().filter(|listener| listener.on_demand);
        listeners.find_map(|listener| listener.store.as_deref())
    }

    /// Reads a file; every mistake in it is reported at once.
    pub fn load(file: &Path) -> Result<Self, Mistakes> {
        Self::if_in_order(Self::load_partly(file))
    }

    /// Reads a file for a process that keeps its number of `lanes`, also if the file sets another:
    /// limits for all lanes together must be enough for these too.
    pub fn load_anew(file: &Path, lanes: NonZeroUsize) -> Result<Self, Mistakes> {
        Self::if_in_order(Self::load_for(file, Some(lanes)))
    }

    /// The valid part of a file, if that is enough for a configuration, and every mistake: for
    /// checks that go on after a mistake. It is not for use.
    pub fn load_partly(file: &Path) -> (Option<Self>, Vec<Mistake>) {
        Self::load_for(file, None)
    }

    fn load_for(file: &Path, running: Option<NonZeroUsize>) -> (Option<Self>, Vec<Mistake>) {
        match read_text(file) {
            Ok(text) => file::parse_all(file, &text, running),
            Err(problem) => {
                let place = Some(Place::whole(file));
                (None, vec![Mistake { place, field: String::new(), problem }])
            }
        }
    }

    /// Reads the text of a file; `file` names it in mistakes, and relative paths start beside it.
    /// What it includes is not read.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Mistakes> {
        Self::if_in_order(file::parse(file, text))
    }

    fn if_in_order((config, mistakes): (Option<Self>, Vec<Mistake>)) -> Result<Self, Mistakes> {
        config.filter(|_| mistakes.is_empty()).ok_or(Mistakes(mistakes))
    }

    /// One listener with defaults for everything that is not in `simple`.
    pub fn simple(simple: Simple) -> Result<Self, Mistakes> {
        let mistakes = flag_mistakes(&simple);
        let Some(first) = simple.listen.first().filter(|_| mistakes.is_empty()) else {
            return Err(Mistakes(mistakes));
        };
        let (stores, files): (Vec<PathBuf>, Vec<PathBuf>) =
            simple.certificates.into_iter().partition(|path| value::store_path(path).is_some());
        let speaks_tls = simple.backends.iter().any(|backend| backend.tls);
        let listener = Listener {
            name: first.to_string(),
            acme_responder: None,
            accept_proxy: None,
            addresses: simple.listen,
            socket_mode: SOCKET_MODE_DEFAULT,
            certificates: files.into_iter().map(CertificateSource::Path).collect(),
            store: stores.first().and_then(|path| value::store_path(path)).map(PathBuf::from),
            default_certificate: None,
            on_demand: false,
            policy: Policy { alpn: simple.alpn, ..Policy::default() },
            clients: None,
            destination: Destination {
                backends: simple
                    .backends
                    .into_iter()
                    .map(|b| (b.address, Share::default()))
                    .collect(),
                backend_tls: speaks_tls.then(BackendTls::default),
                balance: Balance::default(),
                proxy_header: simple.proxy_header,
            },
            check: None,
            resolve: RESOLVE_DEFAULT,
            passthrough: false,
            routes: Vec::new(),
            spoken: Spoken::default(),
            limits: ListenerLimits::default(),
        };
        Ok(Self {
            access_log: None,
            admin: simple.admin.map(Admin::from).unwrap_or_default(),
            crypto: ProviderChoice::default(),
            included: Vec::new(),
            lanes: simple.lanes.unwrap_or_else(default_lanes),
            limits: Limits::default(),
            listeners: vec![listener],
            pin_lanes: false,
            process: Process::default(),
            store_key: simple.store_key_file.map(KeySource::File),
            tickets: Tickets::default(),
            watch: true,
        })
    }
}

/// What can be said without a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Simple {
    /// Where metrics, health and state are served.
    pub admin: Option<Address>,
    /// Application protocols of the one listener, in order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Backends of the one listener.
    pub backends: Vec<WrittenBackend>,
    /// Files and folders of certificates.
    pub certificates: Vec<PathBuf>,
    /// How many event loops run; as many as there are cores without it.
    pub lanes: Option<NonZeroUsize>,
    /// Addresses to listen on.
    pub listen: Vec<Address>,
    /// What its backends are told of a client.
    pub proxy_header: ProxyHeader,
    /// The file with the keys that open its certificate store.
    pub store_key_file: Option<PathBuf>,
}

fn default_lanes() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn flag_mistakes(simple: &Simple) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let mut note = |flag: &str, problem| {
        mistakes.push(Mistake { place: None, field: flag.to_owned(), problem });
    };
    for (flag, count) in [
        ("--listen", simple.listen.len()),
        ("--backend", simple.backends.len()),
        ("--certificates", simple.certificates.len()),
    ] {
        if count == 0 {
            note(flag, Problem::new("is missing", "add it, or use --config FILE alone"));
        }
    }
    let stores = || simple.certificates.iter().filter(|path| value::store_path(path).is_some());
    if stores().count() > 1 {
        note("--certificates", Problem::new("two stores are given", STORES_REMEDY));
    }
    if stores().next().is_some() && simple.store_key_file.is_none() {
        let what = "is missing: the private keys in a store are sealed";
        note("--store-key-file", Problem::new(what, "add it"));
    }
    if simple.backends.len() > BACKENDS_MAX {
        let what = format!("is given {} times", simple.backends.len());
        note("--backend", Problem::new(what, format!("give it at most {BACKENDS_MAX} times")));
    }
    for address in repeated(&simple.listen) {
        note("--listen", Problem::new(format!("{address} is given twice"), "remove one"));
    }
    for backend in repeated(&simple.backends) {
        note("--backend", Problem::new(format!("{backend} is given twice"), "remove one"));
    }
    let defaults = BackendTls::default();
    for backend in simple.backends.iter().filter(|backend| backend.tls) {
        if let Err(problem) = defaults.server_name_of(&backend.address) {
            note("--backend", problem);
        }
    }
    if let Err(problem) = share_tls(&simple.backends) {
        note("--backend", problem);
    }
    let Some(admin) = &simple.admin else {
        return mistakes;
    };
    let remedy = "use 127.0.0.1, [::1] or unix:PATH, or a file with [admin] allow_remote = true";
    if let Err(problem) = value::check_admin_is_local(admin, remedy) {
        note("--admin", problem);
    }
    let is_chosen = matches!(admin, Address::Tcp(tcp) if tcp.port() == 0);
    if !is_chosen && simple.listen.contains(admin) {
        let what = format!("{admin} is a --listen address too");
        note("--admin", Problem::new(what, "choose another"));
    }
    mistakes
}

fn repeated<T: Eq + std::hash::Hash>(values: &[T]) -> impl Iterator<Item = &T> {
    let mut seen = HashSet::new();
    values.iter().filter(move |value| !seen.insert(*value))
}
