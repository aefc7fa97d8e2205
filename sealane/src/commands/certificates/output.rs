//! What `sealane certificates` prints: text for people, JSON for programs.

use std::io::{self, Write};
use std::path::Path;

use sealane_store::{Imported, Listed, Summary};
use serde_json::{Value, json};

use crate::commands::counted;
use crate::timestamp::Timestamp;

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
    certificate: &'s Listed,
    days_left: i64,
}

impl<'s> ListedReport<'s> {
    pub(super) fn of(certificate: &'s Listed, now_s: i64) -> Self {
        let days_left = certificate.not_after_s.saturating_sub(now_s).div_euclid(DAY_S);
        Self { certificate, days_left }
    }

    /// One line.
    pub(super) fn write_line(&self, as_json: bool, out: &mut dyn Write) -> io::Result<()> {
        if as_json {
            return line(out, &self.json());
        }
        let days = match self.days_left {
            days @ ..0 => format!("expired {} ago", counted(days.unsigned_abs(), "day")),
            days => counted(days.unsigned_abs(), "day"),
        };
        let key_type = self.certificate.key_type.to_string();
        writeln!(out, "{days:<20}{key_type:<14}{}", self.certificate.names.join(" "))
    }

    /// Everything there is to say.
    pub(super) fn write_whole(&self, as_json: bool, out: &mut dyn Write) -> io::Result<()> {
        if as_json {
            return line(out, &self.json());
        }
        let certificate = self.certificate;
        let time = |unix_s| Timestamp::from_unix_s(unix_s).to_string();
        for (label, value) in [
            ("names", certificate.names.join(" ")),
            ("key", certificate.key_type.to_string()),
            ("valid from", time(certificate.not_before_s)),
            ("valid until", format!("{} ({} days)", time(certificate.not_after_s), self.days_left)),
            ("imported", format!("{} from {}", time(certificate.imported_s), certificate.label)),
            ("sealed with", certificate.sealing_key.to_string()),
            ("digest", hex(&certificate.digest.0)),
        ] {
            writeln!(out, "{label:<14}{value}")?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let certificate = self.certificate;
        json!({
            "names": certificate.names,
            "key": certificate.key_type.to_string(),
            "not_before": Timestamp::from_unix_s(certificate.not_before_s),
            "not_after": Timestamp::from_unix_s(certificate.not_after_s),
            "days_left": self.days_left,
            "imported": Timestamp::from_unix_s(certificate.imported_s),
            "source": certificate.label,
            "sealed_with": certificate.sealing_key.to_string(),
            "digest": hex(&certificate.digest.0),
        })
    }
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
