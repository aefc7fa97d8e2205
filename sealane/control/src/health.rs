//! What checks have found of backends, told to lanes as a mask for each destination.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use sealane_config::{Check, ProxyHeader};
use sealane_lanes::generation::Generation;
use sealane_lanes::kernel::Address;
use sealane_lanes::mailbox::Mail;
use sealane_traffic::backends::{Backend, BackendCounters, PlannedBackend, RelaySettings, Target};
use sealane_traffic::checks::{Checker, Found};
use sealane_traffic::proxy_header::{V1_OF_NOBODY, V2_OF_NOBODY};
use tracing::{Level, error, info, warn};

use super::lane_group::LaneGroup;
use super::{Control, Event};
use crate::state::BackendSummary;

/// What is checked, and what was found of it.
#[derive(Default)]
pub(super) struct Health {
    /// The numbers of those that are checked.
    checked: HashSet<u64>,
    /// By address; equal ones are checked once, whoever has them.
    targets: HashMap<Address, Vec<Arc<Target>>>,
    states: HashMap<u64, Known>,
    /// Numbers that were given out.
    ids: u64,
    /// Those of them that were given out when it was last decided what is checked.
    ids_before: u64,
    /// The thread that checks, once something is checked.
    checker: Option<Checker>,
}

/// What checks have found of a target.
#[derive(Clone)]
struct Known {
    /// Since when it is up again; none if it is not, or was never found down.
    back_since: Option<Instant>,
    state: Result<(), String>,
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
        let mut target = Target {
            address: address.clone(),
            check,
            header: of_nobody(planned.proxy_header),
            id: self.ids + 1,
            is_up: None,
            tls: planned.tls.clone(),
        };
        let others = self.targets.get(address).map_or(&[][..], Vec::as_slice);
        // What an older generation still has is not checked any more: nothing new is known of it.
        let others =
            others.iter().filter(|o| o.id > self.ids_before || self.checked.contains(&o.id));
        if let Some(equal) = others.clone().find(|other| alike(other, &target) == ALL_ALIKE) {
            return Some(Arc::clone(equal));
        }
        self.ids += 1;
        // Until the new check has found something, what the one most like it has found holds. Of
        // equals one that is up: it is tried, and the check finds out.
        let known = others.filter_map(|other| Some((other, self.states.get(&other.id)?)));
        let known = known.max_by_key(|(o, known)| (alike(o, &target), known.state.is_ok()));
        if let Some(known) = known.map(|(_, known)| known.clone()) {
            target.is_up = Some(known.state.is_ok());
            self.states.insert(target.id, known);
        }
        let target = Arc::new(target);
        self.targets.entry(address.clone()).or_default().push(Arc::clone(&target));
        Some(target)
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
        Some(&self.states.get(&backend.target.as_ref()?.id)?.state)
    }

    /// The positions of those of `backends` that have come back no longer than `slow_start_ms` ago,
    /// with how long ago that was.
    fn back_for_ms(&self, backends: &[Backend], slow_start_ms: u64) -> Vec<(usize, u64)> {
        let back_for_ms = |backend: &Backend| {
            let since = self.states.get(&backend.target.as_ref()?.id)?.back_since?;
            let back_for_ms = u64::try_from(since.elapsed().as_millis()).ok()?;
            Some(back_for_ms).filter(|back_for_ms| *back_for_ms < slow_start_ms)
        };
        let backends = backends.iter().enumerate();
        backends.filter_map(|(index, backend)| Some((index, back_for_ms(backend)?))).collect()
    }

    /// Notes what was found of the target `id`; returns whether it was down before.
    fn note(&mut self, id: u64, state: Result<(), String>) -> bool {
        let was_down = self.states.get(&id).is_some_and(|known| known.state.is_err());
        let back_since = match (&state, self.states.get(&id)) {
            (Ok(()), Some(_)) if was_down => Some(Instant::now()),
            (Ok(()), Some(known)) => known.back_since,
            (Ok(()), None) | (Err(_), _) => None,
        };
        self.states.insert(id, Known { back_since, state });
        was_down
    }

    /// Forgets what nobody checks any more.
    pub(super) fn prune(&mut self) {
        self.targets.retain(|_, targets| {
            targets.retain(|target| Arc::strong_count(target) > 1);
            !targets.is_empty()
        });
        let ids: HashSet<u64> = self.targets.values().flatten().map(|target| target.id).collect();
        self.states.retain(|id, _| ids.contains(id));
    }
}

