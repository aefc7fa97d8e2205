//! Names of backends, followed while they are served.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use sealane_lanes::generation::{Generation, Listener, Named, Speech};
use sealane_lanes::handover::Parcel;
use sealane_listeners::{Answers, NameNews, Names, look_again, shown_addresses};
use sealane_traffic::backends::RelaySettings;
use tracing::{info, warn};

use super::build::Registries;
use super::health::shown_backends;
use super::{Control, Event};

/// The lookup of names in the background, one at a time.
#[derive(Default)]
pub(super) struct NameLookup {
    is_running: bool,
}

impl NameLookup {
    /// Starts to look up those of `names` that are due, unless a lookup runs.
    pub(super) fn start_due(&mut self, names: &Names, events: &Sender<Event>) {
        if self.is_running {
            return;
        }
        let due = names.due(Instant::now());
        if due.is_empty() {
            return;
        }
        let events = events.clone();
        let tell = move |answers| {
            // Nothing receives it when the process is about to end.
            let _ = events.send(Event::Looked(answers));
        };
        // Without a thread it is tried the next time.
        self.is_running = look_again(due, tell).is_ok();
    }

    /// The lookup that ran has ended.
    pub(super) fn note_end(&mut self) {
        self.is_running = false;
    }
}

impl Control {
    /// Serves what a look has found. No file is read: what has changed there is another matter.
    pub(super) fn end_look(&mut self, answers: &Answers) {
        self.lookup.note_end();
        let news = self.registries.names.follow(answers);
        for (name, news) in news.iter().take(NEWS_SHOWN_MAX) {
            let addresses = shown_addresses(self.registries.names.addresses(name));
            match news {
                NameNews::Back => info!("backends {name} resolves again"),
                NameNews::Moved => info!("backends {name} are at {addresses}"),
                NameNews::Lost(why) => {
                    let kept = match addresses.as_str() {
                        "" => "connections to it are refused until it does".to_owned(),
                        _ => format!("{addresses} is used as before"),
                    };
                    let text = format!("backends {name} does not resolve any more: {why}; {kept}");
                    warn!("{text}");
                }
            }
        }
        if let Some(more) = news.len().checked_sub(NEWS_SHOWN_MAX + 1) {
            info!("… and {} more names; /state has all", more + 1);
        }
        if news.values().any(|news| *news == NameNews::Moved) {
            self.move_backends();
        }
        self.state.lock().names = self.registries.names.summaries();
    }

    /// Publishes the generation that is served with its backends where their names lead now.
    fn move_backends(&mut self) {
        let Some(current) = self.lanes.current() else { return };
        let (number, lanes) = (self.lanes.number() + 1, self.running.config().lanes);
        let moved = moved(current, number, lanes, &mut self.registries);
        let Some(generation) = moved.map(Arc::new) else { return };
        {
            let mut state = self.state.lock();
            state.generations.publish(number, &generation);
            state.backends = shown_backends(&generation, &self.registries.health);
        }
        self.check_backends(&generation);
        self.registries.health.tell_who_is_back(&generation, &self.lanes);
        let parcels = std::iter::repeat_with(Parcel::default);
        self.lanes.publish(&generation, parcels);
        self.lanes.adopt(&generation);
        info!("backends have moved: generation {number}");
    }
}

/// `generation` as the next one, with backends where their names lead now; none if nothing is new.
fn moved(
    generation: &Generation<RelaySettings>,
    number: u64,
    lanes: NonZeroUsize,
    registries: &mut Registries,
) -> Option<Generation<RelaySettings>> {
    let mut has_moved = false;
    let listeners = generation.listeners.iter().map(|listener| {
        let mut settings = Arc::clone(&listener.settings);
        for position in 0..settings.destinations.len() {
            if let Some(moved) = registries.moved(&settings.destinations[position], lanes) {
                Arc::make_mut(&mut settings).destinations[position] = moved;
                has_moved = true;
            }
        }
        with(listener, settings)
    });
    let listeners = listeners.collect();
    has_moved.then_some(Generation { number, limits: generation.limits.clone(), listeners })
}

/// `listener` with other settings.
fn with(
    listener: &Listener<RelaySettings>,
    settings: Arc<RelaySettings>,
) -> Listener<RelaySettings> {
    let named = listener.named.iter().map(|named| Named {
        pattern: named.pattern.clone(),
        number: named.number,
        context: named.context.as_ref().map(Arc::clone),
    });
    Listener {
        number: listener.number,
        keys: listener.keys.clone(),
        preamble: listener.preamble,
        speech: match &listener.speech {
            Speech::Plain => Speech::Plain,
            Speech::Sealed => Speech::Sealed,
            Speech::Tls(context) => Speech::Tls(Arc::clone(context)),
        },
        named: named.collect(),
        liveness: listener.liveness,
        steer: listener.steer,
        timeouts: listener.timeouts,
        settings,
    }
}

/// Names of which is told what is new after one look.
const NEWS_SHOWN_MAX: usize = 20;
