//! `bind`: where a proxy listens, and which TLS it speaks there.

use std::iter::Peekable;
use std::path::Path;
use std::rc::Rc;

use super::super::files::{Files, name_of};
use super::super::plan::{
    Certificate, Clients, Listener, Spoken, both_families, endpoint, host_and_port,
    is_every_address_of_six,
};
use super::super::remark::{ASKED, Line, Remarks, tell_by_reason, unknown};
use super::super::tls::{self, Tls, VERSIONS};
use super::World;
use super::bases::Bases;
use super::mutual::Guard;
use super::routes::keep_order;
use super::syntax::{Statement, words};

/// Addresses with the TLS that is spoken there.
#[derive(Clone, Debug, Default)]
pub(super) struct Binding {
    pub(super) addresses: Vec<String>,
    pub(super) alpn: Vec<String>,
    pub(super) certificates: Vec<Certificate>,
    clients: Clients,
    guards: Vec<Guard>,
    /// Certificates of lists that are not here.
    missing: usize,
    pub(super) accepts_proxy: bool,
    pub(super) is_strict: bool,
    pub(super) is_tls: bool,
    pub(super) tls: Tls,
    verify: Option<bool>,
    versions: Versions,
}

/// Versions as options narrow them down.
#[derive(Clone, Debug, Default)]
struct Versions {
    least: Option<usize>,
    line: Option<Line>,
    most: Option<usize>,
    without: tls::Spoken,
}

impl Binding {
    /// Reads a line, on top of the options that hold for all.
    pub(super) fn read(
        statement: &Statement,
        world: &mut World<'_>,
        remarks: &mut Remarks,
    ) -> Self {
        let World { bases, common, files, loads_keys, .. } = world;
        let (bases, loads_keys) = (&*bases, *loads_keys);
        let mut binding = common.clone();
        if !files.spend(statement.words.len()) {
            return binding;
        }
        let line = &statement.line;
        let mut words = statement.words.iter().skip(2).map(String::as_str).peekable();
        let (mut is_six_alone, mut without_key) = (false, Vec::new());
        while let Some(word) = words.next() {
            match word {
                "accept-proxy" => binding.accepts_proxy = true,
                "crt" => {
                    let path = bases.certificate(words.next().unwrap_or_default());
                    binding.certificates.extend(certificates(
                        &path,
                        (files, loads_keys),
                        line,
                        remarks,
                    ));
                }
                "crt-list" => {
                    let list = bases.certificate(words.next().unwrap_or_default());
                    let list = list_of(&list, bases, (files, loads_keys), line, remarks);
                    binding.add_list(list);
                }
                "ca-file" | "crl-file" => {
                    let path = bases.authority(words.next().unwrap_or_default());
                    let paths = match word {
                        "ca-file" => &mut binding.clients.roots,
                        _ => &mut binding.clients.crls,
                    };
                    *paths = vec![path];
                }
                "defer-accept" | "v4v6" => {}
                // It names the line in statistics.
                "name" => drop(words.next()),
                "ssl" => binding.is_tls = true,
                "strict-sni" => binding.is_strict = true,
                "v6only" => is_six_alone = true,
                "verify" => {
                    binding.verify = match words.next() {
                        Some("none") | None => None,
                        Some("optional") => {
                            remarks.admits_more(line, "clients.certificates", ASKED);
                            Some(false)
                        }
                        Some(_) => Some(true),
                    };
                }
                word if binding.set_tls_option(word, &mut words, line, remarks) => {}
                word => {
                    without_key.push(word.to_owned());
                    if WITH_VALUE.contains(&word) {
                        words.next();
                    }
                }
            }
        }
        tell_options(without_key, line, remarks);
        binding.put_addresses(statement, is_six_alone, remarks);
        binding.settle_guards();
        binding.settle(remarks);
        binding
    }

    fn put_addresses(&mut self, statement: &Statement, is_six_alone: bool, remarks: &mut Remarks) {
        let line = &statement.line;
        for (index, address) in statement.word(1).split(',').enumerate() {
            if index == ADDRESSES_MAX {
                let why = format!("more than {ADDRESSES_MAX} addresses: write the others yourself");
                remarks.left_out(line, "address", why);
                break;
            }
            match listen_address(address, is_six_alone) {
                Ok(addresses) => self.addresses.extend(addresses),
                Err(why) => remarks.left_out(line, "address", why),
            }
        }
    }

