//! What answers challenges of ACME clients, kept across generations.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use sealane_traffic::challenges::{Responder, Source};

use super::{Event, notices_to};

/// Responders, one for each folder and each store.
pub(super) struct ResponderRegistry {
    /// By path: a folder of challenges cannot be a store.
    by_path: HashMap<PathBuf, Arc<Responder>>,
    notices: Sender<Event>,
}

impl ResponderRegistry {
    /// Without any; what those to come say to an operator goes to `notices`.
    pub(super) fn new(notices: Sender<Event>) -> Self {
        Self { by_path: HashMap::new(), notices }
    }

    /// The responder that answers out of `source`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn of(&mut self, source: Source) -> io::Result<Arc<Responder>> {
        let path = source.path().to_owned();
        // One whose thread has ended answers nobody.
        if let Some(known) = self.by_path.get(&path).filter(|known| !known.has_ended()) {
            // A store may have got other keys, or be another one.
            known.set_source(source);
            return Ok(Arc::clone(known));
        }
        let responder = Arc::new(Responder::start(source, notices_to(&self.notices))?);
        self.by_path.insert(path, Arc::clone(&responder));
        Ok(responder)
    }

    /// Ends responders that no generation has any more.
    pub(super) fn prune(&mut self) {
        self.by_path.retain(|_, responder| Arc::strong_count(responder) > 1);
    }
}