impl Health {
    /// Checks the backends of `generation` from now on, and no others; results come as events.
    ///
    /// # Errors
    /// The thread that checks cannot be started; then nothing is checked.
    pub(super) fn check(
        &mut self,
        generation: &Generation<RelaySettings>,
        events: &Sender<Event>,
    ) -> io::Result<()> {
        let mut targets: Vec<Arc<Target>> = backends(generation)
            .filter_map(|backend| backend.target.as_ref().map(Arc::clone))
            .collect();
        targets.sort_by_key(|target| target.id);
        targets.dedup_by_key(|target| target.id);
        self.checked = targets.iter().map(|target| target.id).collect();
        self.ids_before = self.ids;
        if self.checker.is_none() && !targets.is_empty() {
            let events = events.clone();
            let tell = move |found| {
                // Nothing receives it when the process is about to end.
                let _ = events.send(Event::Checked(found));
            };
            self.checker = Some(Checker::start(tell)?);
        }
        if let Some(checker) = &self.checker {
            checker.check(targets);
        }
        Ok(())
    }

    /// Notes the result of a check and sends it to `lanes`; returns the line for the log, unless
    /// the backend has left the configuration.
    pub(super) fn end_check(&mut self, found: Found, lanes: &LaneGroup) -> Option<(Level, String)> {
        let Found { id, state } = found;
        let mut current = backends(lanes.current()?);
        let backend = current.find(|b| b.target.as_ref().is_some_and(|target| target.id == id))?;
        let (label, address) = (&backend.label, &backend.address);
        let line = match &state {
            Ok(()) => (Level::INFO, format!("backend {label} at {address} is up")),
            Err(why) => (Level::WARN, format!("backend {label} at {address} is down: {why}")),
        };
        let is_down = state.is_err();
        let was_down = self.note(id, state);
        // Lanes take one that is not known to be down for one that is up.
        if is_down != was_down {
            for generation in lanes.generations() {
                self.tell_lanes(generation, id, lanes);
            }
        }
        Some(line)
    }

    /// Tells lanes since when backends of `generation` are back, before they have it: what a lane
    /// remembers of a destination begins anew with each generation.
    pub(super) fn tell_who_is_back(
        &self,
        generation: &Generation<RelaySettings>,
        lanes: &LaneGroup,
    ) {
        for listener in &generation.listeners {
            for (position, destination) in listener.settings.destinations.iter().enumerate() {
                let (backends, slow_start_ms) = (&destination.backends, destination.slow_start_ms);
                let back = self.back_for_ms(backends, slow_start_ms);
                if back.is_empty() {
                    continue;
                }
                lanes.post_each(|number| {
                    let (settings, back) = (Arc::clone(&listener.settings), back.clone());
                    Mail::Run(Box::new(move |now_ms| {
                        if let Some(memory) = settings.destinations[position].memories.get(number) {
                            for (index, back_for_ms) in back {
                                memory.note_back(index, now_ms.saturating_sub(back_for_ms));
                            }
                        }
                    }))
                });
            }
        }
    }

