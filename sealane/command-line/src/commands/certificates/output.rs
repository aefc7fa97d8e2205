//! What `sealane certificates` prints: text for people, JSON for programs.

use std::io::{self, Write};
use std::path::Path;

use sealane_operator::timestamp::Timestamp;
use sealane_store::{Imported, Listed, Summary};
use sealane_store_requests::{Removed, ShownCertificate};
use serde_json::{Value, json};
use tracing::info;

use crate::commands::counted;
use crate::commands::running::printable_line;
use crate::exit::Exit;

/// What an import did.
pub(super) struct ImportReport<'s> {
    pub(super) imported: Imported,
    pub(super) store: &'s Path,
    pub(super) summary: Summary,
}

impl ImportReport<'_> {
    pub(super) fn write(&self, as_json: bool, out: &mut dyn Write) -> io::Result<()> {
        let Imported { added, replaced, unchanged } = self.imported;
        if as_json {
            return line(
                out,
                &json!({
                    "added": added, "replaced": replaced, "unchanged": unchanged,
                    "store": store(self.store, &self.summary),
                }),
            );
        }
        writeln!(
            out,
            "{} added, {replaced} replaced, {unchanged} unchanged; {}: {}, {}",
            counted(added, "certificate"),
            self.store.display(),
            counted(self.summary.certificates, "certificate"),
            counted(self.summary.names, "name"),
        )
    }
}

/// A certificate as it is listed and shown.
pub(super) struct ListedReport<'s> {
    names: &'s [String],
    days_left: i64,
    digest: String,
    imported_s: i64,
    key: String,
    not_after_s: i64,
    not_before_s: i64,
    sealed_with: String,
    source: &'s str,
    /// What is in it beside.
    shown: Option<&'s ShownCertificate>,
}

impl<'s> ListedReport<'s> {
    pub(super) fn of(certificate: &'s Listed, now_s: i64) -> Self {
        Self {
            names: &certificate.names,
            days_left: days_left(certificate.not_after_s, now_s),
            digest: hex(&certificate.digest.0),
            imported_s: certificate.imported_s,
            key: certificate.key_type.to_string(),
            not_after_s: certificate.not_after_s,
            not_before_s: certificate.not_before_s,
            sealed_with: certificate.sealing_key.to_string(),
            source: &certificate.label,
            shown: None,
        }
    }

    /// With what its chain says.
    pub(super) fn of_shown(certificate: &'s ShownCertificate, now_s: i64) -> Self {
        Self {
            names: &certificate.names,
            days_left: days_left(certificate.not_after_s, now_s),
            digest: certificate.digest.clone(),
            imported_s: certificate.imported_s,
            key: certificate.key.clone(),
            not_after_s: certificate.not_after_s,
            not_before_s: certificate.not_before_s,
            sealed_with: certificate.sealed_with.clone(),
            source: &certificate.source,
            shown: Some(certificate),
        }
    }

    /// One line.
    pub(super) fn write_line(&self, as_json: bool, out: &mut dyn Write) -> io::Result<()> {
        if as_json {
            return line(out, &self.json());
        }
        let days = match self.days_left {
            // Days that have begun since count as passed only when they are over.
            days @ ..0 => format!("expired {} ago", counted(days.unsigned_abs() - 1, "day")),
            days => counted(days.unsigned_abs(), "day"),
        };
        let [key, names] = [&self.key, &self.names.join(" ")].map(|text| printable_line(text));
        writeln!(out, "{days:<20}{key:<14}{names}")
    }

    /// Everything there is to say.
    pub(super) fn write_whole(&self, as_json: bool, out: &mut dyn Write) -> io::Result<()> {
        if as_json {
            return line(out, &self.json());
        }
        let time = |unix_s| Timestamp::from_unix_s(unix_s).to_string();
        for (label, value) in [
            ("names", self.names.join(" ")),
            ("key", self.key.clone()),
            ("valid from", time(self.not_before_s)),
            ("valid until", format!("{} ({} days)", time(self.not_after_s), self.days_left)),
            ("imported", format!("{} from {}", time(self.imported_s), self.source)),
            ("sealed with", self.sealed_with.clone()),
            ("digest", self.digest.clone()),
        ] {
            writeln!(out, "{label:<14}{}", printable_line(&value))?;
        }
        let Some(ShownCertificate { chain, issuer, serial, .. }) = self.shown else {
            return Ok(());
        };
        let of_chain = chain.iter().map(|sha256| ("sha256", sha256));
        for (label, value) in [("issuer", issuer), ("serial", serial)].into_iter().chain(of_chain) {
            writeln!(out, "{label:<14}{}", printable_line(value))?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let mut value = json!({
            "names": self.names,
            "key": self.key,
            "not_before": Timestamp::from_unix_s(self.not_before_s),
            "not_after": Timestamp::from_unix_s(self.not_after_s),
            "days_left": self.days_left,
            "imported": Timestamp::from_unix_s(self.imported_s),
            "source": self.source,
            "sealed_with": self.sealed_with,
            "digest": self.digest,
        });
        if let Some(ShownCertificate { chain, issuer, serial, .. }) = self.shown {
            value["issuer"] = issuer.as_str().into();
            value["serial"] = serial.as_str().into();
            value["chain"] = chain.as_slice().into();
        }
        value
    }
}

fn days_left(not_after_s: i64, now_s: i64) -> i64 {
    not_after_s.saturating_sub(now_s).div_euclid(DAY_S)
}

/// What a removal came to, from the store that is called so.
pub(super) fn write_removed(
    removed: &Removed,
    store: &str,
    out: &mut dyn Write,
) -> io::Result<Exit> {
    writeln!(
        out,
        "{} no longer served; {} removed",
        counted(removed.removed_names, "name"),
        counted(removed.removed_certificates, "certificate")
    )?;
    for name in &removed.covered {
        let name = printable_line(name);
        info!("{name} is still served, by a wildcard; see: certificates show {name}");
    }
    if removed.unknown.is_empty() {
        return Ok(Exit::Ok);
    }
    info!("{store}: not in it: {}", printable_line(&removed.unknown.join(", ")));
    Ok(Exit::Failed)
}

/// What a verification found.
pub(super) struct VerifyReport<'s> {
    pub(super) store: &'s Path,
    pub(super) summary: Summary,
    pub(super) problems: Vec<String>,
}

impl VerifyReport<'_> {
    pub(super) fn write(&self, as_json: bool, out: &mut dyn Write) -> io::Result<()> {
        if as_json {
            let found = store(self.store, &self.summary);
            return line(out, &json!({ "store": found, "problems": self.problems }));
        }
        for problem in &self.problems {
            writeln!(out, "{problem}")?;
        }
        let certificates = counted(self.summary.certificates, "certificate");
        match self.problems.len() as u64 {
            0 => writeln!(out, "{}: {certificates} in order", self.store.display()),
            problems => writeln!(
                out,
                "{}: {} among {certificates}",
                self.store.display(),
                counted(problems, "problem")
            ),
        }
    }
}

fn store(path: &Path, summary: &Summary) -> Value {
    let sealed_with = summary.sealed_with.iter().map(|(id, count)| (id.to_string(), *count));
    json!({
        // What is not Unicode cannot be written as it is.
        "path": path.to_string_lossy(),
        "certificates": summary.certificates,
        "names": summary.names,
        "sealed_with": sealed_with.collect::<std::collections::BTreeMap<_, _>>(),
    })
}

fn line(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const DAY_S: i64 = 86_400;
