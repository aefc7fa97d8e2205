//! What is in the cluster, sealed whole: certificates, and words of names that were removed.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use sealane_engine::certificates::{Certificate, DefaultCertificate, EncodedKey, IndexBuilder};
use sealane_store::{
    Listed, Removal, SealingKeyError, SealingKeys, UnsealError, chain_digest, pem_text,
};
use zeroize::Zeroizing;

use super::places::Places;

/// Which of two certificates is served for a name by the whole fleet: the greater one. What was put
/// later counts, then the later begin, then the later end, then chance, which is the same on all
/// machines. [`KeyedStore::take_over`](sealane_store::KeyedStore::take_over) has the same rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) put_s: i64,
    pub(super) not_before_s: i64,
    pub(super) not_after_s: i64,
    pub(super) digest: [u8; 32],
}

impl Rank {
    /// Less than that of any certificate.
    pub(super) const LEAST: Self =
        Self { put_s: i64::MIN, not_before_s: i64::MIN, not_after_s: i64::MIN, digest: [0; 32] };

    /// Greater than that of anything that was put before this second.
    pub(super) const fn of_what_is_unknown(now_s: i64) -> Self {
        let put_s = now_s.saturating_sub(1);
        Self { put_s, not_before_s: i64::MAX, not_after_s: i64::MAX, digest: [0xff; 32] }
    }

    pub(super) fn of_listed(listed: &Listed) -> Self {
        Self {
            put_s: listed.imported_s,
            not_before_s: listed.not_before_s,
            not_after_s: listed.not_after_s,
            digest: listed.digest.0,
        }
    }

    pub(super) fn of(certificate: &Certificate, put_s: i64) -> Self {
        Self {
            put_s,
            not_before_s: certificate.not_before_s(),
            not_after_s: certificate.not_after_s(),
            // As the store has it: that of the certificate tells of its key.
            digest: chain_digest(certificate.chain()).0,
        }
    }

    pub(super) const fn of_removal(removal: &Removal) -> Self {
        Self { put_s: removal.at_s, not_before_s: 0, not_after_s: removal.until_s, digest: [0; 32] }
    }
}

/// A certificate of the cluster, its seal opened.
pub(super) struct Opened {
    pub(super) rank: Rank,
    text: Zeroizing<Vec<u8>>,
    /// Where the label begins.
    rest: usize,
}

impl Opened {
    /// Opens what is at `place`.
    ///
    /// # Errors
    /// Nobody with a sealing key of this machine put it there, or another version did.
    pub(super) fn new(place: &str, value: &[u8], keys: &SealingKeys) -> Result<Self, OpenError> {
        let text = keys.open_at(place, value)?;
        let (rest, fields) = head(&text).ok_or(OpenError::Version)?;
        let [put, begin, end, digest] = fields[..] else { return Err(OpenError::Version) };
        let number = |text: &str| text.parse().map_err(|_| OpenError::Version);
        let rank = Rank {
            put_s: number(put)?,
            not_before_s: number(begin)?,
            not_after_s: number(end)?,
            digest: bytes(digest).ok_or(OpenError::Version)?,
        };
        Ok(Self { rank, rest, text })
    }

    /// The certificate, once it is held against its place and its rank, and its key against it.
    ///
    /// # Errors
    /// It cannot be served.
    pub(super) fn certificate(
        &self,
        place: &str,
        places: &Places,
        provider: &CryptoProvider,
        now_s: i64,
    ) -> Result<Arc<Certificate>, OpenError> {
        let text = self.text.get(self.rest..).unwrap_or_default();
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
        if !is_its_place || Rank::of(&certificate, self.rank.put_s) != self.rank {
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
) -> Result<Vec<u8>, SealingKeyError> {
    let Rank { put_s, not_before_s, not_after_s, digest } = rank;
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    // A label is one line of text.
    let label = label.replace(['\n', '\r'], " ");
    let head = format!("{VERSION} {put_s} {not_before_s} {not_after_s} {digest}\n{label}\n");
    let pem = pem_text(chain, Some(key));
    let mut text = Zeroizing::new(Vec::with_capacity(head.len() + pem.len()));
    text.extend_from_slice(head.as_bytes());
    text.extend_from_slice(&pem);
    keys.seal_for(place, &text)
}

/// The word of a removed name, as it is put at its place.
///
/// # Errors
/// It cannot be sealed.
pub(super) fn seal_removal(
    places: &Places,
    removal: &Removal,
    keys: &SealingKeys,
) -> Result<Vec<u8>, SealingKeyError> {
    let Removal { name, at_s, until_s } = removal;
    let text = format!("{VERSION} {at_s} {until_s} {name}\n");
    keys.seal_for(&places.removal(name), text.as_bytes())
}

/// The word of a removed name at `place`.
///
/// # Errors
/// Nobody with a sealing key of this machine put it there, or another version did.
pub(super) fn removal(
    place: &str,
    value: &[u8],
    places: &Places,
    keys: &SealingKeys,
) -> Result<Removal, OpenError> {
    let text = keys.open_at(place, value)?;
    let (_, fields) = head(&text).ok_or(OpenError::Version)?;
    let [at, until, name] = fields[..] else { return Err(OpenError::Version) };
    let number = |text: &str| text.parse().map_err(|_| OpenError::Version);
    let removal = Removal { name: name.to_owned(), at_s: number(at)?, until_s: number(until)? };
    match places.removal(name) == place {
        true => Ok(removal),
        false => Err(OpenError::Unusable("it is not what its place says".into())),
    }
}

/// The words behind the version in the first line, and where that line ends; none of another
/// version.
fn head(text: &[u8]) -> Option<(usize, Vec<&str>)> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let line = str::from_utf8(text.get(..end)?).ok()?;
    let mut words = line.split(' ');
    (words.next() == Some(VERSION)).then(|| (end + 1, words.collect()))
}

fn bytes(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else { return None };
    if pairs.len() != bytes.len() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// Why something of the cluster is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// The seal does not open.
    #[error(transparent)]
    Sealed(#[from] UnsealError),
    /// What is in it cannot be served.
    #[error("{0}")]
    Unusable(String),
    /// Whoever put it writes otherwise.
    #[error("it is not as this version writes it; is another machine's newer?")]
    Version,
}

impl OpenError {
    /// Whether a machine of the fleet may have put it, which knows more than this one.
    pub(super) const fn may_be_ours(&self) -> bool {
        matches!(self, Self::Version | Self::Sealed(UnsealError::KeyMissing { .. }))
    }
}

const VERSION: &str = "1";
