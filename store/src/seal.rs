//! Seals private keys: XChaCha20-Poly1305 under a key of 32 bytes that is not in the database.
//!
//! Nonces are random and 192 bits long, so that 100,000 keys resealed every day for a century are
//! 2^32 messages and a collision probability below 2^-128.
//!
//! What has to be readable without the key, and still nobody else's, has a [`Proof`]: HMAC-SHA-256
//! under a second key that is derived from the first, cut to 128 bits.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{AeadInPlace as _, KeyInit as _};
use chacha20poly1305::{Key, Tag, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sealane_engine::certificates::{EncodedKey, KeyEncoding};
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize as _, Zeroizing};

/// The keys that open a store. The first one seals; the others, left from before, only open.
///
/// A clone is a second copy of the secrets; both are zeroed when dropped.
#[derive(Clone)]
pub struct SealingKeys(Vec<SealingKey>);

impl SealingKeys {
    /// One new key, and the text of it for a file.
    ///
    /// # Errors
    /// The system gave no random bytes.
    pub fn generate() -> Result<(Self, Zeroizing<String>), SealingKeyError> {
        let mut secret = Secret::default();
        getrandom::fill(secret.as_mut_slice()).map_err(|_| SealingKeyError::NoRandomBytes)?;
        let mut text = Zeroizing::new(String::with_capacity(KEY_TEXT_BYTES_MAX));
        STANDARD.encode_string(secret.as_slice(), &mut text);
        text.push('\n');
        Ok((Self(vec![SealingKey::new(secret)]), text))
    }

    /// Reads a text with one key per line, in hexadecimal or base64, the current one first. Empty
    /// lines and lines that begin with `#` are passed over.
    ///
    /// # Errors
    /// A line is not a key, or there is none. No error quotes the text.
    pub fn from_text(text: &str) -> Result<Self, SealingKeyError> {
        if text.len() > KEY_TEXT_BYTES_MAX * SEALING_KEYS_MAX {
            return Err(SealingKeyError::TooLong);
        }
        let mut keys: Vec<SealingKey> = Vec::new();
        for (position, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = position + 1;
            let secret = decode(line).ok_or(SealingKeyError::NotAKey { line: number })?;
            let key = SealingKey::new(secret);
            if keys.iter().any(|known| known.id == key.id) {
                return Err(SealingKeyError::Twice { line: number });
            }
            if keys.len() == SEALING_KEYS_MAX {
                return Err(SealingKeyError::TooMany);
            }
            keys.push(key);
        }
        if keys.is_empty() { Err(SealingKeyError::None) } else { Ok(Self(keys)) }
    }

    /// The key that seals.
    pub fn current(&self) -> SealingKeyId {
        self.0.first().map_or(SealingKeyId([0; ID_BYTES]), |key| key.id)
    }

    /// Whether the key `id` is among them.
    pub fn has(&self, id: SealingKeyId) -> bool {
        self.0.iter().any(|key| key.id == id)
    }

    /// Proves that whoever wrote `parts` had the current key.
    pub(crate) fn prove(&self, parts: &[&[u8]]) -> Result<Proof, SealingKeyError> {
        let key = self.0.first().ok_or(SealingKeyError::None)?;
        let tag = key.proof(parts).finalize().into_bytes();
        let (tag, _) = tag.split_first_chunk().ok_or(SealingKeyError::CannotSeal)?;
        Ok(Proof { id: key.id, tag: *tag })
    }

    /// Whether `proof` is what [`Self::prove`] made of the same `parts` with one of these keys.
    pub(crate) fn proves(&self, proof: &Proof, parts: &[&[u8]]) -> bool {
        let key = self.0.iter().find(|key| key.id == proof.id);
        key.is_some_and(|key| key.proof(parts).verify_truncated_left(&proof.tag).is_ok())
    }

    /// Seals `key` for the certificate that `bound` identifies.
    pub(crate) fn seal(&self, key: &EncodedKey, bound: &[u8]) -> Result<Sealed, SealingKeyError> {
        self.seal_bound(key, &associated(self.current(), bound))
    }

    #[cfg(test)]
    pub(crate) fn seal_format_1(
        &self,
        key: &EncodedKey,
        chain: &[u8],
    ) -> Result<Sealed, SealingKeyError> {
        self.seal_bound(key, &associated_format_1(self.current(), chain))
    }

