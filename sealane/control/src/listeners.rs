//! What lanes count of listeners, kept across generations.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use sealane_config as config;
use sealane_lanes::generation::Generation;
use sealane_lanes::steer::Steer;
use sealane_traffic::admission::ListenerCounters;
use sealane_traffic::backends::RelaySettings;

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
        let counters = ListenerCounters::new(self.numbers, lanes);
        self.by_name.insert(name.to_owned(), counters.clone());
        counters
    }

    /// How the clients of `listener` are spread over `lanes` lanes: in the same way in every
    /// generation, so that a reload moves nobody.
    pub(super) fn steer(&self, listener: &config::Listener, lanes: usize) -> Steer {
        // The upper half of 64 bits fits.
        let key = u32::try_from(self.key.hash_one("steer") >> 32).unwrap_or_default();
        // At most 1,024.
        let lanes = u32::try_from(lanes).unwrap_or(u32::MAX);
        match listener.limits.steering {
            config::Steering::Client => Steer::Client { key, lanes },
            config::Steering::Connection => Steer::Connection,
            config::Steering::Core => Steer::Core { lanes },
        }
    }

    /// Forgets listeners that no generation has any more.
    pub(super) fn prune(&mut self) {
        self.by_name.retain(|_, counters| {
            counters.lanes.iter().any(|of_lane| Arc::strong_count(of_lane) > 1)
        });
    }
}

/// What is counted of each listener, by its name.
pub(super) fn counted(generation: &Generation<RelaySettings>) -> Vec<(String, ListenerCounters)> {
    let settings = generation.listeners.iter().map(|listener| &listener.settings);
    settings.map(|each| (each.listener.clone(), each.admission.counted.clone())).collect()
}
