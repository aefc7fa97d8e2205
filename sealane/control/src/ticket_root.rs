//! The root of all ticket keys: made at start, kept in a file that restarts and machines share, or
//! taken from a certificate store.

pub(super) mod stored;

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealane_certificate_files::{Exposed, NotRegular, open_regular};
use sealane_config::{RootPlace, Tickets};
use sealane_engine::provider::random;
use sealane_engine::tickets::{TEXT_BYTES_MAX, TicketRoot};
use sealane_listeners::Fault;
use sealane_operator::timestamp::unix_now;
use sealane_store::KeyedStore;
use tracing::warn;
use zeroize::Zeroizing;

use self::stored::StoredRoots;
use crate::state::TicketRoots;

/// A ticket root that follows the clock, in memory and, if there is one, in its file.
pub(super) struct KeptRoot {
    root: TicketRoot,
    /// Why the file is not used, if it cannot be.
    fault: Option<Fault>,
    file: Option<PathBuf>,
    /// The file holds an older root than memory does.
    unsaved: bool,
    /// What was last reported, so that it is reported once.
    reported: Option<String>,
    /// What a store has, which takes the place of the root.
    stored: Option<StoredRoots>,
}

impl KeptRoot {
    /// Reads the file that `settings` name, or makes a root, and the file if it is missing. A file
    /// that cannot be used is left alone: until it can, the process uses a root in memory only.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn open(settings: &Tickets) -> Result<Self, String> {
        let Some(RootPlace::File(file)) = &settings.root else {
            let stored = settings.root.is_some().then(|| StoredRoots::new(settings));
            return Ok(Self { stored, ..Self::of_process(generate(settings)?, None) });
        };
        Self::open_file(file, settings).or_else(|problem| {
            let fault = Fault::of_process(file, problem, WITHOUT);
            Ok(Self::of_process(generate(settings)?, Some(fault)))
        })
    }

    fn of_process(root: TicketRoot, fault: Option<Fault>) -> Self {
        Self { root, fault, file: None, unsaved: false, reported: None, stored: None }
    }

    /// Tries a file again that could not be used; whether it is used now.
    pub(super) fn try_again(&mut self, settings: &Tickets) -> bool {
        let Some(fault) = &mut self.fault else { return false };
        match Self::open_file(&fault.path.clone(), settings) {
            Ok(opened) => {
                *self = opened;
                true
            }
            Err(problem) => {
                fault.text = problem;
                false
            }
        }
    }

    /// Why the file is not used, if it cannot be.
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn open_file(file: &Path, settings: &Tickets) -> Result<Self, String> {
        let root = match read(file, settings)? {
            Some(root) => root,
            None => create(file, settings)?,
        };
        if let Some(exposed) = Exposed::find(file) {
            warn!("tickets.root: {exposed}");
        }
        let mut kept = Self { file: Some(file.to_owned()), ..Self::of_process(root, None) };
        // A file that cannot be written, such as a mounted secret, or a clock that is wrong: said,
        // and tried again.
        if let Some(problem) = kept.advance() {
            warn!("{problem}");
        }
        Ok(kept)
    }

    pub(super) fn current(&self) -> &TicketRoot {
        &self.root
    }

    /// Takes roots from `store` from now on.
    pub(super) fn follow(&mut self, store: Option<Arc<KeyedStore>>) {
        if let (Some(stored), Some(store)) = (&mut self.stored, store) {
            stored.follow(store);
        }
    }

    /// Takes what the store has, if that is new; whether it was. What is wrong with it is said,
    /// once, and the root stays as it is.
    pub(super) fn take_stored(&mut self) -> bool {
        let taken = self.stored.as_mut().and_then(|stored| stored.news(&self.root, unix_now()));
        let Some(root) = taken else { return false };
        self.root = root;
        true
    }

    /// What is shown of it.
    pub(super) fn shown(&self) -> TicketRoots {
        let in_store = self.stored.as_ref().is_some_and(StoredRoots::is_used);
        TicketRoots {
            announced: self.root.announced().map(|epoch| epoch.0).collect(),
            is_shared: self.file.is_some() || in_store,
        }
    }

    /// Erases what the clock has passed, here and in the file; returns what went wrong, once. A
    /// file that could not be written is tried again.
    pub(super) fn advance(&mut self) -> Option<String> {
        let problem = self.try_advance().err();
        let known = problem == self.reported;
        self.reported.clone_from(&problem);
        problem.filter(|_| !known)
    }

    fn try_advance(&mut self) -> Result<(), String> {
        let oldest = self.root.oldest_accepted_at(unix_now());
        if oldest > self.root.epoch() {
            self.root.advance_to(oldest).map_err(|error| error.to_string())?;
            self.unsaved = true;
        }
        if let Some(file) = self.file.as_ref().filter(|_| self.unsaved)
            && is_behind(file, &self.root)?
        {
            replace(file, &self.root)?;
        }
        self.unsaved = false;
        Ok(())
    }
}