    fn tell_lanes(&self, generation: &Generation<RelaySettings>, id: u64, lanes: &LaneGroup) {
        for listener in &generation.listeners {
            for (position, destination) in listener.settings.destinations.iter().enumerate() {
                let is_it = |backend: &Backend| {
                    backend.target.as_ref().is_some_and(|target| target.id == id)
                };
                if !destination.backends.iter().any(is_it) {
                    continue;
                }
                let down = self.down(&destination.backends);
                lanes.post_each(|number| {
                    let settings = Arc::clone(&listener.settings);
                    Mail::Run(Box::new(move |now_ms| {
                        if let Some(memory) = settings.destinations[position].memories.get(number) {
                            memory.note_checked(down, now_ms);
                        }
                    }))
                });
            }
        }
    }
}

impl Control {
    /// Checks the backends of `generation` from now on, and no others.
    pub(super) fn check_backends(&mut self, generation: &Generation<RelaySettings>) {
        if let Err(error) = self.registries.health.check(generation, &self.notices) {
            error!("backends are not checked: {error}");
        }
    }

    /// Follows the result of a check.
    pub(super) fn end_check(&mut self, found: Found) {
        let health = &mut self.registries.health;
        let Some((level, text)) = health.end_check(found, &self.lanes) else { return };
        if let Some(current) = self.lanes.current() {
            self.state.lock().backends = shown_backends(current, &self.registries.health);
        }
        // Last, so that metrics and the admin address agree with the line.
        match level {
            Level::WARN => warn!("{text}"),
            _ => info!("{text}"),
        }
    }
}

/// The backends of a generation, as they are shown.
pub(super) fn shown_backends(
    generation: &Generation<RelaySettings>,
    health: &Health,
) -> Vec<BackendSummary> {
    let listeners = generation.listeners.iter();
    let destinations = listeners.flat_map(|listener| &listener.settings.destinations);
    // Two listeners may have a backend in common, or one under two names.
    let mut summaries: Vec<BackendSummary> = Vec::new();
    let mut positions: HashMap<Option<*const BackendCounters>, usize> = HashMap::new();
    for backend in destinations.flat_map(|destination| &destination.backends) {
        let Backend { address, label, lanes, tls, .. } = backend;
        let checked = health.of(backend).cloned();
        let position = *positions.entry(lanes.first().map(Arc::as_ptr)).or_insert(summaries.len());
        match summaries.get_mut(position) {
            Some(seen) => {
                // One that is down for some of them is shown so.
                if checked.as_ref().is_some_and(Result::is_err) {
                    seen.checked = checked;
                }
                if !seen.labels().any(|known| known == label) {
                    seen.other_labels.push(label.clone());
                }
            }
            None => summaries.push(BackendSummary {
                address: address.to_string(),
                checked,
                label: label.clone(),
                lanes: lanes.clone(),
                other_labels: Vec::new(),
                tls: tls.is_some(),
            }),
        }
    }
    summaries
}

fn backends(generation: &Generation<RelaySettings>) -> impl Iterator<Item = &Backend> {
    let listeners = generation.listeners.iter();
    let destinations = listeners.flat_map(|listener| &listener.settings.destinations);
    destinations.flat_map(|destination| &destination.backends)
}

/// In what two targets of one address are alike, what says most about a backend first: how TLS is
/// spoken, what is asked, with which header, and the whole of the check.
fn alike(one: &Target, other: &Target) -> [bool; 4] {
    let tls =
        |target: &Target| target.tls.as_ref().map(|tls| (tls.context.digest(), tls.name.clone()));
    [
        tls(one) == tls(other),
        one.check.kind == other.check.kind,
        one.header == other.header,
        one.check == other.check,
    ]
}

const ALL_ALIKE: [bool; 4] = [true; 4];

/// The PROXY header of a connection that nobody else is behind.
fn of_nobody(header: ProxyHeader) -> &'static [u8] {
    match header {
        ProxyHeader::Off => b"",
        ProxyHeader::V1 => V1_OF_NOBODY,
        ProxyHeader::Pass(_) | ProxyHeader::V2(_) => V2_OF_NOBODY,
    }
}
