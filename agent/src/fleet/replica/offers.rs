//! What this machine's store has, for the cluster: what is better here is put there, what is better
//! there and was lost here is taken again, and what nobody serves is deleted.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sealane_engine::certificates::{CertificateDigest, CertificateStore as _};
use sealane_store::{AHEAD_S_MAX, Listed, Removal};
use tracing::warn;

use super::{Names, Replica, TICK};
use crate::clock::now_s;
use crate::etcd::{Change, Compare, EtcdError, PAGE};
use crate::fleet::member::Fleet;
use crate::fleet::sealed::{self, Rank};

impl Replica<'_> {
    /// Makes the cluster and the store equal, once the store has changed. A store of a million is
    /// looked through in seconds: then not more often than a fiftieth of the time goes into it.
    pub(super) async fn offer_changes(
        &mut self,
        changed: &impl Fn(Vec<Names>),
    ) -> Result<(), EtcdError> {
        let version = self
            .fleet
            .store
            .store()
            .generation()
            .map_err(|error| EtcdError::ours(&error.to_string()))?;
        let is_due = self.scanned.is_none_or(|(seen, at, took)| {
            seen != version && at.elapsed() > (took * SCAN_SHARE).max(TICK)
        });
        if is_due {
            self.scan().await?;
        }
        if self.may_offer {
            self.may_offer = self.offer().await?;
        }
        if !self.may_offer && self.may_lack {
            self.may_lack = self.take_what_is_lacking(changed).await?;
        }
        // What takes the place of something is there before that is deleted.
        if self.may_offer {
            return Ok(());
        }
        self.delete_what_is_over().await?;
        self.reseal_entries().await?;
        let may_note = !self.may_lack && !self.fleet.is_leaving.get();
        if let Some((version, ..)) = self.scanned.filter(|_| may_note) {
            self.fleet
                .store
                .store()
                .note_abreast(version)
                .map_err(|error| EtcdError::ours(&error.to_string()))?;
        }
        Ok(())
    }

    /// Looks through the store for the best that it has at each place.
    pub(super) async fn scan(&mut self) -> Result<(), EtcdError> {
        let (begun, store) = (Instant::now(), self.fleet.store.store());
        let version = store.generation().map_err(|error| EtcdError::ours(&error.to_string()))?;
        let mut local: HashMap<String, Rank> = HashMap::new();
        let mut last: Option<Listed> = None;
        loop {
            let page = store
                .by_expiry(last.as_ref(), PAGE)
                .map_err(|error| EtcdError::ours(&error.to_string()))?;
            for listed in &page {
                let (place, rank) = (self.place(listed), Rank::of_listed(listed));
                let best = local.entry(place).or_insert(rank);
                *best = rank.max(*best);
            }
            let Some(end) = page.into_iter().next_back() else { break };
            last = Some(end);
            tokio::task::yield_now().await;
        }
        self.local = local;
        self.removals = self.words().await?;
        (self.may_offer, self.may_lack) = (true, true);
        self.scanned = Some((version, Instant::now(), begun.elapsed()));
        Ok(())
    }

    /// The words of removed names that the store has, and that count still.
    async fn words(&self) -> Result<HashMap<String, Removal>, EtcdError> {
        let store = self.fleet.store.store();
        let now_s = now_s();
        let (mut words, mut after, mut is_any_over) = (HashMap::new(), None::<String>, false);
        loop {
            let page = store
                .removals(after.as_deref(), PAGE)
                .map_err(|error| EtcdError::ours(&error.to_string()))?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for word in page {
                match word.until_s < now_s {
                    true => is_any_over = true,
                    false => drop(words.insert(self.fleet.places.removal(&word.name), word)),
                }
            }
            tokio::task::yield_now().await;
        }
        if is_any_over {
            store.forget_removals(now_s).map_err(|error| EtcdError::ours(&error.to_string()))?;
        }
        Ok(words)
    }

    fn place(&self, listed: &Listed) -> String {
        let names = listed.all_names.iter().map(String::as_str);
        self.fleet.places.certificate(names, listed.key_type)
    }

    /// Puts a page of what is better here into the cluster, words of removed names last; whether
    /// there may be more.
    async fn offer(&mut self) -> Result<bool, EtcdError> {
        // Before everything is here, it is not known what is better.
        if self.revision == 0 {
            return Ok(true);
        }
        // Whoever writes the store's file need not have the sealing key: nothing goes for good.
        let latest_s = now_s().saturating_add(AHEAD_S_MAX);
        let words = self.removals.iter().filter(|(_, word)| word.at_s <= latest_s);
        let words = words.map(|(place, word)| (place, Rank::of_removal(word)));
        let all = self.local.iter().map(|(place, rank)| (place, *rank)).chain(words);
        let is_better = |(place, rank): (&String, Rank)| {
            let at = match self.known.get(place) {
                None => Some(0),
                Some((at, known)) => (*known < rank).then_some(*at),
            };
            at.filter(|_| !self.too_large.contains(place)).map(|at| (place.clone(), rank, at))
        };
        let better: Vec<_> = all.filter_map(is_better).take(PAGE).collect();
        let is_full = better.len() == PAGE;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for (place, rank, at) in better {
            let Some(value) = self.sealed(&place, rank)? else {
                // It has left the store since.
                self.local.remove(&place);
                continue;
            };
            if value.len() > VALUE_BYTES_MAX {
                self.leave_out(place, value.len());
                continue;
            }
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

    fn leave_out(&mut self, place: String, len: usize) {
        warn!(
            "fleet: {place}: a certificate of {len} bytes stays on this machine, because etcd \
                 takes {VALUE_BYTES_MAX} at most; shorten its chain"
        );
        self.too_large.insert(place);
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
                Some(revision) => {
                    let put = part.into_iter().map(|one| (one.place, (revision, one.rank)));
                    self.known.extend(put);
                }
                // If another was first, the watch brings that one.
                None if part.len() == 1 => {}
                None => parts.extend(part.into_iter().map(|one| vec![one])),
            }
        }
        Ok(())
    }

    /// What the store has with this rank, as it is put in the cluster.
    fn sealed(&self, place: &str, rank: Rank) -> Result<Option<Vec<u8>>, EtcdError> {
        let unsealed = |error: sealane_store::SealingKeyError| EtcdError::ours(&error.to_string());
        if let Some(word) = self.removals.get(place) {
            let sealed = sealed::seal_removal(&self.fleet.places, word, &self.fleet.keys);
            return sealed.map(Some).map_err(unsealed);
        }
        let digest = CertificateDigest(rank.digest);
        let unreadable = |_| EtcdError::ours("the certificate store cannot be read");
        let listed = self
            .fleet
            .store
            .store()
            .certificate(digest)
            .map_err(|error| EtcdError::ours(&error.to_string()))?;
        let Some(Listed { label, .. }) = listed else { return Ok(None) };
        // One look at the store at a time: a thread has one place to read from.
        let opened = self.fleet.store.view().map_err(unreadable)?.open(digest);
        let Ok(opened) = opened else { return Ok(None) };
        let parts = (opened.chain.iter().map(|der| &**der), &opened.key);
        sealed::seal(place, rank, &label, parts, &self.fleet.keys).map(Some).map_err(unsealed)
    }

    /// Takes what is better in the cluster than here, as after a store was put back from a copy;
    /// whether there may be more.
    async fn take_what_is_lacking(
        &mut self,
        changed: &impl Fn(Vec<Names>),
    ) -> Result<bool, EtcdError> {
        let is_lacking = |(place, (at, rank)): (&String, &(i64, Rank))| {
            let was_judged = self.judged.get(place) == Some(at);
            (!was_judged && self.here(place) < Some(*rank)).then(|| place.clone())
        };
        let mut lacking: Vec<String> = self.known.iter().filter_map(is_lacking).collect();
        // Removed names first, so that nothing is served for one meanwhile.
        let words = self.fleet.places.removals();
        lacking.sort_unstable_by_key(|place| !place.starts_with(&words));
        let until = Instant::now() + LACKING_TIME;
        let mut batches = lacking.chunks(BATCH);
        for batch in batches.by_ref() {
            let places: Vec<&str> = batch.iter().map(String::as_str).collect();
            let found = self.fleet.etcd.all_of(&places).await?;
            for place in batch.iter().filter(|place| !found.iter().any(|one| one.key == **place)) {
                self.known.remove(place);
            }
            self.take(found, Vec::new(), changed)?;
            if Instant::now() > until {
                break;
            }
        }
        Ok(batches.next().is_some())
    }

    /// Deletes what is of no use to anybody any more in the cluster, some at a time.
    async fn delete_what_is_over(&mut self) -> Result<(), EtcdError> {
        // What takes their place may be what the cluster does not take.
        if !self.too_large.is_empty() {
            return Ok(());
        }
        let some: Vec<(String, i64)> =
            self.over.iter().take(BATCH).map(|(place, at)| (place.clone(), *at)).collect();
        for (place, at) in some {
            self.over.remove(&place);
            if self.deleted.insert(place.clone()) {
                let compare = [Compare::Modified(&place, at)];
                self.fleet.etcd.change_if(&compare, &[Change::Delete(&place)]).await?;
            }
        }
        Ok(())
    }
}

