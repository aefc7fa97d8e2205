//! What the fleet has, in this machine's store: [`Replica`].
//!
//! Of certificates and of words of removed names what was put last holds, so it does not matter in
//! which order machines hear of them, how often, or what a store was put back from: each ends up
//! with the same.

mod offers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealane_engine::certificates::Certificate;
use sealane_store::{AHEAD_S_MAX, FLEET_CLUSTER, KeptChange, Removal};
use tracing::warn;
use zeroize::Zeroizing;

use super::entries;
use super::member::Fleet;
use super::sealed::{self, OpenError, Opened, Rank};
use super::status::Reported;
use crate::clock::now_s;
use crate::etcd::{Change, Entry, EtcdError, PAGE, Seen, Watch};
use crate::failure::plain;

/// The names of a certificate.
pub(super) type Names = Vec<String>;

/// A view of the cluster that is kept up to date, by place.
pub(super) struct Replica<'f> {
    /// The revisions of challenge answers that this machine has and has not reported.
    answers: BTreeSet<i64>,
    fleet: &'f Fleet,
    /// When this machine wrote a heartbeat that its watch has not reported yet.
    heartbeat: Option<Instant>,
    /// The cluster, once it is known to be the one that this store was filled from.
    cluster: Option<String>,
    /// What this process has deleted of the cluster, because nobody serves it: each but once, so
    /// that machines which disagree do not go on for ever.
    deleted: HashSet<String>,
    /// What is in the cluster and better than what is here, and was looked at: at which revision.
    judged: HashMap<String, i64>,
    /// What is in the cluster: the revision at which it was put there, and which one it is.
    known: HashMap<String, (i64, Rank)>,
    /// The best certificates that this machine's store has.
    local: HashMap<String, Rank>,
    /// Since when this machine has not followed, while it lists: whatever was imported since then
    /// was put later than what it finds.
    listed_since_s: Option<i64>,
    /// Whether the store may lack something that is in the cluster.
    may_lack: bool,
    /// Whether something may be better here than in the cluster.
    may_offer: bool,
    /// The revision up to which a watch has to have told all, by the last look behind it.
    owed: i64,
    /// Certificates of the cluster that are served for no name, words that count no more, and at
    /// which revision each is there.
    over: HashMap<String, i64>,
    /// The words of removed names that this machine's store has.
    removals: HashMap<String, Removal>,
    reported: Reported,
    /// What this process has put again because an older sealing key had sealed it.
    resealed: HashSet<String>,
    /// The revision up to which everything is here.
    revision: i64,
    /// Entries of the cluster that an older sealing key has sealed.
    to_reseal: HashSet<String>,
    /// The version of the store that was looked through, when, and how long that took.
    scanned: Option<(u64, Instant, Duration)>,
    /// How long its watch may be silent before this machine writes a heartbeat. It differs between
    /// machines, so that of many with nothing to hear few write one.
    patience: Duration,
    /// What is larger than the cluster takes.
    too_large: HashSet<String>,
}

impl<'f> Replica<'f> {
    /// Takes all that is in the cluster, page by page, as it is at one revision.
    ///
    /// # Errors
    /// The cluster does not answer as it should.
    pub(super) async fn listed(
        fleet: &'f Fleet,
        changed: &impl Fn(Vec<Names>),
    ) -> Result<Self, EtcdError> {
        let mut replica = Self {
            answers: BTreeSet::new(),
            fleet,
            heartbeat: None,
            cluster: None,
            deleted: HashSet::new(),
            judged: HashMap::new(),
            known: HashMap::new(),
            listed_since_s: fleet
                .store
                .store()
                .behind_since()
                .map_err(|error| EtcdError::ours(&error.to_string()))?,
            local: HashMap::new(),
            may_lack: false,
            may_offer: true,
            owed: 0,
            over: HashMap::new(),
            removals: HashMap::new(),
            reported: Reported::default(),
            resealed: HashSet::new(),
            to_reseal: HashSet::new(),
            revision: 0,
            scanned: None,
            patience: HEARTBEAT_AFTER.mul_f64(1.0 + fastrand::f64() / 5.0),
            too_large: HashSet::new(),
        };
        replica.scan().await?;
        fleet.machines.borrow_mut().clear();
        replica.take_all(&fleet.places.machines(), changed).await?;
        // Removed names first, so that nothing is served for one meanwhile.
        replica.take_all(&fleet.places.removals(), changed).await?;
        replica.take_all(&fleet.places.certificates(), changed).await?;
        let entries = replica.take_all(&fleet.places.entries(), changed).await?;
        entries::drop_answers(fleet, &entries)?;
        fleet.seen.set(replica.revision);
        replica.listed_since_s = None;
        Ok(replica)
    }

