//! Room for streams of certificates: one for each client, and so many in all: [`Streams`].

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::answer::{Answer, text};

/// Room for streams: whoever takes an hour over one keeps only itself waiting.
pub(super) struct Streams {
    clients: Clients,
    room: Arc<Semaphore>,
}

/// The roles by which clients are known that have a place, or wait for one.
type Clients = Arc<Mutex<HashSet<String>>>;

impl Default for Streams {
    fn default() -> Self {
        Self { clients: Clients::default(), room: Arc::new(Semaphore::new(STREAMS_MAX)) }
    }
}

impl Streams {
    /// A place for the client that has this role. It waits a while if others have all of them: who
    /// came first gets the next one.
    ///
    /// # Errors
    /// The client has a place already, or others kept theirs: the answer to it.
    pub(super) async fn place_for(&self, role: &str) -> Result<StreamPlace, Box<Answer>> {
        let refusal = |status, words: &str| Box::new(text(status, words.into()));
        let Some(turn) = Turn::take(&self.clients, role) else {
            let words = "another stream of this client's is on its way; wait for it, and send \
                         these again";
            return Err(refusal(StatusCode::CONFLICT, words));
        };
        match timeout(ROOM_TIMEOUT, Arc::clone(&self.room).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(StreamPlace { _permit: permit, _turn: turn }),
            _ => {
                let words = format!(
                    "{STREAMS_MAX} streams of other clients are on their way, and none ended in \
                     {} s; send these again",
                    ROOM_TIMEOUT.as_secs()
                );
                Err(refusal(StatusCode::SERVICE_UNAVAILABLE, &words))
            }
        }
    }
}

/// A place for a stream, until it is dropped.
pub(super) struct StreamPlace {
    _permit: OwnedSemaphorePermit,
    _turn: Turn,
}

/// That a client has a stream.
struct Turn {
    clients: Clients,
    role: String,
}

impl Turn {
    fn take(clients: &Clients, role: &str) -> Option<Self> {
        let is_new = clients.lock().unwrap_or_else(PoisonError::into_inner).insert(role.to_owned());
        is_new.then(|| Self { clients: Arc::clone(clients), role: role.to_owned() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.role);
    }
}

/// How long a client waits for others that have all places.
const ROOM_TIMEOUT: Duration = Duration::from_secs(30);
/// Streams at a time. Each keeps one of the threads that wait for the disk, and up to a batch in
/// memory; the other threads are for all other requests.
pub(super) const STREAMS_MAX: usize = 4;
