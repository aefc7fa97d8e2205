//! `sealane certificates backup` and `restore`: a sealed copy of a store in one file, and back.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::sync::Arc;

use sealane_listeners::stores::become_owner_of;
use sealane_listeners::stores::examination::{Refused, examine_apart};
use sealane_store::{DATA_FILE, KeyedStore, MAP_BYTES, SealingKeys, Store};
use tempfile::TempDir;

use super::place::{Scratch, at, exchange, place, with_name};
use super::{Place, Refusal, now_s, problems_of, said};
use crate::args::{BackupArguments, RestoreArguments};
use crate::commands::counted;
use crate::exit::Exit;

pub(super) fn backup(arguments: &BackupArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let store = Place::of(&arguments.store)?.open()?;
    back_up(&store, &arguments.file, arguments.replace)?;
    let (file, store) = (arguments.file.display(), store.path().display());
    writeln!(out, "{file}: a copy of {store}, checked; it opens with the sealing keys alone")?;
    Ok(Exit::Ok)
}

/// Puts a copy of `store` at `file`, after it was read as a store is before it is opened.
fn back_up(store: &Store, file: &Path, may_replace: bool) -> Result<(), Refusal> {
    let scratch = Scratch::beside(file)?;
    let copy = scratch.path().join(DATA_FILE);
    store.back_up(&copy)?;
    examine_apart(scratch.path()).map_err(said)?;
    place(&copy, file, may_replace)
}

pub(super) fn restore(arguments: &RestoreArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let place = Place::of_key(&arguments.key)?;
    let keys = place.keys()?;
    let file = &arguments.file;
    // Before the rights of the store's user are taken, who may not read it.
    let mut from = open_file(file)?;
    let path = become_owner_of(&place.path).map_err(said)?;
    let scratch = Scratch::beside(&path)?;
    share_as(scratch.path(), &path).map_err(|error| at(&path, &error))?;
    let data = scratch.path().join(DATA_FILE);
    copy(&mut from, file, &data)?;
    let copy = open_copy(scratch.path(), keys).map_err(|why| why.of_copy(file))?;
    let summary = copy.store().summary()?;
    // Two in one second are two processes.
    let suffix = format!(".replaced-{}-{}", now_s(), std::process::id());
    let kept = with_name(&path, |name| name.push(suffix))?;
    let told = match replace_live(&path, &copy, &kept)? {
        true => format!("; a copy of what it was is {}", kept.display()),
        false => {
            copy.store().note_put_back()?;
            // The database remembers the path that it was opened by.
            drop(copy);
            match put_in_place(scratch.into_folder()?, &path, &kept)? {
                true => format!("; restart what serves from it, which is {} now", kept.display()),
                false => String::new(),
            }
        }
    };
    let certificates = counted(summary.certificates, "certificate");
    let names = counted(summary.names, "name");
    let (path, file) = (path.display(), file.display());
    writeln!(out, "{path}: {certificates}, {names}, restored from {file}{told}")?;
    Ok(Exit::Ok)
}

/// Opens `file` if it can be a copy of a store.
fn open_file(file: &Path) -> Result<File, Refusal> {
    let not_a_copy = |what: String| {
        Refusal::Said(format!("{}: {what}; name a copy that `backup` made", file.display()))
    };
    // One that nobody writes to would be waited for.
    let metadata = fs::metadata(file).map_err(|error| at(file, &error))?;
    if !metadata.is_file() {
        return Err(not_a_copy("is no file".into()));
    }
    let bytes = metadata.len();
    if bytes > MAP_BYTES as u64 {
        return Err(not_a_copy(format!("has {bytes} bytes, a store at most {MAP_BYTES}")));
    }
    File::open(file).map_err(|error| at(file, &error))
}

/// Writes what is in `from`, which is `file`, to the new file `to`.
fn copy(from: &mut File, file: &Path, to: &Path) -> Result<(), Refusal> {
    let written = |error: io::Error| at(to, &error);
    let made = File::options().write(true).create_new(true).mode(0o600).open(to);
    let mut copy = made.map_err(written)?;
    let mut part = vec![0; COPIED_AT_ONCE];
    loop {
        match from.read(&mut part) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(at(file, &error)),
            Ok(0) => return copy.sync_all().map_err(written),
            Ok(len) => copy.write_all(&part[..len]).map_err(written)?,
        }
    }
}

/// Shares the new folder with the group that the folder `path` is shared with, if it is: what will
/// be made in it belongs to that group, and the store makes it so that the group may use it.
fn share_as(folder: &Path, path: &Path) -> io::Result<()> {
    let facts = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        facts => facts?,
    };
    if facts.mode() & GROUP_INHERITS == 0 {
        return Ok(());
    }
    chown(folder, None, Some(facts.gid()))?;
    fs::set_permissions(folder, Permissions::from_mode(facts.mode() & PERMISSIONS))
}

/// Opens the copy in the folder `path` if it is in order to the last private key.
fn open_copy(path: &Path, keys: SealingKeys) -> Result<KeyedStore, Refusal> {
    examine_apart(path).map_err(said)?;
    let copy = KeyedStore::new(Arc::new(Store::open(path)?), keys)?;
    let problems = problems_of(&copy)?;
    match problems.is_empty() {
        true => Ok(copy),
        false => Err(Refusal::Said(problems.join("\n"))),
    }
}

/// Replaces what is in the store in the folder `path`, of which a copy goes to `kept`. Returns
/// false if it has to make room instead: none is there, it is damaged, or `copy` is of another one.
fn replace_live(path: &Path, copy: &KeyedStore, kept: &Path) -> Result<bool, Refusal> {
    match examine_apart(path) {
        Err(refused @ Refused::Unknown { .. }) => return Err(said(refused)),
        Err(_) => return Ok(false),
        Ok(()) => {}
    }
    let store = Store::open(path)?;
    let is_replaced = store.replace(copy.store(), || back_up(&store, kept, false))?;
    if is_replaced {
        store.erase_deleted()?;
    }
    Ok(is_replaced)
}

/// Puts `folder` in the place of the folder `path`, which goes to `kept` if it is there and not
/// empty. Returns whether it was. At no time there is none, or another than one of the two.
fn put_in_place(folder: TempDir, path: &Path, kept: &Path) -> Result<bool, Refusal> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {}
        _ => return place(folder.path(), path, false).map(|()| false),
    }
    exchange(folder.path(), path)?;
    // From here on it is the old one, which nobody is to remove.
    let old = folder.keep();
    place(&old, kept, false).map(|()| true).map_err(|refusal| match refusal {
        Refusal::Said(text) => Refusal::Said(format!(
            "{} is restored; what it was is {}, and stays there: {text}",
            path.display(),
            old.display()
        )),
        output @ Refusal::Output(_) => output,
    })
}

/// Bytes of a copy that are in memory at once.
const COPIED_AT_ONCE: usize = 1 << 20;
const GROUP_INHERITS: u32 = 0o2000;
const PERMISSIONS: u32 = 0o7777;