    fn seal_bound(&self, key: &EncodedKey, bound: &[u8]) -> Result<Sealed, SealingKeyError> {
        let encoding = match key.encoding() {
            KeyEncoding::Pkcs1 => 1,
            KeyEncoding::Pkcs8 => 2,
            KeyEncoding::Sec1 => 3,
        };
        self.seal_parts([&[encoding], key.der()], bound)
    }

    fn seal_parts(&self, parts: [&[u8]; 2], bound: &[u8]) -> Result<Sealed, SealingKeyError> {
        let sealing = self.0.first().ok_or(SealingKeyError::None)?;
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| SealingKeyError::NoRandomBytes)?;
        // A buffer that never moves, so that no copy of the secret stays behind.
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut bytes = Zeroizing::new(Vec::with_capacity(len + TAG_BYTES));
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let tag = sealing
            .cipher()
            .encrypt_in_place_detached(&XNonce::from(nonce), bound, &mut bytes)
            .map_err(|_| SealingKeyError::CannotSeal)?;
        bytes.extend_from_slice(&tag);
        Ok(Sealed { id: sealing.id, nonce, bytes: bytes.to_vec() })
    }

    /// Seals what is no private key of a certificate, for the entry that `bound` identifies; the
    /// answer is what [`SealedEntry::parse`] reads.
    pub(crate) fn seal_entry(
        &self,
        value: &[u8],
        bound: &[u8],
    ) -> Result<Vec<u8>, SealingKeyError> {
        let sealed = self.seal_parts([&[], value], &associated_entry(self.current(), bound))?;
        Ok([sealed.id.0.as_slice(), &sealed.nonce, &sealed.bytes].concat())
    }

    /// Opens what [`Self::seal_entry`] made for the same `bound`.
    pub(crate) fn open_entry(
        &self,
        sealed: &SealedEntry<'_>,
        bound: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let bound = associated_entry(sealed.id, bound);
        self.open_bytes(sealed.id, sealed.nonce, sealed.bytes, &bound)
    }

    /// Opens what [`Self::seal`] made for the same `bound`.
    pub(crate) fn open(
        &self,
        id: SealingKeyId,
        nonce: &[u8; NONCE_BYTES],
        sealed: &[u8],
        bound: &[u8],
    ) -> Result<EncodedKey, OpenError> {
        self.open_bound(id, nonce, sealed, &associated(id, bound))
    }

    /// Opens a seal of format 1, which was bound to the chain alone.
    pub(crate) fn open_format_1(
        &self,
        id: SealingKeyId,
        nonce: &[u8; NONCE_BYTES],
        sealed: &[u8],
        chain: &[u8],
    ) -> Result<EncodedKey, OpenError> {
        self.open_bound(id, nonce, sealed, &associated_format_1(id, chain))
    }

    /// Seals what leaves this machine, for `place`: it opens there and nowhere else.
    ///
    /// # Errors
    /// The system gave no random bytes, or `value` is too long.
    pub fn seal_for(&self, place: &str, value: &[u8]) -> Result<Vec<u8>, SealingKeyError> {
        let bound = associated_place(self.current(), place);
        let sealed = self.seal_parts([&[], value], &bound)?;
        Ok([sealed.id.0.as_slice(), &sealed.nonce, &sealed.bytes].concat())
    }

    /// Opens what [`Self::seal_for`] made, on any machine, for the same `place`.
    ///
    /// # Errors
    /// It was changed, is of another place, or is sealed with a key that is not among these.
    pub fn open_at(&self, place: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, UnsealError> {
        let sealed = SealedEntry::parse(sealed).ok_or(UnsealError::Damaged)?;
        let bound = associated_place(sealed.id, place);
        let opened = self.open_bytes(sealed.id, sealed.nonce, sealed.bytes, &bound);
        opened.map_err(|error| match error {
            OpenError::Damaged => UnsealError::Damaged,
            OpenError::KeyMissing => UnsealError::KeyMissing { id: sealed.id },
        })
    }

    /// Whether the key that seals now made what [`Self::seal_for`] returned.
    #[must_use]
    pub fn is_current(&self, sealed: &[u8]) -> bool {
        SealedEntry::parse(sealed).is_some_and(|sealed| sealed.id == self.current())
    }

    fn open_bound(
        &self,
        id: SealingKeyId,
        nonce: &[u8; NONCE_BYTES],
        sealed: &[u8],
        bound: &[u8],
    ) -> Result<EncodedKey, OpenError> {
        let opened = self.open_bytes(id, nonce, sealed, bound)?;
        let (encoding, der) = opened.split_first().ok_or(OpenError::Damaged)?;
        let encoding = match encoding {
            1 => KeyEncoding::Pkcs1,
            2 => KeyEncoding::Pkcs8,
            3 => KeyEncoding::Sec1,
            _ => return Err(OpenError::Damaged),
        };
        Ok(EncodedKey::new(encoding, der))
    }

    fn open_bytes(
        &self,
        id: SealingKeyId,
        nonce: &[u8; NONCE_BYTES],
        sealed: &[u8],
        bound: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let key = self.0.iter().find(|key| key.id == id).ok_or(OpenError::KeyMissing)?;
        let (sealed, tag) = sealed.split_last_chunk::<TAG_BYTES>().ok_or(OpenError::Damaged)?;
        let mut opened = Zeroizing::new(sealed.to_vec());
        key.cipher()
            .decrypt_in_place_detached(&XNonce::from(*nonce), bound, &mut opened, &Tag::from(*tag))
            .map_err(|_| OpenError::Damaged)?;
        Ok(opened)
    }
}