    /// Takes an option about TLS, which may stand among `ssl-default-bind-options` as well.
    pub(super) fn set_tls_option<'w>(
        &mut self,
        word: &str,
        words: &mut Peekable<impl Iterator<Item = &'w str>>,
        line: &Line,
        remarks: &mut Remarks,
    ) -> bool {
        let mut value = || words.next().unwrap_or_default();
        match word {
            "alpn" => self.alpn = value().split(',').map(ToOwned::to_owned).collect(),
            "ciphers" => self.tls.set_ciphers(value(), line, remarks),
            "ciphersuites" => self.tls.set_ciphersuites(value(), line, remarks),
            "curves" | "ecdhe" => self.tls.set_groups(value(), line, remarks),
            "no-alpn" => self.alpn.clear(),
            "prefer-client-ciphers" => self.tls.client_order = true,
            "ssl-max-ver" | "ssl-min-ver" => {
                let name = value();
                let Some(version) = tls::version(name) else {
                    remarks.left_out(line, "versions", format!("{name:?} is no version of TLS"));
                    return true;
                };
                self.versions.line = Some(line.clone());
                match word {
                    "ssl-min-ver" => self.versions.least = Some(version),
                    _ => self.versions.most = Some(version),
                }
            }
            word => {
                let forced = word.strip_prefix("force-").and_then(short_version);
                let without = word.strip_prefix("no-").and_then(short_version);
                match (forced, without) {
                    (Some(version), _) => {
                        (self.versions.least, self.versions.most) = (Some(version), Some(version));
                    }
                    (None, Some(version)) => self.versions.without[version] = true,
                    (None, None) => return false,
                }
                self.versions.line = Some(line.clone());
            }
        }
        true
    }

    /// Gives a listener the TLS of this address.
    pub(super) fn put_tls_into(&self, listener: &mut Listener) {
        listener.clients = self.clients();
        listener.certificates.clone_from(&self.certificates);
        listener.refuses_unknown_names = self.is_strict;
        listener.alpn.clone_from(&self.alpn);
        listener.goes_on_without_alpn = true;
        listener.tls.clone_from(&self.tls);
        listener.spoken = Spoken::Tls;
    }

    /// Gives a listener with its destinations the demands of single certificates, and the order of
    /// its protocols.
    pub(super) fn put_names_into(&self, listener: &mut Listener, files: &Files) {
        for guard in &self.guards {
            guard.put_into(listener, files);
        }
        keep_order(listener, files);
    }

    /// Takes certificates with the demands of some of them.
    fn add_list(&mut self, list: CertificateList) {
        let is_first = self.certificates.is_empty() && self.missing == 0;
        for mut guard in list.guards {
            guard.is_default &= is_first;
            self.guards.push(guard);
        }
        self.certificates.extend(list.certificates);
        self.missing += list.missing;
    }

    /// Completes the demands of single certificates by those of the address; if all of them are
    /// alike, they are of the address.
    fn settle_guards(&mut self) {
        for guard in &mut self.guards {
            if guard.clients.roots.is_empty() {
                guard.clients.roots.clone_from(&self.clients.roots);
            }
            if guard.clients.crls.is_empty() {
                guard.clients.crls.clone_from(&self.clients.crls);
            }
        }
        let Some(first) = self.guards.first().map(|guard| guard.clients.clone()) else { return };
        let is_whole = self.guards.len() == self.certificates.len() + self.missing;
        if is_whole && self.guards.iter().all(|guard| guard.clients == first) {
            self.verify = Some(first.is_required);
            self.clients = first;
            self.guards.clear();
        }
    }

    /// The requirements for clients' certificates, if there are any.
    fn clients(&self) -> Option<Clients> {
        let is_required = self.verify?;
        Some(Clients { is_required, ..self.clients.clone() })
    }

    /// Merges the options about versions.
    fn settle(&mut self, remarks: &mut Remarks) {
        let Some(line) = &self.versions.line else { return };
        // Debian's OpenSSL has nothing below TLS 1.2 by default.
        let least = self.versions.least.unwrap_or(3);
        let most = self.versions.most.unwrap_or(VERSIONS.len() - 1);
        let mut spoken = tls::Spoken::default();
        for (version, is_spoken) in spoken.iter_mut().enumerate() {
            *is_spoken = (least..=most).contains(&version) && !self.versions.without[version];
        }
        self.tls.set_versions(spoken, line, remarks);
    }
}

