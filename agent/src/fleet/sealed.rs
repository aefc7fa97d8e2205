//! A certificate as it is in the cluster: in clear which one it is, and sealed all the rest.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use sealane_engine::certificates::{Certificate, DefaultCertificate, EncodedKey, IndexBuilder};
use sealane_store::{Listed, SealingKeys, UnsealError, chain_digest, pem_text};
use zeroize::Zeroizing;

use super::places::Places;

/// Which of two certificates for the same names is served by the whole fleet: the greater one. The
/// later begin counts, then the later end, then chance, which is the same on all machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) not_before_s: i64,
    pub(super) not_after_s: i64,
    pub(super) digest: [u8; 32],
}

impl Rank {
    /// Less than that of any certificate.
    pub(super) const LEAST: Self =
        Self { not_before_s: i64::MIN, not_after_s: i64::MIN, digest: [0; 32] };

    pub(super) fn of_listed(listed: &Listed) -> Self {
        Self {
            not_before_s: listed.not_before_s,
            not_after_s: listed.not_after_s,
            digest: listed.digest.0,
        }
    }

    pub(super) fn of(certificate: &Certificate) -> Self {
        Self {
            not_before_s: certificate.not_before_s(),
            not_after_s: certificate.not_after_s(),
            // As the store has it: that of the certificate tells of its key.
            digest: chain_digest(certificate.chain()).0,
        }
    }
}

/// What is in the cluster at a place of a certificate.
pub(super) struct Sealed<'v> {
    /// Says that it, and what is less, is removed.
    pub(super) is_removed: bool,
    pub(super) rank: Rank,
    sealed: &'v [u8],
}

impl<'v> Sealed<'v> {
    /// Reads a value; none if it is of another version, or of nobody of ours.
    pub(super) fn parse(value: &'v [u8]) -> Option<Self> {
        let end = value.iter().take(HEAD_BYTES_MAX).position(|byte| *byte == b'\n')?;
        let (head, sealed) = value.split_at_checked(end)?;
        let mut words = str::from_utf8(head).ok()?.split(' ');
        let is_removed = match words.next() {
            Some(TITLE) => false,
            Some(TITLE_OF_REMOVED) => true,
            _ => return None,
        };
        if words.next() != Some(VERSION) {
            return None;
        }
        let (hex, begin, over) = (words.next()?, words.next()?, words.next()?);
        let mut digest = [0; 32];
        if hex.len() != 2 * digest.len() || words.next().is_some() {
            return None;
        }
        for (byte, digits) in digest.iter_mut().zip(hex.as_bytes().as_chunks::<2>().0) {
            *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        }
        let rank =
            Rank { not_before_s: begin.parse().ok()?, not_after_s: over.parse().ok()?, digest };
        Some(Self { is_removed, rank, sealed: sealed.get(1..)? })
    }

    /// Shows that somebody with the sealing key put it at this place, with what is said in clear.
    pub(super) fn prove(&self, place: &str, keys: &SealingKeys) -> Result<(), UnsealError> {
        self.unseal(place, keys).map(drop)
    }

    fn unseal(&self, place: &str, keys: &SealingKeys) -> Result<Zeroizing<Vec<u8>>, UnsealError> {
        let title = if self.is_removed { TITLE_OF_REMOVED } else { TITLE };
        keys.open_at(&bound(place, &head(title, self.rank)), self.sealed)
    }

    /// Opens it, and holds it against its place and what is said of it in clear.
    pub(super) fn open(
        &self,
        place: &str,
        places: &Places,
        keys: &SealingKeys,
        provider: &CryptoProvider,
        now_s: i64,
    ) -> Result<Arc<Certificate>, OpenError> {
        let text = self.unseal(place, keys)?;
        let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        let (label, pem) = text.split_at(end);
        let label = String::from_utf8_lossy(label);
        let mut builder = IndexBuilder::new(provider, now_s);
        builder.add(&label, pem);
        let indexed = builder.finish(DefaultCertificate::Absent);
        if let Some(error) = indexed.errors.first() {
            return Err(OpenError::Unusable(error.to_string()));
        }
        let certificate = indexed.index.iter().next().map(Arc::clone);
        let certificate = certificate.ok_or_else(|| OpenError::Unusable("it is empty".into()))?;
        certificate.verify(provider).map_err(|error| OpenError::Unusable(error.to_string()))?;
        let names = certificate.names().iter().map(|name| &**name);
        let is_its_place = places.certificate(names, certificate.key_type()) == place;
        if !is_its_place || Rank::of(&certificate) != self.rank {
            return Err(OpenError::Unusable("it is not what its place says".into()));
        }
        Ok(certificate)
    }
}

/// A certificate as it is put at `place`.
///
/// # Errors
/// It cannot be sealed.
pub(super) fn seal<'d>(
    place: &str,
    rank: Rank,
    label: &str,
    (chain, key): (impl Iterator<Item = &'d [u8]>, &'d EncodedKey),
    keys: &SealingKeys,
) -> Result<Vec<u8>, sealane_store::SealingKeyError> {
    let pem = pem_text(chain, Some(key));
    // A label is one line of text.
    let label = label.replace(['\n', '\r'], " ");
    let mut text = Zeroizing::new(Vec::with_capacity(label.len() + 1 + pem.len()));
    text.extend_from_slice(label.as_bytes());
    text.push(b'\n');
    text.extend_from_slice(&pem);
    sealed_with(&head(TITLE, rank), place, &text, keys)
}

/// What is put at `place` to say that a certificate is removed: sealed, so that nobody without the
/// sealing key removes any.
///
/// # Errors
/// It cannot be sealed.
pub(super) fn seal_removal(
    place: &str,
    rank: Rank,
    keys: &SealingKeys,
) -> Result<Vec<u8>, sealane_store::SealingKeyError> {
    sealed_with(&head(TITLE_OF_REMOVED, rank), place, &[], keys)
}

/// A line in clear, and behind it what is sealed for that line at that place.
fn sealed_with(
    head: &str,
    place: &str,
    text: &[u8],
    keys: &SealingKeys,
) -> Result<Vec<u8>, sealane_store::SealingKeyError> {
    let sealed = keys.seal_for(&bound(place, head), text)?;
    Ok([head.as_bytes(), b"\n", &sealed].concat())
}

/// What a seal is bound to: neither goes to another place, nor under another line.
fn bound(place: &str, head: &str) -> String {
    format!("{place}\n{head}")
}

fn head(title: &str, Rank { not_before_s, not_after_s, digest }: Rank) -> String {
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{title} {VERSION} {hex} {not_before_s} {not_after_s}")
}

/// Why a certificate of the cluster is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// The seal does not open.
    #[error(transparent)]
    Sealed(#[from] UnsealError),
    /// What is in it cannot be served.
    #[error("{0}")]
    Unusable(String),
}

/// Bytes of the line in clear.
const HEAD_BYTES_MAX: usize = 256;
const TITLE: &str = "sealane-certificate";
const TITLE_OF_REMOVED: &str = "sealane-removed";
const VERSION: &str = "1";
