//! A report for people.

use std::fmt;

use sealane_config::Spoken;
use sealane_control::file_tables::Descriptors;
use sealane_engine::days::days;
use sealane_listeners::RouteSummary;

use super::{Cost, Expiry, Finding, ListenerReport, Report};
use crate::commands::counted;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.errors.len() as u64, self.warnings.len() as u64) {
            (0, 0) => "in order".to_owned(),
            (0, warnings) => format!("in order, {}", counted(warnings, "warning")),
            (errors, 0) => counted(errors, "error"),
            (errors, warnings) => {
                format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"))
            }
        };
        writeln!(f, "{}: {verdict}", self.file.display())?;
        findings(f, "Errors", "error", &self.errors)?;
        findings(f, "Warnings", "warning", &self.warnings)?;
        findings(f, "Notes", "note", &self.notes)?;
        if !self.listeners.is_empty() {
            writeln!(f, "\nListeners")?;
        }
        for report in &self.listeners {
            listener(f, report)?;
        }
        match &self.cost {
            Some(cost) => costs(f, cost),
            None => Ok(()),
        }
    }
}

fn findings(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    kind: &str,
    findings: &[Finding],
) -> fmt::Result {
    if findings.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{title}")?;
    for finding in findings.iter().take(FINDINGS_SHOWN_MAX) {
        writeln!(f, "  {kind}: {}", finding.message)?;
    }
    match findings.len().saturating_sub(FINDINGS_SHOWN_MAX) {
        0 => Ok(()),
        more => writeln!(f, "  and {more} more; --json lists all"),
    }
}

fn route_text(route: &RouteSummary) -> String {
    let mut text = match route.names.as_slice() {
        [] => "all other names".to_owned(),
        [first, rest @ ..] if !rest.is_empty() => format!("{first} and {} more", rest.len()),
        names => names.concat(),
    };
    if !route.alpn.is_empty() {
        text += &format!(" with {}", route.alpn.join(", "));
    }
    if route.passthrough {
        text += ", passed on";
    }
    if !route.backends.is_empty() {
        text += &format!(" to {}", route.backends.join(", "));
    }
    if route.backends.len() > 1 {
        text += &format!(" ({})", route.balance);
    }
    text += match route.proxy_header {
        "off" => ", no PROXY header",
        "pass" => ", PROXY header as received",
        "v1" => ", PROXY header v1",
        _ => ", PROXY header v2",
    };
    if route.clients != "off" {
        text += &format!(", client certificates {}", route.clients);
    }
    for (key, setting) in &route.tls {
        text += &format!(", {key} {setting}");
    }
    text
}

/// What is spoken in place of TLS, or before it.
fn spoken_text(spoken: Spoken) -> Option<&'static str> {
    match spoken {
        Spoken::Postgres => Some("TLS once they have asked as PostgreSQL does"),
        Spoken::Redirect => Some("HTTP, and are sent to HTTPS"),
        Spoken::Relay => Some("plain bytes"),
        Spoken::Tls => None,
    }
}

