//! Single values as text that settings of every program have: durations, sizes, paths, names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::mistake::Problem;

/// Reads a server name, exact or a wildcard for one label, and lower-cases it.
pub fn host_name(text: &str) -> Result<String, Problem> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if is_host_name(&name) {
        return Ok(name);
    }
    let remedy = match text.is_ascii() {
        true if text.contains('*') => "write a wildcard for one label, such as \"*.example.com\"",
        true => "write a name such as \"www.example.com\"",
        false => "write it in its ASCII form (xn--...)",
    };
    Err(Problem::new(format!("{text:?} is not a host name"), remedy))
}

/// The folder that a file is in: a name without a folder is in the current one.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => path,
    }
}

/// Whether a name without a dot at its end is a host name, or a wildcard for one label of it.
#[must_use]
pub fn is_host_name(name: &str) -> bool {
    let labels = name.strip_prefix("*.").unwrap_or(name);
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= NAME_BYTES_MAX && labels.split('.').all(is_label)
}

/// Reads a duration: a whole number and a unit.
pub fn duration(text: &str) -> Result<Duration, Problem> {
    let (number, unit) = number_and_unit(text);
    let unit_ms = DURATION_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ms)| *ms);
    unit_ms
        .zip(number)
        .and_then(|(unit_ms, number)| number.checked_mul(unit_ms))
        .map(Duration::from_millis)
        .ok_or_else(|| {
            Problem::new(
                format!("{text:?} is not a duration"),
                "write a whole number and ms, s, m, h or d, such as \"500ms\" or \"12h\"",
            )
        })
}

/// Reads a size: a whole number and a unit.
pub fn size_bytes(text: &str) -> Result<u64, Problem> {
    let (number, unit) = number_and_unit(text);
    let unit_bytes = SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes);
    unit_bytes
        .zip(number)
        .and_then(|(unit_bytes, number)| number.checked_mul(unit_bytes))
        .ok_or_else(|| {
            Problem::new(
                format!("{text:?} is not a size"),
                "write a whole number and B, KiB, MiB or GiB, such as \"16KiB\"",
            )
        })
}

/// Writes a duration as it is read, in the largest unit that fits.
pub fn duration_text(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    in_units(ms, &DURATION_UNITS)
}

/// Writes a size as it is read, in the largest unit that fits.
pub fn size_text(bytes: u64) -> String {
    in_units(bytes, &SIZE_UNITS)
}

/// Reads a path; `base` is where a relative one starts.
pub fn path(text: &str, base: &Path) -> Result<PathBuf, Problem> {
    match text {
        "" => Err(Problem::new("the path is empty", "write a path or remove the key")),
        _ if text.contains('\0') => Err(Problem::new("the path has a NUL character", "remove it")),
        _ => Ok(base.join(text)),
    }
}

/// Reads the name of a credential: one that stays in the folder of credentials.
pub fn credential_name(text: &str) -> Result<String, Problem> {
    let is_name = !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\0']);
    if is_name {
        return Ok(text.to_owned());
    }
    let what = format!("{text:?} is not the name of a credential");
    Err(Problem::new(what, "write the name in LoadCredential=NAME:PATH"))
}

/// Reads the name of a user or a group of this machine.
pub fn account(text: &str) -> Result<String, Problem> {
    let has_no_place = |c: char| c.is_control() || c == ':';
    if text.is_empty() || text.contains(has_no_place) {
        let what = format!("{text:?} is not the name of a user or a group");
        return Err(Problem::new(what, "write one that this machine knows, such as \"sealane\""));
    }
    Ok(text.to_owned())
}

/// Reads a word of a command.
pub fn word(text: &str) -> Result<String, Problem> {
    match text.contains('\0') {
        true => Err(Problem::new("the word has a NUL character", "remove it")),
        false => Ok(text.to_owned()),
    }
}

fn number_and_unit(text: &str) -> (Option<u64>, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    (number.parse().ok(), unit.strip_prefix(' ').unwrap_or(unit))
}

fn in_units(value: u64, units: &[(&str, u64)]) -> String {
    let largest =
        units.iter().rev().find(|(_, size)| value >= *size && value.is_multiple_of(*size));
    let (unit, size) = largest.or(units.first()).copied().unwrap_or(("", 1));
    format!("{}{unit}", value / size)
}

/// RFC 1035, 2.3.4.
const LABEL_BYTES_MAX: usize = 63;
const NAME_BYTES_MAX: usize = 253;
const DURATION_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZE_UNITS: [(&str, u64); 4] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
