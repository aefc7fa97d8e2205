//! The place where the current context of a destination is published, and from which lanes take it.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::context::ClientContext;
use super::error::{ClientOptionsError, ConnectError};
use crate::session::ClientSession;
use crate::tickets::LaneClock;

/// The current context of one destination. A clone is the same slot.
///
/// Any thread publishes at any time. A lane looks before each connection: it reads one word that is
/// not written between two publications. Neither ever waits for the other, so this is no mutex: a
/// lane would wait for a publisher that lost its processor.
#[derive(Clone, Debug)]
pub struct ContextSlot {
    published: Arc<ArcSwap<Published>>,
}

#[derive(Debug)]
struct Published {
    context: Arc<ClientContext>,
    generation: u64,
}

impl ContextSlot {
    /// A slot with `context` as its first generation, number 1.
    pub fn new(context: Arc<ClientContext>) -> Self {
        Self { published: Arc::new(ArcSwap::from_pointee(Published { context, generation: 1 })) }
    }

    /// Makes `context` the current one and returns the number of its generation.
    ///
    /// Connections keep the context they began with; it is freed when the last of them has ended
    /// and each lane has looked here again. Publishing the current context once more changes
    /// nothing, so that lanes keep their sessions.
    pub fn publish(&self, context: &Arc<ClientContext>) -> u64 {
        let before = self.published.rcu(|current| {
            if Arc::ptr_eq(&current.context, context) {
                return Arc::clone(current);
            }
            let generation = current.generation + 1;
            Arc::new(Published { context: Arc::clone(context), generation })
        });
        before.generation + u64::from(!Arc::ptr_eq(&before.context, context))
    }

    /// The current context.
    pub fn context(&self) -> Arc<ClientContext> {
        Arc::clone(&self.published.load().context)
    }

    /// The number of the current generation.
    pub fn generation(&self) -> u64 {
        self.published.load().generation
    }
}

/// One lane's way to a destination: its own replica of the slot's context.
///
/// It belongs to the thread of its clock.
pub struct LaneClient {
    clock: Arc<LaneClock>,
    config: Arc<ClientConfig>,
    /// The generation of `config`, which stays behind the slot's while a replica cannot be made.
    generation: u64,
    published: Cache<Arc<ArcSwap<Published>>, Arc<Published>>,
}

impl LaneClient {
    /// A replica of the context in `slot`. The lane sets `clock` as time goes on.
    ///
    /// # Errors
    /// The provider cannot run on this machine.
    pub fn new(slot: &ContextSlot, clock: Arc<LaneClock>) -> Result<Self, ClientOptionsError> {
        let mut published = Cache::new(Arc::clone(&slot.published));
        let current = published.load();
        let (generation, context) = (current.generation, &current.context);
        let config = context.replica(Arc::clone(&clock))?;
        Ok(Self { clock, config, generation, published })
    }

    /// Begins a session with the server `name`, under the context that is current now.
    ///
    /// # Errors
    /// The context published last cannot be replicated: a fault of this machine, found when it was
    /// built unless the machine has changed since. No session begins under the one before.
    pub fn connect(&mut self, name: ServerName<'static>) -> Result<ClientSession, ConnectError> {
        self.refresh()?;
        Ok(ClientSession::new(Arc::clone(&self.config), name)?)
    }

    /// Takes the newest published context and releases the one before. Returns whether there was a
    /// new one.
    ///
    /// [`LaneClient::connect`] does this itself. A lane that may not connect for long calls it from
    /// time to time. Otherwise it keeps an old context alive.
    ///
    /// # Errors
    /// As for [`LaneClient::connect`].
    pub fn refresh(&mut self) -> Result<bool, ClientOptionsError> {
        let current = self.published.load();
        if current.generation == self.generation {
            return Ok(false);
        }
        self.config = current.context.replica(Arc::clone(&self.clock))?;
        self.generation = current.generation;
        Ok(true)
    }

    /// The generation that sessions begin under, until the next look at the slot.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

impl std::fmt::Debug for LaneClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaneClient").field("generation", &self.generation).finish_non_exhaustive()
    }
}