fn listener(f: &mut fmt::Formatter<'_>, report: &ListenerReport) -> fmt::Result {
    writeln!(f, "  {}", report.name)?;
    let kinds: Vec<_> =
        report.key_types.iter().map(|kind| format!("{} {}", kind.count, kind.key_type)).collect();
    row(f, 4, "listens on", &report.addresses.join(", "))?;
    if let Some(spoken) = spoken_text(report.speaks) {
        row(f, 4, "clients speak", spoken)?;
    }
    if let Some(from) = &report.proxy_from {
        row(f, 4, "PROXY header", &format!("required, from {}", from.join(", ")))?;
    }
    let how =
        if report.backends.len() > 1 { format!(" ({})", report.balance) } else { String::new() };
    if !report.backends.is_empty() {
        row(f, 4, "relays to", &format!("{}{how}", report.backends.join(", ")))?;
    }
    if report.proxy_header != "off" {
        row(f, 4, "backends get", &format!("PROXY header {}", report.proxy_header))?;
    }
    if report.passthrough {
        row(f, 4, "TLS", "passed on")?;
    }
    for (key, setting) in &report.tls {
        row(f, 4, "TLS", &format!("{key} {setting}"))?;
    }
    for (key, limit) in &report.limits {
        row(f, 4, "limit", &format!("{key} {limit}"))?;
    }
    for route in &report.routes {
        row(f, 4, "route", &route_text(route))?;
    }
    if let more @ 1.. = report.routes_total.saturating_sub(report.routes.len()) {
        row(f, 4, "", &format!("and {more} more"))?;
    }
    let certificates = match kinds.is_empty() {
        true => "none".to_owned(),
        false => format!("{}: {}", report.certificates, kinds.join(", ")),
    };
    row(f, 4, "certificates", &certificates)?;
    for kind in &report.key_types {
        if let Some(rate) = kind.signatures_per_second {
            let at_most = format!("{}: at most {rate}/s per lane, by signatures", kind.key_type);
            row(f, 4, "full handshakes", &at_most)?;
        }
    }
    row(f, 4, "names", &report.names.to_string())?;
    expiry(f, report.soonest_expiry.as_ref())?;
    let Some(store) = &report.store else {
        return Ok(());
    };
    row(f, 4, "store", &store.path.display().to_string())?;
    row(f, 4, "  certificates", &store.certificates.to_string())?;
    row(f, 4, "  names", &store.names.to_string())?;
    if let Some(on_demand) = &store.on_demand {
        let socket = on_demand.socket.display();
        let whose = match on_demand.group {
            Some(group) => format!("this user and group {group}, whose the folder is"),
            None => "this user alone, whose the folder is".to_owned(),
        };
        row(f, 4, "  on demand", &format!("told at {socket} to {whose}"))?;
    }
    expiry(f, store.soonest_expiry.as_ref())
}

fn expiry(f: &mut fmt::Formatter<'_>, expiry: Option<&Expiry>) -> fmt::Result {
    let Some(expiry) = expiry else {
        return Ok(());
    };
    let when = match expiry.left_s {
        left @ ..0 => format!("{} ago", days(-left)),
        left => format!("in {}", days(left)),
    };
    row(f, 4, "soonest expiry", &format!("{when}, {}", expiry.certificate))
}

fn costs(f: &mut fmt::Formatter<'_>, cost: &Cost) -> fmt::Result {
    writeln!(f, "\nCost at the limits, estimated")?;
    row(f, 2, "lanes", &cost.lanes.to_string())?;
    row(f, 2, "connections", &cost.connections.to_string())?;
    let Descriptors { per_lane, control, table_per_lane, table_bytes } = &cost.descriptors;
    let tables = if *table_per_lane { "one table each" } else { "one table for all" };
    row(f, 2, "file descriptors", &format!("{per_lane} per lane, {control} beside, {tables}"))?;
    row(f, 2, "memory", &bytes(cost.total_bytes))?;
    row(f, 4, "certificate index", &bytes(cost.index_bytes))?;
    row(f, 4, "decoded keys", &bytes(cost.decoded_keys_bytes))?;
    row(f, 4, "buffers", &bytes(cost.buffer_bytes))?;
    row(f, 4, "file tables", &bytes(*table_bytes))?;
    if cost.client_table_bytes > 0 {
        row(f, 4, "client tables", &bytes(cost.client_table_bytes))?;
    }
    row(f, 4, "idle connections", &bytes(cost.connection_bytes))
}

fn row(f: &mut fmt::Formatter<'_>, indent: usize, label: &str, value: &str) -> fmt::Result {
    writeln!(f, "{:indent$}{label:<width$}{value}", "", width = VALUE_COLUMN - indent)
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..KIB => format!("{bytes} B"),
        KIB..MIB => format!("{} KiB", tenths(bytes, KIB)),
        MIB..GIB => format!("{} MiB", tenths(bytes, MIB)),
        _ => format!("{} GiB", tenths(bytes, GIB)),
    }
}

fn tenths(bytes: u64, unit: u64) -> String {
    let tenths = (bytes.saturating_mul(10) + unit / 2) / unit;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Findings of one kind that are printed; more do not fit into a head.
const FINDINGS_SHOWN_MAX: usize = 50;
const GIB: u64 = 1024 * MIB;
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// Where values begin.
const VALUE_COLUMN: usize = 24;
