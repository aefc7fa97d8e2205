//! What answers challenges of ACME clients, kept across generations.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::{Event, notices_to};
use crate::challenges::Responder;

/// Responders, one for each folder.
pub(super) struct ResponderRegistry {
    by_folder: HashMap<PathBuf, Arc<Responder>>,
    notices: Sender<Event>,
}

impl ResponderRegistry {
    /// Without any; what those to come say to an operator goes to `notices`.
    pub(super) fn new(notices: Sender<Event>) -> Self {
        Self { by_folder: HashMap::new(), notices }
    }

    /// The responder of `folder`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn of(&mut self, folder: &Path) -> io::Result<Arc<Responder>> {
        // One whose thread has ended answers nobody.
        if let Some(known) = self.by_folder.get(folder).filter(|known| !known.has_ended()) {
            return Ok(Arc::clone(known));
        }
        let notices = notices_to(&self.notices);
        let responder = Arc::new(Responder::start(folder, notices)?);
        self.by_folder.insert(folder.to_owned(), Arc::clone(&responder));
        Ok(responder)
    }

    /// Ends responders that no generation has any more.
    pub(super) fn prune(&mut self) {
        self.by_folder.retain(|_, responder| Arc::strong_count(responder) > 1);
    }
}
