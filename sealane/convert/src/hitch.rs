//! Reads hitch.conf(5): settings, some of them in blocks, in no order.

mod syntax;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sealane_config::{LANES_MAX, Mistakes};

use super::files::{Files, matches, name_of};
use super::plan::{
    Backend, Certificate, Clients, KeepAlive, LONGEST, Listener, Plan, ProxyHeader, endpoint,
    host_and_port, is_on, number,
};
use super::remark::{ASKED, Line, believes_everybody};
use super::tls;

use syntax::{Setting, Value};

/// Reads the text of a file.
///
/// # Errors
/// hitch would not read it either.
pub(super) fn read(text: &str, file: &Path, files: &mut Files) -> Result<Plan, Mistakes> {
    let settings = syntax::settings(text, file)?;
    let mut plan = Plan::default();
    // Settings outside of a frontend apply to all of them, wherever they are in the file.
    let mut common = Frontend::default();
    let (frontends, others): (Vec<_>, Vec<_>) =
        settings.into_iter().partition(|setting| setting.key == "frontend");
    for setting in &others {
        if !of_process(setting, &mut plan) {
            common.set(setting);
        }
    }
    if common.listener.destination.backends.is_empty() {
        common.listener.destination.backends.push(Backend::at("127.0.0.1:8000"));
    }
    for setting in &frontends {
        // Each frontend has a copy of the common settings.
        if !files.spend_on_copies(others.len() + 1) {
            break;
        }
        plan.listeners.push(frontend(setting, &common, files));
    }
    if frontends.is_empty() {
        let mut listener = common.finished(None);
        listener.addresses.push(":8443".into());
        plan.listeners.push(listener);
    }
    Ok(plan)
}

/// The settings of a frontend, its own or those for all of them.
#[derive(Clone, Default)]
struct Frontend {
    /// The line by which clients that ask for an unknown name are rejected.
    aborts: Option<Line>,
    /// In the order of the file, of which the last is the first of Sealane's.
    certificates: Vec<Certificate>,
    folder: Option<PathBuf>,
    glob: Option<(String, Line)>,
    folder_line: Option<Line>,
    listener: Listener,
    verify: Option<(String, Line)>,
    roots: Option<String>,
    tells_values: Option<(bool, Line)>,
}

impl Frontend {
    /// Takes a setting that may stand in a frontend, or for all of them.
    fn set(&mut self, setting: &Setting) {
        let (line, word) = (&setting.line, setting.word());
        let listener = &mut self.listener;
        let remarks = &mut listener.remarks;
        match setting.key.as_str() {
            "alpn-protos" => {
                let protocols = word.split(',').map(str::trim).filter(|name| !name.is_empty());
                listener.alpn = protocols.map(ToOwned::to_owned).collect();
            }
            "backend" => {
                listener.destination.add_backend(Backend::at(backend(word)), line, remarks);
            }
            "ciphers" => listener.tls.set_ciphers(word, line, remarks),
            "ciphersuites" => listener.tls.set_ciphersuites(word, line, remarks),
            "client-verify" => self.verify = Some((word.to_owned(), line.clone())),
            "client-verify-ca" => self.roots = Some(word.to_owned()),
            "ecdh-curve" => listener.tls.set_groups(word, line, remarks),
            "keepalive" => {
                let seconds = number(word, 1..=usize::MAX, line, "keepalive", remarks);
                listener.keepalive = seconds.map(|s| KeepAlive::after(s as u64));
            }
            "pem-dir" => {
                self.folder = Some(word.into());
                self.folder_line = Some(line.clone());
            }
            "pem-dir-glob" => self.glob = Some((word.to_owned(), line.clone())),
            "pem-file" => self.certificates.extend(pem_file(setting, listener)),
            "prefer-server-ciphers" => listener.tls.client_order = !is_on(word),
            "proxy-proxy" if is_on(word) => {
                listener.accept_proxy = Some(Vec::new());
                listener.destination.proxy_header = Some(ProxyHeader::Pass);
                remarks.note(line, "accept_proxy", believes_everybody("hitch"));
                remarks.left_out(
                    line,
                    "proxy_header",
                    "a header of version 1 goes on as version 2",
                );
            }
            "proxy-tlv" => self.tells_values = Some((is_on(word), line.clone())),
            "sni-nomatch-abort" => {
                self.aborts = is_on(word).then(|| line.clone());
            }
            "ssl-handshake-timeout" => {
                if let Some(s) = number(word, 1..=3_600, line, "handshake_timeout", remarks) {
                    listener.set_timeout("handshake_timeout", Duration::from_secs(s as u64), line);
                }
            }
            "tls-protos" => set_versions(setting, listener),
            "write-proxy" | "write-proxy-v2" if is_on(word) => {
                listener.destination.proxy_header = Some(ProxyHeader::V2(TOLD.to_vec()));
            }
            "write-proxy-v1" if is_on(word) => {
                listener.destination.proxy_header = Some(ProxyHeader::V1);
            }
            key if SWITCHES.contains(&key) && !is_on(word) => {}
            key => match reason(key) {
                Some(why) => remarks.left_out(line, "", why),
                None => remarks.unknown(line, "", "hitch"),
            },
        }
    }

