//! A backend, or what a `listen` section has of one.

use std::time::Duration;

use super::super::plan::{
    BackendTls, Certificate, Destination, Listener, NOBODY, Plan, ProxyHeader, endpoint,
    host_and_port,
};
use super::super::remark::{Line, Remarks, unknown};
use super::super::tls::{self, VERSIONS};
use super::bind::Bases;
use super::syntax::{Section, Statement, tell_without_key};
use super::{disabled, is_own, no_time, time, with_defaults};

/// Where a proxy leads.
#[derive(Default)]
pub(super) struct Backend {
    pub(super) destination: Destination,
    pub(super) timeouts: Timeouts,
}

/// `timeout server`, and `timeout tunnel`.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeouts([Option<(Duration, Line)>; 2]);

impl Timeouts {
    /// Gives a listener the timeouts of its backend.
    pub(super) fn put_into(&self, listener: &mut Listener) {
        for (key, timeout) in TIMEOUTS.into_iter().zip(&self.0) {
            if let Some((timeout, line)) = timeout {
                listener.set_timeout(key, *timeout, line);
            }
        }
    }

    /// Says of those that differ from what the listener has that they are left out; `line` is the
    /// rule that leads to their backend.
    pub(super) fn tell_unlike(&self, listeners: &Self, line: &Line, remarks: &mut Remarks) {
        for (key, (own, other)) in TIMEOUTS.into_iter().zip(self.0.iter().zip(&listeners.0)) {
            let time = |each: &Option<(Duration, Line)>| each.as_ref().map(|(time, _)| *time);
            if time(own) != time(other) {
                let line = own.as_ref().map_or(line, |(_, line)| line);
                let why = "one time holds for a listener and all of its routes: that of the \
                           first backend";
                remarks.left_out(line, key, why);
            }
        }
    }
}

/// What a backend says; in a `listen` section the rest is for who listens.
pub(super) fn read(
    section: &Section,
    sections: &[Section],
    bases: &Bases,
    plan: &mut Plan,
    remarks: &mut Remarks,
) -> Backend {
    let mut backend = Backend::default();
    let statements = with_defaults(section, sections);
    if let Some(disabled) = disabled(&statements) {
        let why = "a disabled backend serves nobody: it is a port at which nobody listens";
        remarks.left_out(&disabled.line, "backends", why);
        backend.destination.backends.push(NOBODY.into());
        return backend;
    }
    let defaults: Vec<&str> = statements
        .iter()
        .filter(|statement| statement.name() == "default-server")
        .flat_map(|statement| statement.words.iter().skip(1).map(String::as_str))
        .collect();
    for statement in &statements {
        let line = &statement.line;
        match statement.name() {
            "balance" => match statement.word(1) {
                "leastconn" => backend.destination.least_connections = true,
                "roundrobin" | "static-rr" => {}
                other => {
                    let why = format!("{other}: they take turns, or the least busy is taken");
                    remarks.left_out(line, "balance", why);
                }
            },
            "server" => server(statement, &defaults, bases, &mut backend.destination, remarks),
            "timeout" => timeout(statement, section, &mut backend, plan, remarks),
            "server-template" => {
                let why = "name each address; a name stands for all that it has";
                remarks.left_out(line, "backends", why);
            }
            "default-server" => {
                let mut without_key = Vec::new();
                let mut words = statement.words.iter().skip(1).map(String::as_str);
                while let Some(word) = words.next() {
                    let told = (&mut Remarks::default(), &mut without_key);
                    Server::new(bases).set(word, &mut words, line, told);
                }
                tell_options(&without_key, line, remarks);
            }
            "enabled" | "mode" => {}
            _ if section.kind == "backend" && is_own(statement, section) => {
                tell_without_key(statement, "backends", remarks);
            }
            _ => {}
        }
    }
    backend
}

fn timeout(
    statement: &Statement,
    section: &Section,
    backend: &mut Backend,
    plan: &mut Plan,
    remarks: &mut Remarks,
) {
    let (line, text) = (&statement.line, statement.word(2));
    let read = time(text);
    match (statement.word(1), read) {
        ("connect", Some(timeout)) => plan.set_connect_timeout(timeout, line),
        ("server", Some(timeout)) => backend.timeouts.0[0] = Some((timeout, line.clone())),
        ("tunnel", Some(timeout)) => backend.timeouts.0[1] = Some((timeout, line.clone())),
        ("connect" | "server" | "tunnel", None) => no_time(line, "backends", text, remarks),
        // Of whoever listens.
        ("client" | "client-fin" | "client-hs" | "server-fin", _) => {}
        (which, _) if is_own(statement, section) => {
            let why = format!("timeout {which}: there is nothing like it for bytes");
            remarks.left_out(line, "backends", why);
        }
        _ => {}
    }
}

