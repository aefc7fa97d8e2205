//! One set of options made ready, and its replica on each lane.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::sign::SingleCertAndKey;
use rustls::time_provider::TimeProvider;

use super::error::ClientOptionsError;
use super::options::{ALPN_PROTOCOLS_MAX, ClientOptions, OptionsDigest, Roots, Verification};
use super::sessions::LaneSessions;
use super::table::Counters;
use super::verifier::LaneVerifier;
use crate::anchors::Anchors;
use crate::pinned::{Pinned, Purpose};
use crate::policy::{Group, Versions};
use crate::provider::lane_provider;
use crate::tickets::{LaneClock, UnixSeconds};

/// The TLS settings of clients with equal options: immutable, shared by all lanes, and read-only
/// for them. [`ClientContexts`](super::ClientContexts) builds it.
pub struct ClientContext {
    /// Parsed roots, of which lanes read and no connection counts references.
    anchors: Anchors,
    counters: Arc<Counters>,
    digest: OptionsDigest,
    /// Without the roots: they are parsed, and their source is of no use any more.
    options: ClientOptions,
    /// The roots again: a server may show one as its own certificate.
    pinned: Pinned,
}

impl ClientContext {
    /// Parses and validates `options`, which have this `digest`, and counts that in `counters`.
    pub(super) fn build(
        options: &ClientOptions,
        digest: OptionsDigest,
        counters: &Arc<Counters>,
    ) -> Result<Arc<Self>, ClientOptionsError> {
        check(options)?;
        // An authority that an operator names is trusted, an intermediate one too.
        let anchors = options.roots.anchors(Anchors::trust)?;
        counters.parsed(anchors.len());
        counters.built();
        let context = Arc::new(Self {
            anchors,
            counters: Arc::clone(counters),
            digest,
            options: ClientOptions { roots: Roots::none(), ..options.clone() },
            pinned: Pinned::all(options.roots.ders(), Purpose::Server, false),
        });
        // A context that cannot be replicated never reaches a lane.
        context.replica(Arc::new(LaneClock::new(UnixSeconds(0))))?;
        Ok(context)
    }

    /// The digest of the options that this context was built for.
    pub fn digest(&self) -> OptionsDigest {
        self.digest
    }

    /// The calling lane's own configuration: every reference count, session and decoded key that a
    /// handshake touches is in memory that this lane allocated. It keeps the context alive. Where
    /// sessions move from thread to thread, `clock` is one that all of them can read, which a
    /// [`LaneClock`] is not.
    ///
    /// # Errors
    /// The provider cannot run on this machine.
    pub fn replica(
        self: &Arc<Self>,
        clock: Arc<impl TimeProvider + 'static>,
    ) -> Result<Arc<ClientConfig>, ClientOptionsError> {
        let options = &self.options;
        let provider = Arc::new(lane_provider(options.provider, &options.groups)?.crypto);
        let builder = ClientConfig::builder_with_details(Arc::clone(&provider), clock)
            .with_protocol_versions(options.versions.supported())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(self.verifier(&provider)));
        let mut config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = identity.certificate().decode(&provider)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
            }
        };
        config.alpn_protocols.clone_from(&options.alpn);
        // A server that relays the handshake could pass on the proof by this client's certificate
        // (RFC 7627). TLS 1.3 has no such gap.
        config.require_ems = options.require_extended_master_secret || options.identity.is_some();
        config.resumption = match options.resumption {
            true => Resumption::store(Arc::new(LaneSessions::new(LANE_SESSIONS_MAX))),
            false => Resumption::disabled(),
        };
        Ok(Arc::new(config))
    }

    /// A verifier of servers' certificates, to judge a chain without a connection.
    ///
    /// # Errors
    /// The provider cannot run on this machine.
    pub fn server_verifier(
        self: &Arc<Self>,
    ) -> Result<Arc<dyn ServerCertVerifier>, ClientOptionsError> {
        let provider = lane_provider(self.options.provider, &self.options.groups)?.crypto;
        Ok(Arc::new(self.verifier(&provider)))
    }

    /// The calling lane's own verifier.
    pub(crate) fn verifier(self: &Arc<Self>, provider: &CryptoProvider) -> LaneVerifier {
        let algorithms = provider.signature_verification_algorithms;
        LaneVerifier { algorithms, context: Arc::clone(self) }
    }

    /// The trusted authorities, or `None` if servers' certificates are not verified.
    pub(super) fn believed(&self) -> Option<&Anchors> {
        match self.options.verification {
            Verification::DangerousNone => None,
            Verification::Full => Some(&self.anchors),
        }
    }

    /// The roots that a server may show as its own certificate.
    pub(super) fn pinned(&self) -> &Pinned {
        &self.pinned
    }

    /// The reference count that lanes share.
    #[cfg(test)]
    pub(super) fn references(self: &Arc<Self>) -> usize {
        Arc::strong_count(self)
    }
}

impl Drop for ClientContext {
    fn drop(&mut self) {
        self.counters.freed();
    }
}

impl fmt::Debug for ClientContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientContext")
            .field("roots", &self.anchors.len())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Checks that need no parsing.
fn check(options: &ClientOptions) -> Result<(), ClientOptionsError> {
    let hybrid_only = options.groups.iter().all(|group| *group == Group::X25519MlKem768);
    if options.versions == Versions::Tls12 && hybrid_only && !options.groups.is_empty() {
        return Err(ClientOptionsError::GroupsNeedTls13);
    }
    if options.verification == Verification::Full && options.roots.is_empty() {
        return Err(ClientOptionsError::NoRoots);
    }
    let count = options.alpn.len();
    if count > ALPN_PROTOCOLS_MAX {
        return Err(ClientOptionsError::TooManyProtocols { count });
    }
    let misnamed = options.alpn.iter().position(|name| !(1..=255).contains(&name.len()));
    if let Some(index) = misnamed {
        let bytes = options.alpn[index].len();
        return Err(ClientOptionsError::AlpnName { position: index + 1, bytes });
    }
    Ok(())
}

/// Sessions that a lane remembers per context, to resume them.
pub const LANE_SESSIONS_MAX: usize = 1_024;