    /// The listener, with `own` certificates where there are some.
    fn finished(mut self, files: Option<&Files>) -> Listener {
        let listener = &mut self.listener;
        self.certificates.reverse();
        listener.certificates = self.certificates;
        if let (Some(folder), Some(line)) = (&self.folder, &self.folder_line) {
            let glob = self.glob.as_ref().map(|(glob, _)| glob.as_str());
            let found = of_folder(folder, glob, files, listener, line);
            listener.certificates.extend(found);
        }
        if let Some(line) = &self.aborts {
            listener.refuses_unknown_names = true;
            listener.remarks.left_out(line, "unknown_names", NO_NAME);
        }
        if let Some((verify, line)) = &self.verify {
            set_clients(verify, line, self.roots.as_deref(), listener);
        }
        if let Some((tells, line)) = &self.tells_values
            && !tells
            && let Some(ProxyHeader::V2(told)) = &mut listener.destination.proxy_header
        {
            *told = vec!["alpn"];
            if !listener.alpn.is_empty() {
                let why = "a header of version 2 tells one thing at least: the protocol";
                listener.remarks.left_out(line, "proxy_tlvs", why);
            }
        }
        let why = "hitch ends no connection for being idle; Sealane's own default is 5m";
        listener.default_idle_timeout(LONGEST, why);
        self.listener
    }
}

/// Takes a setting of the whole process, if it is one.
fn of_process(setting: &Setting, plan: &mut Plan) -> bool {
    let (line, word) = (&setting.line, setting.word());
    match setting.key.as_str() {
        "backend-connect-timeout" => {
            let key = "limits.connect_timeout";
            if let Some(s) = number(word, 1..=3_600, line, key, &mut plan.remarks) {
                plan.set_connect_timeout(Duration::from_secs(s as u64), line);
            }
        }
        "workers" => {
            plan.lanes = number(word, 1..=LANES_MAX, line, "lanes", &mut plan.remarks);
        }
        key => match PROCESS.iter().find(|(name, _)| *name == key) {
            Some(_) if SWITCHES.contains(&key) && !is_on(word) => {}
            Some((_, why)) if UNSEEN.contains(&key) => plan.remarks.note(line, "", *why),
            Some((_, why)) => plan.remarks.left_out(line, "", *why),
            None => return false,
        },
    }
    true
}

/// A frontend on a line, or in a block.
fn frontend(setting: &Setting, common: &Frontend, files: &Files) -> Listener {
    let mut own = common.clone();
    let line = &setting.line;
    let (mut host, mut port) = (String::new(), "8443".to_owned());
    let mut certificates = Vec::new();
    match &setting.value {
        Value::Words(words) => {
            let text = words.first().map_or("", String::as_str);
            let (address, certificate) = text.split_once('+').unwrap_or((text, ""));
            let split = host_and_port(address);
            (host, port) = (split.0.to_owned(), split.1.to_owned());
            if !certificate.is_empty() {
                certificates.push(Certificate::Path(certificate.to_owned()));
            }
        }
        Value::Block(settings) => {
            for setting in settings {
                match setting.key.as_str() {
                    "host" => host = setting.word().to_owned(),
                    "match-global-certs" if !is_on(setting.word()) => {}
                    "port" => port = setting.word().to_owned(),
                    "pem-file" => certificates.extend(pem_file(setting, &mut own.listener)),
                    _ => own.set(setting),
                }
            }
        }
    }
    if !certificates.is_empty() {
        own.certificates = certificates;
        own.folder = None;
    }
    let host = if host == "*" { "" } else { host.as_str() };
    let mut listener = own.finished(Some(files));
    listener.listen(&endpoint(host, &port), line);
    listener
}

/// A certificate, in one file or two.
fn pem_file(setting: &Setting, listener: &mut Listener) -> Option<Certificate> {
    let Value::Block(settings) = &setting.value else {
        return Some(Certificate::Path(setting.word().to_owned()));
    };
    let (mut chain, mut key) = (None, None);
    for setting in settings {
        match setting.key.as_str() {
            "cert" => chain = Some(setting.word().to_owned()),
            "private-key" => key = Some(setting.word().to_owned()),
            _ => listener.remarks.unknown(&setting.line, "certificates", "hitch"),
        }
    }
    Some(match (chain?, key) {
        (chain, Some(key)) => Certificate::Pair { chain, key },
        (chain, None) => Certificate::Path(chain),
    })
}

/// The folder itself where it has nothing that Sealane takes or leaves and hitch does not.
fn of_folder(
    folder: &Path,
    glob: Option<&str>,
    files: Option<&Files>,
    listener: &mut Listener,
    line: &Line,
) -> Vec<Certificate> {
    let whole = vec![Certificate::Path(folder.display().to_string())];
    let listed = files.map_or(Err("is not looked into".into()), |files| files.of_folder(folder));
    let paths = match listed {
        Ok(paths) => paths,
        Err(why) => {
            let text = format!("the folder {why}; of it Sealane takes *.pem, and pairs");
            listener.remarks.note(line, "certificates", text);
            return whole;
        }
    };
    let is_taken = |path: &&PathBuf| {
        glob.is_none_or(|glob| matches(glob.as_bytes(), name_of(path).as_bytes()))
    };
    let taken: Vec<_> = paths.iter().filter(is_taken).collect();
    let is_pem = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "pem");
    if taken.len() == paths.iter().filter(|path| is_pem(path)).count() && taken.iter().all(is_pem) {
        return whole;
    }
    let text = "the files as they are now; a new one has to be added here";
    listener.remarks.left_out(line, "certificates", text);
    taken.iter().map(|path| Certificate::Path(path.display().to_string())).collect()
}

