//! Keys of records: the bytes of each as long as it lives, and its expanded form as long as it is
//! in use.
//!
//! AWS-LC expands a key to 592 bytes, which an idle connection would keep twice, and does so in
//! 0.14 us. So a key keeps its own 32 bytes, and each thread the expanded form of those that were
//! used last. A thread finds an expanded form by the key itself, so a session that comes to another
//! thread never meets the key of another session. The form is zeroed and dropped with the key. A
//! session that is dropped on another thread than its last record's, which no lane does, leaves the
//! form until another key takes its place.

use std::cell::RefCell;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305};
use aws_lc_rs::aead::{LessSafeKey, UnboundKey};
use aws_lc_rs::error::Unspecified;
use rustls::crypto::cipher::AeadKey;
use zeroize::Zeroize as _;

/// A key of one direction of a connection.
pub(super) struct RecordKey {
    key: KeyBytes,
    /// The place where this thread may hold it expanded. If another key is there, this thread has
    /// no expanded form of it.
    place: u8,
}

impl RecordKey {
    /// One without its bytes, so that these need never be moved.
    pub(super) fn blank(aead: Aead) -> Self {
        Self { key: KeyBytes::blank(aead), place: 0 }
    }

    /// Puts the bytes of `key` in, as many as the cipher's key has.
    pub(super) fn fill(&mut self, key: &AeadKey) {
        self.key.bytes.iter_mut().zip(key.as_ref()).for_each(|(to, from)| *to = *from);
    }

    pub(super) fn aead(&self) -> Aead {
        self.key.aead
    }

    /// Lets `work` have the expanded key, which is kept for the next time.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn expanded<T>(
        &mut self,
        work: impl FnOnce(&LessSafeKey) -> T,
    ) -> Result<T, Unspecified> {
        let mut work = Some(work);
        let outcome = EXPANDED.try_with(|expanded| {
            let mut expanded = expanded.borrow_mut();
            let key = expanded.get(self)?;
            work.take().map(|work| work(key)).ok_or(Unspecified)
        });
        // Without it the thread is ending, and holds nothing any more.
        outcome.unwrap_or_else(|_| {
            let key = self.key.expand()?;
            work.take().map(|work| work(&key)).ok_or(Unspecified)
        })
    }
}

impl Drop for RecordKey {
    fn drop(&mut self) {
        // A thread that ends has dropped them all.
        let _ = EXPANDED.try_with(|expanded| expanded.borrow_mut().forget(self));
    }
}

/// A cipher that protects records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aead {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl Aead {
    pub(super) fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

/// The bytes that an expanded key is made from, and by which it is found.
struct KeyBytes {
    aead: Aead,
    /// Zeroed on drop.
    bytes: [u8; KEY_BYTES_MAX],
}

impl KeyBytes {
    fn blank(aead: Aead) -> Self {
        Self { aead, bytes: [0; KEY_BYTES_MAX] }
    }

    fn expand(&self) -> Result<LessSafeKey, Unspecified> {
        let algorithm = self.aead.algorithm();
        let (bytes, _) = self.bytes.split_at(algorithm.key_len());
        UnboundKey::new(algorithm, bytes).map(LessSafeKey::new)
    }

    fn is(&self, other: &Self) -> bool {
        // Compares to the end in any case: the time must not depend on the key.
        let bytes = self.bytes.iter().zip(&other.bytes);
        let differing = bytes.fold(0, |differing, (ours, theirs)| differing | (ours ^ theirs));
        self.aead == other.aead && differing == 0
    }
}

impl Drop for KeyBytes {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

/// The keys that a thread holds expanded.
struct Expanded {
    places: Box<[Option<Held>]>,
    /// Those of the places that are empty.
    vacant: Vec<u8>,
    /// The place that was cleared last while none was empty: they take turns.
    cleared: u8,
}

/// An expanded key, which AWS-LC zeroes when it is freed. In one line of the processor's cache.
#[repr(align(64))]
struct Held {
    expanded: LessSafeKey,
    key: KeyBytes,
}

impl Expanded {
    fn new() -> Self {
        let places = (0..EXPANDED_KEYS_MAX).map(|_| None).collect();
        Self { places, vacant: (0..=u8::MAX).rev().collect(), cleared: u8::MAX }
    }

    /// The expanded form of `of`, made if it is not held.
    fn get(&mut self, of: &mut RecordKey) -> Result<&LessSafeKey, Unspecified> {
        if !self.holds(of) {
            let expanded = of.key.expand()?;
            of.place = self.vacant.pop().unwrap_or_else(|| {
                self.cleared = self.cleared.wrapping_add(1);
                self.cleared
            });
            let slot = self.places.get_mut(usize::from(of.place)).ok_or(Unspecified)?;
            let held = slot.insert(Held { expanded, key: KeyBytes::blank(of.key.aead) });
            held.key.bytes = of.key.bytes;
        }
        let held = self.places.get(usize::from(of.place)).and_then(Option::as_ref);
        held.map(|held| &held.expanded).ok_or(Unspecified)
    }

    fn forget(&mut self, key: &RecordKey) {
        if self.holds(key)
            && let Some(place) = self.places.get_mut(usize::from(key.place))
        {
            *place = None;
            self.vacant.push(key.place);
        }
    }

    fn holds(&self, key: &RecordKey) -> bool {
        let place = self.places.get(usize::from(key.place)).and_then(Option::as_ref);
        place.is_some_and(|held| held.key.is(&key.key))
    }
}

thread_local! {
    static EXPANDED: RefCell<Expanded> = RefCell::new(Expanded::new());
}

/// The most expanded keys of a thread: both directions of 128 connections that are busy, or of 64
/// with TLS to their backends. That is 160 KB. A key beyond it is expanded for each record.
const EXPANDED_KEYS_MAX: usize = 1 << u8::BITS;
/// The bytes that they take, each 592 bytes of AWS-LC's and its place.
pub const EXPANDED_BYTES_MAX: u64 = EXPANDED_KEYS_MAX as u64 * 672;
const KEY_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests;
