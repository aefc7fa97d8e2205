//! One generation of TLS settings, and its replica on each lane.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fragile::Fragile;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::time_provider::TimeProvider as _;

use crate::alert::{self, ALERT_RECORD_LEN, AlertDescription};
use crate::certificates::{
    CertificateIndex, LaneKeys, LaneResolver, ListenerStore, Served, StoreFailure,
};
use crate::client_certificates::{ClientStanding, Distrust, LaneVerifier, Proofs};
use crate::hello::Hello;
use crate::policy::{AlpnMismatch, ClientCertificates, Policy, SchemeSet, Versions};
use crate::provider::{ProviderChoice, ProviderError, SelfTests, policy_provider, random};
use crate::record::RECORD_HEADER_LEN;
use crate::session::ServerSession;
use crate::tickets::{
    LaneClock, LaneTickets, OpeningTicketer, TicketRoot, TicketRootError, UnixSeconds,
};

mod challenge;
mod key_log;

pub use key_log::KEY_LOG_BYTES_MAX;
use key_log::LaneKeyLog;

/// The TLS settings of one listener: immutable, shared by all lanes, and read-only for them.
#[derive(Debug)]
pub struct Context {
    /// Identifies the context.
    pub id: ContextId,
    /// The policy of the listener.
    pub policy: Policy,
    /// Certificates from files.
    pub certificates: Arc<CertificateIndex>,
    /// Whether the secrets of its sessions are kept for [`LaneContext::take_key_log`]. With them
    /// the sessions can be decrypted.
    pub key_log: bool,
    /// Certificates from a store, which may change while they are served.
    pub store: Option<ListenerStore>,
    /// The cryptography that lanes use for it.
    pub provider: ProviderChoice,
    /// Tickets per full TLS 1.3 handshake, at most [`TICKETS_MAX`]; 0 turns resumption off.
    pub tickets: usize,
}

/// Identifies a context in this process. No context gets the id of one that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextId(pub u64);

impl ContextId {
    /// An id that no context had before: numbers from 1 on, always below 2^53.
    pub fn fresh() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// More tickets than this help no client.
pub const TICKETS_MAX: usize = 4;

/// Bytes of early data, under a key that is not ours, that a handshake may leave behind: those of a
/// client that resumes with a ticket of another terminator.
pub const EARLY_DATA_SKIPPED_MAX: u32 = 128 * 1024;

/// The resources that a lane keeps across generations.
#[derive(Debug)]
pub struct LaneResources {
    /// Clients that it let in by a revocation list that had ended.
    pub by_ended_lists: Rc<Cell<u64>>,
    /// The lane's wall clock, which it sets once per turn.
    pub clock: Arc<LaneClock>,
    /// The lane's decoded private keys.
    pub keys: Rc<RefCell<LaneKeys>>,
    /// The lane's ticket keys.
    pub tickets: LaneTickets,
}

impl LaneResources {
    /// Resources of the calling thread's lane; `root` is its own replica.
    pub fn new(root: TicketRoot, now: UnixSeconds, keys_max: NonZeroUsize) -> Self {
        let clock = Arc::new(LaneClock::new(now));
        let tickets = LaneTickets::new(root, Arc::clone(&clock), random::fill);
        let keys = Rc::new(RefCell::new(LaneKeys::new(keys_max)));
        Self { by_ended_lists: Rc::default(), clock, keys, tickets }
    }

