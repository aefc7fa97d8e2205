//! A backend, or the backend's half of a `listen` section.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::super::plan::{
    self as plan, BackendTls, Certificate, Check, Destination, KeepAlive, Listener, Plan,
    ProxyHeader, endpoint, host_and_port, number,
};
use super::super::remark::{Line, Remarks, tell_by_reason, unknown};
use super::super::tls::{self, VERSIONS};
use super::access::Access;
use super::bases::Bases;
use super::syntax::{Section, Statement, tell_without_key};
use super::{World, disabled, is_keepalive, is_own, no_time, take_keepalive, time, with_defaults};

/// The destination of a proxy.
#[derive(Clone, Default)]
pub(super) struct Backend {
    /// The check of each server, with the line where it is written.
    checks: Vec<(Option<Check>, Line)>,
    pub(super) destination: Destination,
    pub(super) keepalive: Option<KeepAlive>,
    /// Whether its servers are checked as servers of TLS, so that clients speak it too.
    pub(super) looks_like_tls: bool,
    pub(super) timeouts: Timeouts,
}

impl Backend {
    /// Gives a listener the check of its first backend; that of others must be the same.
    pub(super) fn put_check_into(&self, listener: &mut Listener, is_first: bool) {
        let first = self.checks.iter().find_map(|(check, _)| check.as_ref());
        if is_first {
            listener.check = first.cloned();
        }
        let differs = |(check, _): &&(Option<Check>, Line)| *check != listener.check;
        if let Some((_, line)) = self.checks.iter().find(differs) {
            let why = "one check holds for all backends of a listener; give backends with another \
                       check, or with none, a listener of their own";
            listener.remarks.left_out(line, "check", why);
        }
        // A check in TLS is for backends that all speak it.
        if let Some(check) = listener.check.as_mut().filter(|_| self.destination.tls.is_none()) {
            check.in_tls = false;
        }
    }
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

    /// Adds a remark for each timeout that differs from the listener's: it is left out. `line` is
    /// the rule that leads to their backend.
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

/// Reads a backend. In a `listen` section the other statements belong to the listener.
pub(super) fn read(
    section: &Section,
    sections: &[Section],
    world: &World<'_>,
    plan: &mut Plan,
    remarks: &mut Remarks,
) -> Backend {
    let mut backend = Backend::default();
    let bases = &world.bases;
    let statements = with_defaults(section, sections, world.files);
    if let Some(disabled) = disabled(&statements) {
        let why = "the backend is disabled, so it serves no clients";
        remarks.left_out(&disabled.line, "backends", why);
        return backend;
    }
    let of_check = |each: &&&Statement| each.name() == "timeout" && each.word(1) == "check";
    let check_timeout =
        statements.iter().rev().find(of_check).and_then(|statement| time(statement.word(2)));
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
            // The limit of work is reached: nothing of the plan is used.
            "server"
                if !world.files.spend(defaults.len() + statement.words.len() + SERVER_STEPS) =>
            {
                break;
            }
            "server" => server(statement, &defaults, (bases, check_timeout), &mut backend, remarks),
            _ if is_keepalive(statement) => {
                take_keepalive(statement, "srv", &mut backend.keepalive);
            }
            "option" if statement.word(1) == "tcp-check" => {
                remarks.note(line, "check", "a check connects, and does no more");
            }
            "option" if statement.word(1) == "ssl-hello-chk" => {
                backend.looks_like_tls = true;
                remarks.left_out(line, "check", CHECK_IN_TLS);
            }
            "tcp-request" if is_own(statement, section) && section.kind == "backend" => {
                rule(statement, remarks);
            }
            "option" if is_check(statement) => {
                let why =
                    "a check connects; kind = { send = \"...\", expect = \"...\" } can ask more";
                remarks.left_out(line, "check", why);
            }
            "timeout" => timeout(statement, section, &mut backend, plan, remarks),
            "server-template" => {
                let why = "name each address; a name stands for all that it has";
                remarks.left_out(line, "backends", why);
            }
            "default-server" => tell_default(statement, bases, remarks),
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
        // Of checks, or of the frontend.
        ("check" | "client" | "client-fin" | "client-hs" | "server-fin", _) => {}
        (which, _) if is_own(statement, section) => {
            let why = format!("timeout {which}: there is nothing like it for bytes");
            remarks.left_out(line, "backends", why);
        }
        _ => {}
    }
}

