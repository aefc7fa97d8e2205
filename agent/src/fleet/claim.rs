//! Who orders a certificate, and the fence that keeps one who slept from writing: [`Claim`].

use std::rc::Rc;
use std::time::Duration;

use sealane_engine::certificates::Certificate;
use sealane_renewal::CertificateId;
use tokio::task::{JoinHandle, spawn_local};
use zeroize::Zeroizing;

use super::member::Fleet;
use super::sealed::{self, Rank};
use crate::clock::now;
use crate::etcd::{Change, Compare, Entry, EtcdError};
use crate::failure::{Failed, plain};
use crate::ledger::{Answer, OrderEntry};

/// The right of this machine to order one certificate, for as long as it says that it lives.
///
/// Everything that it writes carries the condition that the claim is still the one that was made:
/// the revision of its making is the fence. Whoever slept for longer than the lease writes nothing.
pub(crate) struct Claim {
    fleet: Rc<Fleet>,
    /// The place of the claim, and the revision at which it was made.
    place: String,
    made: i64,
    order: String,
    lease: i64,
    alive: JoinHandle<()>,
}

impl Fleet {
    /// Claims a certificate, and with it what another machine had begun of its order.
    ///
    /// # Errors
    /// Another machine orders it, or the cluster does not answer.
    pub(crate) async fn claim(
        self: &Rc<Self>,
        id: CertificateId,
        label: &str,
    ) -> Result<(Claim, Option<Zeroizing<Vec<u8>>>), Failed> {
        if !self.is_complete() {
            let text = format!("{label}: not ordered while the fleet's etcd does not answer");
            return Err(Failed::of_cluster(now(), text));
        }
        let failed =
            |error: EtcdError| Failed::of_cluster(now(), format!("{label}: not ordered: {error}"));
        let place = self.places.claim(id);
        let lease = self.etcd.grant(self.settings.lease).await.map_err(failed)?;
        let me = self.settings.machine.as_bytes();
        let put = [Change::Put(&place, me, lease)];
        let made = self.etcd.change_if(&[Compare::Created(&place, 0)], &put).await;
        let made = match made.map_err(failed)? {
            Some(revision) => revision,
            None => {
                let held = self.etcd.get(&place).await.map_err(failed)?;
                // The answer to the first of two equal questions may have been lost.
                match held {
                    Some(entry) if entry.lease == lease => entry.create_revision,
                    Some(entry) if entry.lease == 0 => {
                        let _ = self.etcd.revoke(lease).await;
                        return Err(Failed::of_cluster(
                            now(),
                            format!(
                                "{label}: not ordered: {place} in etcd hangs on no lease, so that \
                             nobody gives it back, and no agent put it there; delete it: etcdctl \
                             del {place}"
                            ),
                        ));
                    }
                    held => {
                        let _ = self.etcd.revoke(lease).await;
                        let who = held.map(|held| plain(&String::from_utf8_lossy(&held.value)));
                        let who = who.unwrap_or_else(|| "another machine".into());
                        let text = format!("{label}: {who} is ordering it for the fleet");
                        let until = now().plus(self.settings.lease.as_secs());
                        return Err(Failed::held(until, text));
                    }
                }
            }
        };
        let alive = spawn_local(Rc::clone(self).keep_alive(lease, self.settings.lease / 3));
        let claim = Claim {
            fleet: Rc::clone(self),
            order: self.places.order(id),
            place,
            made,
            lease,
            alive,
        };
        let begun = self.etcd.get(&claim.order).await.map_err(failed)?;
        let begun = begun.and_then(|entry| self.keys.open_at(&entry.key, &entry.value).ok());
        Ok((claim, begun))
    }

    async fn keep_alive(self: Rc<Self>, lease: i64, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            // If it has ended, the fence says so to whoever writes.
            if let Ok(false) = self.etcd.keep_alive(lease).await {
                return;
            }
        }
    }

    /// The value of an entry that all machines have: what is there, or else `value`, put now.
    ///
    /// # Errors
    /// The cluster does not answer, or has what does not open.
    pub(crate) async fn settle(
        &self,
        name: &str,
        value: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Failed> {
        let failed = |text: String| Failed::of_cluster(now(), format!("{name}: {text}"));
        let place = self.places.entry(name);
        let sealed =
            self.keys.seal_for(&place, value).map_err(|error| failed(error.to_string()))?;
        let put = [Change::Put(&place, &sealed, 0)];
        let made = self.etcd.change_if(&[Compare::Created(&place, 0)], &put).await;
        if made.map_err(|error| failed(error.to_string()))?.is_some() {
            return Ok(Zeroizing::new(value.to_vec()));
        }
        let there = self.etcd.get(&place).await.map_err(|error| failed(error.to_string()))?;
        let there = there.ok_or_else(|| failed("it has gone again".into()))?;
        self.keys.open_at(&place, &there.value).map_err(|error| failed(error.to_string()))
    }

    /// Puts `value` in the place of `before`, an entry that all machines have.
    ///
    /// # Errors
    /// It is another by now, or the cluster does not answer.
    pub(crate) async fn replace(
        &self,
        name: &str,
        before: &[u8],
        value: &[u8],
    ) -> Result<(), Failed> {
        let failed = |text: String| Failed::later(format!("{name}: {text}"));
        let place = self.places.entry(name);
        let there = self.etcd.get(&place).await.map_err(|error| failed(error.to_string()))?;
        let is_it = |there: &Entry| {
            let opened = self.keys.open_at(&place, &there.value);
            opened.is_ok_and(|opened| *opened == before)
        };
        let sealed = self.keys.seal_for(&place, value);
        let sealed = sealed.map_err(|error| failed(error.to_string()))?;
        let put = [Change::Put(&place, &sealed, 0)];
        let made = match there.filter(is_it) {
            Some(there) => {
                let compare = [Compare::Modified(&place, there.mod_revision)];
                self.etcd.change_if(&compare, &put).await
            }
            None => Ok(None),
        };
        match made.map_err(|error| failed(error.to_string()))? {
            Some(_) => Ok(()),
            None => Err(failed("another machine of the fleet has just changed it".into())),
        }
    }
}