    /// Sets the lane's clock and updates the parts that depend on it. Ticket keys rotate, and in a
    /// new second random bytes come from a new seed. A lane calls it in each of its turns.
    ///
    /// # Errors
    /// Clock and ticket root contradict each other: no tickets are issued or opened.
    pub fn tell_time(&self, now: UnixSeconds) -> Result<(), TicketRootError> {
        if self.clock.now() != Some(now) {
            self.clock.set(now);
            random::renew();
        }
        self.tickets.rotate()
    }
}

/// A lane's own replica of a [`Context`].
///
/// Every reference count that a handshake touches lives in memory that this lane allocated.
#[derive(Debug)]
pub struct LaneContext {
    /// If clients are asked for certificates.
    clients: Option<Arc<LaneVerifier>>,
    clock: Arc<LaneClock>,
    context: Arc<Context>,
    /// If the context wants one.
    key_log: Option<Arc<LaneKeyLog>>,
    /// The lane's alone, like its resolver's.
    keys: Fragile<Rc<RefCell<LaneKeys>>>,
    resolver: Arc<LaneResolver>,
    settings: Settings,
    /// For clients of TLS 1.2 without extended master secret, where they are served.
    settings_without_ems: Option<Settings>,
    /// The application protocols that are agreed on.
    spoken: Vec<Vec<u8>>,
}

/// The configurations of new sessions, by their clients' offers.
#[derive(Debug)]
struct Settings {
    configs: Configs,
    /// For clients that offer no protocol of the policy, where that is let pass.
    without_alpn: Option<Configs>,
}

impl Settings {
    fn new(config: ServerConfig, policy: &Policy) -> Self {
        let lets_pass = policy.alpn_mismatch == AlpnMismatch::Without && !policy.alpn.is_empty();
        let without_alpn = lets_pass.then(|| {
            let mut config = config.clone();
            config.alpn_protocols.clear();
            Configs::new(config, policy)
        });
        Self { configs: Configs::new(config, policy), without_alpn }
    }
}

/// The settings for either order of suites.
#[derive(Debug)]
struct Configs {
    server_order: Arc<ServerConfig>,
    /// For clients that put ChaCha20-Poly1305 first because they lack AES instructions.
    client_order: Arc<ServerConfig>,
}

impl Configs {
    fn new(mut config: ServerConfig, policy: &Policy) -> Self {
        config.ignore_client_order = !policy.client_order;
        let mut client_order = config.clone();
        // An operator that lists suites means their order.
        client_order.ignore_client_order = !policy.client_order && !policy.suites.is_empty();
        Self { server_order: Arc::new(config), client_order: Arc::new(client_order) }
    }
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
        let policy = &context.policy;
        let provider = Arc::new(policy_provider(context.provider, policy)?.crypto);
        let clients = verifier(&policy.clients, &provider, &lane.by_ended_lists);
        let served = Served {
            index: Arc::clone(&context.certificates),
            store: context.store.clone(),
            unknown_names: policy.unknown_names,
        };
        // A store may give each thread a place among its readers, under a lock: now, and not when a
        // client waits. One that cannot be read is asked again by each hello.
        drop(served.view());
        let keys = Rc::clone(&lane.keys);
        let resolver = Arc::new(LaneResolver::new(
            served,
            Arc::clone(&provider),
            (Rc::clone(&keys), Arc::clone(&lane.clock)),
            SchemeSet::restricting(&policy.schemes),
        ));
        let answers: Arc<dyn ResolvesServerCert> = Arc::<LaneResolver>::clone(&resolver);
        let key_log = context.key_log.then(|| Arc::new(LaneKeyLog::new()));
        let settings = |mut config: ServerConfig| {
            if let Some(key_log) = &key_log {
                let key_log: Arc<LaneKeyLog> = Arc::clone(key_log);
                config.key_log = key_log;
            }
            Settings::new(config, policy)
        };
        let without_ems = serves_without_ems(policy)
            .then(|| config_without_ems(context, &provider, Arc::clone(&answers), lane))
            .transpose()?;
        let config = server_config(context, provider, &clients, answers, lane)?;
        let (settings, settings_without_ems) = (settings(config), without_ems.map(settings));
        Ok(Self {
            clients,
            clock: Arc::clone(&lane.clock),
            context: Arc::clone(context),
            key_log,
            keys: Fragile::new(keys),
            resolver,
            settings,
            settings_without_ems,
            spoken: policy.spoken_protocols(),
        })
    }

    /// Seeds the random generators and tests each group that is not in `tests`, so that no client
    /// waits for that. Adds the groups to `tests`.
    ///
    /// # Errors
    /// The provider's self-test failed.
    pub fn warm_up(&self, tests: &mut SelfTests) -> Result<(), ContextError> {
        Ok(policy_provider(self.context.provider, &self.context.policy)?.warm_up(tests)?)
    }