impl fmt::Debug for SealingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| key.id)).finish()
    }
}

/// Names a sealing key without telling anything of it: the beginning of its digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SealingKeyId(pub [u8; ID_BYTES]);

impl fmt::Display for SealingKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SealingKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why a text gives no sealing keys. The fault is the operator's, but for want of random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealingKeyError {
    /// The cipher refused.
    #[error("a private key cannot be sealed; it is too long")]
    CannotSeal,
    /// No line holds a key.
    #[error("no sealing key in it; make one with: openssl rand -base64 32")]
    None,
    /// The system's source of random bytes failed.
    #[error("the system gives no random bytes")]
    NoRandomBytes,
    /// A line is something else.
    #[error(
        "line {line} is not a sealing key; a key is {KEY_BYTES} bytes in base64 or hexadecimal: \
         openssl rand -base64 32"
    )]
    NotAKey {
        /// Counted from 1.
        line: usize,
    },
    /// A text longer than so many keys.
    #[error("too long for a list of sealing keys; is this the right one?")]
    TooLong,
    /// More keys than a rotation needs.
    #[error("more than {SEALING_KEYS_MAX} sealing keys; reseal the store and remove the old ones")]
    TooMany,
    /// A key is there already.
    #[error("line {line} repeats a sealing key; remove it")]
    Twice {
        /// Counted from 1.
        line: usize,
    },
}

/// Why what came from elsewhere stays sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsealError {
    /// Somebody without the key wrote or moved it.
    #[error("its seal is broken: whoever wrote it there does not have the sealing key")]
    Damaged,
    /// Sealed by whoever has a key that is not here.
    #[error(
        "it is sealed with the key {id}, which is not among the sealing keys of this machine; add \
         that one to them"
    )]
    KeyMissing {
        /// The key's name.
        id: SealingKeyId,
    },
}

/// A sealed private key.
pub(crate) struct Sealed {
    pub(crate) id: SealingKeyId,
    pub(crate) nonce: [u8; NONCE_BYTES],
    pub(crate) bytes: Vec<u8>,
}

/// A sealed entry that borrows from the database's page.
pub(crate) struct SealedEntry<'t> {
    pub(crate) id: SealingKeyId,
    nonce: &'t [u8; NONCE_BYTES],
    bytes: &'t [u8],
}

impl<'t> SealedEntry<'t> {
    /// Reads what [`SealingKeys::seal_entry`] makes; none if it is cut.
    pub(crate) fn parse(sealed: &'t [u8]) -> Option<Self> {
        let (id, sealed) = sealed.split_first_chunk()?;
        let (nonce, bytes) = sealed.split_first_chunk()?;
        Some(Self { id: SealingKeyId(*id), nonce, bytes })
    }
}

/// Shows who wrote something: the name of a sealing key, and what only its holder can compute.
pub(crate) struct Proof {
    pub(crate) id: SealingKeyId,
    tag: [u8; PROOF_BYTES - ID_BYTES],
}