/// `sslv3`, or `tlsv10` to `tlsv13`.
fn short_version(name: &str) -> Option<usize> {
    VERSIONS.iter().position(|version| version.to_ascii_lowercase().replace('.', "") == name)
}

/// A file, or a folder. A folder is kept as it is if Sealane takes the same files from it as
/// HAProxy.
fn certificates(
    path: &str,
    (files, loads_keys): (&Files, bool),
    line: &Line,
    remarks: &mut Remarks,
) -> Vec<Certificate> {
    let mut file = |path: &str| with_key(path, (files, loads_keys), line, remarks);
    let Ok(found) = files.of_folder(Path::new(path)) else {
        // A file, or several of which HAProxy is given the name in common. If none is there,
        // `sealane check` reports that.
        let kinds = [".rsa", ".ecdsa", ".dsa"].map(|kind| format!("{path}{kind}"));
        let kinds: Vec<_> = kinds.iter().filter(|path| files.has_file(path)).collect();
        return match kinds.is_empty() || files.has_file(path) {
            true => vec![file(path)],
            false => kinds.into_iter().map(|path| file(path)).collect(),
        };
    };
    let is_beside =
        |name: &str| [".issuer", ".key", ".ocsp", ".sctl"].iter().any(|end| name.ends_with(end));
    let taken = found.iter().filter(|path| !is_beside(name_of(path)));
    let taken: Vec<_> = taken.map(|path| path.display().to_string()).collect();
    let each: Vec<_> = taken.iter().map(|path| file(path)).collect();
    let is_whole = |each: &Certificate| match each {
        Certificate::Path(path) => path.ends_with(".pem"),
        Certificate::Pair { .. } => false,
    };
    if each.iter().all(is_whole) {
        return vec![Certificate::Path(path.to_owned())];
    }
    let why = "the files of the folder as they are now; a new one has to be added here";
    remarks.left_out(line, "certificates", why);
    each
}

/// A certificate file with the key in it or, as in HAProxy, in the `.key` file next to it.
fn with_key(
    path: &str,
    (files, loads_keys): (&Files, bool),
    line: &Line,
    remarks: &mut Remarks,
) -> Certificate {
    for ending in [".ocsp", ".sctl"] {
        if files.has_file(&format!("{path}{ending}")) {
            let why = format!("{path}{ending}: Sealane staples nothing to a certificate");
            remarks.left_out(line, "certificates", why);
        }
    }
    let key = format!("{path}.key");
    let is_beside = loads_keys
        && files.has_file(&key)
        && files.count_of(Path::new(path), "PRIVATE KEY-----") == Some(0);
    match is_beside {
        true => Certificate::Pair { chain: path.to_owned(), key },
        false => Certificate::Path(path.to_owned()),
    }
}

/// The content of a `crt-list`.
#[derive(Default)]
struct CertificateList {
    certificates: Vec<Certificate>,
    /// The demands of some of them, the missing ones included.
    guards: Vec<Guard>,
    /// Lines without a certificate that is here; 1 for a list that cannot be read.
    missing: usize,
}

/// The certificates of a `crt-list`: a file on each line, with its settings and names.
fn list_of(
    list: &str,
    bases: &Bases,
    (files, loads_keys): (&mut Files, bool),
    line: &Line,
    remarks: &mut Remarks,
) -> CertificateList {
    let mut found = CertificateList::default();
    let text = match files.text(Path::new(list)) {
        Ok(text) => text,
        Err(why) => {
            remarks.left_out(line, "certificates", format!("{list} {why}"));
            found.missing += 1;
            return found;
        }
    };
    let file: Rc<Path> = Path::new(list).into();
    for (index, written) in text.lines().enumerate() {
        let place = || Line::new(&file, index + 1, written);
        // HAProxy takes the brackets without blanks.
        let words = match words(&written.replace('[', " [ ").replace(']', " ] ")) {
            Ok(words) => words,
            Err(why) => {
                remarks.unquoted(&place(), "certificates", why);
                found.missing += 1;
                continue;
            }
        };
        let Some(path) = words.first() else { continue };
        let path = bases.certificate(path);
        if let Some(mut guard) = Guard::read(&words[1..], bases, &place(), remarks) {
            guard.is_default = found.certificates.is_empty() && found.missing == 0;
            found.guards.push(guard);
        }
        // Every text is a list of paths, also a private key that is named by mistake.
        if !files.has_file(&path) {
            let why = "it names no certificate file that is here, as this user sees it";
            remarks.unquoted(&place(), "certificates", why);
            found.missing += 1;
            continue;
        }
        found.certificates.push(with_key(&path, (files, loads_keys), &place(), remarks));
        if words.iter().any(|word| word == "ssl-min-ver" || word == "ssl-max-ver") {
            let why = "its names accept the versions of the listener; give these names a \
                       [[listener.route]] with versions";
            remarks.admits_more(&place(), "certificates", why);
        } else if words.len() > 1 {
            let why = "a certificate is served for the names in it, with the listener's settings; \
                       [[listener.route]] has settings for names";
            remarks.left_out(&place(), "certificates", why);
        }
    }
    found
}

