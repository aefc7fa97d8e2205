//! Reads stunnel(8): options, those of the process first, then services.

mod options;
mod syntax;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use sealane_config::Mistakes;

use super::files::Files;
use super::plan::{
    Backend, BackendTls, Certificate, Clients, Listener, Plan, ProxyHeader, Route, Spoken,
    both_families, endpoint, host_and_port, is_every_address_of_six, is_on, number,
};
use super::remark::{ASKED, Line, Remarks};
use super::tls;

use options::{GUARDS, LOST, PROCESS, SWITCHES, TICKETS, reason};
use syntax::{Section, SetOption};

/// Reads the text of a file, and of the folders that it includes.
///
/// # Errors
/// stunnel would not read it either.
pub(super) fn read(text: &str, file: &Path, files: &mut Files) -> Result<Plan, Mistakes> {
    let mut plan = Plan::default();
    let mut sections = syntax::sections(text, file, files, &mut plan.remarks)?;
    let services = sections.split_off(1);
    let mut common = sections.pop().unwrap_or_default().options;
    common.retain(|option| !of_process(option, &mut plan));
    let mut secondary = Vec::new();
    for section in &services {
        if !files.spend_on_copies(common.len() + 1) {
            break;
        }
        let mut service = Service::default();
        service.listener.name = Some(section.name.clone());
        // Options before the first service apply to all of them.
        for option in common.iter().chain(&section.options) {
            service.set(option, &mut plan);
        }
        let roots = service.authorities.first().map(Path::new);
        let certificates = roots.and_then(|path| files.count_of(path, "-----BEGIN CERTIFICATE"));
        service.pins_one = certificates == Some(1);
        match service.is_secondary() {
            true => secondary.push((section, service)),
            false => service.put_into(&mut plan, section),
        }
    }
    let by_name = services.iter().map(|section| (section.name.as_str(), section)).collect();
    let services = Services { by_name, common: &common };
    for (section, service) in secondary {
        let names = service.sni.len();
        if !files.spend(names * (plan.listeners.len() + common.len() + section.options.len() + 1)) {
            break;
        }
        service.add_to_primary(&mut plan, section, &services);
    }
    Ok(plan)
}

/// A service as its options come.
#[derive(Default)]
struct Service {
    authorities: Vec<String>,
    cert: Option<String>,
    check_hosts: Vec<String>,
    crls: Vec<String>,
    demand: Option<(Demand, Line)>,
    has_no_backend: Option<Line>,
    is_client: bool,
    is_round_robin: bool,
    key: Option<String>,
    line_of_connect: Option<Line>,
    listener: Listener,
    /// Whether CAfile has a single certificate.
    pins_one: bool,
    /// The line by which clients must show a certificate.
    requires: Option<Line>,
    /// Services that share another's address: that one's name, and the server name.
    sni: Vec<(String, Line)>,
    versions: Option<(tls::Spoken, Line)>,
}

/// The requirement for the other side's certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Demand {
    /// That authorities vouch for it, if it is shown: level 1.
    IfShown,
    /// That authorities vouch for it: level 2.
    Chain,
    /// That it is one of those in a file: levels 3 and 4.
    Peer,
}

impl Demand {
    fn of_level(level: &str) -> Option<Self> {
        match level {
            "1" => Some(Self::IfShown),
            "2" => Some(Self::Chain),
            "3" | "4" => Some(Self::Peer),
            _ => None,
        }
    }
}

impl Service {
    fn is_secondary(&self) -> bool {
        !self.is_client && !self.sni.is_empty()
    }

