//! How many certificates each role has in the store: [`Quotas`].

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sealane_store::{Store, StoreError};
use sealane_store_requests::Quota;

/// Counts of certificates, by role. A count takes a look at the whole store, so it is kept for a
/// while.
#[derive(Debug, Default)]
pub(super) struct Quotas(Mutex<HashMap<String, Counted>>);

/// The count of a role. One stream at a time has it.
#[derive(Debug)]
pub(super) struct Counted {
    at: Instant,
    pub(super) quota: Quota,
}

impl Quotas {
    /// The count of certificates of `role`, which come from `source` and may be at most `max`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) fn take(
        &self,
        role: &str,
        source: &str,
        max: usize,
        store: &Store,
    ) -> Result<Counted, StoreError> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(role);
        match known.filter(|known| known.at.elapsed() < KEPT_FOR) {
            Some(Counted { at, quota }) => Ok(Counted { at, quota: quota.with_max(max) }),
            None => {
                let at = Instant::now();
                Ok(Counted { at, quota: Quota::count(store, source, max)? })
            }
        }
    }

    /// Keeps a count for the next stream of the role.
    pub(super) fn put_back(&self, role: &str, counted: Counted) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(role.to_owned(), counted);
    }

    /// Forgets the count of a role that has removed something.
    pub(super) fn forget(&self, role: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(role);
    }
}

/// Others may replace or remove a role's certificates meanwhile.
const KEPT_FOR: Duration = Duration::from_secs(60);
