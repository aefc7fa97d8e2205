//! Entries of the store that all machines of a fleet have: accounts with authorities, ticket roots,
//! what is waited for, and answers to challenges.

use std::collections::HashSet;

use sealane_store::{KEPT_NAME_BYTES_MAX, KeptChange, UnsealError};
use zeroize::Zeroizing;

use super::Fleet;
use super::replica::ours;
use crate::etcd::{Entry, EtcdError, PAGE};

/// What the entry `name` of the cluster holds; none if it is nothing that machines share.
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
    fleet.keys.open_at(&entry.key, &entry.value).map(Some)
}

/// Drops answers to challenges that the fleet has no more.
///
/// # Errors
/// The store cannot be written.
pub(super) fn drop_answers(fleet: &Fleet, there: &HashSet<String>) -> Result<(), EtcdError> {
    let store = &fleet.store;
    let here = store.kept_under(ANSWERS, None, PAGE).map_err(|error| ours(&error))?;
    let gone: Vec<KeptChange<'_>> = here
        .iter()
        .filter(|(name, _)| !there.contains(&fleet.places.entry(name)))
        .map(|(name, _)| (name.as_str(), None))
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    store.keep(&[], 0, &gone).map(drop).map_err(|error| ours(&error))
}

/// Whether the entry `name` is of no use any more once it is deleted.
pub(super) fn is_passing(name: &str) -> bool {
    is_shared(name) && (name.starts_with(ANSWERS) || name.starts_with(WAITS))
}

/// Whether machines share the entry `name` of their stores.
fn is_shared(name: &str) -> bool {
    name.len() <= KEPT_NAME_BYTES_MAX && SHARED.iter().any(|prefix| name.starts_with(prefix))
}

/// Entries with answers to challenges.
const ANSWERS: &str = "challenge/";
/// Entries of the store that all machines have.
const SHARED: [&str; 4] = [ANSWERS, "acme/account/", WAITS, "tickets/"];
/// Entries with what is waited for.
const WAITS: &str = "acme/wait/";
