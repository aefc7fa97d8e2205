//! Keys that are not known where they are written, and the keys that were probably meant.

use std::rc::Rc;

use crate::key::{Group, PAGE};
use crate::mistake::Problem;

/// A key that is not known in its table.
pub(crate) struct Unknown {
    /// The tables around it; empty for the file itself.
    pub(crate) around: String,
    /// The declaration of its table, if there is one.
    pub(crate) group: Option<&'static Group>,
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

    /// The problem to report. `keys_of_file` are those above the first table.
    pub(crate) fn problem(&self, keys_of_file: &[&'static str]) -> Problem {
        let mut problem = if keys_of_file.contains(&self.key.as_str()) {
            let remedy = "move it above the first [table]";
            Problem::new("is a key of the file, not of this table", remedy)
        } else {
            Problem::new("is not a known key", self.remedy())
        };
        problem.known = self.known.to_vec();
        problem
    }

    /// The key that was probably meant, and where the reference has it or the whole table.
    fn remedy(&self) -> String {
        if let Some(meant) = closest(&self.key, &self.known) {
            let at = self.group.map(|group| format!(" see {PAGE}#{}", group.anchor(meant)));
            return format!("did you mean {meant:?}?{}", at.unwrap_or_default());
        }
        let at = self.group.map(|group| format!("{PAGE}#{}", group.table_anchor()));
        match (self.known.len(), at) {
            (0..=KEYS_LISTED_MAX, None) => {
                format!("remove it; known here: {}", self.known.join(", "))
            }
            (0..=KEYS_LISTED_MAX, Some(at)) => {
                format!("remove it; known here: {} ({at})", self.known.join(", "))
            }
            (_, at) => format!("remove it; all keys: {}", at.as_deref().unwrap_or(EXAMPLES)),
        }
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

/// Where every key is explained.
const EXAMPLES: &str = "/usr/share/doc/sealane/examples";
/// Keys that still fit into a line.
const KEYS_LISTED_MAX: usize = 8;
/// Letters of a word that points to a key that it is a part of.
const PART_BYTES_MIN: usize = 3;
const WORD_BYTES_MAX: usize = 64;
