//! A fleet as one of its machines sees it: [`Fleet`].

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::CryptoProvider;
use sealane_operator::value;
use sealane_renewal::{CertificateId, MachineId, keeper};
use sealane_store::{KeyedStore, SealingKeys};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::clock::{now, now_s};
use crate::etcd::{Change, Etcd, EtcdError};
use crate::fleet::clocks::Clocks;
use crate::fleet::places::{MACHINES_MAX, Places};
use crate::settings::FleetSettings;
use crate::trust::{TrustError, our_provider};

/// A fleet as one of its machines sees it.
pub(crate) struct Fleet {
    pub(super) etcd: Etcd,
    pub(super) keys: SealingKeys,
    pub(super) places: Places,
    pub(super) provider: CryptoProvider,
    pub(super) settings: FleetSettings,
    pub(super) store: Arc<KeyedStore>,
    /// Entries that count as nothing, because no sealing key of this machine opens them.
    pub(super) passed_over: RefCell<HashSet<String>>,
    /// What is wrong with the cluster, since when; none while it answers.
    pub(super) away: RefCell<Option<(Instant, String)>>,
    /// The revision of the last change that this machine has taken.
    pub(super) seen: Cell<i64>,
    /// Whether all that was there has been taken once.
    pub(super) is_complete: Cell<bool>,
    /// Ends the wait of a cluster that did not answer.
    pub(super) retry_now: Notify,
    /// By how much this machine's clock is before those of others.
    pub(super) clocks: Clocks,
    /// The machines that are there.
    pub(super) machines: RefCell<HashMap<String, MachineId>>,
    /// The lease of this machine's entry; 0: none yet.
    pub(super) status_lease: Cell<i64>,
    /// Whether this machine leaves the fleet: the end of the process.
    pub(super) is_leaving: Cell<bool>,
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
            is_leaving: Cell::new(false),
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

    /// Ends this machine's entry, so that the others take over its certificates.
    pub(crate) async fn leave(&self) {
        // Before the note: what goes on meanwhile would take it back.
        self.is_leaving.set(true);
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

    /// Whether this machine is up to date, so that it can report missing certificates.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.get() && self.away.borrow().is_none()
    }

    pub(super) fn came_back(&self) {
        match self.away.take() {
            Some((since, what)) if what != NOT_ASKED => {
                let for_long = value::duration_text(Duration::from_secs(since.elapsed().as_secs()));
                info!("fleet: etcd answers again, after {for_long}");
            }
            Some(_) => info!("fleet: etcd answers"),
            None => {}
        }
        self.is_complete.set(true);
        self.tell_health(None);
    }

    pub(super) fn went_away(&self, failure: &EtcdError) {
        let text = failure.to_string();
        let (since, before) = self.away.borrow().clone().unwrap_or((Instant::now(), String::new()));
        if before != text {
            warn!("fleet: {text}\n  what is served is served on; orders wait until it answers");
        }
        self.tell_health(Some(&text));
        self.away.replace(Some((since, text)));
    }

    /// Has what is imported put anew from now on, until this machine has what the fleet has. If
    /// that cannot be written, nothing can be imported.
    pub(super) fn note_behind(&self) {
        let _ = self.store.store().note_behind(now_s());
    }

    /// Leaves word in the store for `sealane serve`, which says on `/healthz` when it is long.
    pub(super) fn tell_health(&self, what: Option<&str>) {
        leave_word(&self.store, what);
    }
}

/// The number of a machine, by its name.
fn machine_id(name: &str) -> MachineId {
    let digest: [u8; 32] = Sha256::digest(name).into();
    let (first, _) = digest.split_first_chunk().unwrap_or((&[0; 8], &[]));
    MachineId(u64::from_be_bytes(*first))
}

/// Leaves a message in the store about the cluster: none while it answers, else its fault and the
/// time since when.
pub(crate) fn leave_word(store: &KeyedStore, what: Option<&str>) {
    let before = store.store().word();
    let since = before.as_deref().and_then(|text| text.split_once(' ')).map(|(since, _)| since);
    let text = what.map(|what| {
        let since = since.map_or_else(|| now().0.to_string(), str::to_owned);
        format!("{since} {what}")
    });
    if text == before {
        return;
    }
    // If it cannot be written, serving goes on without a report.
    let _ = store.store().leave_word(text.as_deref());
}

/// What is wrong with a cluster that nothing was asked of yet.
const NOT_ASKED: &str = "not asked yet";
/// How long the end of the entry may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
