//! What the fleet has, in this machine's store, and the other way round: [`Replica`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealane_engine::certificates::{Certificate, CertificateDigest, CertificateStore as _};
use sealane_operator::{Priority, say_at};
use sealane_store::{KeptChange, Listed, StoreError, UnsealError};
use zeroize::Zeroizing;

use super::sealed::{self, OpenError, Rank, Sealed};
use super::status::Reported;
use super::{Fleet, entries};
use crate::agent::now;
use crate::etcd::{Change, Compare, Entry, EtcdError, PAGE, Seen, Watch};
use crate::failure::plain;

/// The names of a certificate.
pub(super) type Names = Vec<String>;

/// A view of the cluster that is kept up to date, by place.
pub(super) struct Replica<'f> {
    fleet: &'f Fleet,
    /// The cluster, once it is known to be the one that this store was filled from.
    cluster: Option<String>,
    /// What was here, and was not at the last look: with its rank.
    left: HashMap<String, Rank>,
    /// The revision up to which a watch has to have told all, by the last look behind it.
    owed: i64,
    /// What was written last of the cluster and the revision up to which everything is here.
    written: Option<String>,
    /// What is in the cluster: the revision at which it was put there, and which one it is.
    known: HashMap<String, (i64, Option<Rank>)>,
    /// The best that this machine's store has.
    local: HashMap<String, Rank>,
    /// Whether something may be better here than in the cluster.
    may_offer: bool,
    reported: Reported,
    /// The version of the store that was looked through, when, and how long that took.
    scanned: Option<(u64, Instant, Duration)>,
    /// The revision up to which everything is here.
    revision: i64,
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
            fleet,
            cluster: None,
            left: HashMap::new(),
            owed: 0,
            written: None,
            known: HashMap::new(),
            local: HashMap::new(),
            may_offer: true,
            reported: Reported::default(),
            scanned: None,
            revision: 0,
        };
        replica.scan().await?;
        replica.take_all(&fleet.places.certificates(), changed).await?;
        let entries = replica.take_all(&fleet.places.entries(), changed).await?;
        entries::drop_answers(fleet, &entries)?;
        fleet.seen.set(replica.revision);
        Ok(replica)
    }

    /// Follows what happens, until something is wrong with the cluster.
    pub(super) async fn follow(&mut self, changed: &impl Fn(Vec<Names>)) -> EtcdError {
        let from = self.revision.saturating_add(1);
        let mut watch = match self.fleet.etcd.watch(self.fleet.places.all(), from).await {
            Ok(watch) => watch,
            Err(error) => return error,
        };
        loop {
            if let Err(error) = self.turn(&mut watch, changed).await {
                return error;
            }
        }
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
        // What machines tell of themselves is no news to tell of again.
        let is_ours = |key: &String| !key.starts_with(&self.fleet.places.statuses());
        let is_news = events.keys().any(is_ours);
        let (mut put, mut deleted) = (Vec::new(), Vec::new());
        for (key, event) in events {
            match event {
                Some(entry) => put.push(entry),
                None => deleted.push(key),
            }
        }
        let has_answers = self.take(put, deleted, changed)?;
        if is_news {
            self.fleet.seen.set(self.revision);
        }
        self.offer_changes().await?;
        self.reported.renew(self.fleet, self.local.len(), has_answers).await?;
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
    ) -> Result<bool, EtcdError> {
        let (mut certificates, mut removed) = (Vec::new(), Vec::new());
        let mut entries: Vec<(String, Option<Zeroizing<Vec<u8>>>)> = Vec::new();
        let (places, below) = (self.fleet.places.certificates(), self.fleet.places.entries());
        for entry in put {
            if entry.key.starts_with(&places) {
                match self.certificate(entry) {
                    Some(Better::Certificate(rank, place, one)) => {
                        certificates.push((rank, place, one));
                    }
                    Some(Better::Removed(place, rank)) => removed.push((place, rank)),
                    None => {}
                }
            } else if let Some(name) = entry.key.strip_prefix(&below) {
                match entries::taken(self.fleet, name, &entry) {
                    Ok(value) => entries.extend(value.map(|value| (name.to_owned(), Some(value)))),
                    Err(error) => self.refuse(&entry.key, &error.to_string()),
                }
            }
        }
        for key in deleted {
            self.known.remove(&key);
            // Whoever deletes need not have the sealing key: what is made anew goes, a certificate
            // is put back, and an account or a root stays here.
            match key.strip_prefix(&below).filter(|name| entries::is_passing(name)) {
                Some(name) => entries.push((name.to_owned(), None)),
                None => self.may_offer |= self.local.contains_key(&key),
            }
        }
        if certificates.is_empty() && entries.is_empty() && removed.is_empty() {
            return Ok(false);
        }
        self.see_that_it_is_the_same_store()?;
        let taken: Vec<Arc<Certificate>> =
            certificates.iter().map(|(_, _, certificate)| Arc::clone(certificate)).collect();
        let upto = self.cluster.as_deref().map(|cluster| format!("{cluster} {}", self.revision));
        let changes: Vec<KeptChange<'_>> = entries
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_ref().map(|value| value.as_slice())))
            .chain(upto.as_ref().map(|upto| (CLUSTER, Some(upto.as_bytes()))))
            .collect();
        let now_s = i64::try_from(now().0).unwrap_or(i64::MAX);
        let gone: Vec<_> = removed.iter().map(|(_, rank)| CertificateDigest(rank.digest)).collect();
        let exchanged = self.fleet.store.take_over(&taken, &gone, now_s, &changes);
        exchanged.map_err(|error| ours(&error))?;
        self.written = upto.or(self.written.take());
        for (place, _) in removed {
            self.local.remove(&place);
        }
        for (rank, place, _) in certificates {
            self.local.insert(place, rank);
        }
        let names = |one: &Arc<Certificate>| one.names().iter().map(ToString::to_string).collect();
        if !taken.is_empty() {
            changed(taken.iter().map(names).collect());
        }
        Ok(!entries.is_empty())
    }

    /// The certificate of an entry, if this machine has none as good.
    fn certificate(&mut self, entry: Entry) -> Option<Better> {
        let Entry { key: place, value, mod_revision, .. } = entry;
        let Some(sealed) = Sealed::parse(&value) else {
            self.known.insert(place.clone(), (mod_revision, None));
            self.refuse(&place, "it is not as this version writes it; is another newer?");
            return None;
        };
        let rank = sealed.rank;
        if sealed.is_removed && sealed.prove(&place, &self.fleet.keys).is_ok() {
            self.known.insert(place.clone(), (mod_revision, Some(rank)));
            let local = *self.local.get(&place)?;
            self.may_offer |= local > rank;
            return (local <= rank).then_some(Better::Removed(place, local));
        }
        if let Some(local) = self.local.get(&place).copied()
            && local >= rank
        {
            // Nothing of it is needed here; but whoever ruined it has no sealing key.
            let known = match sealed.prove(&place, &self.fleet.keys) {
                Err(UnsealError::Damaged) => Rank::LEAST,
                Err(UnsealError::KeyMissing { .. }) | Ok(()) => rank,
            };
            self.may_offer |= local > known;
            self.known.insert(place, (mod_revision, Some(known)));
            return None;
        }
        let now_s = i64::try_from(now().0).unwrap_or(i64::MAX);
        let Fleet { places, keys, provider, .. } = self.fleet;
        match sealed.open(&place, places, keys, provider, now_s) {
            Ok(certificate) => {
                self.known.insert(place.clone(), (mod_revision, Some(rank)));
                Some(Better::Certificate(rank, place, certificate))
            }
            Err(error) => {
                // What another key opens is let alone; what no key of ours made is replaced.
                let is_of_another_key =
                    matches!(error, OpenError::Sealed(UnsealError::KeyMissing { .. }));
                let rank = (!is_of_another_key).then_some(Rank::LEAST);
                self.may_offer = true;
                self.known.insert(place.clone(), (mod_revision, rank));
                self.refuse(&place, &error.to_string());
                None
            }
        }
    }

    fn refuse(&self, place: &str, what: &str) {
        self.reported.refused.set(self.reported.refused.get() + 1);
        if self.reported.refused.get() <= REFUSED_TOLD_MAX {
            let place = plain(place);
            say_at(Priority::Warning, &format!("fleet: {place}: not taken: {what}"));
        }
    }

    /// Puts into the cluster what is better here, once the store has changed. A store of a million
    /// is looked through in seconds: then not more often than a fiftieth of the time goes into it.
    async fn offer_changes(&mut self) -> Result<(), EtcdError> {
        let version = self.fleet.store.store().generation().map_err(|error| ours(&error))?;
        let is_due = self.scanned.is_none_or(|(seen, at, took)| {
            seen != version && at.elapsed() > (took * SCAN_SHARE).max(TICK)
        });
        if is_due {
            self.scan().await?;
        }
        if self.may_offer {
            self.may_offer = self.offer().await?;
        }
        // What takes the place of what has left is there first, and nothing has changed since.
        let is_all_seen = self.scanned.is_some_and(|(seen, ..)| seen == version);
        match !self.may_offer && is_all_seen {
            true => self.remove().await,
            false => Ok(()),
        }
    }

    /// Looks through the store for the best that it has at each place.
    async fn scan(&mut self) -> Result<(), EtcdError> {
        let (begun, store) = (Instant::now(), self.fleet.store.store());
        let version = store.generation().map_err(|error| ours(&error))?;
        let mut fresh: HashMap<String, Rank> = HashMap::new();
        let mut last: Option<Listed> = None;
        loop {
            let page = store.by_expiry(last.as_ref(), PAGE).map_err(|error| ours(&error))?;
            for listed in &page {
                let (place, rank) = (self.place(listed), Rank::of_listed(listed));
                let best = fresh.entry(place).or_insert(rank);
                *best = rank.max(*best);
            }
            let Some(end) = page.into_iter().next_back() else { break };
            last = Some(end);
            tokio::task::yield_now().await;
        }
        let before = std::mem::replace(&mut self.local, fresh);
        self.may_offer = true;
        if self.scanned.is_some() {
            // What somebody has put there again is no longer removed.
            for place in self.local.keys().filter(|place| !before.contains_key(*place)) {
                if let Some((_, known)) = self.known.get_mut(place) {
                    *known = known.and(Some(Rank::LEAST));
                }
            }
        }
        self.scanned = Some((version, Instant::now(), begun.elapsed()));
        for (place, rank) in before {
            if !self.local.contains_key(&place) {
                self.left.entry(place).or_insert(rank);
            }
        }
        Ok(())
    }

    /// Says in the cluster what somebody has removed from this machine's store. What another took
    /// the place of was not removed; what leaves by the thousand, or because the store was put back
    /// from a copy, was lost, and comes back.
    async fn remove(&mut self) -> Result<(), EtcdError> {
        let left = std::mem::take(&mut self.left);
        if left.is_empty() {
            return Ok(());
        }
        let count_max = ((self.local.len() + left.len()) / REMOVED_SHARE).max(REMOVED_MAX);
        if left.len() > count_max {
            return Err(EtcdError::ours(&format!(
                "{} certificates have left this machine's store at once, of which a fleet takes \
                 {count_max} for removed: they come back from the cluster; if they are meant to \
                 go, remove fewer at a time",
                left.len()
            )));
        }
        self.see_that_it_is_the_same_store()?;
        for (place, rank) in left {
            self.remove_one(place, rank).await?;
        }
        Ok(())
    }

    /// Fails if the store was put back from a copy: that has another word of the cluster.
    fn see_that_it_is_the_same_store(&self) -> Result<(), EtcdError> {
        let Some(written) = &self.written else { return Ok(()) };
        let kept = self.fleet.store.kept(CLUSTER).map_err(|error| ours(&error))?;
        match kept.is_some_and(|kept| kept.as_slice() == written.as_bytes()) {
            true => Ok(()),
            false => Err(EtcdError::ours(
                "the store was put back from a copy: what it lacks comes from the cluster",
            )),
        }
    }

    async fn remove_one(&mut self, place: String, rank: Rank) -> Result<(), EtcdError> {
        let at =
            self.known.get(&place).filter(|(_, known)| *known == Some(rank)).map(|(at, _)| *at);
        let is_here_again = self.local.contains_key(&place);
        let Some(at) = at.filter(|_| !is_here_again) else { return Ok(()) };
        let Fleet { etcd, places, keys, provider, store, .. } = self.fleet;
        let Some(entry) = etcd.get(&place).await? else { return Ok(()) };
        let Some(sealed) = Sealed::parse(&entry.value) else { return Ok(()) };
        let now_s = i64::try_from(now().0).unwrap_or(i64::MAX);
        let Ok(certificate) = sealed.open(&place, places, keys, provider, now_s) else {
            return Ok(());
        };
        for name in certificate.names() {
            let served = store.store().find(name).map_err(|error| ours(&error))?;
            if served.iter().any(|one| one.key_type == certificate.key_type()) {
                return Ok(());
            }
        }
        let value = sealed::seal_removal(&place, rank, keys);
        let value = value.map_err(|error| EtcdError::ours(&error.to_string()))?;
        // If another has changed it meanwhile, the watch brings that.
        let compare = [Compare::Modified(&place, at)];
        if let Some(revision) = etcd.change_if(&compare, &[Change::Put(&place, &value, 0)]).await? {
            self.known.insert(place, (revision, Some(rank)));
        }
        Ok(())
    }

    fn place(&self, listed: &Listed) -> String {
        let names = listed.all_names.iter().map(String::as_str);
        self.fleet.places.certificate(names, listed.key_type)
    }

    /// Puts a page of what is better here into the cluster; whether there may be more.
    async fn offer(&mut self) -> Result<bool, EtcdError> {
        // Before everything is here, it is not known what is better.
        if self.revision == 0 {
            return Ok(true);
        }
        let is_better = |(place, rank): (&String, &Rank)| {
            let at = match self.known.get(place) {
                None => Some(0),
                Some((at, known)) => known.filter(|known| known < rank).map(|_| *at),
            };
            at.map(|at| (place.clone(), *rank, at))
        };
        let better: Vec<_> = self.local.iter().filter_map(is_better).take(PAGE).collect();
        let is_full = better.len() == PAGE;
        let mut batch = Vec::new();
        let mut bytes = 0;
        for (place, rank, at) in better {
            let Some(value) = self.sealed(&place, rank)? else {
                // It has left the store since.
                self.local.remove(&place);
                continue;
            };
            bytes += value.len();
            batch.push(Offered { place, rank, at, value });
            if batch.len() == BATCH || bytes >= BATCH_BYTES {
                self.put(&mut batch).await?;
                bytes = 0;
            }
        }
        self.put(&mut batch).await?;
        Ok(is_full)
    }

    /// Puts a batch at one revision, or, if one of it was changed meanwhile, one by one.
    async fn put(&mut self, batch: &mut Vec<Offered>) -> Result<(), EtcdError> {
        let mut parts = vec![std::mem::take(batch)];
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let puts: Vec<_> =
                part.iter().map(|one| Change::Put(&one.place, &one.value, 0)).collect();
            let compares: Vec<_> =
                part.iter().map(|one| Compare::Modified(&one.place, one.at)).collect();
            match self.fleet.etcd.change_if(&compares, &puts).await? {
                Some(revision) => self
                    .known
                    .extend(part.into_iter().map(|one| (one.place, (revision, Some(one.rank))))),
                // If another was first, the watch brings that one.
                None if part.len() == 1 => {}
                None => parts.extend(part.into_iter().map(|one| vec![one])),
            }
        }
        Ok(())
    }

    /// The certificate of the store with this rank, as it is put in the cluster.
    fn sealed(&self, place: &str, rank: Rank) -> Result<Option<Vec<u8>>, EtcdError> {
        let digest = CertificateDigest(rank.digest);
        let unreadable = |_| EtcdError::ours("the certificate store cannot be read");
        let listed = self.fleet.store.store().certificate(digest).map_err(|error| ours(&error))?;
        let Some(Listed { label, .. }) = listed else { return Ok(None) };
        // One look at the store at a time: a thread has one place to read from.
        let opened = self.fleet.store.view().map_err(unreadable)?.open(digest);
        let Ok(opened) = opened else { return Ok(None) };
        let parts = (opened.chain.iter().map(|der| &**der), &opened.key);
        let sealed = sealed::seal(place, rank, &label, parts, &self.fleet.keys);
        sealed.map(Some).map_err(|error| EtcdError::ours(&error.to_string()))
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
        let before = store.kept(CLUSTER).map_err(|error| ours(&error))?;
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
            say_at(Priority::Warning, &format!("fleet: {warning}"));
        }
        self.cluster = Some(cluster.to_owned());
        let text = format!("{cluster} {}", self.revision);
        let kept = store.keep(&[], 0, &[(CLUSTER, Some(text.as_bytes()))]);
        kept.map_err(|error| ours(&error))?;
        self.written = Some(text);
        Ok(())
    }
}