/// An address, or two for all of IPv4 and IPv6, as Sealane spells them.
fn listen_address(text: &str, is_six_alone: bool) -> Result<Vec<String>, String> {
    let path = text.strip_prefix("unix@").or_else(|| text.starts_with('/').then_some(text));
    if let Some(path) = path {
        return Ok(vec![format!("unix:{path}")]);
    }
    let bare = ["ipv4@", "ipv6@", "tcp4@", "tcp6@", "tcp@"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .unwrap_or(text);
    if bare.contains('@') {
        return Err(format!("{text}: addresses are of TCP or of unix sockets"));
    }
    let (host, port) = host_and_port(bare);
    if port.contains('-') {
        return Err(format!("{text}: write each port of the range"));
    }
    let is_of_six = text.starts_with("ipv6@") || text.starts_with("tcp6@");
    Ok(match host {
        "" | "*" if !is_of_six => vec![format!("0.0.0.0:{port}")],
        "" | "*" if is_six_alone => vec![format!("[::]:{port}")],
        "" | "*" => both_families(port),
        host if !is_six_alone && is_every_address_of_six(host) => both_families(port),
        host => vec![endpoint(host, port)],
    })
}

/// Reports why options have no key.
fn tell_options(options: Vec<String>, line: &Line, remarks: &mut Remarks) {
    let is_guard = |option: &String| GUARDS.contains(&option.as_str());
    let (guards, others): (Vec<_>, Vec<_>) = options.into_iter().partition(is_guard);
    for option in &guards {
        remarks.admits_more(line, "address", format!("{option}: {}", reason(option)));
    }
    tell_by_reason(&others, "address", line, remarks, reason);
}

/// The reason why an option of `bind` has no key.
pub(super) fn reason(word: &str) -> String {
    let known = OPTIONS.iter().find(|(known, _)| *known == word);
    known.map_or_else(|| unknown("HAProxy"), |(_, why)| (*why).to_owned())
}

/// Addresses on one line.
const ADDRESSES_MAX: usize = 256;

/// Options that have a value behind them.
const WITH_VALUE: [&str; 20] = [
    "backlog",
    "ca-ignore-err",
    "ca-sign-file",
    "ca-sign-pass",
    "ca-verify-file",
    "crt-ignore-err",
    "gid",
    "group",
    "id",
    "interface",
    "level",
    "maxconn",
    "mode",
    "mss",
    "namespace",
    "nice",
    "npn",
    "proto",
    "thread",
    "user",
];

/// Options that keep clients out.
const GUARDS: [&str; 2] = ["interface", "namespace"];

const OPTIONS: [(&str, &str); 12] = [
    ("backlog", "the kernel's own limit holds: net.core.somaxconn"),
    ("ca-verify-file", "roots are of authorities that are asked for, too"),
    ("crt-ignore-err", "errors of certificates are not passed over"),
    ("interface", "name the interface's address"),
    ("maxconn", "connections holds for the listener"),
    ("mode", "socket_mode says who may open a unix socket"),
    ("no-tls-tickets", "[tickets] with count = 0 turns resumption off, for all listeners"),
    ("npn", "ALPN took its place"),
    ("process", "every lane listens at every address"),
    ("tfo", "there is nothing like it"),
    ("thread", "every lane listens at every address"),
    ("transparent", "addresses are those of this machine"),
];