impl Proof {
    pub(crate) fn parse(bytes: [u8; PROOF_BYTES]) -> Self {
        let (mut id, mut tag) = ([0; ID_BYTES], [0; PROOF_BYTES - ID_BYTES]);
        id.copy_from_slice(&bytes[..ID_BYTES]);
        tag.copy_from_slice(&bytes[ID_BYTES..]);
        Self { id: SealingKeyId(id), tag }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [self.id.0.as_slice(), &self.tag].concat()
    }
}

/// Why a sealed key stays closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// The sealed key was changed, or belongs to another certificate.
    Damaged,
    /// The key it was sealed with is not at hand.
    KeyMissing,
}

#[derive(Clone)]
struct SealingKey {
    id: SealingKeyId,
    /// What proofs are made with: not the key that seals, so neither says anything of the other.
    proving: Secret,
    secret: Secret,
}

/// Moved by its pointer alone, so that no copy of it stays behind.
type Secret = Box<Zeroizing<[u8; KEY_BYTES]>>;

impl SealingKey {
    fn new(secret: Secret) -> Self {
        let mut digest: [u8; 32] = Sha256::new_with_prefix(b"sealane sealing key 1")
            .chain_update(secret.as_slice())
            .finalize()
            .into();
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&digest[..ID_BYTES]);
        digest.zeroize();
        let mut proving = Secret::default();
        let derived = keyed(&secret).chain_update(b"sealane proving key 1").finalize();
        proving.copy_from_slice(&derived.into_bytes());
        Self { id: SealingKeyId(id), proving, secret }
    }

    /// Each part with its length, so that none can be moved into the next.
    fn proof(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        parts.iter().fold(keyed(&self.proving), |proof, part| {
            proof.chain_update((part.len() as u64).to_be_bytes()).chain_update(part)
        })
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(Key::from_slice(self.secret.as_slice()))
    }
}

/// HMAC-SHA-256 under `secret`.
fn keyed(secret: &Secret) -> Hmac<Sha256> {
    // Keys of a block's length are taken as they are: this is the same as taking 32 bytes.
    let mut block = Zeroizing::new([0; BLOCK_BYTES]);
    block[..KEY_BYTES].copy_from_slice(secret.as_slice());
    <Hmac<Sha256> as Mac>::new(hmac::digest::Key::<Hmac<Sha256>>::from_slice(block.as_slice()))
}

/// What a seal is bound to beside its content: the format, the sealing key and the record. So a
/// sealed key opens in its own record and in no other, and only while that is as it was written.
fn associated(id: SealingKeyId, bound: &[u8]) -> Vec<u8> {
    [b"sealane sealed key 2".as_slice(), &id.0, bound].concat()
}

fn associated_entry(id: SealingKeyId, bound: &[u8]) -> Vec<u8> {
    [b"sealane sealed entry 1".as_slice(), &id.0, bound].concat()
}

fn associated_place(id: SealingKeyId, place: &str) -> Vec<u8> {
    [b"sealane sealed place 1".as_slice(), &id.0, place.as_bytes()].concat()
}

fn associated_format_1(id: SealingKeyId, chain: &[u8]) -> Vec<u8> {
    [b"sealane sealed key 1".as_slice(), &id.0, chain].concat()
}

fn decode(line: &str) -> Option<Secret> {
    let mut secret = Secret::default();
    if line.len() == 2 * KEY_BYTES && line.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        for (byte, digits) in secret.iter_mut().zip(line.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        }
        return Some(secret);
    }
    let mut buffer = Zeroizing::new([0; KEY_BYTES + 4]);
    let len = STANDARD.decode_slice(line, buffer.as_mut_slice()).ok()?;
    secret.copy_from_slice(buffer.get(..len).filter(|bytes| bytes.len() == KEY_BYTES)?);
    Some(secret)
}

/// Bytes that SHA-256 takes at once.
const BLOCK_BYTES: usize = 64;
/// Bytes of a random nonce.
pub(crate) const NONCE_BYTES: usize = 24;
/// Bytes of a [`SealingKeyId`].
const ID_BYTES: usize = 8;
const KEY_BYTES: usize = 32;
/// A line of a key's text, generously.
const KEY_TEXT_BYTES_MAX: usize = 256;
/// Bytes of a [`Proof`].
pub(crate) const PROOF_BYTES: usize = ID_BYTES + 16;
/// A rotation needs two.
const SEALING_KEYS_MAX: usize = 16;
const TAG_BYTES: usize = 16;