fn generate(settings: &Tickets) -> Result<TicketRoot, String> {
    let mut secret = Zeroizing::new([0; 32]);
    random::fill(secret.as_mut_slice()).map_err(|error| error.to_string())?;
    let fill = |into: &mut [u8]| into.copy_from_slice(secret.as_slice());
    TicketRoot::generate(settings.lifetime, unix_now(), fill).map_err(|error| error.to_string())
}

fn parse(file: &Path, text: &str, settings: &Tickets) -> Result<TicketRoot, String> {
    let named = |what: String| format!("tickets.root: {}: {what}", file.display());
    let root = TicketRoot::from_text(text).map_err(|error| named(error.to_string()))?;
    if u64::from(root.lifetime_s()) != settings.lifetime.as_secs() {
        return Err(named(format!(
            "it was made for a lifetime of {} s, tickets.lifetime says {} s; machines that share \
             the file must agree: change the setting, or remove the file to have a new one made",
            root.lifetime_s(),
            settings.lifetime.as_secs()
        )));
    }
    Ok(root)
}

/// The root in the file, if there is one.
///
/// # Errors
/// What is wrong with it, in words that do not quote it: it is a secret.
pub fn read(file: &Path, settings: &Tickets) -> Result<Option<TicketRoot>, String> {
    written(file)?.map(|text| parse(file, &text, settings)).transpose()
}

/// The text in the file, if there is one.
fn written(file: &Path) -> Result<Option<Zeroizing<String>>, String> {
    let named = |what: &str| format!("tickets.root: {}: {what}", file.display());
    let unreadable = |error: io::Error| {
        named(&format!("cannot be read: {error}; see that this user may read it"))
    };
    let is_none = || named("is not the file of a ticket root; name another");
    let from = match open_regular(file) {
        Ok(from) => from,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if NotRegular::is_cause_of(&error) => return Err(is_none()),
        Err(error) => return Err(unreadable(error)),
    };
    // It never moves, and leaves no copy behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(TEXT_BYTES_MAX + 1));
    let limit = TEXT_BYTES_MAX as u64 + 1;
    from.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
    match str::from_utf8(&bytes) {
        Ok(text) if text.len() <= TEXT_BYTES_MAX => Ok(Some(Zeroizing::new(text.to_owned()))),
        _ => Err(is_none()),
    }
}

/// Whether the file holds what `root` was, or what is no root at all, and is to be replaced. What
/// is as far or further has been written by another process that shares it: old keys would be back.
///
/// # Errors
/// It holds another root, or is gone: somebody wants another one, for whoever starts next.
fn is_behind(file: &Path, root: &TicketRoot) -> Result<bool, String> {
    let Some(text) = written(file)? else {
        return Err(format!(
            "tickets.root: {}: is gone, and this process does not put its root back; restart it to \
             have a new one made",
            file.display()
        ));
    };
    let Ok(found) = TicketRoot::from_text(&text) else { return Ok(true) };
    if !root.agrees_with(&found) {
        return Err(format!(
            "tickets.root: {}: holds another root than this process uses, and is left as it is; \
             restart it to use that one",
            file.display()
        ));
    }
    Ok(found.epoch() < root.epoch())
}

/// Makes a root and its file. Of processes that start together one makes it and all use it.
fn create(file: &Path, settings: &Tickets) -> Result<TicketRoot, String> {
    let root = generate(settings)?;
    let made = write_beside(file, &root).and_then(|beside| {
        let linked = fs::hard_link(&beside, file);
        fs::remove_file(&beside).and(linked)
    });
    match made {
        Ok(()) => Ok(root),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read(file, settings)?
            .ok_or_else(|| format!("tickets.root: {}: comes and goes", file.display())),
        Err(error) => Err(cannot_write(file, &error)),
    }
}

/// Replaces the file whole.
fn replace(file: &Path, root: &TicketRoot) -> Result<(), String> {
    write_beside(file, root)
        .and_then(|beside| fs::rename(beside, file))
        .map_err(|error| cannot_write(file, &error))
}

/// Writes a new file of this process, readable by its owner only; never into one that is there.
fn write_beside(file: &Path, root: &TicketRoot) -> io::Result<PathBuf> {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(name);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        // Left by a process that had this number and died.
        _ => {}
    }
    let text = root.to_text().map_err(io::Error::other)?;
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    to.write_all(text.as_bytes())?;
    to.sync_all()?;
    Ok(beside)
}

fn cannot_write(file: &Path, error: &io::Error) -> String {
    format!(
        "tickets.root: {}: cannot be written: {error}; after a restart old keys may be back",
        file.display()
    )
}

