//! A store that is open in this process: what was last found of its file, and whether it may be
//! served from.

use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sealane_store::{DATA_FILE, Look, Stamp, Store, StoreError};

use super::StoreRefused;
use super::examination::{Examination, Refused, examine_apart};

/// A store that is or was open.
#[derive(Debug)]
pub(super) struct Opened {
    /// Whether the lock file was cut or replaced.
    has_lost_lock: bool,
    /// An examination that nobody waits for, and how the file looked before it.
    beside: Option<(Stamp, JoinHandle<Result<(), Refused>>)>,
    /// Set after a check that failed: the next one.
    next_check: Option<NextCheck>,
    /// How the file looked when it was last found in order, or not.
    seen: Option<Stamp>,
    store: Weak<Store>,
    /// How the file looked when it was found in order, until that is said to who comes next.
    unsaid: Option<Stamp>,
}

/// When a check that failed is made again.
#[derive(Clone, Copy, Debug)]
struct NextCheck {
    at: Instant,
    wait: Duration,
}

impl NextCheck {
    fn after(before: Option<Self>) -> Self {
        let wait = before.map_or(CHECK_WAIT, |before| (before.wait * 2).min(CHECK_WAIT_MAX));
        Self { at: Instant::now() + wait, wait }
    }
}

impl Opened {
    pub(super) fn new(store: &Arc<Store>) -> Self {
        Self {
            has_lost_lock: false,
            beside: None,
            next_check: None,
            seen: None,
            store: Arc::downgrade(store),
            unsaid: None,
        }
    }

    /// The store, while anybody uses it.
    pub(super) fn store(&self) -> Option<Arc<Store>> {
        self.store.upgrade()
    }

    /// Notes how the file looked of which it is known whether it is in order.
    pub(super) fn note_judged(&mut self, stamp: Stamp) {
        (self.seen, self.next_check) = (Some(stamp), None);
    }

    /// Notes that another process read it when it looked like `stamp`, and found it in order.
    pub(super) fn note_examined(&mut self, stamp: Stamp) {
        self.unsaid = Some(stamp);
    }

    /// Begins to have the file, which looks like `stamp`, examined while it is served, behind other
    /// work of this machine. Where that cannot be, the next start examines it first.
    pub(super) fn examine_beside(&mut self, store: &Store, stamp: Stamp) {
        let Ok(examination) = Examination::begin(store.path()) else { return };
        examination.yield_to_others();
        let waits = thread::Builder::new().name("examination-wait".into());
        self.beside = waits.spawn(|| examination.wait()).ok().map(|waits| (stamp, waits));
    }

    /// Whether it is open, and nobody but Sealane changed it since it was found in order.
    pub(super) fn is_in_order(&self) -> bool {
        let store = self.store().filter(|store| !store.is_withdrawn());
        store.is_some_and(|store| match store.look() {
            Ok(Some(look)) => look.is_open_file && (look.is_ours || self.seen == Some(look.stamp)),
            // A process of Sealane's is changing it.
            Ok(None) => true,
            Err(_) => false,
        })
    }

    /// Looks at the file from outside. One that was not changed by Sealane is examined by another
    /// process, and withdrawn if it is damaged, or older than `known`. Returns what an operator
    /// should know.
    pub(super) fn look_after(&mut self, known: &mut u64) -> Option<String> {
        let store = self.store()?;
        // Whoever takes the file away puts another there, or the next reload says that there is
        // none.
        let look = store.look().ok()??;
        if look.is_open_file && !look.has_its_lock {
            let is_new = !std::mem::replace(&mut self.has_lost_lock, true);
            return is_new.then(|| lose_lock(&store));
        }
        // What was found of it before somebody else changed it says nothing.
        if let Some((stamp, beside)) = self.beside.take_if(|(_, beside)| beside.is_finished())
            && let Ok(examined) = beside.join()
            && look.is_open_file
            && look.is_ours
        {
            self.unsaid = examined.is_ok().then_some(stamp);
            return match examined {
                Err(refused @ Refused::Unknown { .. }) => Some(format!(
                    "a certificate store is served, and the next start examines it first, because \
                     this one could not: {refused}"
                )),
                examined => self.judge(&store, look, examined, known),
            };
        }
        if self.seen == Some(look.stamp) {
            self.vouch(&store);
            return None;
        }
        if look.is_open_file && look.is_ours && !store.is_withdrawn() {
            *known = store.generation().map_or(*known, |now| now.max(*known));
            self.note_judged(look.stamp);
            self.vouch(&store);
            return None;
        }
        let was_withdrawn = store.is_withdrawn();
        if look.is_open_file && !look.is_whole {
            store.withdraw(true);
        }
        let is_cut_now = store.is_withdrawn() && !was_withdrawn;
        if !is_cut_now && self.next_check.is_some_and(|next| Instant::now() < next.at) {
            return None;
        }
        match look.is_open_file {
            true => self.check(&store, look, known).or_else(|| is_cut_now.then(|| cut(&store))),
            false => self.check_another(&store, look),
        }
    }

