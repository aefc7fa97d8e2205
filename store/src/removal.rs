//! Words of names that were removed: what was put before them comes back from no other machine.
//!
//! A word stands beside what it removed, in the table of what the store is: the name, when it was
//! removed, and until when somebody may have what it removed. Like a row that is taken out, it is
//! proven by nobody: whoever writes the file can remove names.

use std::ops::Bound;

use heed::{AnyTls, RoTxn, RwTxn};

use crate::error::{Fault, StoreError};
use crate::store::{Removed, Store};
use crate::tables::Tables;

/// A name that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The name, lower-cased.
    pub name: String,
    /// What was put until then is served for it no more, in Unix time.
    pub at_s: i64,
    /// When nothing is left of what it removed, wherever that was: in Unix time.
    pub until_s: i64,
}

impl Store {
    /// Serves nothing for `names` any more, removes the certificates that are then served for no
    /// name, and leaves a word of each name.
    ///
    /// `now_s` is Unix time.
    ///
    /// # Errors
    /// The store cannot be written; then nothing is removed, but with [`StoreError::NotNoted`].
    pub fn remove(&self, names: &[String], now_s: i64) -> Result<Removed, StoreError> {
        let mut removed = Removed::default();
        if !names.is_empty() {
            if !self.has_any(names)? {
                let unknown = names.iter().map(|name| plain(name)).collect();
                return Ok(Removed { unknown, ..removed });
            }
            self.note_erasure_due()?;
        }
        self.write(|txn| {
            for name in names {
                let name = plain(name);
                let served = self.tables.named(txn, &name)?;
                if served.is_empty() {
                    removed.unknown.push(name);
                    continue;
                }
                let mut removal =
                    Removal { name, at_s: now_s, until_s: now_s.saturating_add(REMEMBERED_S) };
                for entry in &served {
                    // One that cannot be read was put at no time; nobody proves this one's.
                    if let Ok(Some(record)) = self.tables.record(txn, entry.digest) {
                        if record.imported_s <= now_s.saturating_add(AHEAD_S_MAX) {
                            removal.at_s = removal.at_s.max(record.imported_s);
                        }
                        removal.until_s = removal.until_s.max(record.not_after_s);
                    }
                }
                self.tables.names.delete(txn, &removal.name)?;
                self.tables.put_removal(txn, &removal)?;
                removed.names += 1;
                for entry in served {
                    let has_left = self.tables.drop_if_unserved(txn, entry.digest)?;
                    removed.certificates += u64::from(has_left);
                }
            }
            Ok(())
        })?;
        Ok(removed)
    }

    /// Whether anything is served for one of `names`. A caller with nothing to remove does not wait
    /// for writers.
    fn has_any(&self, names: &[String]) -> Result<bool, StoreError> {
        self.read(|txn| {
            for name in names {
                // A row that cannot be read is something to remove.
                if !matches!(self.tables.row(txn, &plain(name)), Ok(None)) {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// The word of a name.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn removal(&self, name: &str) -> Result<Option<Removal>, StoreError> {
        self.read(|txn| self.tables.removal(txn, name))
    }

    /// Words of removed names, in the order of the names, behind the name `after`, at most
    /// `count_max`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn removals(
        &self,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<Removal>, StoreError> {
        self.read(|txn| self.tables.removals(txn, after)?.take(count_max).collect())
    }

    /// Forgets words of which nothing is left that they removed.
    ///
    /// # Errors
    /// The store cannot be written; then nothing is forgotten, but with [`StoreError::NotNoted`].
    pub fn forget_removals(&self, now_s: i64) -> Result<(), StoreError> {
        self.write(|txn| {
            let words = self.tables.removals(txn, None)?;
            let over = words.filter(|word| !word.as_ref().is_ok_and(|word| word.until_s >= now_s));
            for word in over.collect::<Result<Vec<_>, _>>()? {
                self.tables.meta.delete(txn, &[PREFIX, &word.name].concat())?;
            }
            Ok(())
        })
    }
}

impl Tables {
    /// The word of a name.
    pub(crate) fn removal(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        name: &str,
    ) -> Result<Option<Removal>, Fault> {
        let value = self.meta.get(txn, &[PREFIX, name].concat())?;
        value.map(|value| removal_from(name, value)).transpose()
    }

    /// Words behind the one of the name `after`, in the order of their names; without one, all.
    fn removals<'t>(
        &self,
        txn: &'t RoTxn<'_, AnyTls>,
        after: Option<&str>,
    ) -> Result<impl Iterator<Item = Result<Removal, Fault>> + use<'t>, Fault> {
        let from = [PREFIX, after.unwrap_or_default()].concat();
        let from: (Bound<&str>, Bound<&str>) = (Bound::Excluded(&from), Bound::Unbounded);
        let entries = self.meta.range(txn, &from)?;
        let names = entries.map(|entry| {
            let (key, value) = entry?;
            Ok(key.strip_prefix(PREFIX).map(|name| (name, value)))
        });
        Ok(names.map_while(|entry: Result<_, Fault>| match entry {
            Ok(entry) => entry.map(|(name, value)| removal_from(name, value)),
            Err(fault) => Some(Err(fault)),
        }))
    }

    pub(crate) fn put_removal(&self, txn: &mut RwTxn<'_>, removal: &Removal) -> Result<(), Fault> {
        let value = [removal.at_s.to_be_bytes(), removal.until_s.to_be_bytes()].concat();
        Ok(self.meta.put(txn, &[PREFIX, &removal.name].concat(), &value)?)
    }

    /// Puts the words of `from` in the place of all that are here.
    pub(crate) fn take_over_removals(
        &self,
        txn: &mut RwTxn<'_>,
        from: &Self,
        source: &RoTxn<'_, AnyTls>,
    ) -> Result<(), Fault> {
        let here = self.removals(txn, None)?.collect::<Result<Vec<_>, _>>()?;
        for word in here {
            self.meta.delete(txn, &[PREFIX, &word.name].concat())?;
        }
        from.removals(source, None)?.try_for_each(|word| self.put_removal(txn, &word?))
    }
}

/// A name as rows have it.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn removal_from(name: &str, value: &[u8]) -> Result<Removal, Fault> {
    let cut = || Fault::What("the word of a name that was removed is cut");
    let (at, until) = value.split_first_chunk().ok_or_else(cut)?;
    let until = until.try_into().map_err(|_| cut())?;
    Ok(Removal {
        name: name.to_owned(),
        at_s: i64::from_be_bytes(*at),
        until_s: i64::from_be_bytes(until),
    })
}

/// By how many seconds a time that nobody proves may be ahead of the clock, and count.
pub const AHEAD_S_MAX: i64 = 86_400;

/// What stands before the name in the key of a word.
const PREFIX: &str = "removed/";
/// How long a word is remembered at least: longer than a certificate that a browser takes is good.
const REMEMBERED_S: i64 = 400 * 86_400;
