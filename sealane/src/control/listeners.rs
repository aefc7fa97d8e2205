//! What lanes count of listeners, kept across generations.

use std::collections::HashMap;
use std::sync::Arc;

use crate::relay::ListenerCounters;

/// What lanes count of listeners, by name.
#[derive(Default)]
pub(super) struct ListenerRegistry {
    by_name: HashMap<String, ListenerCounters>,
    /// Numbers that were given out.
    numbers: u32,
}

impl ListenerRegistry {
    /// What `lanes` lanes count of the listener `name`.
    pub(super) fn counters(&mut self, name: &str, lanes: usize) -> ListenerCounters {
        if let Some(known) = self.by_name.get(name) {
            return known.clone();
        }
        self.numbers += 1;
        let open = (0..lanes).map(|_| Arc::default()).collect();
        let counters = ListenerCounters { number: self.numbers, open };
        self.by_name.insert(name.to_owned(), counters.clone());
        counters
    }

    /// Forgets listeners that no generation has any more.
    pub(super) fn prune(&mut self) {
        self.by_name.retain(|_, counters| {
            counters.open.iter().any(|of_lane| Arc::strong_count(of_lane) > 1)
        });
    }
}
