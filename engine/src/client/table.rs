//! The contexts of a process, found by their options.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::context::ClientContext;
use super::error::ClientOptionsError;
use super::options::{ClientOptions, OptionsDigest};

/// Builds one [`ClientContext`] for equal options, however many clients ask.
///
/// A process has one table, which belongs to its control plane. Asking takes it by `&mut`, so an
/// owner with several threads puts it behind a lock. No lane needs it to connect.
#[derive(Debug, Default)]
pub struct ClientContexts {
    contexts: HashMap<OptionsDigest, Weak<ClientContext>>,
    counters: Arc<Counters>,
    /// The count of entries at which those of freed contexts are removed. It is twice the count
    /// that the last sweep left, so that sweeping costs each entry the same however many there are.
    sweep_at: usize,
}

impl ClientContexts {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The context for `options`: the one that is in use for equal options, else a new one.
    ///
    /// The table itself keeps none alive.
    ///
    /// # Errors
    /// One of the options is wrong, or [`CLIENT_CONTEXTS_MAX`] are in use. Contexts in use stay as
    /// they are then, and so do the slots that hold them.
    pub fn context(
        &mut self,
        options: &ClientOptions,
    ) -> Result<Arc<ClientContext>, ClientOptionsError> {
        let digest = options.digest();
        if let Some(context) = self.contexts.get(&digest).and_then(Weak::upgrade) {
            return Ok(context);
        }
        self.sweep();
        if self.contexts.len() >= CLIENT_CONTEXTS_MAX {
            return Err(ClientOptionsError::TableFull);
        }
        let context = ClientContext::build(options, digest, &self.counters)?;
        self.contexts.insert(digest, Arc::downgrade(&context));
        Ok(context)
    }

    /// Counts since the start.
    pub fn counts(&self) -> ClientContextCounts {
        self.counters.read()
    }

    /// Entries, those of freed contexts that were not swept out yet among them.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.contexts.len()
    }

    fn sweep(&mut self) {
        if self.contexts.len() >= self.sweep_at.min(CLIENT_CONTEXTS_MAX) {
            self.contexts.retain(|_, context| context.strong_count() > 0);
            self.sweep_at = 2 * self.contexts.len().max(SWEEP_MIN);
        }
    }
}

/// Counts of one [`ClientContexts`], from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientContextCounts {
    /// Contexts built.
    pub built: u64,
    /// Roots parsed for them.
    pub certificates_parsed: u64,
    /// Contexts freed, each behind its last connection.
    pub freed: u64,
}

impl ClientContextCounts {
    /// Contexts in use.
    pub fn live(&self) -> u64 {
        self.built.saturating_sub(self.freed)
    }
}

/// Written when a context is built or freed, never by a connection.
#[derive(Debug, Default)]
pub(super) struct Counters {
    built: AtomicU64,
    certificates_parsed: AtomicU64,
    freed: AtomicU64,
}

impl Counters {
    pub(super) fn built(&self) {
        self.built.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn freed(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn parsed(&self, certificates: usize) {
        self.certificates_parsed.fetch_add(certificates as u64, Ordering::Relaxed);
    }

    fn read(&self) -> ClientContextCounts {
        // Freed first: a context that is freed meanwhile must not be missing among the built.
        let freed = self.freed.load(Ordering::Relaxed);
        ClientContextCounts {
            built: self.built.load(Ordering::Relaxed),
            certificates_parsed: self.certificates_parsed.load(Ordering::Relaxed),
            freed,
        }
    }
}

/// Contexts with different options that are in use at once.
pub const CLIENT_CONTEXTS_MAX: usize = 65_536;

/// Entries below which nothing is swept.
const SWEEP_MIN: usize = 16;