    /// Lets the next process that serves from it do so at once.
    fn vouch(&mut self, store: &Store) {
        // Said once: another process that serves may have taken it back since. Where it cannot be
        // said, the next one examines it first.
        if let Some(stamp) = self.unsaid.filter(|_| !store.is_withdrawn())
            && !matches!(store.vouch(stamp), Ok(false))
        {
            self.unsaid = None;
        }
    }

    /// Checks the file that is open.
    fn check(&mut self, store: &Store, look: Look, known: &mut u64) -> Option<String> {
        // What is found of an earlier state says nothing of this one.
        self.beside = None;
        let examined = examine_apart(store.path());
        self.unsaid = examined.is_ok().then_some(look.stamp);
        self.judge(store, look, examined, known)
    }

    /// Serves from the file that is open or not, by what was found at its path.
    fn judge(
        &mut self,
        store: &Store,
        look: Look,
        examined: Result<(), Refused>,
        known: &mut u64,
    ) -> Option<String> {
        // It is another file's fault or merit, if one took its place meanwhile. The next look is at
        // that one.
        let now = Stamp::of(&store.path().join(DATA_FILE));
        if !now.is_ok_and(|now| now.file == look.stamp.file) {
            return None;
        }
        let path = store.path().display();
        let was_withdrawn = store.is_withdrawn();
        let checked = examined
            .map_err(StoreRefused::from)
            .and_then(|()| Ok(take_into_service(store, known)?));
        let failed_before = self.next_check;
        match checked {
            Err(StoreRefused::Examined(refused @ Refused::Unknown { .. })) => {
                self.next_check = Some(NextCheck::after(failed_before));
                failed_before.is_none().then(|| {
                    let served = match store.is_withdrawn() {
                        true => "nothing is served from it",
                        false => "it is served on",
                    };
                    format!(
                        "somebody else than Sealane changed a certificate store, and until it is \
                         known whether it is in order {served}: {refused}"
                    )
                })
            }
            Err(refused) => {
                store.withdraw(true);
                self.note_judged(look.stamp);
                Some(format!(
                    "somebody else than Sealane changed a certificate store, and nothing is \
                     served from it until it is in order; its listeners serve their files: \
                     {refused}"
                ))
            }
            Ok(()) => {
                self.note_judged(look.stamp);
                match (was_withdrawn, failed_before) {
                    (true, _) => Some(format!("{path}: in order again, and served")),
                    (false, Some(_)) => Some(format!("{path}: checked now, and in order")),
                    (false, None) => None,
                }
            }
        }
    }

    /// Checks the file that took the place of the one that is open, for the operator's sake.
    fn check_another(&mut self, store: &Store, look: Look) -> Option<String> {
        let failed_before = self.next_check;
        let found = match examine_apart(store.path()) {
            Err(refused @ Refused::Unknown { .. }) => {
                self.next_check = Some(NextCheck::after(failed_before));
                if failed_before.is_some() {
                    return None;
                }
                refused.to_string()
            }
            Err(refused) => {
                self.note_judged(look.stamp);
                refused.to_string()
            }
            Ok(()) => {
                self.note_judged(look.stamp);
                "in order".to_owned()
            }
        };
        let served = match store.is_withdrawn() {
            true => "nothing is served from either",
            false => {
                "the one that was there before is served on, and changes of the new one are not"
            }
        };
        Some(format!(
            "{}: another file took the place of the store ({found}); {served}: restart Sealane",
            store.path().display()
        ))
    }
}

/// What an operator should know of a store that needed no check to be withdrawn.
fn cut(store: &Store) -> String {
    format!(
        "{}: cut short, or overwritten at its beginning; nothing is served from it until it is in \
         order, and its listeners serve their files",
        store.path().display()
    )
}

/// Serves nothing more from a store whose lock file is not what it was; returns what an operator
/// should know.
fn lose_lock(store: &Store) -> String {
    let lost = StoreError::LockLost { path: store.path().into() };
    match store.lose_lock() {
        Ok(()) => format!("nothing is served from a certificate store: {lost}"),
        Err(error) => format!("nothing is served from a certificate store: {lost}; {error}"),
    }
}

/// Serves from a store that was found in order, unless it has seen less than `known` changes.
///
/// # Errors
/// It has, or its lock file is another one, or it cannot be read; then it is served no more than
/// before.
pub(super) fn take_into_service(store: &Store, known: &mut u64) -> Result<(), StoreError> {
    if store.look()?.is_some_and(|look| !look.has_its_lock) {
        return Err(StoreError::LockLost { path: store.path().into() });
    }
    store.refuse_older_than(*known)?;
    *known = store.generation_if_in_order()?;
    store.withdraw(false);
    Ok(())
}