/// Reports the options for all servers that have no key.
fn tell_default(statement: &Statement, bases: &Bases, remarks: &mut Remarks) {
    let line = &statement.line;
    let mut without_key = Vec::new();
    let mut words = statement.words.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        let told = (&mut Remarks::default(), &mut without_key);
        Server::new(bases).set(word, &mut words, line, told);
    }
    tell_options(&without_key, line, remarks);
}

/// Reports that a rule is left out: Sealane has no rules for a backend.
fn rule(statement: &Statement, remarks: &mut Remarks) {
    let mut access = Access::default();
    // The action decides whether it is a rule about access, and its condition does not.
    match access.add([statement.word(1), statement.word(2)], None, &statement.line) {
        true if statement.word(2) != "accept" => {
            remarks.admits_more(&statement.line, "backends", RULES);
        }
        _ => remarks.left_out(&statement.line, "backends", RULES),
    }
}

/// Whether a statement is an option for health checks of servers.
pub(super) fn is_check(statement: &Statement) -> bool {
    let option = statement.word(1);
    statement.name() == "option" && (option.ends_with("chk") || option.ends_with("-check"))
}

/// Takes a server with its options, the defaults' first.
fn server(
    statement: &Statement,
    defaults: &[&str],
    (bases, check_timeout): (&Bases, Option<Duration>),
    backend: &mut Backend,
    remarks: &mut Remarks,
) {
    let line = &statement.line;
    let destination = &mut backend.destination;
    let own = statement.words.iter().skip(3).map(String::as_str);
    let mut server = Server::new(bases);
    let mut without_key = Vec::new();
    let mut words = defaults.iter().copied();
    while let Some(word) = words.next() {
        // An option without a key gets its remark at the line of the defaults.
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
        destination.proxy_header = server.proxy_header.clone();
        destination.tls = settings;
    } else if destination.proxy_header != server.proxy_header || destination.tls != settings {
        let why = "all servers of a backend are spoken to alike: as the first";
        remarks.left_out(line, "backends", why);
        return;
    }
    if server.share.is_backup && destination.backends.iter().any(|each| each.is_backup) {
        let why = "HAProxy uses the first backup alone; here all backups take turns";
        remarks.left_out(line, "backends", why);
    }
    backend.looks_like_tls |= server.checks_tls == Some(true) && !server.speaks_tls;
    if server.is_checked && server.checks_tls.is_some_and(|in_tls| in_tls != server.speaks_tls) {
        remarks.left_out(line, "check", CHECK_IN_TLS);
    }
    backend.checks.push((server.check(check_timeout), line.clone()));
    destination.add_backend(plan::Backend { address, ..server.share }, line, remarks);
}

/// Adds a remark about options without a key, one for all options with the same reason.
fn tell_options(options: &[String], line: &Line, remarks: &mut Remarks) {
    tell_by_reason(options, "backends", line, remarks, |option| {
        let known = OPTIONS.iter().find(|(known, _)| *known == option);
        known.map_or_else(|| unknown("HAProxy"), |(_, why)| (*why).to_owned())
    });
}

struct Server<'b> {
    bases: &'b Bases,
    /// Whether checks speak TLS; none where that is as for clients.
    checks_tls: Option<bool>,
    fall: usize,
    inter: Duration,
    is_checked: bool,
    is_disabled: bool,
    proxy_header: Option<ProxyHeader>,
    rise: usize,
    share: plan::Backend,
    slow_start: Option<Duration>,
    sni: Option<String>,
    speaks_tls: bool,
    tls: BackendTls,
    verify_host: Option<String>,
}

