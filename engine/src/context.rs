//! One generation of TLS settings, and what each lane makes of it.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use fragile::Fragile;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};

use crate::certificates::{
    CertificateIndex, LaneKeys, LaneResolver, ListenerStore, Served, StoreFailure,
};
use crate::hello::Hello;
use crate::policy::Policy;
use crate::provider::{ProviderChoice, ProviderError, lane_provider, random};
use crate::tickets::{LaneClock, LaneTickets, TicketRoot, UnixSeconds};

/// The TLS settings of one listener: immutable, shared by all lanes, and read-only for them.
#[derive(Debug)]
pub struct Context {
    /// What the listener accepts.
    pub policy: Policy,
    /// Its certificates from files.
    pub certificates: Arc<CertificateIndex>,
    /// Its certificates from a store, which may change while they are served.
    pub store: Option<ListenerStore>,
    /// The cryptography that lanes use for it.
    pub provider: ProviderChoice,
    /// Tickets per full TLS 1.3 handshake, at most [`TICKETS_MAX`]; 0 turns resumption off.
    pub tickets: usize,
}

/// More tickets than this help no client.
pub const TICKETS_MAX: usize = 4;

/// What a lane owns across generations.
#[derive(Debug)]
pub struct LaneResources {
    /// The lane's wall clock, which it sets once per turn.
    pub clock: Arc<LaneClock>,
    /// Its decoded private keys.
    pub keys: Rc<RefCell<LaneKeys>>,
    /// Its ticket keys.
    pub tickets: LaneTickets,
}

impl LaneResources {
    /// Resources of the calling thread's lane; `root` is its own replica.
    pub fn new(root: TicketRoot, now: UnixSeconds, keys_max: NonZeroUsize) -> Self {
        let clock = Arc::new(LaneClock::new(now));
        let tickets = LaneTickets::new(root, Arc::clone(&clock), random::fill);
        Self { clock, keys: Rc::new(RefCell::new(LaneKeys::new(keys_max))), tickets }
    }
}

/// A lane's own replica of a [`Context`].
///
/// Every reference count that a handshake touches lives in memory that this lane allocated.
#[derive(Debug)]
pub struct LaneContext {
    context: Arc<Context>,
    /// The lane's alone, like its resolver's.
    keys: Fragile<Rc<RefCell<LaneKeys>>>,
    served: Served,
    server_order: Arc<ServerConfig>,
    /// For clients that put ChaCha20-Poly1305 first because they lack AES instructions.
    client_order: Arc<ServerConfig>,
}

impl LaneContext {
    /// Materialises `context` on the calling lane.
    ///
    /// The control plane does the same once before it publishes, so that a context that cannot be
    /// materialised never reaches a lane.
    ///
    /// # Errors
    /// The provider cannot run here, or has nothing in common with the policy.
    pub fn new(context: &Arc<Context>, lane: &LaneResources) -> Result<Self, ContextError> {
        let provider = Arc::new(lane_provider(context.provider, &context.policy.groups)?.crypto);
        let served = Served {
            index: Arc::clone(&context.certificates),
            store: context.store.clone(),
            unknown_names: context.policy.unknown_names,
        };
        // A store may give each thread a place among its readers, under a lock: now, and not when a
        // client waits. One that cannot be read is asked again by each hello.
        drop(served.view());
        let keys = Rc::clone(&lane.keys);
        let resolver: Arc<dyn ResolvesServerCert> =
            Arc::new(LaneResolver::new(served.clone(), Arc::clone(&provider), Rc::clone(&keys)));
        let mut config = server_config(context, provider, resolver, lane)?;
        config.ignore_client_order = true;
        let mut client_order = config.clone();
        client_order.ignore_client_order = false;
        Ok(Self {
            context: Arc::clone(context),
            keys: Fragile::new(keys),
            served,
            server_order: Arc::new(config),
            client_order: Arc::new(client_order),
        })
    }

    /// Pays for the first use of the cryptography, before a client waits for it.
    ///
    /// # Errors
    /// The provider's self-test failed.
    pub fn warm_up(&self) -> Result<(), ContextError> {
        Ok(lane_provider(self.context.provider, &self.context.policy.groups)?.warm_up()?)
    }

    /// The configuration for a client, or why it is refused before a session exists.
    ///
    /// # Errors
    /// The client asks for an unknown name, or none, and nothing stands in for that. A store that
    /// cannot be read knows no name; that is counted.
    pub fn admit(&self, hello: &Hello) -> Result<Arc<ServerConfig>, Refusal> {
        let covered = self.served.covers(hello.server_name.as_deref());
        let is_covered = covered.unwrap_or_else(|StoreFailure| {
            if let Ok(keys) = self.keys.try_get() {
                keys.borrow_mut().note_store_failure();
            }
            false
        });
        if !is_covered {
            return Err(match &hello.server_name {
                Some(_) => Refusal::UnknownName,
                None if hello.offers_tls13 => Refusal::NoName,
                None => Refusal::NoNameTls12,
            });
        }
        let config = if hello.prefers_chacha20 { &self.client_order } else { &self.server_order };
        Ok(Arc::clone(config))
    }
}

/// Why a ClientHello is answered with an alert and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No server name from a client that speaks TLS 1.3.
    NoName,
    /// No server name from a client that speaks at most TLS 1.2.
    NoNameTls12,
    /// A server name that no certificate covers.
    UnknownName,
}

impl Refusal {
    /// The fatal alert to send, as a whole record.
    pub fn alert(self) -> [u8; 7] {
        const FATAL: u8 = 2;
        let description = match self {
            // RFC 8446 section 9.2: a server that requires the name answers so.
            Self::NoName => 109,
            // TLS 1.2 has no missing_extension; handshake_failure is what it offers.
            Self::NoNameTls12 => 40,
            // RFC 6066 section 3: unrecognized_name.
            Self::UnknownName => 112,
        };
        [21, 3, 3, 0, 2, FATAL, description]
    }
}

/// Why a context cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The provider cannot run on this machine, or the policy names no group.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// Versions, suites and groups of the policy have nothing in common.
    #[error("the listener's TLS settings contradict each other: {0}")]
    Settings(#[from] rustls::Error),
}

fn server_config(
    context: &Context,
    provider: Arc<CryptoProvider>,
    resolver: Arc<dyn ResolvesServerCert>,
    lane: &LaneResources,
) -> Result<ServerConfig, ContextError> {
    let clock: Arc<LaneClock> = Arc::clone(&lane.clock);
    let mut config = ServerConfig::builder_with_details(provider, clock)
        .with_protocol_versions(context.policy.versions.supported())?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols.clone_from(&context.policy.alpn);
    // Only tickets resume: a session store would be a lock, or would not reach across lanes.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = context.tickets.min(TICKETS_MAX);
    if context.tickets > 0 {
        config.ticketer = Arc::new(lane.tickets.ticketer(context.policy.digest()));
    }
    Ok(config)
}