/// From a check that failed to the next one; each further one waits twice as long.
const CHECK_WAIT: Duration = Duration::from_secs(1);
const CHECK_WAIT_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use rustix::fs::{FlockOperation, flock};
    use sealane_store::STATE_FILE;
    use tempfile::TempDir;

    use super::*;

    fn store() -> (TempDir, Arc<Store>) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(&folder.path().join("store")).unwrap();
        wait_until_unlocked(&store);
        (folder, Arc::new(store))
    }

    /// A change of Sealane's, as each of its commands makes it.
    fn change(store: &Store) {
        store.remove(&[], 0).unwrap();
        wait_until_unlocked(store);
    }

    /// A process that another test begins has the writer's lock too, until it runs its program.
    fn wait_until_unlocked(store: &Store) {
        while store.look().unwrap().is_none() {
            thread::yield_now();
        }
    }

    #[test]
    fn each_check_that_fails_waits_twice_as_long_as_the_one_before_up_to_a_minute() {
        let (mut last, mut waits_s) = (None, Vec::new());
        for _ in 0..8 {
            let now = Instant::now();
            let next = NextCheck::after(last);
            assert!(next.at >= now + next.wait);
            waits_s.push(next.wait.as_secs());
            last = Some(next);
        }
        assert_eq!(waits_s, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    fn in_a_minute() -> Option<NextCheck> {
        Some(NextCheck { at: Instant::now() + CHECK_WAIT_MAX, wait: CHECK_WAIT_MAX })
    }

    #[test]
    fn no_check_is_made_before_its_time() {
        let (_folder, store) = store();
        fs::remove_file(store.path().join(STATE_FILE)).unwrap();
        let mut opened = Opened::new(&store);
        opened.next_check = in_a_minute();
        let at = opened.next_check.map(|next| next.at);
        assert_eq!(opened.look_after(&mut 0), None);
        assert_eq!(opened.next_check.map(|next| next.at), at);
    }

    #[test]
    fn what_was_withdrawn_waits_for_its_check_whoever_changed_it() {
        let (_folder, store) = store();
        change(&store);
        store.withdraw(true);
        let mut opened = Opened::new(&store);
        opened.next_check = in_a_minute();
        assert_eq!(opened.look_after(&mut 0), None);
        assert!(opened.next_check.is_some() && opened.seen.is_none());
    }

    #[test]
    fn what_sealane_changed_is_in_order_and_counts() {
        let (_folder, store) = store();
        let mut opened = Opened::new(&store);
        opened.next_check = in_a_minute();
        change(&store);
        assert!(opened.is_in_order());
        let mut known = 0;
        assert_eq!(opened.look_after(&mut known), None);
        assert_eq!((known, opened.next_check.is_none()), (1, true));
        change(&store);
        known = 9;
        assert_eq!(opened.look_after(&mut known), None);
        assert_eq!(known, 9);
        // The folder no longer tells whose change it was, but the file is as it was judged.
        fs::remove_file(store.path().join(STATE_FILE)).unwrap();
        assert!(opened.is_in_order());
        assert!(!Opened::new(&store).is_in_order());
    }

    #[test]
    fn what_a_process_of_sealanes_is_changing_is_in_order() {
        let (_folder, store) = store();
        fs::remove_file(store.path().join(STATE_FILE)).unwrap();
        let lock = File::open(store.path()).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        assert!(Opened::new(&store).is_in_order());
    }

    /// Puts a copy that Sealane has changed in the place of the store.
    fn replace(store: &Store, folder: &TempDir) {
        let [copy, before] = ["copy", "before"].map(|name| folder.path().join(name));
        fs::create_dir(&copy).unwrap();
        fs::copy(store.path().join(DATA_FILE), copy.join(DATA_FILE)).unwrap();
        change(&Store::open(&copy).unwrap());
        fs::rename(store.path(), before).unwrap();
        fs::rename(copy, store.path()).unwrap();
    }

    #[test]
    fn another_file_is_not_the_one_that_is_in_order() {
        let (folder, store) = store();
        replace(&store, &folder);
        assert!(store.look().unwrap().is_some_and(|look| look.is_ours));
        assert!(!Opened::new(&store).is_in_order());
    }

    #[test]
    fn what_is_found_of_another_file_changes_nothing() {
        let (folder, store) = store();
        let look = store.look().unwrap().unwrap();
        replace(&store, &folder);
        let mut opened = Opened::new(&store);
        let refused = Err(Refused::Said("damaged".into()));
        assert_eq!(opened.judge(&store, look, refused, &mut 0), None);
        assert!(!store.is_withdrawn());
        store.withdraw(true);
        assert_eq!(opened.judge(&store, look, Ok(()), &mut 0), None);
        assert!(store.is_withdrawn() && opened.seen.is_none());
    }
}
