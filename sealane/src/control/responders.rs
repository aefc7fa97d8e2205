//! What answers challenges of ACME clients, kept across generations.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::challenges::Responder;
use crate::notices::Notices;

/// Responders, one for each folder.
#[derive(Default)]
pub(super) struct ResponderRegistry {
    by_folder: HashMap<PathBuf, Arc<Responder>>,
}

impl ResponderRegistry {
    /// The responder of `folder`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn of(&mut self, folder: &Path) -> io::Result<Arc<Responder>> {
        if let Some(known) = self.by_folder.get(folder) {
            return Ok(Arc::clone(known));
        }
        let notices = Notices::new(|line| super::say(&line));
        let responder = Arc::new(Responder::start(folder, notices)?);
        self.by_folder.insert(folder.to_owned(), Arc::clone(&responder));
        Ok(responder)
    }

    /// Ends responders that no generation has any more.
    pub(super) fn prune(&mut self) {
        self.by_folder.retain(|_, responder| Arc::strong_count(responder) > 1);
    }
}