/// Takes a server with its options, the defaults' first.
fn server(
    statement: &Statement,
    defaults: &[&str],
    bases: &Bases,
    destination: &mut Destination,
    remarks: &mut Remarks,
) {
    let line = &statement.line;
    let own = statement.words.iter().skip(3).map(String::as_str);
    let mut server = Server::new(bases);
    let mut without_key = Vec::new();
    let mut words = defaults.iter().copied();
    while let Some(word) = words.next() {
        // What has no key is told of where it stands.
        server.set(word, &mut words, line, (remarks, &mut Vec::new()));
    }
    let mut words = own;
    while let Some(word) = words.next() {
        server.set(word, &mut words, line, (remarks, &mut without_key));
    }
    tell_options(&without_key, line, remarks);
    if server.is_disabled {
        return;
    }
    let mut address = backend_address(statement.word(2));
    if server.speaks_tls {
        address.insert_str(0, "tls://");
    }
    let is_first = destination.backends.is_empty();
    let settings = server.speaks_tls.then(|| server.tls_settings(line, remarks));
    if is_first {
        destination.proxy_header = server.proxy_header;
        destination.tls = settings;
    } else if destination.proxy_header != server.proxy_header || destination.tls != settings {
        let why = "all servers of a backend are spoken to alike: as the first";
        remarks.left_out(line, "backends", why);
        return;
    }
    destination.add_backend(&address, line, remarks);
}

/// Says of options that have no key why, once for all that have the same reason.
fn tell_options(options: &[String], line: &Line, remarks: &mut Remarks) {
    let mut by_reason: Vec<(String, Vec<&str>)> = Vec::new();
    for option in options {
        let known = OPTIONS.iter().find(|(known, _)| known == option);
        let why = known.map_or_else(|| unknown("HAProxy"), |(_, why)| (*why).to_owned());
        match by_reason.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(option),
            None => by_reason.push((why, vec![option])),
        }
    }
    for (why, names) in by_reason {
        remarks.left_out(line, "backends", format!("{}: {why}", names.join(", ")));
    }
}

struct Server<'b> {
    bases: &'b Bases,
    is_disabled: bool,
    proxy_header: Option<ProxyHeader>,
    sni: Option<String>,
    speaks_tls: bool,
    tls: BackendTls,
    verify_host: Option<String>,
}

impl<'b> Server<'b> {
    fn new(bases: &'b Bases) -> Self {
        Self {
            bases,
            is_disabled: false,
            proxy_header: None,
            sni: None,
            speaks_tls: false,
            tls: BackendTls::default(),
            verify_host: None,
        }
    }

