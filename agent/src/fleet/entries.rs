//! Entries of the store that all machines of a fleet have: accounts with authorities, ticket roots,
//! what is waited for, names on demand, and answers to challenges.

use std::collections::HashSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use sealane_store::{KEPT_NAME_BYTES_MAX, KeptChange, StoreError, TICKET_ROOTS, UnsealError};
use serde::Deserialize;
use tracing::warn;
use zeroize::Zeroizing;

use super::member::Fleet;
use super::tickets;
use crate::etcd::{Change, Compare, Entry, EtcdError, PAGE};
use crate::failure::plain;

/// What the entry `name` of the cluster holds; none if it is nothing that machines share, or taken
/// care of. Of ticket roots the later ones are taken.
///
/// # Errors
/// No sealing key of this machine opens it.
pub(super) fn taken(
    fleet: &Fleet,
    name: &str,
    entry: &Entry,
) -> Result<Option<Zeroizing<Vec<u8>>>, UnsealError> {
    if !is_shared(name) {
        return Ok(None);
    }
    if name == TICKET_ROOTS {
        return tickets::take(fleet, entry).map(|()| None);
    }
    fleet.keys.open_at(&entry.key, &entry.value).map(Some)
}

/// Drops answers to challenges that the fleet has no more.
///
/// # Errors
/// The store cannot be written.
pub(super) fn drop_answers(fleet: &Fleet, there: &HashSet<String>) -> Result<(), EtcdError> {
    let (store, mut after) = (&fleet.store, None::<String>);
    for _ in 0..ANSWERS_PAGES_MAX {
        let here = store.kept_names(ANSWERS, after.as_deref(), PAGE);
        let here = here.map_err(|error| EtcdError::ours(&error.to_string()))?;
        let gone = here.iter().filter(|name| !there.contains(&fleet.places.entry(name)));
        let gone: Vec<KeptChange<'_>> = gone.map(|name| (name.as_str(), None)).collect();
        if !gone.is_empty() {
            store.keep(&[], 0, &gone).map_err(|error| EtcdError::ours(&error.to_string()))?;
        }
        after = here.into_iter().next_back();
        if after.is_none() {
            break;
        }
    }
    Ok(())
}

impl Fleet {
    /// The entry `name` of this machine's store; none if no sealing key opens it, as if it were not
    /// there, which is told once.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) fn opened(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
        match self.store.kept(name) {
            Err(error @ StoreError::Damaged { .. }) => {
                self.pass_over(name, Some(&error.to_string()));
                Ok(None)
            }
            read => {
                self.pass_over(name, None);
                read
            }
        }
    }

    /// Notes what is wrong with an entry that counts as nothing, and says so if it is news; or that
    /// nothing is any more.
    pub(super) fn pass_over(&self, name: &str, what: Option<&str>) {
        let mut passed_over = self.passed_over.borrow_mut();
        match what {
            Some(what) if passed_over.len() < PASSED_OVER_MAX => {
                if passed_over.insert(name.to_owned()) {
                    let name = plain(name);
                    warn!("fleet: {name}: passed over: {what}");
                }
            }
            Some(_) => {}
            None => {
                passed_over.remove(name);
            }
        }
    }

    /// Puts accounts back that the cluster has lost, or that somebody without a sealing key has
    /// ruined there, until the process ends.
    pub(super) async fn keep_accounts(self: Rc<Self>) {
        let mut looked = None::<Instant>;
        loop {
            let is_due = looked.is_none_or(|at| at.elapsed() > ACCOUNTS_LOOK);
            if !self.is_complete() {
                // What comes back may be another.
                looked = None;
            } else if is_due && self.put_accounts_back().await.is_ok() {
                looked = Some(Instant::now());
            }
            tokio::time::sleep(TICK).await;
        }
    }

    async fn put_accounts_back(&self) -> Result<(), EtcdError> {
        let here = self
            .store
            .kept_names(ACCOUNTS, None, PAGE)
            .map_err(|error| EtcdError::ours(&error.to_string()))?;
        for name in here {
            let value = self.opened(&name).map_err(|error| EtcdError::ours(&error.to_string()))?;
            let Some(value) = value.filter(|value| is_opened(value)) else { continue };
            let place = self.places.entry(&name);
            let there = self.etcd.get(&place).await?;
            let opened = there.as_ref().map(|there| self.keys.open_at(&place, &there.value));
            if !matches!(opened, None | Some(Err(UnsealError::Damaged))) {
                continue;
            }
            let sealed = self.keys.seal_for(&place, &value);
            let sealed = sealed.map_err(|error| EtcdError::ours(&error.to_string()))?;
            let at = there.map_or(0, |there| there.mod_revision);
            // If another was faster, the watch brings that one.
            let compare = [Compare::Modified(&place, at)];
            self.etcd.change_if(&compare, &[Change::Put(&place, &sealed, 0)]).await?;
        }
        Ok(())
    }
}

/// Whether an authority has heard of the account of this text.
fn is_opened(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Known {
        url: Option<String>,
    }
    serde_json::from_slice(text).is_ok_and(|Known { url }| url.is_some())
}

/// Whether the entry `name` is of no use any more once it is deleted.
pub(super) fn is_passing(name: &str) -> bool {
    is_shared(name) && (name.starts_with(ANSWERS) || name.starts_with(WAITS))
}

/// Whether the entry `name` is an answer to a challenge.
pub(super) fn is_answer(name: &str) -> bool {
    name.starts_with(ANSWERS)
}

/// Whether the entry `name`, which was taken, is sealed anew once there is another key: an answer
/// is there for minutes, and on a lease.
pub(super) fn is_to_be_resealed(name: &str) -> bool {
    !name.starts_with(ANSWERS)
}

/// Whether machines share the entry `name` of their stores.
fn is_shared(name: &str) -> bool {
    name.len() <= KEPT_NAME_BYTES_MAX && SHARED.iter().any(|prefix| name.starts_with(prefix))
}

/// Entries with accounts at authorities.
const ACCOUNTS: &str = "acme/account/";
/// How often it is looked whether the cluster has them.
const ACCOUNTS_LOOK: Duration = Duration::from_secs(60);
/// Entries with answers to challenges.
const ANSWERS: &str = "challenge/";
/// Pages of answers that are looked through: more than an agent has orders under way for.
const ANSWERS_PAGES_MAX: usize = 100;
/// Entries that are passed over and told one by one.
const PASSED_OVER_MAX: usize = 100;
/// Entries of the store that all machines have.
const SHARED: [&str; 5] = [ANSWERS, ACCOUNTS, "acme/demand/", WAITS, "tickets/"];
/// Entries with what is waited for.
const WAITS: &str = "acme/wait/";
/// How often it is looked whether the cluster is there.
const TICK: Duration = Duration::from_secs(1);
