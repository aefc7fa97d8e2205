//! Writes a [`Plan`] as TOML, with each comment above the key that it concerns.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use sealane_config::{Address, Mistake, value};
use sealane_engine::policy::{Group, Suite};
use sealane_engine::text;

use super::Converted;
use super::plan::{
    Backend, BackendTls, Certificate, Check, Clients, Destination, Listener, Plan, ProxyHeader,
    Route, Spoken,
};
use super::remark::{Remark, Remarks};

/// Writes all but the lines at the top.
pub(super) fn write(plan: &Plan) -> Written {
    let mut sections = vec![top_of(plan)];
    sections.extend(plan.listeners.iter().map(listener));
    sections.retain(|text| !text.is_empty());
    let lines = |is_loss| -> BTreeSet<_> {
        let of_listeners = plan.listeners.iter().map(|listener| &listener.remarks);
        let every = std::iter::once(&plan.remarks).chain(of_listeners);
        every
            .flat_map(|remarks| &remarks.0)
            .filter(|remark| remark.is_loss == is_loss)
            .filter_map(|remark| remark.line.as_ref())
            .map(|line| (&line.file, line.number))
            .collect()
    };
    let (lost, noted) = (lines(true), lines(false));
    let remarks = || plan.listeners.iter().map(|each| &each.remarks).chain([&plan.remarks]);
    let about_defaults = remarks().flat_map(|each| &each.0).filter(|each| each.line.is_none());
    let noted = noted.difference(&lost).count() + about_defaults.count();
    let has_more_clients = remarks().any(Remarks::has_more_clients);
    Written { body: sections.join("\n"), has_more_clients, left_out: lost.len(), noted }
}

/// The written text, and the count of lines that were left out of it.
pub(super) struct Written {
    pub(super) body: String,
    /// Whether it admits clients that the original keeps out.
    has_more_clients: bool,
    left_out: usize,
    noted: usize,
}

impl Written {
    /// The text with its top. `problems` are its errors as a configuration of Sealane: those lines
    /// were not carried over either.
    pub(super) fn finished(self, file: &Path, problems: &[Mistake]) -> Converted {
        let left_out = self.left_out + problems.len();
        let all = match left_out {
            0 => "All that clients and backends see was carried over.".to_owned(),
            _ => format!("Not all was carried over: look for {LEFT_OUT:?}."),
        };
        let file = shown(&file.display().to_string());
        let mut toml = comment(&format!("Converted from {file}. {all}"));
        if self.has_more_clients {
            toml.push_str(&comment("It admits more clients than the original."));
        }
        for problem in problems {
            let text = shown(&format!("{}: {}", problem.field, problem.problem));
            toml.push_str(&comment(&format!("{LEFT_OUT}: {text}")));
        }
        toml.push('\n');
        toml.push_str(&self.body);
        Converted { left_out, noted: self.noted, toml }
    }
}

/// Keys of one table, or the head of one, with their name in remarks.
struct Section<'p> {
    entries: Vec<(String, String)>,
    remarks: &'p Remarks,
}

impl Section<'_> {
    fn line(&mut self, key: &str, text: String) {
        self.entries.push((key.to_owned(), text));
    }

    /// A key in the table `under`, or in the section's own if that is empty.
    fn key(&mut self, under: &str, key: &str, value: &str) {
        let path = if under.is_empty() { key.to_owned() } else { format!("{under}.{key}") };
        self.line(&path, format!("{key} = {value}"));
    }

    fn table(&mut self, head: &str) {
        self.line("", head.to_owned());
    }

    fn text(&mut self, under: &str, key: &str, value: &str) {
        self.key(under, key, &quoted(value));
    }

    fn list(&mut self, under: &str, key: &str, values: &[String]) {
        if !values.is_empty() {
            self.key(under, key, &list(values.iter().map(|value| quoted(value))));
        }
    }

    fn duration(&mut self, under: &str, key: &str, duration: Duration) {
        self.text(under, key, &value::duration_text(duration));
    }

    fn written(&self, head: &str) -> String {
        let mut text = head.to_owned();
        let mut by_key: HashMap<&str, Vec<&Remark>> = HashMap::new();
        for remark in &self.remarks.0 {
            by_key.entry(remark.key).or_default().push(remark);
        }
        // Remarks about no key are at the head, also where there are tables.
        let keys = self.entries.iter().map(|(path, _)| path.as_str());
        let written: HashSet<_> = keys.filter(|path| !path.is_empty()).collect();
        let mut others: Vec<_> =
            self.remarks.0.iter().filter(|remark| !written.contains(remark.key)).collect();
        others.sort_by_key(|remark| remark.line.as_ref().map(|line| line.number));
        tell(&others, &mut text);
        if head.is_empty() && !others.is_empty() && !self.entries.is_empty() {
            text.push('\n');
        }
        for (path, entry) in &self.entries {
            // Above the first of several that are called so.
            let of_key = by_key.remove(path.as_str()).filter(|_| !path.is_empty());
            tell(&of_key.unwrap_or_default(), &mut text);
            let _ = writeln!(text, "{entry}");
        }
        text
    }
}

