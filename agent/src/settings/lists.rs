//! Lists of names that settings point to: a certificate to a line.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use sealane_certificate_files::{MARK, TextError, open_regular};
use sealane_operator::{Mistake, Place, Problem, value};
use sealane_renewal::CertificateId;

use crate::ledger::id_of;

use super::{Challenge, NAMES_MAX, NameList, Settings, WantedCertificate};

/// Reads the lists into the certificates, and tells what is wrong with them: of each, the first
/// [`MISTAKES_MAX`].
pub(super) fn read(settings: &mut Settings) -> Vec<Mistake> {
    let of_tables = settings.certificates.iter();
    let seen = of_tables.map(|certificate| (id_of(&certificate.names), None)).collect();
    let certificates = &mut settings.certificates;
    let mut reading = Reading { lists: &settings.lists, certificates, seen, mistakes: Vec::new() };
    for (number, list) in settings.lists.iter().enumerate() {
        if let Err(problem) = reading.list(number, list) {
            reading.mistakes.push(mistake(Place::whole(&list.file), problem));
        }
    }
    reading.mistakes
}

struct Reading<'s> {
    lists: &'s [NameList],
    certificates: &'s mut Vec<WantedCertificate>,
    /// The list and the line that has a set of names first; none for a table of its own.
    seen: HashMap<CertificateId, Option<(usize, usize)>>,
    mistakes: Vec<Mistake>,
}

impl Reading<'_> {
    /// Reads one list, to its end or to a mistake of the whole file.
    fn list(&mut self, number: usize, list: &NameList) -> Result<(), Problem> {
        let unreadable = |error| {
            let remedy = "name a file of text that this user may read";
            Problem::new(format!("cannot be read: {error}"), remedy)
        };
        let file = open_regular(&list.file).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.len() > LIST_BYTES_MAX {
            let what = format!("is larger than {} MiB", LIST_BYTES_MAX >> 20);
            return Err(Problem::new(what, "is it a list of names?"));
        }
        // It may grow while it is read.
        let mut text = BufReader::new(file.take(LIST_BYTES_MAX));
        let mistakes_before = self.mistakes.len();
        let mut line = Vec::new();
        for at in 1.. {
            line.clear();
            let mut limited = (&mut text).take(LINE_BYTES_MAX + 1);
            if limited.read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
                break;
            }
            if line.len() as u64 > LINE_BYTES_MAX {
                let what = format!("line {at} is longer than {LINE_BYTES_MAX} bytes");
                return Err(Problem::new(what, "is it a list of names?"));
            }
            let bytes = if at == 1 { line.strip_prefix(MARK).unwrap_or(&line) } else { &line };
            let line = str::from_utf8(bytes).map_err(|_| match TextError::of_bytes(bytes, 0) {
                TextError::Utf16 if at == 1 => Problem::new("is UTF-16", "save it as UTF-8"),
                _ => Problem::new(format!("line {at} is not UTF-8"), "save it as UTF-8"),
            })?;
            if let Err(problem) = self.line(line, list, (number, at)) {
                self.mistakes.push(mistake(place(&list.file, at), problem));
            }
            if self.mistakes.len() - mistakes_before == MISTAKES_MAX {
                return Err(Problem::new("may have more mistakes", "mend these first"));
            }
            if self.certificates.len() > LISTED_MAX {
                let what = format!("line {at} has more than the {LISTED_MAX}th certificate");
                return Err(Problem::new(what, "give the rest to the agent of another store"));
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str, list: &NameList, at: (usize, usize)) -> Result<(), Problem> {
        let challenge = list.challenge.clone();
        let mut names = names_in(line, &challenge)?;
        if names.is_empty() {
            return Ok(());
        }
        if let Some(first) = self.seen.insert(id_of(&names), Some(at)) {
            let first =
                first.and_then(|(number, at)| Some(place(&self.lists.get(number)?.file, at)));
            let first = first.map_or("a table".to_owned(), |place| place.to_string());
            let what = format!("the same names are in {first}");
            return Err(Problem::new(what, "remove one of the two"));
        }
        // There may be very many, nearly all of one name.
        names.shrink_to_fit();
        self.certificates.push(WantedCertificate { challenge, names });
        Ok(())
    }
}

/// The names in a line; none in one that is empty or a comment. No mistake quotes the line: the
/// file may be another than was meant.
fn names_in(line: &str, challenge: &Challenge) -> Result<Vec<String>, Problem> {
    let words = line.split('#').next().unwrap_or_default();
    let mut names = Vec::new();
    for word in words.split_ascii_whitespace() {
        let name = value::host_name(word).map_err(|problem| {
            Problem::new("has a word that is not a host name", problem.remedy)
        })?;
        if name.starts_with('*') && !matches!(challenge, Challenge::Dns01(_)) {
            let what = "has a wildcard, which CAs issue for a record of DNS alone";
            return Err(Problem::new(what, "name each host, or list it with dns-01"));
        }
        if names.contains(&name) {
            return Err(Problem::new("has a name twice", "remove one"));
        }
        if names.len() == NAMES_MAX {
            let what = format!("more than {NAMES_MAX} names");
            return Err(Problem::new(what, "write them in two lines"));
        }
        names.push(name);
    }
    Ok(names)
}

fn place(file: &Path, line: usize) -> Place {
    Place { file: file.to_owned(), line: Some(line), column: None }
}

fn mistake(place: Place, problem: Problem) -> Mistake {
    Mistake { place: Some(place), field: String::new(), problem }
}

/// Certificates that one agent looks after.
const LISTED_MAX: usize = 1_000_000;
/// Bytes of a list.
const LIST_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a line: more than [`NAMES_MAX`] of the longest names take.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Mistakes in a list that are told.
const MISTAKES_MAX: usize = 100;