fn set_clients(verify: &str, line: &Line, roots: Option<&str>, listener: &mut Listener) {
    let is_required = match verify {
        "none" => return,
        "optional" => {
            listener.remarks.admits_more(line, "clients.certificates", ASKED);
            false
        }
        _ => true,
    };
    let roots = roots.map(ToOwned::to_owned).into_iter().collect();
    listener.clients = Some(Clients { is_required, roots, ..Clients::default() });
}

fn set_versions(setting: &Setting, listener: &mut Listener) {
    let Value::Words(words) = &setting.value else { return };
    let mut spoken = tls::Spoken::default();
    // hitch takes blanks and commas between them.
    for word in words.iter().flat_map(|word| word.split([',', ' '])).filter(|word| !word.is_empty())
    {
        match tls::version(word) {
            Some(version) => spoken[version] = true,
            None => {
                let why = format!("{word} is no version of TLS");
                listener.remarks.left_out(&setting.line, "versions", why);
            }
        }
    }
    listener.tls.set_versions(spoken, &setting.line, &mut listener.remarks);
}

/// `[HOST]:PORT`, or the path of a unix socket.
fn backend(text: &str) -> String {
    if text.starts_with('/') {
        return format!("unix:{text}");
    }
    let (host, port) = host_and_port(text);
    endpoint(if host.is_empty() { "localhost" } else { host }, port)
}

/// The reason why a known setting has no key.
fn reason(key: &str) -> Option<&'static str> {
    OTHERS.iter().find(|(name, _)| *name == key).map(|(_, why)| *why)
}

/// The fields that hitch sends in a header of version 2.
const TOLD: [&str; 3] = ["alpn", "authority", "ssl"];

const NO_NAME: &str = "a client that asks for no name is refused as well; hitch serves it";

/// Switches that change nothing when they are off.
const SWITCHES: [&str; 12] = [
    "daemon",
    "match-global-certs",
    "ocsp-verify-staple",
    "proxy-client-cert",
    "proxy-proxy",
    "quiet",
    "syslog",
    "tcp-fastopen",
    "write-ip",
    "write-proxy",
    "write-proxy-v1",
    "write-proxy-v2",
];

/// Settings of the process.
const PROCESS: [(&str, &str); 16] = [
    (
        "backend-refresh",
        "names of backends are looked up every `resolve`, 30s unless you say otherwise",
    ),
    ("backlog", "the kernel's own limit holds: net.core.somaxconn"),
    ("chroot", "the unit closes everything that is not needed: packaging/sealane.service"),
    ("daemon", "sealane serve stays in the foreground; the unit starts it"),
    ("group", "[process] says who it runs as, or the unit: packaging/sealane.service"),
    ("log-filename", "Sealane logs to standard error; [access_log] writes a file"),
    ("log-level", "set level in [log]"),
    ("ocsp-connect-tmo", NO_STAPLES),
    ("ocsp-dir", NO_STAPLES),
    ("ocsp-refresh-interval", NO_STAPLES),
    ("ocsp-resp-tmo", NO_STAPLES),
    ("ocsp-verify-staple", NO_STAPLES),
    ("quiet", "set level in [log]"),
    ("syslog", "Sealane logs to standard error, which the service manager collects"),
    ("syslog-facility", "Sealane logs to standard error, which the service manager collects"),
    ("user", "[process] says who it runs as, or the unit: packaging/sealane.service"),
];

/// Those of them of which neither clients nor backends see anything.
const UNSEEN: [&str; 9] = [
    "chroot",
    "daemon",
    "group",
    "log-filename",
    "log-level",
    "quiet",
    "syslog",
    "syslog-facility",
    "user",
];

/// Other settings that have no key.
const OTHERS: [(&str, &str); 8] = [
    ("match-global-certs", "name all certificates of this listener in certificates"),
    ("ocsp-resp-file", NO_STAPLES),
    (
        "proxy-client-cert",
        "add \"cert\" to proxy_tlvs: it is sent in DER as type 0x28, not as 0xe0",
    ),
    ("ssl", "of versions Sealane has 1.2 and 1.3: versions says which"),
    ("ssl-engine", "keys are used by Sealane's own cryptography alone"),
    ("tcp-fastopen", "there is nothing like it"),
    ("tls", "of versions Sealane has 1.2 and 1.3: versions says which"),
    ("write-ip", "tell backends by a PROXY header: proxy_header = \"v1\" or \"v2\""),
];
const NO_STAPLES: &str = "no answers of OCSP are stapled";