/// Writes remarks, each once.
fn tell(remarks: &[&Remark], out: &mut String) {
    let mut told = HashSet::new();
    for remark in remarks.iter().filter(|remark| told.insert(**remark)) {
        let place = remark.line.as_ref().map(|line| {
            let text = line.text.split_whitespace().collect::<Vec<_>>().join(" ");
            let place = format!("{}:{}: {text}", line.file.display(), line.number);
            shown(place.trim_end_matches(": "))
        });
        let why = shown(&remark.text);
        out.push_str(&match (place, remark.is_loss) {
            (Some(place), true) => {
                comment(&format!("{LEFT_OUT}: {place}")) + &comment(&format!("  {why}"))
            }
            (Some(place), false) => comment(&place) + &comment(&format!("  {why}")),
            (None, _) => comment(&why),
        });
    }
}

fn top_of(plan: &Plan) -> String {
    let mut top = Section { entries: Vec::new(), remarks: &plan.remarks };
    if let Some(lanes) = plan.lanes {
        top.key("", "lanes", &lanes.to_string());
    }
    if plan.connections.is_some() || plan.connect_timeout.is_some() {
        top.table("[limits]");
        if let Some(connections) = plan.connections {
            top.key("limits", "connections", &connections.to_string());
        }
        if let Some(timeout) = plan.connect_timeout {
            top.duration("limits", "connect_timeout", timeout);
        }
    }
    top.written("")
}

fn listener(listener: &Listener) -> String {
    let mut section = Section { entries: Vec::new(), remarks: &listener.remarks };
    if let Some(name) = listener.name.as_deref().filter(|name| is_name(name)) {
        section.text("", "name", name);
    }
    match listener.addresses.as_slice() {
        [address] => section.text("", "address", address),
        // One key, however many there are: remarks call it so.
        addresses => section
            .line("address", format!("addresses = {}", list(addresses.iter().map(|a| quoted(a))))),
    }
    write_spoken(listener, &mut section);
    let certificates = listener.certificates.iter().map(certificate);
    if listener.spoken != Spoken::Plain && !listener.certificates.is_empty() {
        section.key("", "certificates", &list(certificates));
    }
    if listener.refuses_unknown_names {
        section.text("", "unknown_names", "refuse");
    }
    if let Some(networks) = &listener.accept_proxy {
        section.text("", "accept_proxy", "required");
        if networks.is_empty() {
            section.key("", "proxy_from", "[\"0.0.0.0/0\", \"::/0\"]");
            section.key("", "allow_anybody_to_claim_an_address", "true");
        }
        section.list("", "proxy_from", networks);
    }
    let tls = &listener.tls;
    if let Some(versions) = tls.versions {
        section.list("", "versions", &version_names(versions));
    }
    let groups = tls.groups.as_deref().unwrap_or_default();
    section.list("", "groups", &names(groups, Group::name));
    let suites = tls.suites.as_deref().unwrap_or_default();
    section.list("", "suites", &names(suites, Suite::openssl_name));
    section.list("", "alpn", &listener.alpn);
    if listener.goes_on_without_alpn && !listener.alpn.is_empty() {
        section.text("", "alpn_mismatch", "none");
    }
    write_destination(&listener.destination, "", &Destination::default(), &mut section);
    write_limits(listener, &mut section);
    if let Some(check) = &listener.check {
        write_check(check, &mut section);
    }
    if let Some(clients) = &listener.clients {
        section.table("[listener.clients]");
        write_clients(clients, "clients", &mut section);
    }
    if let Some(tls) = &listener.destination.tls {
        write_backend_tls(tls, "[listener.backend_tls]", &Destination::default(), &mut section);
    }
    for route in &listener.routes {
        write_route(route, listener, &mut section);
    }
    section.written("[[listener]]\n")
}

