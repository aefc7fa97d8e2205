//! The keys that one lane decoded, and its answer to a hello.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use fragile::Fragile;
use lru::LruCache;
use rustls::SignatureScheme;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::leaf::Validity;
use super::restricted::Restricted;
use super::served::Found;
use super::{
    AskedName, Certificate, CertificateDigest, CertificateError, CertificateIndex, LeafTraits,
    Served, StoreFailure, StoreId, StoreView, StoredCertificate,
};
use crate::policy::{Scheme, SchemeSet};
use crate::tickets::{self, LaneClock, LeafDigest};

/// The keys that one lane has decoded, at most a given number. The least recently used leaves
/// first.
///
/// Entries go by digest, so they outlive a generation: a reload decodes only changed ones.
pub struct LaneKeys {
    counters: LaneKeyCounters,
    keys: LruCache<CertificateDigest, Held>,
    /// The last change of each store that this lane has seen.
    seen: HashMap<StoreId, Seen>,
}

/// A decoded key, or why there is none.
struct Held {
    /// Whether it came from a file, and not from a store. A store lists the certificates that have
    /// left it.
    is_of_file: bool,
    decoded: Result<Arc<CertifiedKey>, CertificateError>,
    /// The certificate as it is sent; none where there is no key.
    leaf: Option<SentLeaf>,
    /// The key for policies that restrict its signature schemes, the newest last.
    restricted: Vec<(SchemeSet, Arc<CertifiedKey>)>,
}

/// Digest and traits of a certificate that a session is served.
#[derive(Clone, Copy)]
struct SentLeaf {
    digest: LeafDigest,
    traits: Option<LeafTraits>,
    /// None if they cannot be read.
    validity: Option<Validity>,
}

/// The last change of a store that a lane knows.
struct Seen {
    /// The number of the last certificate that left it.
    gone: u64,
    version: u64,
}

impl LaneKeys {
    /// Holds up to `keys_max` keys.
    pub fn new(keys_max: NonZeroUsize) -> Self {
        Self {
            counters: LaneKeyCounters::default(),
            keys: LruCache::new(keys_max),
            seen: HashMap::new(),
        }
    }

