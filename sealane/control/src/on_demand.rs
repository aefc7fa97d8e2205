//! The socket where names on demand are taken, kept where it has to be: [`NamesDoor`].

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sealane_store::NAMES_SOCKET;
use tracing::warn;

use crate::admin::NamesSocket;
use crate::state::SharedState;

/// The socket, if a listener has `on_demand`. What keeps it from being there keeps nobody from
/// being served: it is said, and tried again.
#[derive(Default)]
pub(super) struct NamesDoor {
    open: Option<(PathBuf, NamesSocket)>,
    looked_at: Option<Instant>,
    /// Why it is not there, as it was said.
    said: Option<String>,
}

impl NamesDoor {
    /// Looks again now and then: others may write to its folder.
    pub(super) fn look_after(&mut self, folder: Option<&Path>, state: &SharedState) {
        if self.looked_at.is_none_or(|looked_at| looked_at.elapsed() >= INTERVAL) {
            self.follow(folder, state);
        }
    }

    /// Opens, moves or closes the socket: it belongs into `folder`, if into any.
    pub(super) fn follow(&mut self, folder: Option<&Path>, state: &SharedState) {
        if let Some(warning) = self.try_follow(folder, state) {
            warn!("{warning}");
        }
    }

    /// The warning, if there is a new one.
    fn try_follow(&mut self, folder: Option<&Path>, state: &SharedState) -> Option<String> {
        self.looked_at = Some(Instant::now());
        self.open.take_if(|(at, socket)| Some(&**at) != folder || !socket.is_for(at));
        let Some(folder) = folder.filter(|_| self.open.is_none()) else {
            self.said = None;
            return None;
        };
        match NamesSocket::start(folder, state.clone()) {
            Ok(socket) => {
                self.open = Some((folder.to_owned(), socket));
                self.said = None;
                None
            }
            Err(error) => {
                let socket = folder.join(NAMES_SOCKET);
                let remedy = remedy(&error);
                let warning = format!("on_demand: {}: {error}; {remedy}", socket.display());
                let is_new = self.said.as_ref() != Some(&warning);
                self.said = Some(warning.clone());
                is_new.then_some(warning)
            }
        }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "names that clients of this process ask for are told at its admin socket alone; name \
             that one in on_demand.admin of an agent that runs as this user"
        }
        io::ErrorKind::AlreadyExists => "remove it; until then the agent hears of no names",
        _ => {
            "let this user make files in that folder; until then the agent hears of no names here, \
             which are told at the admin socket too"
        }
    }
}

/// How often it is looked whether the socket is where it was made.
const INTERVAL: Duration = Duration::from_secs(5);