impl<'b> Server<'b> {
    fn new(bases: &'b Bases) -> Self {
        Self {
            bases,
            checks_tls: None,
            fall: 3,
            inter: Duration::from_secs(2),
            is_checked: false,
            is_disabled: false,
            proxy_header: None,
            rise: 2,
            share: plan::Backend::default(),
            slow_start: None,
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
            "backup" => self.share.is_backup = true,
            "check" => self.is_checked = true,
            "check-ssl" | "no-check-ssl" => self.checks_tls = Some(word == "check-ssl"),
            "fall" | "rise" => {
                let Some(count) = number(value(), IN_A_ROW, line, "check", remarks) else { return };
                match word {
                    "fall" => self.fall = count,
                    _ => self.rise = count,
                }
            }
            "inter" | "slowstart" => {
                let text = value();
                let Some(time) = time(text) else {
                    return no_time(line, "check", text, remarks);
                };
                match word {
                    "inter" => self.inter = time,
                    _ => self.slow_start = Some(time),
                }
            }
            "no-backup" => self.share.is_backup = false,
            "no-check" => self.is_checked = false,
            "weight" => self.share.weight = number(value(), WEIGHTS, line, "backends", remarks),
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

    /// The health check, if there is one, within Sealane's limits.
    fn check(&self, timeout: Option<Duration>) -> Option<Check> {
        let timeout = timeout.unwrap_or(self.inter);
        self.is_checked.then(|| Check {
            every: self.inter.clamp(CHECK_EVERY[0], CHECK_EVERY[1]),
            fall: self.fall,
            in_tls: self.speaks_tls && self.checks_tls != Some(false),
            rise: self.rise,
            slow_start: self.slow_start.map(|time| time.min(CHECK_EVERY[1])),
            timeout: timeout.clamp(CHECK_TIMEOUT[0], CHECK_TIMEOUT[1]),
        })
    }

    /// Merges the options about TLS.
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

    /// Takes the optional fields of a header of version 2.
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
const WITH_VALUE: [&str; 19] = [
    "addr",
    "agent-check",
    "agent-port",
    "ciphers",
    "ciphersuites",
    "cookie",
    "crl-file",
    "fastinter",
    "downinter",
    "id",
    "init-addr",
    "maxconn",
    "maxqueue",
    "minconn",
    "on-error",
    "on-marked-down",
    "port",
    "resolvers",
    "resolve-prefer",
];

/// The keys of [`Timeouts`].
const TIMEOUTS: [&str; 2] = ["backend_timeout", "idle_timeout"];

/// Steps of a server beyond its words.
const SERVER_STEPS: usize = 16;
const RULES: &str = "rules hold for a listener: allow, deny, connections_per_client and \
                     handshakes_per_client";
const CHECK_IN_TLS: &str = "a check speaks what clients' connections do: in TLS it completes a \
                            handshake (kind = \"tls\"), without it only connects, and takes a \
                            backend with broken TLS for one that is up";
const CHECK: &str = "a check has one interval: every, in [listener.check]";
const CHECK_EVERY: [Duration; 2] = [Duration::from_millis(100), Duration::from_hours(1)];
const CHECK_TIMEOUT: [Duration; 2] = [Duration::from_millis(10), Duration::from_mins(1)];
const IN_A_ROW: RangeInclusive<usize> = 1..=100;
const WEIGHTS: RangeInclusive<usize> = 0..=256;

const OPTIONS: [(&str, &str); 9] = [
    ("ciphers", "backends are offered all suites of Sealane"),
    ("ciphersuites", "backends are offered all suites of Sealane"),
    ("crl-file", "revocation is looked at for clients alone"),
    ("downinter", CHECK),
    ("fastinter", CHECK),
    ("init-addr", "a name that leads nowhere holds no start up"),
    ("maxconn", "write the backend as { address = \"HOST:PORT\", connections = COUNT }"),
    ("on-marked-down", "connections are left as they are"),
    ("resolvers", "the system's resolver is asked, every `resolve` of the listener"),
];