    fn set(&mut self, option: &SetOption, plan: &mut Plan) {
        let (line, value) = (&option.line, option.value.as_str());
        let remarks = &mut self.listener.remarks;
        match option.key.as_str() {
            "accept" => {
                for address in accepted(value) {
                    self.listener.listen(&address, line);
                }
            }
            "cafile" => self.authorities = vec![value.to_owned()],
            "cert" => self.cert = Some(value.to_owned()),
            "checkhost" => self.check_hosts.push(value.to_owned()),
            "ciphers" => self.listener.tls.set_ciphers(value, line, remarks),
            "ciphersuites" => self.listener.tls.set_ciphersuites(value, line, remarks),
            "client" => self.is_client = is_on(value),
            "connect" => {
                self.line_of_connect = Some(line.clone());
                let destination = &mut self.listener.destination;
                destination.add_backend(Backend::at(connected(value)), line, remarks);
            }
            "crlfile" | "crlpath" => self.crls.push(value.to_owned()),
            "curves" => self.listener.tls.set_groups(value, line, remarks),
            "exec" | "execargs" | "pty" => self.has_no_backend = Some(line.clone()),
            "failover" => self.is_round_robin = value == "rr",
            "key" => self.key = Some(value.to_owned()),
            "options" => self.set_openssl_option(value, line),
            "protocol" => self.set_protocol(value, line),
            "sni" => self.sni.push((value.to_owned(), line.clone())),
            "socket" if value.ends_with("TCP_NODELAY=1") => {}
            "sslversion" | "sslversionmax" | "sslversionmin" => {
                self.set_version(&option.key, value, line);
            }
            "timeoutbusy" | "timeoutconnect" | "timeoutidle" => {
                self.set_timeout(&option.key, value, line, plan);
            }
            "requirecert" => self.requires = is_on(value).then(|| line.clone()),
            "verify" => {
                let demand = Demand::of_level(value);
                self.demand(demand, demand >= Some(Demand::Chain), line);
            }
            "verifychain" if is_on(value) => self.demand(Some(Demand::Chain), true, line),
            "verifypeer" if is_on(value) => self.demand(Some(Demand::Peer), true, line),
            key if SWITCHES.contains(&key) && !is_on(value) => {}
            key => match reason(key) {
                Some(why) if GUARDS.contains(&key) && !self.is_client => {
                    remarks.admits_more(line, "clients", why);
                }
                Some(why) => remarks.left_out(line, "", why),
                None => remarks.unknown(line, "", "stunnel"),
            },
        }
    }

    /// Takes a requirement for certificates. A later `requireCert` overrides it.
    fn demand(&mut self, demand: Option<Demand>, is_required: bool, line: &Line) {
        self.demand = demand.map(|demand| (demand, line.clone()));
        self.requires = is_required.then(|| line.clone());
    }

    fn set_openssl_option(&mut self, value: &str, line: &Line) {
        let remarks = &mut self.listener.remarks;
        match value {
            "CIPHER_SERVER_PREFERENCE" => self.listener.tls.client_order = false,
            // Sealane has neither.
            "NO_COMPRESSION" | "NO_RENEGOTIATION" | "NO_SSLv2" | "NO_SSLv3" | "SINGLE_DH_USE"
            | "SINGLE_ECDH_USE" => {}
            "NO_TICKET" => remarks.left_out(line, "", TICKETS),
            _ => {
                let version = value.strip_prefix("NO_").and_then(|name| {
                    let name = name.replace('_', ".");
                    tls::version(&name)
                });
                match version {
                    Some(version) => {
                        let (mut spoken, _) = self.spoken_versions();
                        spoken[version] = false;
                        self.versions = Some((spoken, line.clone()));
                    }
                    None => {
                        let why = "options of OpenSSL mean nothing here";
                        remarks.left_out(line, "", why);
                    }
                }
            }
        }
    }

    /// TLS 1.2 and 1.3 by default: the versions that a system's OpenSSL allows today.
    fn spoken_versions(&self) -> (tls::Spoken, Option<Line>) {
        match &self.versions {
            Some((spoken, line)) => (*spoken, Some(line.clone())),
            None => ([false, false, false, true, true], None),
        }
    }