    /// The configuration for a client, or a refusal before a session exists.
    ///
    /// # Errors
    /// The hello breaks a rule that rustls does not know. Or the client asks for an unknown name,
    /// or none, and there is no default certificate. A store that cannot be read knows no name, and
    /// that is counted.
    pub fn admit(&self, hello: &Hello) -> Result<Arc<ServerConfig>, Refusal> {
        let has_tls13 = self.context.policy.versions != Versions::Tls12;
        if hello.is_fallback && has_tls13 && !hello.offers_tls13 {
            return Err(Refusal::Fallback);
        }
        if hello.lacks_for_tls13 && has_tls13 {
            return Err(Refusal::MissingExtension);
        }
        let is_tls12 = !(has_tls13 && hello.offers_tls13);
        if hello.renegotiates && is_tls12 {
            return Err(Refusal::Renegotiation);
        }
        let covered = self.resolver.covers(hello.server_name.as_deref());
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
        self.resolver.note_version(!is_tls12);
        let settings = match &self.settings_without_ems {
            Some(without) if is_tls12 && hello.lacks_extended_master_secret => without,
            _ => &self.settings,
        };
        let configs = match &settings.without_alpn {
            Some(without) if hello.has_no_protocol_of(&self.spoken) => without,
            _ => &settings.configs,
        };
        let is_clients = hello.prefers_chacha20;
        let config = if is_clients { &configs.client_order } else { &configs.server_order };
        Ok(match hello.record_bytes_max {
            None => Arc::clone(config),
            Some(bytes_max) => {
                let mut config = ServerConfig::clone(config);
                config.max_fragment_size = Some(RECORD_HEADER_LEN + usize::from(bytes_max));
                Arc::new(config)
            }
        })
    }

    /// Whether the name in the hello that was admitted or refused last has its own certificate. It
    /// is returned once, only for a context with [`ListenerStore::on_demand`], and only if it is
    /// known.
    pub fn has_own(&self) -> Option<bool> {
        self.resolver.has_own()
    }

    /// Whether clients are asked for certificates.
    pub fn asks_certificates(&self) -> bool {
        self.clients.is_some()
    }

    /// Whether the lane serves this context now. One that it has left for another still ends the
    /// handshakes that it began, but no key that is decoded for them is kept.
    pub fn set_current(&self, is_current: bool) {
        self.resolver.set_current(is_current);
    }

    /// The context that this is a replica of.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The verdict on the certificates of a client now, by the lane's clock. `session` is one that
    /// this context admitted, and established.
    ///
    /// A session that was resumed has the certificates of the one that it continues. Under a policy
    /// that only asks for certificates they may have expired since, or been revoked.
    pub fn standing(&self, session: &ServerSession) -> ClientStanding {
        match &self.clients {
            Some(verifier) => {
                verifier.standing(session.peer_certificates(), self.clock.current_time())
            }
            None => ClientStanding::NotAsked,
        }
    }

    /// Whether established connections are closed if a new revocation list has a certificate of
    /// theirs.
    pub fn cuts_revoked(&self) -> bool {
        self.clients.as_ref().is_some_and(|verifier| verifier.roots().rules().cut_revoked)
    }

    /// Whether the certificates of `session`, which may be another context's, are revoked now. Of
    /// most this is known without a signature being checked.
    pub fn has_revoked(&self, session: &ServerSession) -> bool {
        let chain = session.peer_certificates();
        self.clients.as_ref().is_some_and(|verifier| {
            verifier.roots().may_have_revoked(chain)
                && verifier.standing(chain, self.clock.current_time())
                    == ClientStanding::Unverified(Distrust::Revoked)
        })
    }

    /// The certificate of a client that was refused since this was asked last, if it showed one.
    pub fn take_refused(&self) -> Option<Box<[u8]>> {
        self.clients.as_ref()?.take_refused()
    }

    /// The secrets of the sessions that were fed since the last call, as lines of the format that
    /// NSS began and Wireshark reads. Empty if the context keeps none. Beyond [`KEY_LOG_BYTES_MAX`]
    /// bytes the oldest lines are dropped.
    ///
    /// The caller zeroes them.
    pub fn take_key_log(&self) -> Vec<u8> {
        self.key_log.as_ref().map(|key_log| key_log.take()).unwrap_or_default()
    }
}

/// A reason to answer a ClientHello with an alert and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A fallback to a version below the best of the context: somebody may have forced it.
    Fallback,
    /// TLS 1.3 without an extension that it needs.
    MissingExtension,
    /// No server name from a client that speaks TLS 1.3.
    NoName,
    /// No server name from a client that speaks at most TLS 1.2.
    NoNameTls12,
    /// A first handshake that the client takes for a renegotiation.
    Renegotiation,
    /// A server name that no certificate covers.
    UnknownName,
}

impl Refusal {
    /// The fatal alert to send, as a whole record.
    pub fn alert(self) -> [u8; ALERT_RECORD_LEN] {
        alert::fatal(match self {
            // RFC 7507 section 3.
            Self::Fallback => AlertDescription::InappropriateFallback,
            // RFC 8446 section 9.2, also for a server that requires the name.
            Self::MissingExtension | Self::NoName => AlertDescription::MissingExtension,
            // TLS 1.2 has no missing_extension; RFC 5746 section 3.6 for a renegotiation.
            Self::NoNameTls12 | Self::Renegotiation => AlertDescription::HandshakeFailure,
            // RFC 6066 section 3.
            Self::UnknownName => AlertDescription::UnrecognisedName,
        })
    }
}

