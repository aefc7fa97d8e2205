//! Machines that share certificates through a cluster of etcd: [`Fleet`].
//!
//! ```text
//!   this machine's store  <---- Replica: list, watch, batches ----  PREFIX/certificate/HASH
//!           |  what is newer here                                    PREFIX/entry/NAME
//!           +------------------------------------------------------> (all sealed)
//!   an order  -- Claim: a lease, a revision as its fence ----------> PREFIX/claim/ID
//!   status    -- under a lease of its own -------------------------> PREFIX/status/MACHINE
//! ```
//!
//! The local store stays what lanes serve from; the cluster only fills it. What leaves the machine
//! is sealed with the store's sealing key, for its place: the cluster holds no key in clear, and
//! nobody without a sealing key can put anything there that a machine takes.

mod claim;
mod clocks;
mod entries;
mod places;
mod replica;
mod sealed;
mod status;
#[cfg(test)]
mod tests;
mod tickets;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::CryptoProvider;
use sealane_operator::{Priority, say, say_at, value};
use sealane_renewal::{CertificateId, MachineId, keeper};
use sealane_store::{KeyedStore, SealingKeys};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use zeroize::Zeroizing;

use crate::agent::now_s;
use crate::etcd::{Change, Etcd, EtcdError};
use crate::settings::FleetSettings;
use crate::trust::{TrustError, our_provider};

pub(crate) use claim::Claim;
use clocks::Clocks;
use places::Places;
use replica::Replica;
pub(crate) use status::{Statuses, leave_word, table};
pub(crate) use tickets::rotate_tickets;

/// A fleet as one of its machines sees it.
pub(crate) struct Fleet {
    etcd: Etcd,
    keys: SealingKeys,
    places: Places,
    provider: CryptoProvider,
    settings: FleetSettings,
    store: Arc<KeyedStore>,
    /// Entries that count as nothing, because no sealing key of this machine opens them.
    passed_over: RefCell<HashSet<String>>,
    /// What is wrong with the cluster, since when; none while it answers.
    away: RefCell<Option<(Instant, String)>>,
    /// The revision of the last change that this machine has taken.
    seen: Cell<i64>,
    /// Whether all that was there has been taken once.
    is_complete: Cell<bool>,
    /// Ends the wait of a cluster that did not answer.
    retry_now: Notify,
    /// By how much this machine's clock is before those of others.
    clocks: Clocks,
    /// The machines that are there.
    machines: RefCell<HashMap<String, MachineId>>,
    /// The lease under which this machine tells that it is there; 0: none yet.
    status_lease: Cell<i64>,
}

impl Fleet {
    /// The fleet of `settings`, seen from the machine with this store. Nothing is asked yet.
    ///
    /// # Errors
    /// Certificates or the password cannot be read.
    pub(crate) fn new(
        settings: &FleetSettings,
        store: Arc<KeyedStore>,
        keys: SealingKeys,
    ) -> Result<Rc<Self>, TrustError> {
        Ok(Rc::new(Self {
            etcd: Etcd::new(&settings.etcd)?,
            keys,
            places: Places::below(&settings.prefix),
            provider: our_provider()?,
            settings: settings.clone(),
            store,
            passed_over: RefCell::default(),
            away: RefCell::new(Some((Instant::now(), NOT_ASKED.into()))),
            seen: Cell::new(0),
            is_complete: Cell::new(false),
            retry_now: Notify::new(),
            clocks: Clocks::default(),
            machines: RefCell::default(),
            status_lease: Cell::new(0),
        }))
    }

    /// Reads the password, the certificate and the roots again with which etcd is asked.
    ///
    /// # Errors
    /// One cannot be read; then those that were read before are used.
    pub(crate) fn reread(&self) -> Result<(), TrustError> {
        self.etcd.reread(&self.settings.etcd)?;
        self.retry_now.notify_one();
        Ok(())
    }