    fn set_version(&mut self, key: &str, value: &str, line: &Line) {
        let version = match value {
            "all" => return,
            name => tls::version(name),
        };
        let Some(version) = version else {
            let why = format!("{value:?} is no version of TLS");
            self.listener.remarks.left_out(line, "versions", why);
            return;
        };
        let (mut spoken, _) = self.spoken_versions();
        for (index, is_spoken) in spoken.iter_mut().enumerate() {
            *is_spoken = match key {
                "sslversionmax" => index <= version && (*is_spoken || index == version),
                "sslversionmin" => index >= version && (*is_spoken || index < 3),
                _ => index == version,
            };
        }
        self.versions = Some((spoken, line.clone()));
    }

    fn set_protocol(&mut self, value: &str, line: &Line) {
        match value {
            "pgsql" => self.listener.spoken = Spoken::Postgres,
            "proxy" => self.listener.destination.proxy_header = Some(ProxyHeader::V1),
            _ => {
                let why = "of protocols that begin in the clear Sealane has PostgreSQL's alone; \
                           keep stunnel, or a port where TLS comes first";
                self.listener.remarks.left_out(line, "starttls", why);
            }
        }
    }

    fn set_timeout(&mut self, key: &str, value: &str, line: &Line, plan: &mut Plan) {
        let remarks = &mut self.listener.remarks;
        let Some(seconds) = number(value, 1..=SECONDS_MAX, line, "idle_timeout", remarks) else {
            return;
        };
        let timeout = Duration::from_secs(seconds as u64);
        match key {
            "timeoutbusy" => self.listener.set_timeout("handshake_timeout", timeout, line),
            "timeoutconnect" => plan.set_connect_timeout(timeout, line),
            _ => self.listener.set_timeout("idle_timeout", timeout, line),
        }
    }

    /// Makes a listener of a service that has an address.
    fn put_into(mut self, plan: &mut Plan, section: &Section) {
        if let Some(line) = &self.has_no_backend {
            plan.remarks.left_out(line, "", NO_PROGRAMS);
            plan.remarks.0.append(&mut self.listener.remarks.0);
            return;
        }
        if self.listener.addresses.is_empty()
            && let Some(line) = &section.line
        {
            let why = "a service without accept is for inetd: give it an address";
            self.listener.remarks.left_out(line, "", why);
        }
        if let Some((spoken, line)) = &self.versions {
            self.listener.tls.set_versions(*spoken, line, &mut self.listener.remarks);
        }
        self.tell_failover();
        match self.is_client {
            true => self.finish_client(),
            false => self.finish_server(),
        }
        let why = "what stunnel has where nobody says anything; Sealane's own default is 5m";
        self.listener.default_idle_timeout(IDLE_DEFAULT, why);
        plan.listeners.push(self.listener);
    }

    fn tell_failover(&mut self) {
        if let Some(line) = &self.line_of_connect
            && self.listener.destination.backends.len() > 1
            && !self.is_round_robin
        {
            let why = "stunnel takes the first that answers (failover = prio); these take turns, \
                       unless some are written with backup = true";
            self.listener.remarks.left_out(line, "backends", why);
        }
    }

    fn certificate(&self) -> Option<Certificate> {
        let chain = self.cert.clone()?;
        Some(match self.key.clone().filter(|key| *key != chain) {
            Some(key) => Certificate::Pair { chain, key },
            None => Certificate::Path(chain),
        })
    }

    /// The requirements for clients' certificates. Clients may have none to show.
    fn clients(&self, remarks: &mut Remarks) -> Option<Clients> {
        match (&self.demand, &self.requires) {
            (None, None) => return None,
            (None, Some(line)) => {
                let why = "stunnel takes any certificate without verifyChain; here authorities \
                           must vouch for it";
                remarks.left_out(line, "clients.roots", why);
            }
            (Some((_, line)), None) => remarks.admits_more(line, "clients.certificates", ASKED),
            (Some(_), Some(_)) => {}
        }
        if let Some((Demand::Peer, line)) = &self.demand {
            tell_pinned(line, "clients.roots", self.pins_one, remarks);
        }
        let is_required = self.requires.is_some();
        Some(Clients {
            allows_other_names: false,
            is_required,
            roots: self.authorities.clone(),
            crls: self.crls.clone(),
            names: self.check_hosts.iter().map(|host| format!("DNS:{host}")).collect(),
        })
    }

