//! What checks have found of backends, told to lanes as a mask for each destination.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use sealane_engine::client::OptionsDigest;
use sealane_lanes::generation::Generation;
use sealane_lanes::kernel::Address;
use sealane_lanes::mailbox::Mail;

use super::{Control, Event};
use crate::backends::{Backend, PlannedBackend, RelaySettings};
use crate::checks::{Checker, Found, Target};
use crate::config::{Check, ProxyHeader};
use crate::operator::{Priority, say, say_at};
use crate::proxy_header::{V1_OF_NOBODY, V2_OF_NOBODY};

/// What is checked, and what was found of it.
#[derive(Default)]
pub(super) struct Health {
    /// Equal ones are checked once, whoever has them.
    targets: HashMap<Key, Arc<Target>>,
    states: HashMap<u64, Result<(), String>>,
    /// Numbers that were given out.
    ids: u64,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    address: Address,
    check: Check,
    header: &'static [u8],
    tls: Option<(OptionsDigest, ServerName<'static>)>,
}

impl Health {
    /// What is checked where `planned` is at `address`, if it is checked.
    pub(super) fn target(
        &mut self,
        address: &Address,
        planned: &PlannedBackend,
    ) -> Option<Arc<Target>> {
        // How fast a backend comes back is no part of how it is checked.
        let check = Check { slow_start: Duration::ZERO, ..planned.check.clone()? };
        let tls = planned.tls.as_ref().map(|tls| (tls.context.digest(), tls.name.clone()));
        let header = of_nobody(planned.proxy_header);
        let key = Key { address: address.clone(), check, header, tls };
        let make = |key: &Key| {
            self.ids += 1;
            Arc::new(Target {
                address: key.address.clone(),
                check: key.check.clone(),
                header: key.header,
                id: self.ids,
                tls: planned.tls.clone(),
            })
        };
        let target = self.targets.entry(key).or_insert_with_key(make);
        Some(Arc::clone(target))
    }

    /// Those of `backends` that are down, by bit.
    pub(super) fn down(&self, backends: &[Backend]) -> u64 {
        let bits = backends.iter().enumerate().map(|(index, backend)| {
            u64::from(self.of(backend).is_some_and(Result::is_err)) << index
        });
        bits.sum()
    }

    /// What checks have found of `backend`; none if it is not checked, or was not yet.
    pub(super) fn of(&self, backend: &Backend) -> Option<&Result<(), String>> {
        self.states.get(&backend.target.as_ref()?.id)
    }

    /// Forgets what nobody checks any more.
    pub(super) fn prune(&mut self) {
        self.targets.retain(|_, target| Arc::strong_count(target) > 1);
        let ids: std::collections::HashSet<u64> =
            self.targets.values().map(|target| target.id).collect();
        self.states.retain(|id, _| ids.contains(id));
    }
}

impl Control {
    /// Checks the backends of `generation` from now on, and no others.
    pub(super) fn check_backends(&mut self, generation: &Generation<RelaySettings>) {
        let mut targets: Vec<Arc<Target>> = backends(generation)
            .filter_map(|backend| backend.target.as_ref().map(Arc::clone))
            .collect();
        targets.sort_by_key(|target| target.id);
        targets.dedup_by_key(|target| target.id);
        if self.checker.is_none() && !targets.is_empty() {
            let events = self.notices.clone();
            let tell = move |found| {
                // Nobody listens any more when the process is about to end.
                let _ = events.send(Event::Checked(found));
            };
            match Checker::start(tell) {
                Ok(checker) => self.checker = Some(checker),
                Err(error) => {
                    let text = format!("backends are not checked: {error}");
                    say_at(Priority::Error, &text);
                }
            }
        }
        if let Some(checker) = &self.checker {
            checker.check(targets);
        }
    }

    /// Tells lanes what checks have found, and whoever reads the log.
    pub(super) fn end_check(&mut self, found: Found) {
        let Found { id, state } = found;
        let current = self.generations.last();
        let known = current.and_then(|current| {
            backends(current).find(|b| b.target.as_ref().is_some_and(|target| target.id == id))
        });
        // One may have left the configuration meanwhile.
        let Some(backend) = known else { return };
        let (label, address) = (&backend.label, &backend.address);
        match &state {
            Ok(()) => say(&format!("backend {label} at {address} is up")),
            Err(why) => {
                let text = format!("backend {label} at {address} is down: {why}");
                say_at(Priority::Warning, &text);
            }
        }
        let is_down = state.is_err();
        let was_down =
            self.registries.health.states.insert(id, state).is_some_and(|was| was.is_err());
        // Lanes take who is not known to be down for one that is up.
        if is_down != was_down {
            for generation in &self.generations {
                self.tell_lanes(generation, id);
            }
        }
        if let Some(current) = self.generations.last() {
            let shown = super::build::shown_backends(current, &self.registries.health);
            self.state.lock().backends = shown;
        }
    }

    fn tell_lanes(&self, generation: &Generation<RelaySettings>, id: u64) {
        for listener in &generation.listeners {
            for (position, destination) in listener.settings.destinations.iter().enumerate() {
                let is_it = |backend: &Backend| {
                    backend.target.as_ref().is_some_and(|target| target.id == id)
                };
                if !destination.backends.iter().any(is_it) {
                    continue;
                }
                let down = self.registries.health.down(&destination.backends);
                for lane in &self.lanes {
                    let (settings, number) = (Arc::clone(&listener.settings), lane.number);
                    lane.post(Mail::Run(Box::new(move |now_ms| {
                        if let Some(memory) = settings.destinations[position].memories.get(number) {
                            memory.note_checked(down, now_ms);
                        }
                    })));
                }
            }
        }
    }
}

fn backends(generation: &Generation<RelaySettings>) -> impl Iterator<Item = &Backend> {
    let listeners = generation.listeners.iter();
    let destinations = listeners.flat_map(|listener| &listener.settings.destinations);
    destinations.flat_map(|destination| &destination.backends)
}

/// The PROXY header of a connection that nobody else is behind.
fn of_nobody(header: ProxyHeader) -> &'static [u8] {
    match header {
        ProxyHeader::Off => b"",
        ProxyHeader::V1 => V1_OF_NOBODY,
        ProxyHeader::Pass(_) | ProxyHeader::V2(_) => V2_OF_NOBODY,
    }
}
