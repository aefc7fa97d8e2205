//! The contexts of a process, and the clients that hold one each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use arc_swap::ArcSwap;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::time_provider::DefaultTimeProvider;
use sealane_engine::client::{
    ClientContext, ClientContextCounts, ClientContexts, ClientOptions, OptionsDigest,
};
use sealane_engine::session::ClientSession;

use crate::failure::{Failure, Status};
use crate::session::Session;

/// The contexts of a process, found by their options: `sealane_contexts`. A clone is the same.
#[derive(Clone, Default)]
pub struct Contexts {
    // Taken where a client is made or swapped, never to begin a session.
    table: Arc<Mutex<Table>>,
}

impl Contexts {
    /// A new client. Its sessions begin under the context for `options`.
    pub(crate) fn client(&self, options: &ClientOptions) -> Result<Client, Failure> {
        let current = ArcSwap::new(self.context(options)?);
        Ok(Client { contexts: self.clone(), current })
    }

    pub(crate) fn counts(&self) -> Result<ClientContextCounts, Failure> {
        let table = self.table.lock().map_err(|_| Failure::panicked())?;
        Ok(table.contexts.counts())
    }

    fn context(&self, options: &ClientOptions) -> Result<Arc<Replicated>, Failure> {
        self.table.lock().map_err(|_| Failure::panicked())?.context(options)
    }
}

/// One way to servers, under a context that can be swapped at any time: `sealane_client`.
pub struct Client {
    contexts: Contexts,
    current: ArcSwap<Replicated>,
}

impl Client {
    /// Sessions begin under the context for `options` from now on.
    pub(crate) fn swap(&self, options: &ClientOptions) -> Result<(), Failure> {
        self.current.store(self.contexts.context(options)?);
        Ok(())
    }

    /// A session with the server `name`. Its first bytes wait to be sent.
    pub(crate) fn begin(&self, name: &str) -> Result<Session, Failure> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            let text = format!("server_name: {name:?} is neither a host's name nor an address");
            Failure::new(Status::InvalidArgument, text)
        })?;
        let config = self.current.load().replica()?;
        Session::begin(ClientSession::new(config, name)?)
    }
}

#[derive(Default)]
struct Table {
    contexts: ClientContexts,
    replicated: HashMap<OptionsDigest, Weak<Replicated>>,
    /// Count of entries at which unused ones are removed.
    sweep_at: usize,
}

impl Table {
    fn context(&mut self, options: &ClientOptions) -> Result<Arc<Replicated>, Failure> {
        let context = self.contexts.context(options)?;
        let digest = context.digest();
        if let Some(known) = self.replicated.get(&digest).and_then(Weak::upgrade) {
            return Ok(known);
        }
        if self.replicated.len() >= self.sweep_at {
            self.replicated.retain(|_, known| known.strong_count() > 0);
            self.sweep_at = 2 * self.replicated.len().max(SWEEP_MIN);
        }
        let new = Arc::new(Replicated { context, replicas: [const { OnceLock::new() }; REPLICAS] });
        self.replicated.insert(digest, Arc::downgrade(&new));
        Ok(new)
    }
}

/// A context, and its replicas for threads.
struct Replicated {
    context: Arc<ClientContext>,
    /// Each made by the first thread that needs it. The next thread takes the next one, so that
    /// few threads share reference counts and the lock before remembered sessions.
    replicas: [OnceLock<Arc<ClientConfig>>; REPLICAS],
}

impl Replicated {
    fn replica(&self) -> Result<Arc<ClientConfig>, Failure> {
        let place = &self.replicas[THREAD.try_with(|number| number % REPLICAS).unwrap_or(0)];
        if let Some(known) = place.get() {
            return Ok(Arc::clone(known));
        }
        // A session may go on in another thread, so the clock is one that all can read.
        let new = self.context.replica(Arc::new(DefaultTimeProvider))?;
        Ok(Arc::clone(place.get_or_init(|| new)))
    }
}

thread_local! {
    /// The number of this thread among those that began sessions.
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Replicas of one context; threads beyond that share them.
const REPLICAS: usize = 64;
/// Entries below which nothing is swept.
const SWEEP_MIN: usize = 16;