impl Claim {
    /// Waits until this machine's store has all that was in the cluster when the claim was made, a
    /// certificate among it that whoever had the claim before obtained; whether it has.
    pub(crate) async fn wait_until_all_is_here(&self) -> bool {
        let all = async {
            // The watch tells of the claim, too.
            while self.fleet.seen.get() < self.made {
                tokio::time::sleep(SEEN_TICK).await;
            }
        };
        tokio::time::timeout(SEEN_WAIT, all).await.is_ok()
    }

    /// Shares what the order has come to, and the answers that any machine may be asked for.
    /// Returns when those that are there have them, or some seconds later.
    ///
    /// # Errors
    /// The claim is another machine's by now, or the cluster does not answer.
    pub(crate) async fn keep(&self, order: &[u8], answers: &[Answer]) -> Result<(), Failed> {
        let seal = |place: &str, value: &[u8]| {
            let sealed = self.fleet.keys.seal_for(place, value);
            sealed.map_err(|error| Failed::ours(error.to_string()))
        };
        let order = seal(&self.order, order)?;
        let mut sealed = Vec::new();
        for answer in answers {
            let place = self.fleet.places.entry(&answer.name);
            let value = seal(&place, answer.text())?;
            sealed.push((place, value));
        }
        let mut puts = vec![Change::Put(self.order.as_str(), order.as_slice(), 0)];
        puts.extend(sealed.iter().map(|(place, value)| Change::Put(place, value, 0)));
        let revision = self.fenced(&puts).await?;
        if !sealed.is_empty() {
            self.fleet.wait_until_all_have(revision).await;
        }
        Ok(())
    }

    /// Puts a certificate into the cluster, and forgets the order.
    ///
    /// # Errors
    /// The claim is another machine's by now, or the cluster does not answer.
    pub(crate) async fn issue(
        &self,
        label: &str,
        (issued, put_s): (&Certificate, i64),
        order: &OrderEntry,
    ) -> Result<(), Failed> {
        let names = issued.names().iter().map(|name| &**name);
        let place = self.fleet.places.certificate(names, issued.key_type());
        let rank = Rank::of(issued, put_s);
        let parts = (issued.chain(), issued.key());
        let value = sealed::seal(&place, rank, label, parts, &self.fleet.keys);
        let value = value.map_err(|error| Failed::ours(error.to_string()))?;
        self.end(Some((&place, &value)), order).await
    }

    /// Forgets the order, which came to nothing.
    ///
    /// # Errors
    /// The claim is another machine's by now, or the cluster does not answer.
    pub(crate) async fn forget(&self, order: &OrderEntry) -> Result<(), Failed> {
        self.end(None, order).await
    }

    async fn end(&self, put: Option<(&str, &[u8])>, order: &OrderEntry) -> Result<(), Failed> {
        let gone: Vec<String> =
            order.answers.iter().map(|name| self.fleet.places.entry(name)).collect();
        let mut changes: Vec<Change<'_>> = gone.iter().map(|place| Change::Delete(place)).collect();
        changes.push(Change::Delete(&self.order));
        changes.extend(put.map(|(place, value)| Change::Put(place, value, 0)));
        self.fenced(&changes).await.map(drop)
    }

    async fn fenced(&self, changes: &[Change<'_>]) -> Result<i64, Failed> {
        let fence = [Compare::Created(&self.place, self.made)];
        match self.fleet.etcd.change_if(&fence, changes).await {
            Ok(Some(revision)) => Ok(revision),
            Ok(None) => Err(Failed::of_lost_claim(
                now(),
                "the order is another machine's by now: this one was silent for longer than \
                 fleet.lease",
            )),
            Err(error) => Err(Failed::of_cluster(now(), error.to_string())),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.alive.abort();
        let (fleet, lease) = (Rc::clone(&self.fleet), self.lease);
        // If that is not heard, the lease runs out.
        spawn_local(async move { fleet.etcd.revoke(lease).await });
    }
}

impl Fleet {
    /// Waits until all machines that are there have the answers that were put at a revision, for
    /// seconds at most: an order does not wait longer for a machine that is slow.
    async fn wait_until_all_have(&self, revision: i64) {
        let below = self.places.answered(revision);
        let all = async {
            loop {
                let machines = self.machines.borrow().len() as u64;
                if self.etcd.count(&below).await.is_ok_and(|count| count >= machines) {
                    return;
                }
                tokio::time::sleep(ANSWERS_TICK).await;
            }
        };
        let _ = tokio::time::timeout(ANSWERS_WAIT, all).await;
        // Entries that remain expire with the leases of their machines.
        let _ = self.etcd.change(&[Change::DeleteBelow(&below)]).await;
    }
}

/// How often it is asked whether all machines have an answer.
const ANSWERS_TICK: Duration = Duration::from_millis(200);
/// How long that is waited for.
const ANSWERS_WAIT: Duration = Duration::from_secs(10);
/// How often it is looked whether all that is in the cluster is here.
const SEEN_TICK: Duration = Duration::from_millis(20);
/// How long that is waited for.
const SEEN_WAIT: Duration = Duration::from_secs(10);