impl Replica<'_> {
    /// Seals some of the entries anew that an older sealing key has sealed in the cluster.
    async fn reseal_entries(&mut self) -> Result<(), EtcdError> {
        let Fleet { etcd, keys, .. } = self.fleet;
        let some: Vec<String> = self.to_reseal.iter().take(RESEALED_AT_ONCE).cloned().collect();
        if some.is_empty() {
            return Ok(());
        }
        let places: Vec<&str> = some.iter().map(String::as_str).collect();
        let mut resealed = Vec::new();
        for entry in etcd.all_of(&places).await? {
            if let Ok(value) = keys.open_at(&entry.key, &entry.value) {
                let sealed = keys.seal_for(&entry.key, &value);
                let sealed = sealed.map_err(|error| EtcdError::ours(&error.to_string()))?;
                resealed.push((entry.key, entry.mod_revision, sealed));
            }
        }
        let puts: Vec<_> =
            resealed.iter().map(|(place, _, sealed)| Change::Put(place, sealed, 0)).collect();
        let compares: Vec<_> =
            resealed.iter().map(|(place, at, _)| Compare::Modified(place, *at)).collect();
        let is_done = puts.is_empty() || etcd.change_if(&compares, &puts).await?.is_some();
        if !is_done {
            // If one was changed meanwhile, the watch brings that one, and the others go alone.
            for (compare, put) in compares.iter().zip(&puts) {
                etcd.change_if(std::slice::from_ref(compare), std::slice::from_ref(put)).await?;
            }
        }
        for place in some {
            self.to_reseal.remove(&place);
            self.resealed.insert(place);
        }
        Ok(())
    }
}

/// Something that is better here than in the cluster.
struct Offered {
    place: String,
    rank: Rank,
    /// The revision of what is there; 0: there is nothing.
    at: i64,
    value: Vec<u8>,
}

/// Certificates that are put at once: etcd takes 128 changes of one request (--max-txn-ops).
const BATCH: usize = 64;
/// Bytes of certificates with which a batch is full: etcd takes 1.5 MiB of one request
/// (--max-request-bytes).
const BATCH_BYTES: usize = 512 << 10;
/// How long what is lacking is taken without a look at what has come.
const LACKING_TIME: Duration = Duration::from_secs(2);
/// Entries that are sealed anew at once: the longest have the waits of 100 long names.
pub(super) const RESEALED_AT_ONCE: usize = 16;
/// How many times longer than a scan of the store it is until the next.
const SCAN_SHARE: u32 = 50;
/// Bytes of one value, at most: what is left of a request beside a full batch.
const VALUE_BYTES_MAX: usize = 768 << 10;
