//! A limit on how many certificates one client has in a store: [`Quota`].

use std::collections::HashSet;
use std::sync::Arc;

use sealane_engine::certificates::{Certificate, CertificateDigest};
use sealane_store::{Listed, Store, StoreError};

/// The certificates of one client, known by the source in their labels, and how many there may be.
#[derive(Clone, Debug)]
pub struct Quota {
    held: usize,
    max: usize,
    /// The beginning of their labels.
    prefix: String,
}

impl Quota {
    /// Counts the certificates in `store` from `source`, by a look at each certificate.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn count(store: &Store, source: &str, max: usize) -> Result<Self, StoreError> {
        let mut quota = Self { held: 0, max, prefix: format!("{source}, line ") };
        let mut last: Option<Listed> = None;
        loop {
            let page = store.by_expiry(last.as_ref(), PAGE)?;
            quota.held += page.iter().filter(|listed| quota.has(listed)).count();
            last = page.into_iter().last();
            if last.is_none() {
                return Ok(quota);
            }
        }
    }

    /// The same certificates under another limit.
    #[must_use]
    pub fn with_max(self, max: usize) -> Self {
        Self { max, ..self }
    }

    /// Counts certificates that are about to be stored.
    ///
    /// # Errors
    /// There would be too many, or the store cannot be read; then none of them is counted.
    pub(crate) fn take(
        &mut self,
        store: &Store,
        certificates: &[Arc<Certificate>],
    ) -> Result<Result<(), QuotaReached>, StoreError> {
        let (mut new, mut replaced) = (0, HashSet::new());
        for certificate in certificates {
            // A certificate that leaves makes room for one.
            let room = self.replaced_by(store, certificate)?.into_iter();
            new += usize::from(!room.into_iter().any(|old| replaced.insert(old)));
        }
        let (held, max) = (self.held, self.max);
        if new > 0 && held.saturating_add(new) > max {
            return Ok(Err(QuotaReached { held, max, new }));
        }
        self.held += new;
        Ok(Ok(()))
    }

    /// Certificates of this client that leave the store when `certificate` comes, or are it.
    fn replaced_by(
        &self,
        store: &Store,
        certificate: &Certificate,
    ) -> Result<Vec<CertificateDigest>, StoreError> {
        let Some(name) = certificate.names().first() else { return Ok(Vec::new()) };
        let covers = |old: &Listed| {
            let has = |name: &String| certificate.names().iter().any(|new| **new == **name);
            old.key_type == certificate.key_type() && self.has(old) && old.names.iter().all(has)
        };
        let found = store.find(name)?.into_iter();
        Ok(found.filter(covers).map(|old| old.digest).collect())
    }

    fn has(&self, listed: &Listed) -> bool {
        listed.label.starts_with(&self.prefix)
    }
}

/// The reason why certificates beyond the quota are not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "these {new} new certificates and the {held} in the store would be more than {max}, the \
     certificates_max of this role; delete some, or raise certificates_max"
)]
pub struct QuotaReached {
    held: usize,
    max: usize,
    new: usize,
}

/// Certificates that are looked at in one transaction.
const PAGE: usize = 1_000;