    /// Shares until the process ends: takes what others put there, puts there what is new here, and
    /// tells how this machine is. While the cluster is away it tries again.
    pub(crate) async fn share(self: Rc<Self>, changed: impl Fn(Vec<Vec<String>>)) {
        let mut wait = WAIT_MIN;
        loop {
            self.note_behind();
            let mut followed = Duration::ZERO;
            let failure = match Replica::listed(&self, &changed).await {
                Ok(mut replica) => {
                    let begun = Instant::now();
                    let well = || {
                        self.came_back();
                        // Whoever waits to order may.
                        changed(Vec::new());
                    };
                    let failure = replica.follow(&changed, well).await;
                    followed = begun.elapsed();
                    failure
                }
                Err(failure) => failure,
            };
            self.went_away(&failure);
            // A list takes long where there is much: that is no sign of a cluster that is well.
            wait = if followed > WAIT_MAX { WAIT_MIN } else { (wait * 2).min(WAIT_MAX) };
            let wait_now = wait.mul_f64(0.5 + fastrand::f64() / 2.0);
            if tokio::time::timeout(wait_now, self.retry_now.notified()).await.is_ok() {
                wait = WAIT_MIN;
            }
        }
    }

    /// Puts an entry of the store where all machines find it, or takes it away; soon, and if the
    /// cluster does not answer then, not at all.
    pub(crate) fn put_soon(self: &Rc<Self>, name: String, value: Option<Zeroizing<Vec<u8>>>) {
        let fleet = Rc::clone(self);
        spawn_local(async move {
            let place = fleet.places.entry(&name);
            let sealed = value.map(|value| fleet.keys.seal_for(&place, &value)).transpose();
            let Ok(sealed) = sealed else { return };
            let change = match &sealed {
                Some(sealed) => Change::Put(&place, sealed, 0),
                None => Change::Delete(&place),
            };
            let _ = fleet.etcd.change(&[change]).await;
        });
    }

    /// Tells the others that this machine goes, so that they look after what is its own.
    pub(crate) async fn leave(&self) {
        self.note_behind();
        let lease = self.status_lease.take();
        if lease != 0 {
            // If that is not heard, the lease runs out.
            let _ = tokio::time::timeout(LEAVE_TIMEOUT, self.etcd.revoke(lease)).await;
        }
    }

    /// Whether this machine looks after a certificate, of those that are there.
    pub(crate) fn keeps(&self, id: CertificateId) -> bool {
        let me = machine_id(&self.settings.machine);
        let machines = self.machines.borrow();
        keeper(id, machines.values().copied().chain([me])) == Some(me)
    }

    /// Notes that a machine of this name is there, or has gone.
    pub(crate) fn note_machine(&self, name: &str, is_there: bool) {
        let mut machines = self.machines.borrow_mut();
        match is_there {
            true if machines.len() < MACHINES_MAX => {
                machines.insert(name.to_owned(), machine_id(name));
            }
            true => {}
            false => drop(machines.remove(name)),
        }
    }

    /// Whether this machine has what the fleet has: then it may tell what is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.get() && self.away.borrow().is_none()
    }

    fn came_back(&self) {
        match self.away.take() {
            Some((since, what)) if what != NOT_ASKED => {
                let for_long = value::duration_text(Duration::from_secs(since.elapsed().as_secs()));
                say(&format!("fleet: etcd answers again, after {for_long}"));
            }
            Some(_) => say("fleet: etcd answers"),
            None => {}
        }
        self.is_complete.set(true);
        self.tell_health(None);
    }

    fn went_away(&self, failure: &EtcdError) {
        let text = failure.to_string();
        let (since, before) = self.away.borrow().clone().unwrap_or((Instant::now(), String::new()));
        if before != text {
            say_at(
                Priority::Warning,
                &format!(
                    "fleet: {text}\n  what is served is served on; orders wait until it answers"
                ),
            );
        }
        self.tell_health(Some(&text));
        self.away.replace(Some((since, text)));
    }

    /// Has what is imported put anew from now on, until this machine has what the fleet has. If
    /// that cannot be written, nothing can be imported.
    fn note_behind(&self) {
        let _ = self.store.store().note_behind(now_s());
    }

    /// Leaves word in the store for `sealane serve`, which says on `/healthz` when it is long.
    fn tell_health(&self, what: Option<&str>) {
        leave_word(&self.store, what);
    }
}

/// The number of a machine, by its name.
fn machine_id(name: &str) -> MachineId {
    let digest: [u8; 32] = Sha256::digest(name).into();
    let (first, _) = digest.split_first_chunk().unwrap_or((&[0; 8], &[]));
    MachineId(u64::from_be_bytes(*first))
}

/// What is wrong with a cluster that nothing was asked of yet.
const NOT_ASKED: &str = "not asked yet";
/// How long it may take to say that a machine goes.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Machines that are counted.
const MACHINES_MAX: usize = 10_000;
/// The longest that a cluster which does not answer is left alone.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The shortest.
const WAIT_MIN: Duration = Duration::from_millis(500);
