//! Which backends an operator has drained, by the names that they are written by.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Drained names, for the control plane and for whoever orders: no lane asks.
#[derive(Clone, Default)]
pub struct Drained(Arc<Mutex<BTreeSet<String>>>);

impl Drained {
    /// Notes that backends of this name get no new connections, or some again.
    pub fn note(&self, label: &str, is_drained: bool) {
        let mut labels = self.lock();
        if is_drained {
            labels.insert(label.to_owned());
        } else {
            labels.remove(label);
        }
    }

    /// Whether what is written so gets no new connections.
    pub fn has(&self, label: &str) -> bool {
        self.lock().contains(label)
    }

    /// Forgets the names that `is_known` denies.
    pub fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.lock().retain(|label| is_known(label));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // Each change is one call, whole whatever panicked elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
