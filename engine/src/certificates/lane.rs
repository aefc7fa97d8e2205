//! What one lane decoded, and how it answers a hello.

use std::cell::RefCell;
use std::fmt;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use fragile::Fragile;
use lru::LruCache;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::{Certificate, CertificateDigest, CertificateError, CertificateIndex};
use crate::policy::UnknownNames;

/// The keys one lane has decoded, at most a given number, the least recently used leaving first.
///
/// Entries go by digest, so they outlive a generation: a reload decodes only what changed.
pub struct LaneKeys {
    counters: LaneKeyCounters,
    keys: LruCache<CertificateDigest, Result<Arc<CertifiedKey>, CertificateError>>,
}

impl LaneKeys {
    /// Holds up to `keys_max` keys.
    pub fn new(keys_max: NonZeroUsize) -> Self {
        Self { counters: LaneKeyCounters::default(), keys: LruCache::new(keys_max) }
    }

    /// The decoded key of `certificate`, decoded now if this lane does not have it.
    ///
    /// A failure takes a place like a key, so that a bad key costs its decoding only once.
    pub fn certified_key(
        &mut self,
        certificate: &Certificate,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>, CertificateError> {
        let digest = certificate.digest();
        if let Some(known) = self.keys.get(&digest) {
            self.counters.hits += 1;
            return known.clone();
        }
        let decoded = certificate.decode(provider);
        match &decoded {
            Ok(_) => self.counters.decoded += 1,
            Err(_) => self.counters.failures += 1,
        }
        if self.keys.push(digest, decoded.clone()).is_some() {
            self.counters.evictions += 1;
        }
        decoded
    }

    /// What happened so far.
    pub fn counters(&self) -> LaneKeyCounters {
        self.counters
    }

    /// How many places are taken.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing was decoded yet.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl fmt::Debug for LaneKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneKeys")
            .field("counters", &self.counters)
            .field("len", &self.keys.len())
            .finish_non_exhaustive()
    }
}

/// Counts of one lane's [`LaneKeys`], from the lane's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneKeyCounters {
    /// Keys decoded.
    pub decoded: u64,
    /// Keys or failures dropped for want of room.
    pub evictions: u64,
    /// Keys that could not be decoded.
    pub failures: u64,
    /// Look-ups answered without decoding.
    pub hits: u64,
}

/// Chooses certificates for one lane and one generation.
///
/// It is created, used and dropped on the lane's thread. rustls wants a resolver that can cross
/// threads; [`Fragile`] grants that by a check instead of a lock. On another thread it resolves
/// nothing, and being dropped there is a bug of the lane and panics.
pub struct LaneResolver {
    lane: Fragile<Lane>,
}

impl LaneResolver {
    /// A resolver for the calling thread. `index` is cloned by the lane once per generation,
    /// `provider` is the lane's own.
    pub fn new(
        index: Arc<CertificateIndex>,
        provider: Arc<CryptoProvider>,
        keys: Rc<RefCell<LaneKeys>>,
        unknown_names: UnknownNames,
    ) -> Self {
        Self { lane: Fragile::new(Lane { index, keys, provider, unknown_names }) }
    }
}

impl ResolvesServerCert for LaneResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.lane.try_get().ok()?.resolve(&hello)
    }
}

impl fmt::Debug for LaneResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneResolver").finish_non_exhaustive()
    }
}

struct Lane {
    index: Arc<CertificateIndex>,
    keys: Rc<RefCell<LaneKeys>>,
    provider: Arc<CryptoProvider>,
    unknown_names: UnknownNames,
}

impl Lane {
    /// The best certificate that the client can check and that decodes.
    ///
    /// If the client can check none, it still gets the best one: rustls then ends the handshake
    /// with `handshake_failure`, as RFC 8446 wants it, and before anything is signed.
    fn resolve(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let candidates = self.candidates(hello.server_name());
        let schemes = hello.signature_schemes();
        let mut keys = self.keys.borrow_mut();
        let accepted = candidates.iter().filter(|found| found.key_type().is_accepted(schemes));
        let others = candidates.iter().filter(|found| !found.key_type().is_accepted(schemes));
        accepted.chain(others).find_map(|found| keys.certified_key(found, &self.provider).ok())
    }

    fn candidates(&self, server_name: Option<&str>) -> &[Arc<Certificate>] {
        let found = server_name.map(|name| self.index.find(name)).unwrap_or_default();
        match self.unknown_names {
            UnknownNames::ServeDefault if found.is_empty() => self.index.default_certificates(),
            UnknownNames::Refuse | UnknownNames::ServeDefault => found,
        }
    }
}
