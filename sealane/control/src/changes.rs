//! Changes on disk since the configuration and its materials were read: [`DiskChanges`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use sealane_config::Config;
use sealane_listeners::{Fault, Summary};
use sealane_operator::timestamp::Timestamp;
use tracing::warn;

use crate::state::Faults;
use crate::watch::{FileWatch, fingerprint, fingerprint_of_materials, unfollowed};

/// Watches what a configuration names, and compares it with its state when it was read.
pub(super) struct DiskChanges {
    watch: FileWatch,
    /// Hints that are not followed up yet.
    hints: Option<Hints>,
    fingerprint: u64,
    /// The same of the materials that are served.
    materials: u64,
    /// When the revocation lists were read last.
    lists_read_at: SystemTime,
    /// Faulty materials that the fingerprint does not cover, as they looked when they were read.
    faulty: BTreeMap<PathBuf, u64>,
    /// Whether a store has changed since its fault was found.
    has_store_news: bool,
    /// When faulty materials were looked at last.
    looked_at_faulty: Instant,
}

impl DiskChanges {
    /// Compares with the state of `config`, read from `file`, as it is now.
    pub(super) fn new(watch: FileWatch, file: Option<&Path>, config: &Config) -> Self {
        Self {
            watch,
            hints: None,
            fingerprint: fingerprint(file, config),
            materials: fingerprint_of_materials(config),
            lists_read_at: SystemTime::now(),
            faulty: BTreeMap::new(),
            has_store_news: false,
            looked_at_faulty: Instant::now(),
        }
    }

    /// Everything that `config` names is read from now on.
    pub(super) fn begin_read(&mut self, file: Option<&Path>, config: &Config) {
        self.fingerprint = fingerprint(file, config);
        self.lists_read_at = SystemTime::now();
    }

    /// What had the fingerprint `seen` was read, and is served.
    pub(super) fn end_read(&mut self, seen: u64) {
        self.fingerprint = seen;
    }

    /// Whether the materials of `config` are those that are served.
    pub(super) fn has_same_materials(&self, config: &Config) -> bool {
        fingerprint_of_materials(config) == self.materials
    }

    /// The materials with this fingerprint are served.
    pub(super) fn serve_materials(&mut self, materials: u64) {
        self.materials = materials;
    }

    /// Something may have changed.
    pub(super) fn hint(&mut self) {
        Hints::note(&mut self.hints);
    }

    /// The time until hints are followed up, if there are any.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.hints.as_ref().map(Hints::wait)
    }

    /// Whether hints are to be followed up now; then there are none left.
    pub(super) fn take_due(&mut self) -> bool {
        self.hints.take_if(|hints| hints.is_due()).is_some()
    }

    /// A store has changed that had a fault.
    pub(super) fn note_store_news(&mut self) {
        self.has_store_news = true;
    }

    /// Notes which materials are faulty now, and how they looked `before` they were read.
    pub(super) fn note_faulty(&mut self, before: &BTreeMap<PathBuf, u64>, faults: &Faults) {
        // A store that is open is looked after without a reload.
        let is_unkept = |fault: &Fault| fault.without.is_some();
        let is_faulty = |path: &PathBuf| {
            faults.shown.iter().any(|fault| fault.path == *path && is_unkept(fault))
        };
        let faulty = before.iter().filter(|(path, _)| is_faulty(path));
        self.faulty = faulty.map(|(path, look)| (path.clone(), *look)).collect();
        self.looked_at_faulty = Instant::now();
        self.has_store_news = false;
    }

    /// Whether it is time to look for changes that no watch reports, such as of rights; there is
    /// something to look at if there are faults.
    pub(super) fn is_to_look(&mut self, has_faults: impl FnOnce() -> bool) -> bool {
        if self.has_store_news {
            return true;
        }
        if self.looked_at_faulty.elapsed() < LOOK_INTERVAL {
            return false;
        }
        self.looked_at_faulty = Instant::now();
        has_faults()
    }

    /// Whether a file on disk has changed since it was read.
    pub(super) fn has_changed(&self, file: Option<&Path>, config: &Config) -> bool {
        let now = unfollowed(config);
        self.has_store_news
            || self.faulty.iter().any(|(path, look)| now.get(path) != Some(look))
            || fingerprint(file, config) != self.fingerprint
    }

    /// Whether a revocation list with a date in the future when it was read is now in force: then
    /// lanes have to check their connections again.
    pub(super) fn has_list_begun(&self, listeners: &[Summary]) -> bool {
        let read_at = Timestamp::from(self.lists_read_at);
        let now = Timestamp::from(SystemTime::now());
        let clients = listeners.iter().filter_map(|listener| listener.clients.as_ref());
        clients.flat_map(|clients| &clients.lists).any(|list| {
            let begins = Timestamp::from_unix_s(list.this_update_s);
            read_at < begins && begins <= now
        })
    }

    /// Watches what `config` names from now on, and logs folders that cannot be watched.
    pub(super) fn follow(&mut self, file: Option<&Path>, config: &Config) {
        if !config.watch {
            return;
        }
        let faulty = self.faulty.keys().cloned().collect();
        let problems = self.watch.follow(file, config, faulty);
        for problem in problems.iter().take(UNWATCHED_SHOWN_MAX) {
            let text = format!("{problem}; a change there is noticed only at SIGHUP");
            warn!("{text}");
        }
        if let Some(more) = problems.len().checked_sub(UNWATCHED_SHOWN_MAX + 1) {
            let text = format!(
                "… and {} more folders; the limit is fs.inotify.max_user_watches",
                more + 1
            );
            warn!("{text}");
        }
    }
}

/// Hints of changes, which wait until files are complete.
struct Hints {
    first: Instant,
    last: Instant,
}

impl Hints {
    fn note(hints: &mut Option<Self>) {
        let now = Instant::now();
        match hints {
            Some(hints) => hints.last = now,
            None => *hints = Some(Self { first: now, last: now }),
        }
    }

    fn due(&self) -> Instant {
        (self.last + DEBOUNCE).min(self.first + DEBOUNCE_MAX)
    }

    fn is_due(&self) -> bool {
        self.due() <= Instant::now()
    }

    fn wait(&self) -> Duration {
        self.due().saturating_duration_since(Instant::now())
    }
}

/// How long files must be quiet before they are read: editors and hooks write in several steps.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// The longest that a steady stream of changes can put off a reload.
const DEBOUNCE_MAX: Duration = Duration::from_secs(2);

/// How often faulty materials are looked at without a hint.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Folders that cannot be watched, and are named.
const UNWATCHED_SHOWN_MAX: usize = 5;
