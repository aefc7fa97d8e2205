//! A stream of certificates on its way into a store: [`Upload`].

use rustls::crypto::CryptoProvider;
use sealane_store::{Imported, KeyedStore, StoreError};

use crate::answer::Stored;
use crate::batches::{Batches, May, Mistakes};
use crate::quota::{Quota, QuotaReached};
use crate::request::MISTAKES_TOLD_MAX;

/// Certificates that come in a stream and are stored, a batch in each transaction. If it ends
/// early, the stored part is whole, and the same stream may come again.
pub struct Upload<'p> {
    batches: Batches<'p>,
    bytes_left: u64,
    /// The store's, after the last batch.
    generation: u64,
    quota: Option<&'p mut Quota>,
    store: &'p KeyedStore,
    tally: Tally,
}

impl<'p> Upload<'p> {
    /// An upload into `store`, of which nothing has come. `source` is its name in errors, and in
    /// the store's record of certificates. `provider` checks the keys.
    pub fn new(
        store: &'p KeyedStore,
        source: &'p str,
        provider: &'p CryptoProvider,
        may: May<'p>,
    ) -> Self {
        let batches = Batches::new(source, provider, may);
        let generation = store.store().generation().unwrap_or_default();
        let (quota, tally) = (None, Tally::default());
        Self { batches, bytes_left: STREAM_BYTES_MAX, generation, quota, store, tally }
    }

    /// The same for a client with a quota of certificates in the store.
    #[must_use]
    pub fn within(self, quota: &'p mut Quota) -> Self {
        Self { quota: Some(quota), ..self }
    }

    /// Room for the next bytes. It is never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.batches.space()
    }

    /// Notes that `count` bytes have come into the space, and stores whole certificates of them, in
    /// batches.
    ///
    /// `now_s` is Unix time.
    ///
    /// # Errors
    /// There is an error in the next batch, or the store cannot be written.
    pub fn filled(&mut self, count: usize, now_s: i64) -> Result<(), NotStored> {
        let left = self.bytes_left.checked_sub(count as u64);
        self.bytes_left = left.ok_or(NotStored::TooLong)?;
        self.batches.filled(count);
        self.store(now_s)
    }

    /// Notes that the stream has ended as its sender wanted, and stores the last batch.
    ///
    /// # Errors
    /// As [`Self::filled`], or nothing has come at all.
    pub fn end(&mut self, now_s: i64) -> Result<(), NotStored> {
        self.batches.end();
        self.store(now_s)?;
        match self.tally.stored() {
            0 => Err(NotStored::Nothing),
            _ => Ok(()),
        }
    }

    /// Counts and warnings of the certificates that were stored so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The answer to an upload that came to such an end.
    pub fn answer(self, end: Result<(), StreamEnd>) -> Stored {
        let Tally { imported, warnings } = self.tally;
        let errors = match end {
            Ok(()) => Vec::new(),
            Err(StreamEnd::NotStored(NotStored::Mistakes(Mistakes(mistakes)))) => told(mistakes),
            Err(StreamEnd::NotStored(refused)) => vec![refused.to_string()],
            Err(StreamEnd::Cut(why)) => vec![why],
        };
        Stored {
            added: imported.added,
            replaced: imported.replaced,
            unchanged: imported.unchanged,
            errors,
            generation: self.generation,
            warnings,
        }
    }

    fn store(&mut self, now_s: i64) -> Result<(), NotStored> {
        while let Some(batch) = self.batches.next(now_s)? {
            if let Some(quota) = &mut self.quota {
                quota.take(self.store.store(), &batch.certificates)??;
            }
            let Imported { added, replaced, unchanged } =
                self.store.import(&batch.certificates, now_s)?;
            // Now, and not at the end: the stream may end because the store is damaged, and cannot
            // be read.
            self.generation = self.store.store().generation().unwrap_or(self.generation);
            self.tally.imported.added += added;
            self.tally.imported.replaced += replaced;
            self.tally.imported.unchanged += unchanged;
            let room = MISTAKES_TOLD_MAX.saturating_sub(self.tally.warnings.len());
            self.tally.warnings.extend(batch.warnings.into_iter().take(room));
        }
        Ok(())
    }
}

/// The first errors, and the count of the others.
fn told(mut mistakes: Vec<String>) -> Vec<String> {
    if let Some(more) = mistakes.len().checked_sub(MISTAKES_TOLD_MAX).filter(|more| *more > 0) {
        mistakes.truncate(MISTAKES_TOLD_MAX);
        mistakes.push(format!("and {more} more mistakes"));
    }
    mistakes
}

/// Counts and warnings of the certificates that were stored of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The certificates.
    pub imported: Imported,
    /// The first warnings about certificates that were stored, but are probably not meant.
    pub warnings: Vec<String>,
}

impl Tally {
    /// Certificates that are in the store by now, whether they were before or not.
    pub fn stored(&self) -> u64 {
        self.imported.added + self.imported.replaced + self.imported.unchanged
    }
}

/// The reason why an upload ended before its stream was stored.
#[derive(Debug)]
pub enum StreamEnd {
    /// The sender did not send all, with the sign of that.
    Cut(String),
    /// The store did not take the next batch.
    NotStored(NotStored),
}

/// The reason why the next batch of a stream is not stored.
#[derive(Debug, thiserror::Error)]
pub enum NotStored {
    /// There are mistakes in it.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    /// The stream had nothing in it.
    #[error("nothing in it; send chains with their keys, in PEM, one after the other")]
    Nothing,
    /// The client has as many certificates in the store as it may.
    #[error(transparent)]
    Quota(#[from] QuotaReached),
    /// The store does not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stream is longer than [`STREAM_BYTES_MAX`].
    #[error("more than {STREAM_BYTES_MAX} bytes; send the rest by itself")]
    TooLong,
}

/// Bytes of a stream: two million certificates of the usual length.
pub const STREAM_BYTES_MAX: u64 = 8 << 30;

#[cfg(test)]
mod tests;
