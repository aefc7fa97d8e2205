//! Keys that are not known where they are written, and the keys that were probably meant.

use std::rc::Rc;

use crate::key::Group;
use crate::mistake::Problem;

/// A key that is not known in its table.
pub(crate) struct Unknown {
    /// The tables around it; empty for the file itself.
    pub(crate) around: String,
    /// The declaration of its table.
    pub(crate) group: &'static Group,
    pub(crate) key: String,
    /// The keys that are known there.
    pub(crate) known: Rc<[&'static str]>,
    /// Where it is in the text.
    pub(crate) offset: usize,
}

impl Unknown {
    /// The key with the tables around it.
    pub(crate) fn field(&self) -> String {
        match self.around.is_empty() {
            true => self.key.clone(),
            false => format!("{}.{}", self.around, self.key),
        }
    }

    /// The problem to report. `keys_of_file` are those above the first table, and `page` explains
    /// all keys.
    pub(crate) fn problem(&self, keys_of_file: &[&'static str], page: &str) -> Problem {
        let mut problem = if keys_of_file.contains(&self.key.as_str()) {
            let remedy = "move it above the first [table]";
            Problem::new("is a key of the file, not of this table", remedy)
        } else {
            Problem::new("is not a known key", self.remedy(page))
        };
        problem.known = self.known.to_vec();
        problem
    }

    /// The key that was probably meant, and where the reference has it or the whole table.
    fn remedy(&self, page: &str) -> String {
        if let Some(meant) = closest(&self.key, &self.known) {
            return format!("did you mean {meant:?}? see {page}#{}", self.group.anchor(meant));
        }
        let at = format!("{page}#{}", self.group.table_anchor());
        if self.known.len() > KEYS_LISTED_MAX {
            return format!("remove it; all keys: {at}");
        }
        format!("remove it; known here: {} ({at})", self.known.join(", "))
    }
}

/// The known key that is nearly the written one, or that it is a part of.
pub(super) fn closest(written: &str, known: &[&'static str]) -> Option<&'static str> {
    // A word that is so long is never meant, and the distance takes time in its square.
    if written.len() > WORD_BYTES_MAX {
        return None;
    }
    let plain = |key: &str| key.to_lowercase().replace('_', "-");
    let lower = plain(written);
    let near = known
        .iter()
        .map(|known| (strsim::osa_distance(&lower, &plain(known)), *known))
        .filter(|(distance, known)| {
            *distance <= (known.len() / 3).max(1) && *distance < known.len()
        })
        .min();
    let mut parts = known.iter().filter(|known| {
        lower.len() >= PART_BYTES_MIN && plain(known).split('-').any(|part| part == lower)
    });
    let part = || parts.next().copied();
    near.map(|(_, known)| known).or_else(part)
}

/// Keys that still fit into a line.
const KEYS_LISTED_MAX: usize = 8;
/// Letters of a word that points to a key that it is a part of.
const PART_BYTES_MIN: usize = 3;
const WORD_BYTES_MAX: usize = 64;