    fn set<'w>(
        &mut self,
        word: &str,
        words: &mut impl Iterator<Item = &'w str>,
        line: &Line,
        (remarks, without_key): (&mut Remarks, &mut Vec<String>),
    ) {
        let mut value = || words.next().unwrap_or_default();
        match word {
            "alpn" => self.tls.alpn = value().split(',').map(ToOwned::to_owned).collect(),
            "ca-file" => self.tls.roots = vec![self.bases.authority(value())],
            "crt" => {
                let path = self.bases.certificate(value());
                self.tls.client_certificate = Some(Certificate::Path(path));
            }
            "disabled" => self.is_disabled = true,
            "enabled" => self.is_disabled = false,
            "no-backup" | "no-check" => {}
            "no-send-proxy" | "no-send-proxy-v2" => self.proxy_header = None,
            "no-ssl" => self.speaks_tls = false,
            "proxy-v2-options" => self.set_told(value(), line, remarks),
            "send-proxy" => self.proxy_header = Some(ProxyHeader::V1),
            "send-proxy-v2" => self.proxy_header = Some(ProxyHeader::V2(vec!["alpn"])),
            "send-proxy-v2-ssl" => {
                self.proxy_header = Some(ProxyHeader::V2(vec!["alpn", "ssl"]));
            }
            "send-proxy-v2-ssl-cn" => {
                self.proxy_header = Some(ProxyHeader::V2(vec!["alpn", "ssl", "cn"]));
            }
            "sni" => {
                let text = value();
                let name = text.strip_prefix("str(").and_then(|text| text.strip_suffix(')'));
                self.sni = name.map(ToOwned::to_owned);
                if name.is_none() {
                    let why = format!("sni {text}: one name for all of them, server_name");
                    remarks.left_out(line, "backend_tls.server_name", why);
                }
            }
            "ssl" => self.speaks_tls = true,
            "ssl-max-ver" | "ssl-min-ver" => self.set_versions(word, value(), line, remarks),
            "verify" => self.tls.accepts_anybody = value() == "none",
            "verifyhost" => self.verify_host = Some(value().to_owned()),
            word => {
                if WITH_VALUE.contains(&word) {
                    value();
                }
                without_key.push(word.to_owned());
            }
        }
    }

    /// Puts together what options say of TLS.
    fn tls_settings(&self, line: &Line, remarks: &mut Remarks) -> BackendTls {
        let mut settings = self.tls.clone();
        settings.server_name = self.verify_host.as_ref().or(self.sni.as_ref()).cloned();
        if settings.accepts_anybody {
            let text = "nobody is verified, as it was written; better name roots";
            remarks.note(line, "backend_tls.insecure_accept_any_certificate", text);
        } else if settings.server_name.is_none() {
            let why = "HAProxy asks for no name without sni or verifyhost; here the certificate \
                       must have that of the address, or server_name";
            remarks.left_out(line, "backends", why);
        }
        if self.sni.is_some() && self.sni != settings.server_name {
            let why = "one name is asked for and proved: that of verifyhost is written";
            remarks.left_out(line, "backend_tls.server_name", why);
        }
        if settings.versions == Some([false; 2]) {
            let why = "of versions Sealane has 1.2 and 1.3: both are offered";
            remarks.left_out(line, "backend_tls.versions", why);
            settings.versions = None;
        }
        settings
    }

    /// Takes what else a header of version 2 tells.
    fn set_told(&mut self, options: &str, line: &Line, remarks: &mut Remarks) {
        let Some(ProxyHeader::V2(told)) = &mut self.proxy_header else {
            remarks.left_out(line, "proxy_tlvs", "there is no header of version 2 before it");
            return;
        };
        for option in options.split(',') {
            let (name, is_in_ssl) = match option {
                "authority" => ("authority", false),
                "cert-cn" => ("cn", true),
                "cert-key" => ("key", true),
                "cert-sig" => ("sig", true),
                "crc32c" => ("crc32c", false),
                "ssl" | "ssl-cipher" => ("ssl", false),
                _ => {
                    remarks.left_out(line, "proxy_tlvs", format!("{option}: is not told"));
                    continue;
                }
            };
            for name in [name].into_iter().chain(is_in_ssl.then_some("ssl")) {
                if !told.contains(&name) {
                    told.push(name);
                }
            }
        }
    }

    fn set_versions(&mut self, word: &str, name: &str, line: &Line, remarks: &mut Remarks) {
        let Some(version) = tls::version(name) else {
            let why = format!("{name:?} is no version of TLS");
            remarks.left_out(line, "backend_tls.versions", why);
            return;
        };
        let [tls12, tls13] = self.tls.versions.unwrap_or([true; 2]);
        let within =
            |each: usize| if word == "ssl-min-ver" { each >= version } else { each <= version };
        self.tls.versions =
            Some([tls12 && within(VERSIONS.len() - 2), tls13 && within(VERSIONS.len() - 1)]);
    }
}

/// An address as Sealane spells it.
fn backend_address(text: &str) -> String {
    let path = text.strip_prefix("unix@").or_else(|| text.starts_with('/').then_some(text));
    if let Some(path) = path {
        return format!("unix:{path}");
    }
    let bare = ["ipv4@", "ipv6@"].iter().find_map(|prefix| text.strip_prefix(prefix));
    let (host, port) = host_and_port(bare.unwrap_or(text));
    endpoint(host, port)
}

/// Statements of a `listen` section that are about its backend.
pub(super) const STATEMENTS: [&str; 4] = ["balance", "default-server", "server", "server-template"];

/// Options that have a value behind them.
const WITH_VALUE: [&str; 24] = [
    "addr",
    "agent-check",
    "agent-port",
    "ciphers",
    "ciphersuites",
    "cookie",
    "crl-file",
    "fall",
    "fastinter",
    "downinter",
    "id",
    "init-addr",
    "inter",
    "maxconn",
    "maxqueue",
    "minconn",
    "on-error",
    "on-marked-down",
    "port",
    "resolvers",
    "resolve-prefer",
    "rise",
    "slowstart",
    "weight",
];

/// The keys of [`Timeouts`].
const TIMEOUTS: [&str; 2] = ["backend_timeout", "idle_timeout"];

const CHECK: &str = "backends are checked where there is [listener.check]: write that";

const OPTIONS: [(&str, &str); 16] = [
    ("backup", "write the backend as { address = \"HOST:PORT\", backup = true }"),
    ("check", CHECK),
    ("check-ssl", CHECK),
    ("ciphers", "backends are offered all suites of Sealane"),
    ("ciphersuites", "backends are offered all suites of Sealane"),
    ("crl-file", "revocation is looked at for clients alone"),
    ("downinter", CHECK),
    ("fall", CHECK),
    ("fastinter", CHECK),
    ("init-addr", "a name that leads nowhere holds no start up"),
    ("inter", CHECK),
    ("maxconn", "write the backend as { address = \"HOST:PORT\", connections = COUNT }"),
    ("on-marked-down", "connections are left as they are"),
    ("resolvers", "the system's resolver is asked, every `resolve` of the listener"),
    ("rise", CHECK),
    ("weight", "write the backend as { address = \"HOST:PORT\", weight = WEIGHT }"),
];