    /// The decoded key of `certificate`, decoded now if this lane does not have it.
    ///
    /// A failure takes a place like a key, so that a bad key costs its decoding only once.
    pub fn certified_key(
        &mut self,
        certificate: &Certificate,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>, CertificateError> {
        let (decoded, is_held) = self.look_up(certificate, provider);
        if !is_held {
            self.keep(certificate.digest(), decoded.clone(), true);
        }
        decoded
    }

    /// The same for a context that is no longer served: a key that is decoded for it is not kept.
    fn passing_key(
        &mut self,
        certificate: &Certificate,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>, CertificateError> {
        self.look_up(certificate, provider).0
    }

    /// The decoded key of `certificate`, and whether it was held already.
    fn look_up(
        &mut self,
        certificate: &Certificate,
        provider: &CryptoProvider,
    ) -> (Result<Arc<CertifiedKey>, CertificateError>, bool) {
        if let Some(known) = self.keys.get(&certificate.digest()) {
            self.counters.hits += 1;
            return (known.decoded.clone(), true);
        }
        let decoded = certificate.decode(provider);
        match &decoded {
            Ok(_) => self.counters.decoded += 1,
            Err(_) => self.counters.failures += 1,
        }
        (decoded, false)
    }

    /// Drops the keys of files that are in none of the indexes that are served now.
    ///
    /// It takes as many steps as keys are held, or as an index has certificates, for each index the
    /// smaller of the two.
    pub fn forget_unserved<'i>(&mut self, served: impl IntoIterator<Item = &'i CertificateIndex>) {
        let of_files = self.keys.iter().filter(|(_, held)| held.is_of_file);
        let mut unserved: HashSet<CertificateDigest> =
            of_files.map(|(digest, _)| *digest).collect();
        for index in served {
            if unserved.is_empty() {
                return;
            }
            if index.len() < unserved.len() {
                for certificate in index {
                    unserved.remove(&certificate.digest());
                }
            } else {
                unserved.retain(|digest| !index.contains(digest));
            }
        }
        for digest in &unserved {
            self.keys.pop(digest);
        }
    }

    /// The decoded key of a certificate of a store, unsealed and decoded now if this lane does not
    /// have it.
    ///
    /// A failure is not kept, unlike that of a file: a key to unseal with may come later.
    fn stored_key(
        &mut self,
        digest: CertificateDigest,
        view: &dyn StoreView,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>, StoreFailure> {
        if let Some(Held { decoded: Ok(known), .. }) = self.keys.get(&digest) {
            self.counters.hits += 1;
            return Ok(Arc::clone(known));
        }
        let opened = view.open(digest).inspect_err(|StoreFailure| self.note_store_failure())?;
        self.counters.opened += 1;
        match opened.decode("", provider) {
            Ok(certified) => {
                let certified = Arc::new(certified);
                self.counters.decoded += 1;
                self.keep(digest, Ok(Arc::clone(&certified)), false);
                Ok(certified)
            }
            Err(_) => {
                self.counters.failures += 1;
                Err(StoreFailure)
            }
        }
    }

    /// Drops the keys of certificates that have left the store `id` since this lane last looked.
    fn forget_gone(&mut self, id: StoreId, view: &dyn StoreView) -> Result<(), StoreFailure> {
        let version = view.version();
        let seen = self.seen.get(&id);
        if seen.is_some_and(|seen| seen.version == version) {
            return Ok(());
        }
        let gone = view.gone_since(seen.map(|seen| seen.gone))?;
        match gone.digests {
            Some(digests) => {
                for digest in digests {
                    self.keys.pop(&digest);
                }
            }
            // More than the store remembers: keys that are still served are decoded again.
            None => self.keys.clear(),
        }
        self.seen.insert(id, Seen { gone: gone.last, version });
        Ok(())
    }

    fn keep(
        &mut self,
        digest: CertificateDigest,
        decoded: Result<Arc<CertifiedKey>, CertificateError>,
        is_of_file: bool,
    ) {
        let leaf = decoded.as_deref().ok().and_then(leaf_of);
        let held = Held { is_of_file, decoded, leaf, restricted: Vec::new() };
        if self.keys.push(digest, held).is_some() {
            self.counters.evictions += 1;
        }
    }

    /// `key`, which is that of `digest`, for a policy that allows `schemes` only.
    fn restricted(
        &mut self,
        digest: CertificateDigest,
        key: &CertifiedKey,
        schemes: SchemeSet,
    ) -> Arc<CertifiedKey> {
        let held = self.keys.peek_mut(&digest).map(|held| &mut held.restricted);
        let known = held.as_ref().and_then(|held| held.iter().find(|known| known.0 == schemes));
        if let Some((_, known)) = known {
            return Arc::clone(known);
        }
        let made = Arc::new(Restricted::key(key, schemes));
        if let Some(held) = held {
            if held.len() == RESTRICTED_KEYS_MAX {
                held.remove(0);
            }
            held.push((schemes, Arc::clone(&made)));
        }
        made
    }

    /// Digest and traits of the certificate of `key`, which is that of `digest`.
    fn leaf(&self, digest: CertificateDigest, key: &CertifiedKey) -> Option<SentLeaf> {
        self.keys.peek(&digest).and_then(|held| held.leaf).or_else(|| leaf_of(key))
    }

    pub(crate) fn note_store_failure(&mut self) {
        self.counters.store_failures += 1;
    }

    /// Counts of look-ups and decodings so far.
    pub fn counters(&self) -> LaneKeyCounters {
        self.counters
    }

    /// The count of places that are taken.
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
    /// Keys unsealed out of a store.
    pub opened: u64,
    /// Reads of a store that failed.
    pub store_failures: u64,
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
    /// A resolver for the calling thread. The lane clones `served` once per generation, `provider`
    /// is the lane's own, and `schemes` restrict the signatures.
    pub(crate) fn new(
        served: Served,
        provider: Arc<CryptoProvider>,
        (keys, clock): (Rc<RefCell<LaneKeys>>, Arc<LaneClock>),
        schemes: Option<SchemeSet>,
    ) -> Self {
        let lane = Lane {
            clock,
            has_own: Cell::default(),
            is_current: Cell::new(true),
            is_tls13: Cell::default(),
            keys,
            looked_up: Cell::default(),
            provider,
            schemes,
            served,
        };
        Self { lane: Fragile::new(lane) }
    }

    /// Whether a client that asks for `server_name`, or for none, is served at all. The result is
    /// kept for [`Self::resolve`], which rustls calls for the same hello next.
    ///
    /// # Errors
    /// Only the store can answer, and it cannot be read.
    pub(crate) fn covers(&self, server_name: Option<&str>) -> Result<bool, StoreFailure> {
        self.lane.try_get().map_or(Ok(false), |lane| lane.covers(server_name))
    }

    /// Takes note of the version that the hello which was admitted is answered with.
    pub(crate) fn note_version(&self, is_tls13: bool) {
        if let Ok(lane) = self.lane.try_get() {
            lane.is_tls13.set(Some(is_tls13));
        }
    }

    /// Whether the name of the last hello has its own certificate. `None` if that is not looked up,
    /// or could not be.
    pub(crate) fn has_own(&self) -> Option<bool> {
        self.lane.try_get().ok().filter(|lane| lane.served.on_demand())?.has_own.take()
    }

    /// Sets whether the lane serves this context now. If not, no key that it decodes is kept.
    pub(crate) fn set_current(&self, is_current: bool) {
        if let Ok(lane) = self.lane.try_get() {
            lane.is_current.set(is_current);
        }
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
    /// Whether certificates are in date is judged by it.
    clock: Arc<LaneClock>,
    /// Whether the name of the hello that was admitted last, or refused, has a certificate.
    has_own: Cell<Option<bool>>,
    is_current: Cell<bool>,
    /// Whether the hello that was admitted last is answered under TLS 1.3. It is unknown of a
    /// second hello, which always is.
    is_tls13: Cell<Option<bool>>,
    keys: Rc<RefCell<LaneKeys>>,
    /// By the hello that was admitted last.
    looked_up: Cell<Option<LookedUp>>,
    provider: Arc<CryptoProvider>,
    schemes: Option<SchemeSet>,
    served: Served,
}

/// The result of a look-up of a name.
struct LookedUp {
    found: Found,
    name: Option<AskedName>,
    /// The version of the store, if it was asked: in another one something else may be found.
    version: Option<u64>,
}

impl Lane {
    fn covers(&self, server_name: Option<&str>) -> Result<bool, StoreFailure> {
        self.looked_up.set(None);
        self.has_own.set(None);
        if self.served.covers_all() {
            return Ok(true);
        }
        let view = self.served.view();
        // Without its store a listener serves its files.
        let readable = view.as_ref().ok().and_then(|view| view.as_deref());
        let (found, has_own) = self.served.find_or_default(server_name, readable)?;
        // The content of a store that cannot be read is unknown.
        self.has_own.set(view.is_ok().then_some(has_own));
        let is_covered = !matches!(found, Found::Nothing);
        let (name, version) =
            (server_name.and_then(AskedName::new), readable.map(StoreView::version));
        self.looked_up.set(Some(LookedUp { found, name, version }));
        if is_covered { Ok(true) } else { view.map(|_| false) }
    }

    /// Finds the certificates for `server_name`. `covers` may have found them already, when the
    /// hello was admitted.
    fn find(
        &self,
        server_name: Option<&str>,
        view: Option<&dyn StoreView>,
    ) -> Result<Found, StoreFailure> {
        let version = view.map(StoreView::version);
        let name = || server_name.and_then(AskedName::new);
        let known = self.looked_up.take();
        match known.filter(|known| known.version == version && known.name == name()) {
            Some(known) => Ok(known.found),
            None => self.served.find(server_name, view),
        }
    }

    /// The best certificate that the client can check and that decodes.
    ///
    /// If the client can check none, the handshake ends with `handshake_failure` (RFC 8446 section
    /// 4.4.2.2). A client of TLS 1.2 gets the best one for that, with a key that signs nothing, so
    /// that rustls finds no suite for it. A client of TLS 1.3 gets none: rustls would find out only
    /// behind its ServerHello.
    fn resolve(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut keys = self.keys.borrow_mut();
        match self.try_resolve(hello, &mut keys) {
            Ok(resolved) => resolved,
            Err(StoreFailure) => {
                keys.note_store_failure();
                None
            }
        }
    }

    /// The store as it is now, after the keys of removed certificates were dropped.
    fn current_view(
        &self,
        keys: &mut LaneKeys,
    ) -> Result<Option<Box<dyn StoreView + '_>>, StoreFailure> {
        let view = self.served.view()?;
        if let (Some(store), Some(view)) = (&self.served.store, &view) {
            keys.forget_gone(store.certificates.id(), &**view)?;
        }
        Ok(view)
    }

    /// Reads everything for this hello from one view of the store, so that no chain can meet the
    /// key of another.
    fn try_resolve(
        &self,
        hello: &ClientHello<'_>,
        keys: &mut LaneKeys,
    ) -> Result<Option<Arc<CertifiedKey>>, StoreFailure> {
        // Without its store a listener serves its files.
        let view = self.current_view(keys).unwrap_or_else(|StoreFailure| {
            keys.note_store_failure();
            None
        });
        let (view, offered) = (view.as_deref(), hello.signature_schemes());
        let allowed = self.schemes.map(|schemes| schemes.allowed(offered));
        let schemes = allowed.as_deref().unwrap_or(offered);
        let name = hello.server_name();
        let found = self.find(name, view)?;
        let now_s = self.clock.now().and_then(|now| i64::try_from(now.0).ok());
        let resolved = match self.choose(&found, (schemes, now_s), view, keys) {
            Some(chosen) => Some(chosen),
            None => {
                let in_date = self.served.find_instead(name, &found, view, |other| {
                    self.choose(other, (schemes, now_s), view, keys)
                })?;
                in_date.or_else(|| self.choose_any(&found, schemes, view, keys))
            }
        };
        // The key's own schemes decide, not those that are usual for its kind.
        let is_tls13 = self.is_tls13.take().unwrap_or_else(|| offers_tls13(hello));
        let usable: Vec<_> =
            schemes.iter().copied().filter(|scheme| !is_tls13 || is_of_tls13(*scheme)).collect();
        let signer = |key: &CertifiedKey| key.key.choose_scheme(&usable);
        Ok(resolved.and_then(|Chosen { digest, is_accepted, key }| {
            let signer = signer(&key).filter(|_| is_accepted);
            if let Some(leaf) = keys.leaf(digest, &key) {
                let scheme = signer.as_ref().and_then(|signer| Scheme::of(signer.scheme()));
                tickets::note_served(leaf.digest, leaf.traits, scheme);
            }
            match self.schemes {
                _ if signer.is_none() && is_tls13 => None,
                _ if signer.is_none() => Some(keys.restricted(digest, &key, SchemeSet::NONE)),
                Some(schemes) => Some(keys.restricted(digest, &key, schemes)),
                None => Some(key),
            }
        }))
    }

    /// The best certificate of `found` that is in date and that the client can check.
    fn choose(
        &self,
        found: &Found,
        (schemes, now_s): (&[SignatureScheme], Option<i64>),
        view: Option<&dyn StoreView>,
        keys: &mut LaneKeys,
    ) -> Option<Chosen> {
        match (found, view) {
            (Found::Indexed(group), _) => {
                let found = self.served.index.group(group).iter();
                let mut usable = found.filter(|each| {
                    each.key_type().is_accepted(schemes)
                        && now_s.is_none_or(|now_s| each.is_leaf_valid_at(now_s))
                });
                usable.find_map(|each| self.key_of_file(each, true, keys))
            }
            (Found::Stored(found), Some(view)) => {
                let mut accepted = found.iter().filter(|each| each.key_type.is_accepted(schemes));
                accepted.find_map(|each| {
                    let chosen = self.key_of_store(each, true, view, keys)?;
                    let validity = keys.leaf(each.digest, &chosen.key)?.validity;
                    let is_valid = now_s
                        .zip(validity)
                        .is_none_or(|(now_s, validity)| validity.contains(now_s));
                    is_valid.then_some(chosen)
                })
            }
            (Found::Nothing | Found::Stored(_), _) => None,
        }
    }

    /// The best certificate of `found`, regardless of its dates and the client's schemes.
    fn choose_any(
        &self,
        found: &Found,
        schemes: &[SignatureScheme],
        view: Option<&dyn StoreView>,
        keys: &mut LaneKeys,
    ) -> Option<Chosen> {
        match (found, view) {
            (Found::Indexed(group), _) => {
                let is_accepted = |each: &Arc<Certificate>| each.key_type().is_accepted(schemes);
                best_first(self.served.index.group(group), is_accepted)
                    .find_map(|each| self.key_of_file(each, is_accepted(each), keys))
            }
            (Found::Stored(found), Some(view)) => {
                let is_accepted = |each: &StoredCertificate| each.key_type.is_accepted(schemes);
                best_first(found, is_accepted)
                    .find_map(|each| self.key_of_store(each, is_accepted(each), view, keys))
            }
            (Found::Nothing | Found::Stored(_), _) => None,
        }
    }

    fn key_of_file(
        &self,
        certificate: &Certificate,
        is_accepted: bool,
        keys: &mut LaneKeys,
    ) -> Option<Chosen> {
        let key = match self.is_current.get() {
            true => keys.certified_key(certificate, &self.provider),
            false => keys.passing_key(certificate, &self.provider),
        };
        Some(Chosen { digest: certificate.digest(), is_accepted, key: key.ok()? })
    }

    fn key_of_store(
        &self,
        stored: &StoredCertificate,
        is_accepted: bool,
        view: &dyn StoreView,
        keys: &mut LaneKeys,
    ) -> Option<Chosen> {
        let key = keys.stored_key(stored.digest, view, &self.provider).ok()?;
        Some(Chosen { digest: stored.digest, is_accepted, key })
    }
}

/// A certificate for a client.
struct Chosen {
    digest: CertificateDigest,
    is_accepted: bool,
    key: Arc<CertifiedKey>,
}

/// The digest that tickets of sessions with `key` are bound to, and the certificate's traits, if
/// known.
fn leaf_of(key: &CertifiedKey) -> Option<SentLeaf> {
    let leaf = key.cert.first()?;
    let (digest, traits) = (LeafDigest::of(leaf), LeafTraits::parse(leaf));
    Some(SentLeaf { digest, traits, validity: Validity::parse(leaf) })
}

/// Those that the client accepts, then the others.
fn best_first<T>(found: &[T], is_accepted: impl Fn(&T) -> bool + Copy) -> impl Iterator<Item = &T> {
    let accepted = found.iter().filter(move |each| is_accepted(each));
    accepted.chain(found.iter().filter(move |each| !is_accepted(each)))
}

/// Whether a client has suites of TLS 1.3.
fn offers_tls13(hello: &ClientHello<'_>) -> bool {
    hello.cipher_suites().iter().any(|suite| u16::from(*suite) >> 8 == TLS13_SUITE)
}

/// Whether TLS 1.3 lets a handshake be signed with `scheme` (RFC 8446 section 4.2.3).
fn is_of_tls13(scheme: SignatureScheme) -> bool {
    !matches!(
        scheme,
        SignatureScheme::ECDSA_SHA1_Legacy
            | SignatureScheme::RSA_PKCS1_SHA1
            | SignatureScheme::RSA_PKCS1_SHA256
            | SignatureScheme::RSA_PKCS1_SHA384
            | SignatureScheme::RSA_PKCS1_SHA512
    )
}

/// The first byte of the number of each suite of TLS 1.3 (RFC 8446 appendix B.4).
const TLS13_SUITE: u16 = 0x13;
/// The count of policies with separate schemes for which a lane keeps a key. Beyond it, the oldest
/// key is made again.
const RESTRICTED_KEYS_MAX: usize = 4;