    /// Follows what happens, until something is wrong with the cluster. Calls `well` once it has
    /// taken what is put there, too: one that is full can still be read.
    pub(super) async fn follow(
        &mut self,
        changed: &impl Fn(Vec<Names>),
        well: impl FnOnce(),
    ) -> EtcdError {
        let mut watch = match self.watch().await {
            Ok(watch) => watch,
            Err(error) => return error,
        };
        let mut well = Some(well);
        loop {
            if let Err(error) = self.turn(&mut watch, changed).await {
                return error;
            }
            if let Some(well) = well.take() {
                well();
            }
        }
    }

    /// All that changes from now on.
    async fn watch(&self) -> Result<Watch, EtcdError> {
        let (first, end) = self.fleet.places.watched();
        self.fleet.etcd.watch((&first, &end), self.revision.saturating_add(1)).await
    }

    /// Writes a heartbeat if the watch is silent. If nothing comes even then, the server may hang:
    /// goes on at another one, from where this one was.
    async fn mind_silence(&mut self, watch: &mut Watch) -> Result<(), EtcdError> {
        let silence = watch.silence();
        if silence < self.patience {
            self.heartbeat = None;
            return Ok(());
        }
        let is_taken = match self.heartbeat {
            Some(_) => true,
            None => {
                self.heartbeat = Some(Instant::now());
                let place = self.fleet.places.heartbeat();
                let machine = self.fleet.settings.machine.as_bytes();
                let put = [Change::Put(&place, machine, 0)];
                let put = self.fleet.etcd.change(&put);
                tokio::time::timeout(HEARTBEAT_WAIT, put).await.is_ok()
            }
        };
        if !is_taken || silence > ELSEWHERE_AFTER {
            let text = format!("fleet: etcd {} {MOVED}", watch.endpoint());
            warn!("{text}");
            self.fleet.etcd.avoid(watch.endpoint());
            *watch = self.watch().await?;
            self.heartbeat = None;
        }
        Ok(())
    }

    async fn turn(
        &mut self,
        watch: &mut Watch,
        changed: &impl Fn(Vec<Names>),
    ) -> Result<(), EtcdError> {
        let (mut events, mut wait) = (HashMap::new(), TICK);
        let until = Instant::now() + 2 * TICK;
        // All that has come by now, for one transaction; a key that changes without a pause has no
        // end of it.
        while events.len() < PAGE
            && Instant::now() < until
            && let Ok(seen) = tokio::time::timeout(wait, watch.next()).await
        {
            match seen? {
                Seen::Compacted => return Err(EtcdError::ours("what changed was compacted away")),
                Seen::Changes { events: more, revision } => {
                    // Of several changes of a key, the last one holds.
                    events.extend(more);
                    self.revision = self.revision.max(revision);
                }
            }
            wait = DRAIN;
        }
        let is_news = !events.is_empty();
        let (mut put, mut deleted) = (Vec::new(), Vec::new());
        for (key, event) in events {
            match event {
                Some(entry) => put.push(entry),
                None => deleted.push(key),
            }
        }
        self.take(put, deleted, changed)?;
        if is_news {
            self.fleet.seen.set(self.revision);
        }
        self.mind_silence(watch).await?;
        self.offer_changes(changed).await?;
        let certificates = self.local.len();
        self.reported.renew(self.fleet, certificates, &mut self.answers).await?;
        self.fleet.look_at_clocks().await?;
        self.look_behind().await
    }