    fn finish_server(&mut self) {
        self.listener.certificates.extend(self.certificate());
        let mut remarks = std::mem::take(&mut self.listener.remarks);
        self.listener.clients = self.clients(&mut remarks);
        self.listener.remarks = remarks;
    }

    fn finish_client(&mut self) {
        let demand = &self.demand;
        let mut settings = BackendTls {
            // A server always shows one.
            accepts_anybody: demand.is_none(),
            client_certificate: self.certificate(),
            roots: self.authorities.clone(),
            server_name: self.check_hosts.first().cloned(),
            versions: self.listener.tls.versions.take(),
            ..BackendTls::default()
        };
        let remarks = &mut self.listener.remarks;
        if let Some((Demand::Peer, line)) = demand {
            tell_pinned(line, "backend_tls.roots", self.pins_one, remarks);
        }
        if let Some((name, line)) = self.sni.first() {
            let agrees = settings.server_name.as_ref().is_none_or(|host| host == name);
            if !agrees {
                let why = "one name is asked for and proved: that of checkHost is written";
                remarks.left_out(line, "backend_tls.server_name", why);
            }
            settings.server_name.get_or_insert_with(|| name.clone());
        }
        if settings.accepts_anybody {
            let text = "stunnel verifies nobody unless it is told to; better name roots instead";
            remarks.about_default("backend_tls.insecure_accept_any_certificate", text);
        } else if self.check_hosts.is_empty()
            && let Some(line) = &self.line_of_connect
        {
            let why = "stunnel asks for no name; here the certificate must have that of the \
                       address, or server_name";
            remarks.left_out(line, "backends", why);
        }
        self.listener.tls = tls::Tls::default();
        self.listener.spoken = Spoken::Plain;
        let destination = &mut self.listener.destination;
        destination.speak_tls();
        destination.tls = Some(settings);
    }

    /// Makes a route of a service for names at another's address. `services` are all of them, with
    /// the options before the first.
    fn add_to_primary(mut self, plan: &mut Plan, section: &Section, services: &Services<'_>) {
        if let Some(line) = &self.has_no_backend {
            plan.remarks.left_out(line, "", NO_PROGRAMS);
            plan.remarks.0.append(&mut self.listener.remarks.0);
            return;
        }
        if let Some(own) = section.options.iter().find(|option| option.key == "accept") {
            let why = "a service for names at another's address has none of its own";
            self.listener.remarks.left_out(&own.line, "", why);
        }
        self.tell_failover();
        let mut remarks = std::mem::take(&mut self.listener.remarks);
        let (certificate, clients) = (self.certificate(), self.clients(&mut remarks));
        plan.remarks.0.append(&mut remarks.0);
        for (value, line) in &self.sni {
            let (primary, pattern) = value.split_once(':').unwrap_or((value, ""));
            let is_primary = |each: &&mut Listener| each.name.as_deref() == Some(primary);
            let Some(listener) = plan.listeners.iter_mut().find(is_primary) else {
                let why = format!("there is no service {primary:?}");
                plan.remarks.left_out(line, "", why);
                continue;
            };
            if sealane_config::value::host_name(pattern).is_err() {
                let why = format!("{pattern:?} is neither a host name nor *. before one");
                listener.remarks.left_out(line, "route.names", why);
                continue;
            }
            services.tell_unlike(section, primary, line, &mut listener.remarks);
            listener.certificates.extend(certificate.clone());
            let name = &section.name;
            let text = format!("service {name}: its certificate is found by the names in it");
            listener.remarks.note(line, "certificates", text);
            let destination = self.listener.destination.clone();
            let names = vec![pattern.to_ascii_lowercase()];
            let route = Route { names, clients: clients.clone(), destination, ..Route::default() };
            listener.routes.push(route);
        }
    }
}

