//! Whether a store is in order, as far as can be seen without its keys.
//!
//! First its pages are read as a file, then all of it through LMDB, as lanes do. The second maps
//! the file, so a file that changes meanwhile may end the process: whoever cannot afford that lets
//! another process do it.

use std::fs::File;
use std::num::NonZeroU64;
use std::path::Path;

use heed::{AnyTls, RoTxn};
use rustix::fs::Advice;

use crate::agreement::{Agreement, Examined};
use crate::error::{FORMAT, Fault, StoreError};
use crate::files::DATA_FILE;
use crate::lock_file;
use crate::pages::{Metas, Visitors, Walk};
use crate::regular::open_regular;
use crate::row::digest_from;
use crate::store::{Store, share_folder};
use crate::tables::{Tables, digest_of_expiry_key, expiry_key};

/// Reads all of the store in the folder `path`, while no process writes to it; others may read.
/// Calls `begun` as soon as nobody has to be waited for any more.
///
/// # Errors
/// The first thing that is not in order.
pub fn examine(path: &Path, begun: impl FnOnce()) -> Result<Examined, StoreError> {
    let lock = share_folder(path)?;
    begun();
    lock_file::check(path).map_err(|fault| fault.at(path))?;
    let agreement = check_pages(path)?;
    let (store, format) = Store::open_to_examine(path)?;
    store.read(|txn| store.tables.sweep(txn))?;
    let examined = match format {
        FORMAT => agreement.judge().map_err(|fault| fault.at(path)),
        // Whoever opens it says what to do with it.
        _ => store
            .summary()
            .map(|found| Examined { certificates: found.certificates, names: found.names }),
    };
    drop(lock);
    examined
}

/// Reads all pages and what stands in them.
fn check_pages(path: &Path) -> Result<Agreement, StoreError> {
    let file = match open_regular(&path.join(DATA_FILE)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(StoreError::Absent { path: path.into() });
        }
        file => file.map_err(|error| StoreError::system(path, error))?,
    };
    // As a process leaves it that was ended when it made the store.
    if file.metadata().is_ok_and(|facts| facts.len() == 0) {
        return Err(StoreError::Absent { path: path.into() });
    }
    read_ahead(&file);
    let walk = || {
        let metas = Metas::read(&file)?;
        let mut agreement = Agreement::default();
        let mut see = |table: &[u8], key: &[u8], value: &[u8]| agreement.see(table, key, value);
        let visitors = Visitors { on_entry: Some(&mut see), ..Visitors::default() };
        Walk::run(&file, &metas.newest, visitors)?;
        Ok(agreement)
    };
    walk().map_err(|fault| StoreError::of_pages(path, fault))
}

/// Asks for the whole file from its beginning to its end, which is how a disk reads fast: a tree
/// leads from page to page in no order.
fn read_ahead(file: &File) {
    let len = file.metadata().map_or(0, |facts| facts.len());
    let (mut at, part) = (0, NonZeroU64::new(READ_AHEAD_BYTES));
    while at < len {
        // Only a hint: whatever is not read by then is read when it is needed.
        let _ = rustix::fs::fadvise(file, at, part, Advice::WillNeed);
        at += READ_AHEAD_BYTES;
    }
}

/// Each certificate has its date, each date and each name its certificate, and no table has more.
pub(crate) fn tables_agree(tables: &Tables, txn: &RoTxn<'_, AnyTls>) -> Result<Examined, Fault> {
    let mut certificates = 0;
    for entry in tables.certificates.iter(txn)? {
        let digest = digest_from(entry?.0)?;
        certificates += 1;
        // A record that cannot be read is refused by itself, and healed by an import.
        let Ok(Some(record)) = tables.record(txn, digest) else { continue };
        tables.chain(txn, &record)?;
        if tables.expiry.get(txn, &expiry_key(record.not_after_s, digest))?.is_none() {
            return Err(Fault::What("a certificate is missing in the list by date"));
        }
    }
    let mut dates = 0;
    for entry in tables.expiry.iter(txn)? {
        tables.certificates.get(txn, &digest_of_expiry_key(entry?.0)?.0)?;
        dates += 1;
    }
    if dates != certificates {
        return Err(Fault::What("the list by date has other certificates than there are"));
    }
    let mut names = 0;
    for entry in tables.names.iter(txn)? {
        let (name, _) = entry?;
        names += 1;
        for found in tables.named(txn, name)? {
            if tables.certificates.get(txn, &found.digest.0)?.is_none() {
                return Err(Fault::What("a name leads to no certificate"));
            }
        }
    }
    for entry in tables.sealed_with.iter(txn)? {
        entry?;
    }
    tables.gone_since(txn, Some(0))?;
    Ok(Examined { certificates, names })
}

/// What the kernel reads ahead at once at least; it takes no more of a longer request.
const READ_AHEAD_BYTES: u64 = 128 << 10;
