//! Removals of other machines, applied to the names that are served here.

use heed::RwTxn;

use crate::error::Fault;
use crate::keyed::KeyedStore;
use crate::removal::Removal;

impl KeyedStore {
    /// Serves nothing for a name that was put before it was removed, and remembers the word.
    pub(crate) fn apply_removal(
        &self,
        txn: &mut RwTxn<'_>,
        removal: &Removal,
    ) -> Result<(), Fault> {
        let tables = &self.store().tables;
        let word = match tables.removal(txn, &removal.name)? {
            Some(here) => Removal {
                name: here.name,
                at_s: here.at_s.max(removal.at_s),
                until_s: here.until_s.max(removal.until_s),
            },
            None => removal.clone(),
        };
        tables.put_removal(txn, &word)?;
        // Of a row that nobody proves nothing is kept.
        let served = self.rows().named(txn, &word.name).unwrap_or_default();
        let (mut left, mut gone) = (Vec::new(), Vec::new());
        for entry in served {
            match tables.record(txn, entry.digest) {
                Ok(Some(record)) if record.imported_s > word.at_s => left.push(entry),
                _ => gone.push(entry.digest),
            }
        }
        match left.is_empty() {
            true => drop(tables.names.delete(txn, &word.name)?),
            false => self.rows().write(txn, &word.name, &left)?,
        }
        gone.into_iter().try_for_each(|digest| tables.drop_if_unserved(txn, digest).map(drop))
    }
}