/// All services, by name, with the options that hold for each of them.
struct Services<'s> {
    by_name: HashMap<&'s str, &'s Section>,
    common: &'s [SetOption],
}

impl Services<'_> {
    /// Adds a remark about options that hold for an address, and differ from those of the service
    /// that has it: they are left out.
    fn tell_unlike(&self, section: &Section, primary: &str, line: &Line, remarks: &mut Remarks) {
        let Some(primary) = self.by_name.get(primary) else { return };
        for key in OF_ADDRESSES {
            let of = |section: &Section| -> Vec<(String, Line)> {
                let options = self.common.iter().chain(&section.options);
                // A header may be a route's own.
                let set = options.filter(|option| option.key == key && option.value != "proxy");
                set.map(|option| (option.value.clone(), option.line.clone())).collect()
            };
            let (own, other) = (of(section), of(primary));
            if own.iter().map(|(value, _)| value).ne(other.iter().map(|(value, _)| value)) {
                let line = own.last().map_or(line, |(_, line)| line);
                let why = format!("{key}: that of the service whose address it is holds");
                remarks.left_out(line, "route.names", why);
            }
        }
    }
}

/// Takes an option of the whole process, if it is one.
fn of_process(option: &SetOption, plan: &mut Plan) -> bool {
    let known = PROCESS.iter().find(|(name, _)| *name == option.key);
    if let Some((_, why)) = known
        && (!SWITCHES.contains(&option.key.as_str()) || is_on(&option.value))
    {
        match LOST.contains(&option.key.as_str()) {
            true => plan.remarks.left_out(&option.line, "", *why),
            false => plan.remarks.note(&option.line, "", *why),
        }
    }
    known.is_some()
}

/// `[HOST:]PORT` to accept at, or the path of a unix socket.
fn accepted(text: &str) -> Vec<String> {
    if text.starts_with('/') {
        return vec![format!("unix:{text}")];
    }
    match host_and_port(text) {
        ("", port) => vec![format!("0.0.0.0:{port}")],
        (host, port) if is_every_address_of_six(host) => both_families(port),
        (host, port) => vec![endpoint(host, port)],
    }
}

/// `[HOST:]PORT` to connect to, or the path of a unix socket.
fn connected(text: &str) -> String {
    if text.starts_with('/') {
        return format!("unix:{text}");
    }
    match host_and_port(text) {
        ("", port) => format!("localhost:{port}"),
        (host, port) => endpoint(host, port),
    }
}

/// Reports how trust in a certificate itself differs: Sealane also trusts those that it issued.
fn tell_pinned(line: &Line, key: &'static str, is_one: bool, remarks: &mut Remarks) {
    match is_one {
        true => remarks.note(line, key, PINNED_ONE),
        false if key == "clients.roots" => remarks.admits_more(line, key, PINNED),
        false => remarks.left_out(line, key, PINNED),
    }
}

/// stunnel's default of TIMEOUTidle.
const IDLE_DEFAULT: Duration = Duration::from_hours(12);
const SECONDS_MAX: usize = 100_000_000;
const NO_PROGRAMS: &str =
    "Sealane starts no programs: let systemd listen for it, and name its socket";
/// Options that hold for all names at an address here.
const OF_ADDRESSES: [&str; 10] = [
    "ciphers",
    "ciphersuites",
    "curves",
    "options",
    "protocol",
    "sslversion",
    "sslversionmax",
    "sslversionmin",
    "timeoutbusy",
    "timeoutidle",
];
/// The remark for several certificates, or for a file that cannot be read.
const PINNED: &str = "stunnel accepts only the certificates in CAfile; here a certificate that one \
                      of them issued is accepted as well: name no authority of others";
const PINNED_ONE: &str = "a certificate that the one in CAfile issued is accepted as well";