const WITHOUT: &str = "tickets of other machines, and of the process before, are not opened";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use sealane_engine::tickets::UnixSeconds;

    use super::*;

    fn settings(file: &Path) -> Tickets {
        Tickets { root: Some(RootPlace::File(file.into())), ..Tickets::default() }
    }

    /// A root of an epoch that is over.
    fn old(settings: &Tickets) -> TicketRoot {
        let then = UnixSeconds(unix_now().0 - 10 * settings.lifetime.as_secs());
        TicketRoot::generate(settings.lifetime, then, |bytes| bytes.fill(7)).unwrap()
    }

    #[test]
    fn a_file_that_could_not_be_written_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root");
        let settings = settings(&file);
        let root = old(&settings);
        fs::write(&file, root.to_text().unwrap().as_bytes()).unwrap();
        let in_the_way = folder.path().join(format!("root.{}.new", std::process::id()));
        fs::create_dir(&in_the_way).unwrap();
        let mut kept = KeptRoot { file: Some(file.clone()), ..KeptRoot::of_process(root, None) };
        assert!(kept.advance().unwrap().contains("cannot be written"));
        assert_eq!(kept.advance(), None, "said once");
        fs::remove_dir(in_the_way).unwrap();
        assert_eq!(kept.advance(), None);
        assert_eq!(*fs::read_to_string(&file).unwrap(), **kept.current().to_text().unwrap());
    }

    #[test]
    fn a_file_that_somebody_replaced_or_brought_further_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root");
        let settings = settings(&file);
        let write = |root: &TicketRoot| {
            fs::write(&file, root.to_text().unwrap().as_bytes()).unwrap();
        };
        let kept = || {
            let file = Some(file.clone());
            KeptRoot { file, ..KeptRoot::of_process(old(&settings), None) }
        };
        let holds =
            |root: &TicketRoot| *fs::read_to_string(&file).unwrap() == **root.to_text().unwrap();

        let other = generate(&settings).unwrap();
        write(&other);
        let mut mine = kept();
        let said = mine.advance().unwrap();
        assert!(said.contains("holds another root than this process uses"), "{said}");
        assert_eq!(mine.advance(), None, "said once");
        assert!(holds(&other));

        // Of a machine whose clock is ahead.
        let mut ahead = old(&settings);
        ahead.advance_to(ahead.epoch_at(unix_now()).next()).unwrap();
        write(&ahead);
        assert_eq!(mine.advance(), None);
        assert!(holds(&ahead), "old keys are not back");

        fs::remove_file(&file).unwrap();
        let mut mine = kept();
        assert!(mine.advance().unwrap().contains("is gone, and this process does not put"));
        assert!(!file.exists());

        for behind in [Some(old(&settings)), None] {
            match &behind {
                Some(root) => write(root),
                None => fs::write(&file, "cut o").unwrap(),
            }
            let mut mine = kept();
            assert_eq!(mine.advance(), None);
            assert!(holds(mine.current()));
        }
    }

    #[test]
    fn a_new_file_is_for_its_owner_only_and_all_who_start_together_share_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root");
        let settings = settings(&file);
        let first = create(&file, &settings).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let second = create(&file, &settings).unwrap();
        assert_eq!(first.to_text().unwrap(), second.to_text().unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_is_no_root_of_these_settings_is_refused_and_not_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root");
        let mut settings = settings(&file);
        assert!(read(&file, &settings).unwrap().is_none());
        fs::write(&file, old(&settings).to_text().unwrap().as_bytes()).unwrap();
        assert!(read(&file, &settings).unwrap().is_some());
        settings.lifetime *= 2;
        let text = read(&file, &settings).unwrap_err();
        assert!(text.contains("lifetime of 43200 s, tickets.lifetime says 86400 s"), "{text}");
        let text = read(folder.path(), &settings).unwrap_err();
        assert!(text.contains("is not the file of a ticket root"), "{text}");
        fs::write(&file, b"\xff").unwrap();
        let text = read(&file, &settings).unwrap_err();
        assert!(text.contains("is not the file of a ticket root"), "{text}");
        fs::write(&file, "a secret ".repeat(1_000)).unwrap();
        let text = read(&file, &settings).unwrap_err();
        assert!(text.contains("is not the file") && !text.contains("a secret"), "{text}");
    }

    #[test]
    fn a_link_in_the_way_of_the_new_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, target) = (folder.path().join("root"), folder.path().join("target"));
        let beside = folder.path().join(format!("root.{}.new", std::process::id()));
        std::os::unix::fs::symlink(&target, beside).unwrap();
        replace(&file, &old(&settings(&file))).unwrap();
        assert!(!target.exists());
    }
}