/// An error because of which a context cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The provider cannot run on this machine, or the policy names no group.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// Versions, suites and groups of the policy have nothing in common.
    #[error("the listener's TLS settings contradict each other: {0}")]
    Settings(#[from] rustls::Error),
}

fn verifier(
    clients: &ClientCertificates,
    provider: &CryptoProvider,
    by_ended_lists: &Rc<Cell<u64>>,
) -> Option<Arc<LaneVerifier>> {
    let (roots, required) = match clients {
        ClientCertificates::Asked(roots) => (roots, false),
        ClientCertificates::NotAsked => return None,
        ClientCertificates::Required(roots) => (roots, true),
    };
    Some(Arc::new(LaneVerifier::new(roots, required, provider, by_ended_lists)))
}

fn server_config(
    context: &Context,
    provider: Arc<CryptoProvider>,
    clients: &Option<Arc<LaneVerifier>>,
    resolver: Arc<dyn ResolvesServerCert>,
    lane: &LaneResources,
) -> Result<ServerConfig, ContextError> {
    let policy = &context.policy;
    let mut config = without_tickets(policy, provider, clients, resolver, &lane.clock)?;
    config.alpn_protocols = policy.spoken_protocols();
    config.send_tls13_tickets = context.tickets.min(TICKETS_MAX);
    if context.tickets > 0 {
        let proofs = clients.as_ref().map(|verifier| Proofs::new(Arc::clone(verifier)));
        config.ticketer = Arc::new(lane.tickets.ticketer(policy.digest()).judging(proofs));
    }
    Ok(config)
}

/// Whether clients of TLS 1.2 without extended master secret are served.
fn serves_without_ems(policy: &Policy) -> bool {
    let is_certificate_required = matches!(policy.clients, ClientCertificates::Required(_));
    policy.versions != Versions::Tls13
        && !policy.require_extended_master_secret
        && !is_certificate_required
}

/// The settings for clients of TLS 1.2 without extended master secret. A server that relays such a
/// handshake can give two sessions one master secret (RFC 7627). So nothing resumes, and clients
/// are not asked for certificates: in such a handshake they prove no identity.
fn config_without_ems(
    context: &Context,
    provider: &Arc<CryptoProvider>,
    resolver: Arc<dyn ResolvesServerCert>,
    lane: &LaneResources,
) -> Result<ServerConfig, ContextError> {
    let policy = &context.policy;
    let provider: Arc<CryptoProvider> = Arc::clone(provider);
    let mut config = without_tickets(policy, provider, &None, resolver, &lane.clock)?;
    config.alpn_protocols = policy.spoken_protocols();
    config.require_ems = false;
    if context.tickets > 0 {
        let ticketer = lane.tickets.ticketer(policy.digest());
        config.ticketer = Arc::new(OpeningTicketer(ticketer));
    }
    Ok(config)
}

/// The settings for sessions that none follows, and without application protocols.
fn without_tickets(
    policy: &Policy,
    provider: Arc<CryptoProvider>,
    clients: &Option<Arc<LaneVerifier>>,
    resolver: Arc<dyn ResolvesServerCert>,
    clock: &Arc<LaneClock>,
) -> Result<ServerConfig, rustls::Error> {
    let clock: Arc<LaneClock> = Arc::clone(clock);
    let builder = ServerConfig::builder_with_details(provider, clock)
        .with_protocol_versions(policy.versions.supported())?;
    let builder = match clients {
        Some(verifier) => {
            let verifier: Arc<LaneVerifier> = Arc::clone(verifier);
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(resolver);
    // Only tickets resume: a session store would be a lock, or would not reach across lanes.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // Without it a session of TLS 1.2 is not bound to the certificate that it began with. Then a
    // relay of a handshake can make two sessions with one master secret (RFC 7627).
    config.require_ems = true;
    // Sessions under TLS 1.3 read and write their own records behind the handshake. The price: any
    // code in this process that drives rustls with these settings can extract a connection's keys
    // too.
    config.enable_secret_extraction = true;
    config.send_tls13_tickets = 0;
    // How much rustls skips. It accepts early data only of sessions in a store, and there is none.
    config.max_early_data_size = EARLY_DATA_SKIPPED_MAX;
    Ok(config)
}