fn write_spoken(listener: &Listener, section: &mut Section<'_>) {
    match listener.spoken {
        Spoken::Plain => {
            section.text("", "plain", "relay");
            let is_local = |text: &String| {
                value::listen_addresses(text).is_ok_and(|read| {
                    read.0.iter().all(|address| match address {
                        Address::Tcp(tcp) => tcp.ip().to_canonical().is_loopback(),
                        Address::Unix(_) => true,
                    })
                })
            };
            if !listener.addresses.iter().all(is_local) {
                section.key("", "allow_remote", "true");
            }
        }
        Spoken::Postgres => section.text("", "starttls", "postgres"),
        Spoken::Tls => {}
        Spoken::TlsPassedOn => section.key("", "passthrough", "true"),
    }
}

/// Writes the keys that differ from those of `above`, which hold otherwise.
fn write_destination(
    destination: &Destination,
    under: &str,
    above: &Destination,
    section: &mut Section<'_>,
) {
    if !destination.backends.is_empty() {
        section.key(under, "backends", &list(destination.backends.iter().map(backend)));
    }
    if destination.least_connections != above.least_connections {
        let balance =
            if destination.least_connections { "least-connections" } else { "round-robin" };
        section.text(under, "balance", balance);
    }
    match &destination.proxy_header {
        Some(ProxyHeader::Pass) => section.text(under, "proxy_header", "pass"),
        Some(ProxyHeader::V1) => section.text(under, "proxy_header", "v1"),
        Some(ProxyHeader::V2(told)) => {
            section.text(under, "proxy_header", "v2");
            section.list(under, "proxy_tlvs", &names(told, |name| name));
        }
        None if above.proxy_header.is_some() => section.key(under, "proxy_header", "false"),
        None => {}
    }
}

fn backend(backend: &Backend) -> String {
    let address = quoted(&backend.address);
    let weight = backend.weight.filter(|weight| *weight != 1);
    if weight.is_none() && !backend.is_backup {
        return address;
    }
    let weight = weight.map(|weight| format!(", weight = {weight}")).unwrap_or_default();
    let backup = if backend.is_backup { ", backup = true" } else { "" };
    format!("{{ address = {address}{weight}{backup} }}")
}

fn write_check(check: &Check, section: &mut Section<'_>) {
    section.table("[listener.check]");
    if check.in_tls {
        section.text("check", "kind", "tls");
    }
    section.duration("check", "every", check.every);
    section.duration("check", "timeout", check.timeout);
    section.key("check", "rise", &check.rise.to_string());
    section.key("check", "fall", &check.fall.to_string());
    if let Some(slow_start) = check.slow_start {
        section.duration("check", "slow_start", slow_start);
    }
}

fn write_limits(listener: &Listener, section: &mut Section<'_>) {
    for (key, timeout) in &listener.timeouts {
        section.duration("", key, *timeout);
    }
    if let Some(connections) = listener.connections {
        section.key("", "connections", &connections.to_string());
    }
    if let Some(connections) = listener.connections_per_client {
        section.key("", "connections_per_client", &connections.to_string());
    }
    if let Some(keepalive) = listener.keepalive {
        let value = format!(
            "{{ idle = \"{}s\", every = \"{}s\", count = {} }}",
            keepalive.idle_s, keepalive.every_s, keepalive.count
        );
        section.key("", "keepalive", &value);
    }
    section.list("", "allow", &listener.allow);
    section.list("", "deny", &listener.deny);
}

