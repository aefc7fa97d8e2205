//! What lanes count of listeners, kept across generations.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use sealane_lanes::steer::Steer;

use crate::config;
use crate::relay::ListenerCounters;

/// What lanes count of listeners, by name.
#[derive(Default)]
pub(super) struct ListenerRegistry {
    by_name: HashMap<String, ListenerCounters>,
    /// What decides which clients share a lane; nobody outside can know it.
    key: RandomState,
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

    /// How the clients of `listener` are spread over `lanes` lanes: in the same way in every
    /// generation, so that a reload moves nobody.
    pub(super) fn steer(&self, listener: &config::Listener, lanes: usize) -> Steer {
        // The upper half of 64 bits fits.
        let key = u32::try_from(self.key.hash_one("steer") >> 32).unwrap_or_default();
        match (listener.limits.steers_clients, u32::try_from(lanes)) {
            (true, Ok(lanes)) => Steer::Client { key, lanes },
            _ => Steer::Connection,
        }
    }

    /// Forgets listeners that no generation has any more.
    pub(super) fn prune(&mut self) {
        self.by_name.retain(|_, counters| {
            counters.open.iter().any(|of_lane| Arc::strong_count(of_lane) > 1)
        });
    }
}