/// What the cluster has that is better than what is here.
enum Better {
    Certificate(Rank, String, Arc<Certificate>),
    /// The place and the rank of one that is here, and removed there.
    Removed(String, Rank),
}

/// A certificate that is better here than in the cluster.
struct Offered {
    place: String,
    rank: Rank,
    /// The revision of what is there; 0: there is nothing.
    at: i64,
    value: Vec<u8>,
}

pub(super) fn ours(error: &StoreError) -> EtcdError {
    EtcdError::ours(&error.to_string())
}

/// Certificates that are put at once: etcd takes 128 changes of one request (--max-txn-ops).
const BATCH: usize = 64;
/// Bytes of certificates with which a batch is full: etcd takes 1.5 MiB of one request
/// (--max-request-bytes).
const BATCH_BYTES: usize = 512 << 10;
/// How long more of what was changed is waited for.
const DRAIN: Duration = Duration::from_millis(10);
/// The entry with the cluster that the store was filled from.
const CLUSTER: &str = "fleet/cluster";
/// How often it is asked what no watch has told of.
const LOOK_BEHIND: Duration = Duration::from_secs(300);
/// Certificates and entries that are not taken, of which it is told one by one.
const REFUSED_TOLD_MAX: u64 = 100;
/// Certificates that may leave a machine's store at once, and be taken for removed.
const REMOVED_MAX: usize = 10;
/// The part of a store that may leave it at once, if that is more: one in so many.
const REMOVED_SHARE: usize = 10;
/// How many times longer than a scan of the store it is until the next.
const SCAN_SHARE: u32 = 50;
/// How often the store is looked at for changes.
const TICK: Duration = Duration::from_secs(1);