fn write_clients(clients: &Clients, under: &str, section: &mut Section<'_>) {
    section.text(under, "certificates", if clients.is_required { "required" } else { "asked" });
    section.list(under, "roots", &clients.roots);
    section.list(under, "crls", &clients.crls);
    section.list(under, "names", &clients.names);
    if clients.allows_other_names {
        section.key(under, "allow_other_names", "true");
    }
}

fn write_backend_tls(tls: &BackendTls, head: &str, above: &Destination, section: &mut Section<'_>) {
    // An empty table takes the place of the listener's.
    if *tls == BackendTls::default() && above.tls.is_none() {
        return;
    }
    section.table(head);
    let under = "backend_tls";
    if tls.accepts_anybody {
        section.key(under, "insecure_accept_any_certificate", "true");
    } else {
        section.list(under, "roots", &tls.roots);
    }
    if let Some(name) = &tls.server_name {
        section.text(under, "server_name", name);
    }
    if let Some(own) = &tls.client_certificate {
        section.key(under, "client_certificate", &certificate(own));
    }
    if let Some(versions) = tls.versions {
        section.list(under, "versions", &version_names(versions));
    }
    section.list(under, "alpn", &tls.alpn);
}

fn write_route(route: &Route, listener: &Listener, section: &mut Section<'_>) {
    section.table("\n[[listener.route]]");
    section.list("route", "names", &route.names);
    if listener.spoken == Spoken::TlsPassedOn {
        section.key("route", "passthrough", "true");
    }
    section.list("route", "alpn", &route.alpn);
    let above = &listener.destination;
    if route.clients.is_none() || route.destination != *above {
        write_destination(&route.destination, "route", above, section);
    }
    if let Some(clients) = &route.clients {
        section.table("[listener.route.clients]");
        write_clients(clients, "route.clients", section);
    }
    if let Some(tls) = route.destination.tls.as_ref().filter(|own| above.tls.as_ref() != Some(own))
    {
        write_backend_tls(tls, "[listener.route.backend_tls]", above, section);
    }
}

fn certificate(certificate: &Certificate) -> String {
    match certificate {
        Certificate::Path(path) => quoted(path),
        Certificate::Pair { chain, key } => {
            format!("{{ chain = {}, key = {} }}", quoted(chain), quoted(key))
        }
    }
}

fn version_names([tls12, tls13]: [bool; 2]) -> Vec<String> {
    let names = tls12.then_some("1.2").into_iter().chain(tls13.then_some("1.3"));
    names.map(ToOwned::to_owned).collect()
}

fn names<T: Copy>(values: &[T], name: impl Fn(T) -> &'static str) -> Vec<String> {
    values.iter().map(|value| name(*value).to_owned()).collect()
}

/// Whether a listener can have this name.
fn is_name(text: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_good)
}

/// A list on one line, or with a line for each value where that would be too long.
fn list(values: impl Iterator<Item = String>) -> String {
    let values: Vec<_> = values.collect();
    let line = format!("[{}]", values.join(", "));
    if line.len() <= LIST_BYTES_MAX {
        return line;
    }
    let lines: String = values.iter().map(|value| format!("  {value},\n")).collect();
    format!("[\n{lines}]")
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A text of the file for a comment: nothing that ends a line, and not too much of it.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == SHOWN_CHARS_MAX {
            shown.push_str("...");
            break;
        }
        match character {
            c if text::steers(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// A comment on as many lines as it needs. Each has the indent of `text`.
fn comment(text: &str) -> String {
    let bare = text.trim_start_matches(' ');
    let indent = &text[..text.len() - bare.len()];
    let mut lines = String::new();
    let mut line = String::new();
    for word in bare.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS_MAX {
            let _ = writeln!(lines, "# {indent}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(lines, "# {indent}{line}");
    lines
}

/// The beginning of a comment about a line that was left out.
const LEFT_OUT: &str = "NOT CARRIED OVER";
/// A comment without its mark.
const COLUMNS_MAX: usize = 94;
const LIST_BYTES_MAX: usize = 80;
const NAME_BYTES_MAX: usize = 64;
const SHOWN_CHARS_MAX: usize = 400;
