//! Where a thread's handshakes get their certificates from: the [`Resolver`], the only part of the
//! server that differs between strategies.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rustls::{
    crypto::CryptoProvider,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use sealane_lab_model::error::Error;

use crate::certificates::{
    Fault,
    decode::{Decoded, certified},
    generation::Generation,
    owner::{Owner, Reference},
};

/// One thread's, for one generation.
#[derive(Debug)]
pub(super) struct Resolver {
    pub(super) source: Source,
    pub(super) generation: Arc<Generation>,
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) fault: Option<Fault>,
    pub(super) notes: Arc<Notes>,
}

/// Who decodes.
#[derive(Debug)]
pub(super) enum Source {
    /// One thread for everybody.
    Central(Owner),
    /// The lane that first needs it: the engine's own resolver.
    Lane(Arc<dyn ResolvesServerCert>),
    /// Every connection for itself; the count is of certificates.
    PerConnection(Arc<AtomicU64>),
}

/// What a thread's handshakes came to, whatever the generation. The lock is never waited for:
/// rustls asks for `Sync`, but one thread alone uses this.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    asked: HashSet<Box<str>>,
    /// The reference that the handshake under way holds.
    reference: Option<Reference>,
}

impl Notes {
    /// The claim of the handshake that asked last.
    pub(super) fn take_reference(&self) -> Option<Reference> {
        self.noted().reference.take()
    }

    /// How many different names this thread was asked for.
    pub(super) fn names_asked(&self) -> u64 {
        self.noted().asked.len() as u64
    }

    fn ask(&self, name: &str) {
        let mut noted = self.noted();
        let asked = &mut noted.asked;
        if !asked.contains(name) {
            asked.insert(name.into());
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolver {
    fn answer(&self, hello: ClientHello<'_>) -> Result<Arc<CertifiedKey>, Error> {
        let unknown = || Error::Check("the client asks for no name that is here".into());
        let name = hello.server_name().ok_or_else(unknown)?;
        self.notes.ask(name);
        if let Some(wrong) = self.commit(name)? {
            return Ok(wrong);
        }
        match &self.source {
            Source::Central(owner) => {
                let encoded = self.generation.find(name).ok_or_else(unknown)?;
                let (reference, chain) = owner.open(encoded)?;
                self.notes.noted().reference = Some(reference);
                let chain = chain.iter().map(|decoded| decoded.der.clone()).collect();
                certified(chain, &encoded.key, &self.provider)
            }
            Source::Lane(resolver) => resolver.resolve(hello).ok_or_else(unknown),
            Source::PerConnection(count) => {
                let encoded = self.generation.find(name).ok_or_else(unknown)?;
                let decoded = Decoded::chain(&encoded.text)?.into_iter();
                let chain: Vec<_> = decoded.map(|decoded| decoded.der).collect();
                count.fetch_add(chain.len() as u64, Relaxed);
                certified(chain, &encoded.key, &self.provider)
            }
        }
    }

    /// A wrong answer for the first of all names, if a test wants one.
    fn commit(&self, name: &str) -> Result<Option<Arc<CertifiedKey>>, Error> {
        let mut names = self.generation.names();
        let (Some(Fault::MixedPair | Fault::Neighbour), Some(first), Some(second)) =
            (self.fault, names.next(), names.next())
        else {
            return Ok(None);
        };
        let pair = [first, second].map(|name| self.generation.find(name));
        let ([Some(own), Some(other)], true) = (pair, name == first) else { return Ok(None) };
        let shown = if self.fault == Some(Fault::MixedPair) { own } else { other };
        certified(shown.chain.clone(), &other.key, &self.provider).map(Some)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // The client sees an alert, and its check counts it.
        self.answer(hello).ok()
    }
}