    /// Takes what is below `prefix`, the first page as it is now and the others as it was then, and
    /// returns its keys.
    async fn take_all(
        &mut self,
        prefix: &str,
        changed: &impl Fn(Vec<Names>),
    ) -> Result<HashSet<String>, EtcdError> {
        let mut after: Option<String> = None;
        let mut keys = HashSet::new();
        loop {
            let page = self.fleet.etcd.page(prefix, after.as_deref(), self.revision).await?;
            if self.revision == 0 {
                self.revision = page.revision;
                self.note_cluster(&page.cluster)?;
            }
            after = page.entries.last().map(|entry| entry.key.clone());
            keys.extend(page.entries.iter().map(|entry| entry.key.clone()));
            self.take(page.entries, Vec::new(), changed)?;
            if !page.has_more || after.is_none() {
                return Ok(keys);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Takes what was put in the cluster, in one transaction.
    fn take(
        &mut self,
        put: Vec<Entry>,
        deleted: Vec<String>,
        changed: &impl Fn(Vec<Names>),
    ) -> Result<(), EtcdError> {
        let (mut certificates, mut words) = (Vec::new(), Vec::new());
        let mut entries: Vec<(String, Option<Zeroizing<Vec<u8>>>)> = Vec::new();
        let Fleet { places, .. } = self.fleet;
        let (of_certificates, of_removals) = (places.certificates(), places.removals());
        let (below, machines) = (places.entries(), places.machines());
        for entry in put {
            if entry.key.starts_with(&of_certificates) {
                certificates.extend(self.certificate(&entry));
            } else if entry.key.starts_with(&of_removals) {
                words.extend(self.removal(&entry));
            } else if let Some(machine) = entry.key.strip_prefix(&machines) {
                self.fleet.note_machine(machine, true);
            } else if let Some(name) = entry.key.strip_prefix(&below) {
                // Also one that no key of this machine opens: orders do not wait for it.
                if entries::is_answer(name) {
                    self.answers.insert(entry.mod_revision);
                }
                match entries::taken(self.fleet, name, &entry) {
                    Ok(Some(value)) => {
                        self.note_seal(name, &entry);
                        entries.push((name.to_owned(), Some(value)));
                    }
                    Ok(None) => {}
                    Err(error) => self.refuse(&entry.key, &error.to_string()),
                }
            }
        }
        for key in deleted {
            if let Some(machine) = key.strip_prefix(&machines) {
                self.fleet.note_machine(machine, false);
                self.fleet.clocks.note(machine, None);
                if machine == self.fleet.settings.machine {
                    self.reported.note_deleted();
                }
            }
            self.known.remove(&key);
            self.over.remove(&key);
            self.to_reseal.remove(&key);
            // Whoever deletes need not have the sealing key: what is made anew goes, a certificate
            // is put back, and an account or a root stays here.
            match key.strip_prefix(&below).filter(|name| entries::is_passing(name)) {
                Some(name) => entries.push((name.to_owned(), None)),
                None => self.may_offer |= self.here(&key).is_some(),
            }
        }
        self.store(certificates, words, &entries, changed)
    }

    fn store(
        &mut self,
        certificates: Vec<(String, Rank, Arc<Certificate>)>,
        words: Vec<(String, Removal)>,
        entries: &[(String, Option<Zeroizing<Vec<u8>>>)],
        changed: &impl Fn(Vec<Names>),
    ) -> Result<(), EtcdError> {
        if certificates.is_empty() && entries.is_empty() && words.is_empty() {
            return Ok(());
        }
        let taken: Vec<(Arc<Certificate>, i64)> = certificates
            .iter()
            .map(|(_, rank, certificate)| (Arc::clone(certificate), rank.put_s))
            .collect();
        let removals: Vec<Removal> = words.iter().map(|(_, word)| word.clone()).collect();
        let upto = self.cluster.as_deref().map(|cluster| format!("{cluster} {}", self.revision));
        let changes: Vec<KeptChange<'_>> = entries
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_ref().map(|value| value.as_slice())))
            .chain(upto.as_ref().map(|upto| (FLEET_CLUSTER, Some(upto.as_bytes()))))
            .collect();
        let unserved = self.fleet.store.take_over(&taken, &removals, &changes);
        let unserved: HashSet<[u8; 32]> = unserved
            .map_err(|error| EtcdError::ours(&error.to_string()))?
            .into_iter()
            .map(|digest| digest.0)
            .collect();
        for (place, rank, _) in certificates {
            match unserved.contains(&rank.digest) {
                true => {
                    let at = self.known.get(&place).map_or(0, |(at, _)| *at);
                    self.over.insert(place, at);
                }
                false => {
                    self.judged.remove(&place);
                    self.local.insert(place, rank);
                }
            }
        }
        for (place, word) in words {
            self.judged.remove(&place);
            self.removals.insert(place, word);
        }
        if !taken.is_empty() {
            let names = |(one, _): &(Arc<Certificate>, i64)| {
                one.names().iter().map(ToString::to_string).collect()
            };
            changed(taken.iter().map(names).collect());
        }
        Ok(())
    }

    /// Notes an entry that is to be sealed anew, once in this process: a machine that has another
    /// key first would seal it with that one again.
    fn note_seal(&mut self, name: &str, entry: &Entry) {
        let is_current = self.fleet.keys.is_current(&entry.value);
        let was_resealed = self.resealed.contains(&entry.key);
        if !is_current && !was_resealed && entries::is_to_be_resealed(name) {
            self.to_reseal.insert(entry.key.clone());
        } else {
            self.to_reseal.remove(&entry.key);
        }
    }

    /// The certificate of an entry, if this machine has none as good.
    fn certificate(&mut self, entry: &Entry) -> Option<(String, Rank, Arc<Certificate>)> {
        let Fleet { keys, places, provider, .. } = self.fleet;
        let opened = Opened::new(&entry.key, &entry.value, keys);
        let opened = self.better(entry, opened, |opened| opened.rank)?;
        match opened.certificate(&entry.key, places, provider, now_s()) {
            Ok(certificate) => Some((entry.key.clone(), opened.rank, certificate)),
            // Another machine serves it.
            Err(error) => {
                self.refuse(&entry.key, &error.to_string());
                None
            }
        }
    }

    /// The word of an entry, if this machine has none as late, and it counts still.
    fn removal(&mut self, entry: &Entry) -> Option<(String, Removal)> {
        let Fleet { keys, places, .. } = self.fleet;
        let word = sealed::removal(&entry.key, &entry.value, places, keys).and_then(|word| {
            match word.at_s > now_s().saturating_add(AHEAD_S_MAX) {
                true => Err(OpenError::Unusable(AHEAD.into())),
                false => Ok(word),
            }
        });
        let word = self.better(entry, word, Rank::of_removal)?;
        if word.until_s < now_s() {
            self.over.insert(entry.key.clone(), entry.mod_revision);
            return None;
        }
        Some((entry.key.clone(), word))
    }

    /// Notes what is at a place of the cluster, and returns it if it is better than what is here.
    fn better<T>(
        &mut self,
        entry: &Entry,
        opened: Result<T, OpenError>,
        rank_of: impl Fn(&T) -> Rank,
    ) -> Option<T> {
        let (place, here) = (entry.key.clone(), self.here(&entry.key));
        let (known, better) = match opened {
            Ok(one) => {
                let rank = rank_of(&one);
                let is_to_be_resealed = here == Some(rank)
                    && !self.fleet.keys.is_current(&entry.value)
                    && self.resealed.insert(place.clone());
                let known = if is_to_be_resealed { Rank::LEAST } else { rank };
                (known, (here < Some(rank)).then_some(one))
            }
            // What another key opens, or another version wrote, may be better than anything that is
            // here now; what nobody of ours wrote is not.
            Err(error) => {
                self.refuse(&place, &error.to_string());
                let known = match error.may_be_ours() {
                    true => Rank::of_what_is_unknown(self.listed_since_s.unwrap_or_else(now_s)),
                    false => Rank::LEAST,
                };
                (known, None)
            }
        };
        self.may_offer |= here > Some(known);
        // What is as good here may be lost again.
        match here < Some(known) {
            true => drop(self.judged.insert(place.clone(), entry.mod_revision)),
            false => drop(self.judged.remove(&place)),
        }
        self.known.insert(place, (entry.mod_revision, known));
        better
    }

    /// What this machine's store has at a place.
    fn here(&self, place: &str) -> Option<Rank> {
        let word = || self.removals.get(place).map(Rank::of_removal);
        self.local.get(place).copied().or_else(word)
    }

    fn refuse(&self, place: &str, what: &str) {
        self.reported.refused.set(self.reported.refused.get() + 1);
        if self.reported.refused.get() <= REFUSED_TOLD_MAX {
            let place = plain(place);
            warn!("fleet: {place}: not taken: {what}");
        }
    }

    /// Asks now and then whether something was changed that no watch has told of.
    async fn look_behind(&mut self) -> Result<(), EtcdError> {
        if self.reported.looked.elapsed() < LOOK_BEHIND {
            return Ok(());
        }
        self.reported.looked = Instant::now();
        let Fleet { etcd, places, .. } = self.fleet;
        let (missed, page) = etcd.changed_since(&places.certificates(), self.revision).await?;
        self.note_cluster(&page.cluster)?;
        // What is under way now, its own puts among it, has come by the next look.
        let owed = std::mem::replace(&mut self.owed, if missed > 0 { page.revision } else { 0 });
        if self.revision < owed || page.revision < self.revision {
            return Err(EtcdError::ours("the watch has missed something; all is listed again"));
        }
        Ok(())
    }

    /// Tells if this is another cluster than the one that this store was filled from, or the same
    /// one set back to an older state.
    fn note_cluster(&mut self, cluster: &str) -> Result<(), EtcdError> {
        let store = &self.fleet.store;
        let before =
            store.kept(FLEET_CLUSTER).map_err(|error| EtcdError::ours(&error.to_string()))?;
        let before = before.map(|text| String::from_utf8_lossy(&text).into_owned());
        let (before, written) = before
            .as_deref()
            .and_then(|text| text.split_once(' '))
            .map_or((None, 0), |(id, at)| (Some(id), at.parse::<i64>().unwrap_or(0)));
        // What the process has seen since it wrote that counts too.
        let at = written.max(self.fleet.seen.get());
        let warning = match before {
            Some(id) if id != cluster => Some(format!(
                "this is another cluster than before ({cluster}, not {id}): what it lacks is put \
                 there from this machine's store; if that is not meant, stop this agent and mend \
                 [fleet] etcd"
            )),
            Some(_) if self.revision < at => Some(format!(
                "the cluster was set back, from revision {at} to {}, as by a restored snapshot: \
                 what it lacks is put there from this machine's store",
                self.revision
            )),
            _ => None,
        };
        if let Some(warning) = warning {
            warn!("fleet: {warning}");
        }
        self.cluster = Some(cluster.to_owned());
        let text = format!("{cluster} {}", self.revision);
        let kept = store.keep(&[], 0, &[(FLEET_CLUSTER, Some(text.as_bytes()))]);
        kept.map(drop).map_err(|error| EtcdError::ours(&error.to_string()))
    }
}

/// How long a watch may be silent before it is opened at another server.
const ELSEWHERE_AFTER: Duration = Duration::from_secs(15);
/// How long a watch may be silent before a machine writes a heartbeat; a fifth longer on some.
const HEARTBEAT_AFTER: Duration = Duration::from_secs(10);
/// How long etcd has to take a heartbeat; a hanging server takes none.
const HEARTBEAT_WAIT: Duration = Duration::from_secs(2);
const MOVED: &str = "is silent; the watch goes on at another server";
/// How long more of what was changed is waited for.
const DRAIN: Duration = Duration::from_millis(10);
/// Why a word of removal is not taken.
const AHEAD: &str =
    "its time is more than a day ahead of this machine's clock; set the clocks right";
/// How often it is asked what no watch has told of.
const LOOK_BEHIND: Duration = Duration::from_secs(300);
/// Certificates and entries that are not taken, of which it is told one by one.
const REFUSED_TOLD_MAX: u64 = 100;
/// How often the store is looked at for changes.
const TICK: Duration = Duration::from_secs(1);
