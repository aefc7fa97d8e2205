//! Names of backends that led nowhere, looked up again until they lead somewhere.

use std::time::{Duration, Instant};

use super::{Control, Event};
use crate::config::{BackendAddress, Config, Listener};
use crate::listener::look_again;
use crate::operator::{Priority, say, say_at};

/// When such names are looked up.
#[derive(Default)]
pub(super) struct LookingAgain {
    /// When the last look began.
    since: Option<Instant>,
    /// Whether it goes on.
    is_under_way: bool,
}

impl Control {
    /// Looks again for names that lead nowhere, if there are any and it is time.
    pub(super) fn look_for_names(&mut self) {
        let looking = &mut self.looking;
        let is_early = looking.since.is_some_and(|since| since.elapsed() < LOOK_AGAIN);
        let names = self.registries.names.nowhere();
        if looking.is_under_way || is_early || names.is_empty() {
            return;
        }
        looking.since = Some(Instant::now());
        let events = self.notices.clone();
        let tell = move |one_leads_somewhere| {
            // Nobody listens any more when the process is about to end.
            let _ = events.send(Event::Looked { one_leads_somewhere });
        };
        // Without a thread it is tried the next time.
        looking.is_under_way = look_again(names, tell).is_ok();
    }

    /// Serves what a look has found.
    pub(super) fn end_look(&mut self, one_leads_somewhere: bool) {
        self.looking.is_under_way = false;
        if !one_leads_somewhere {
            return;
        }
        match self.serve(self.config.clone()) {
            Ok(_) => say(&format!("backends are found: generation {}", self.number)),
            Err(problems) => {
                let text = format!(
                    "backends are found, but not served, for something else has changed:\n{}",
                    problems.join("\n")
                );
                say_at(Priority::Error, &text);
            }
        }
    }
}

/// The names of the backends of `config`, with their ports.
pub(super) fn host_names(config: &Config) -> impl Iterator<Item = (String, u16)> {
    let destinations = config.listeners.iter().flat_map(Listener::destinations);
    let backends = destinations.flat_map(|(_, destination)| &destination.backends);
    backends.filter_map(|backend| match backend {
        BackendAddress::Host { name, port } => Some((name.clone(), *port)),
        BackendAddress::Tcp(_) | BackendAddress::Unix(_) => None,
    })
}

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
