//! A certificate as the database holds it: everything but its intermediates in one value.
//!
//! The key and the chain that it belongs to are written together and read together, so there is no
//! moment at which a chain meets another certificate's key.

use sealane_engine::certificates::{CHAIN_CERTIFICATES_MAX, KeyType, NAMES_PER_CERTIFICATE_MAX};
use sha2::{Digest as _, Sha256};

use crate::seal::{NONCE_BYTES, Sealed, SealingKeyId};

/// A record that borrows from the database's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'r> {
    /// The kind of key.
    pub key_type: KeyType,
    /// First second of validity, in Unix time.
    pub not_before_s: i64,
    /// Last second of validity, in Unix time.
    pub not_after_s: i64,
    /// When it was imported, in Unix time.
    pub imported_s: i64,
    /// What the private key is sealed with.
    pub sealing_key: SealingKeyId,
    /// The nonce of the seal.
    pub nonce: [u8; NONCE_BYTES],
    /// The sealed private key.
    pub sealed_key: &'r [u8],
    /// Where it was imported from.
    pub label: &'r str,
    /// Names of the certificate, lower-cased, wildcards among them.
    pub names: Vec<&'r str>,
    /// The server's own certificate as DER.
    pub leaf: &'r [u8],
    /// SHA-256 of each intermediate, in the chain's order.
    pub intermediates: Vec<[u8; 32]>,
}

impl<'r> Record<'r> {
    /// Reads a value of the database.
    ///
    /// # Errors
    /// It is not what [`Self::to_bytes`] writes.
    pub fn parse(bytes: &'r [u8]) -> Result<Self, RecordError> {
        Self::parse_version(bytes, VERSION)
    }

    /// Reads a value of format 1, in which the seal was bound to less.
    pub(crate) fn parse_format_1(bytes: &'r [u8]) -> Result<Self, RecordError> {
        Self::parse_version(bytes, 1)
    }

    fn parse_version(bytes: &'r [u8], version: u8) -> Result<Self, RecordError> {
        let rest = &mut &*bytes;
        if u8::from_be_bytes(array(rest)?) != version {
            return Err(RecordError("another version"));
        }
        let record = Self {
            key_type: key_type_from(array(rest)?)?,
            not_before_s: i64::from_be_bytes(array(rest)?),
            not_after_s: i64::from_be_bytes(array(rest)?),
            imported_s: i64::from_be_bytes(array(rest)?),
            sealing_key: SealingKeyId(array(rest)?),
            nonce: array(rest)?,
            sealed_key: counted(rest)?,
            label: text(rest)?,
            names: list(rest, NAMES_PER_CERTIFICATE_MAX, text)?,
            leaf: counted(rest)?,
            intermediates: list(rest, CHAIN_CERTIFICATES_MAX, array)?,
        };
        if rest.is_empty() { Ok(record) } else { Err(RecordError("bytes follow its end")) }
    }

    /// The same record under another seal.
    pub(crate) fn with_seal(self, seal: &'r Sealed) -> Self {
        Self { sealing_key: seal.id, nonce: seal.nonce, sealed_key: &seal.bytes, ..self }
    }

    /// A digest of all but the seal, which is bound to it, and the chain, which has its own.
    pub(crate) fn unsealed_digest(&self) -> Result<[u8; 32], RecordError> {
        let unsealed = Record {
            sealing_key: SealingKeyId([0; 8]),
            nonce: [0; NONCE_BYTES],
            sealed_key: &[],
            leaf: &[],
            intermediates: Vec::new(),
            ..self.clone()
        };
        Ok(Sha256::digest(unsealed.to_bytes()?).into())
    }

    /// Writes it as [`Self::parse`] reads it.
    ///
    /// # Errors
    /// A part is longer than 65,535 bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, RecordError> {
        let mut to = vec![VERSION];
        to.extend(key_type_bytes(self.key_type));
        for time_s in [self.not_before_s, self.not_after_s, self.imported_s] {
            to.extend(time_s.to_be_bytes());
        }
        to.extend(self.sealing_key.0);
        to.extend(self.nonce);
        count(&mut to, self.sealed_key)?;
        count(&mut to, self.label.as_bytes())?;
        to.extend(length(self.names.len())?);
        for name in &self.names {
            count(&mut to, name.as_bytes())?;
        }
        count(&mut to, self.leaf)?;
        to.extend(length(self.intermediates.len())?);
        to.extend(self.intermediates.as_flattened());
        Ok(to)
    }
}

/// A value of the database that nothing of this version wrote, or that was damaged since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record is damaged: {0}")]
pub struct RecordError(&'static str);

/// The kind of key in three bytes: its rank, and the bits of an RSA key.
pub(crate) fn key_type_bytes(key_type: KeyType) -> [u8; KEY_TYPE_BYTES] {
    let bits = match key_type {
        KeyType::Rsa { bits } => bits,
        KeyType::EcdsaP256 | KeyType::EcdsaP384 | KeyType::EcdsaP521 | KeyType::Ed25519 => 0,
    };
    let [high, low] = bits.to_be_bytes();
    [key_type.rank(), high, low]
}

/// The inverse of [`key_type_bytes`].
pub(crate) fn key_type_from(bytes: [u8; KEY_TYPE_BYTES]) -> Result<KeyType, RecordError> {
    let [_, high, low] = bytes;
    let rsa = KeyType::Rsa { bits: u16::from_be_bytes([high, low]) };
    [KeyType::EcdsaP256, KeyType::EcdsaP384, KeyType::EcdsaP521, KeyType::Ed25519, rsa]
        .into_iter()
        .find(|key_type| key_type_bytes(*key_type) == bytes)
        .ok_or(RecordError("an unknown kind of key"))
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], RecordError> {
    let (taken, left) = rest.split_first_chunk().ok_or(CUT)?;
    *rest = left;
    Ok(*taken)
}

fn counted<'r>(rest: &mut &'r [u8]) -> Result<&'r [u8], RecordError> {
    let len = u16::from_be_bytes(array(rest)?).into();
    let (taken, left) = rest.split_at_checked(len).ok_or(CUT)?;
    *rest = left;
    Ok(taken)
}

fn text<'r>(rest: &mut &'r [u8]) -> Result<&'r str, RecordError> {
    str::from_utf8(counted(rest)?).map_err(|_| RecordError("a text that is none"))
}

fn list<'r, T>(
    rest: &mut &'r [u8],
    len_max: usize,
    item: impl Fn(&mut &'r [u8]) -> Result<T, RecordError>,
) -> Result<Vec<T>, RecordError> {
    let len = usize::from(u16::from_be_bytes(array(rest)?));
    if len > len_max {
        return Err(RecordError("a list that is too long"));
    }
    (0..len).map(|_| item(rest)).collect()
}

fn count(to: &mut Vec<u8>, bytes: &[u8]) -> Result<(), RecordError> {
    to.extend(length(bytes.len())?);
    to.extend(bytes);
    Ok(())
}

fn length(len: usize) -> Result<[u8; 2], RecordError> {
    u16::try_from(len).map(u16::to_be_bytes).map_err(|_| RecordError("a part is too long"))
}

/// Bytes of a kind of key.
pub(crate) const KEY_TYPE_BYTES: usize = 3;
const CUT: RecordError = RecordError("its end is missing");
const VERSION: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record<'static> {
        Record {
            key_type: KeyType::Rsa { bits: 3072 },
            not_before_s: -1,
            not_after_s: i64::MAX,
            imported_s: 3,
            sealing_key: SealingKeyId([4; 8]),
            nonce: [5; 24],
            sealed_key: b"sealed",
            label: "site.pem",
            names: vec!["a.test", "*.a.test"],
            leaf: b"leaf",
            intermediates: vec![[6; 32], [7; 32]],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let bytes = sample().to_bytes().unwrap();
        assert_eq!(Record::parse(&bytes), Ok(sample()));
        let curves = [KeyType::EcdsaP256, KeyType::EcdsaP384, KeyType::EcdsaP521, KeyType::Ed25519];
        for key_type in curves {
            let [rank, ..] = key_type_bytes(key_type);
            assert_eq!(key_type_from([rank, 0, 0]), Ok(key_type));
            assert!(key_type_from([rank, 0, 1]).is_err(), "two writings of {key_type}");
        }
    }

    #[test]
    fn whatever_is_cut_changed_or_longer_is_an_error_or_another_record() {
        let bytes = sample().to_bytes().unwrap();
        for len in 0..bytes.len() {
            assert!(Record::parse(&bytes[..len]).is_err(), "cut to {len}");
        }
        assert!(Record::parse(&[bytes.as_slice(), b"x"].concat()).is_err());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert_ne!(Record::parse(&changed), Ok(sample()), "bit {bit} of {at}");
            }
        }
    }

    #[test]
    fn parts_that_are_too_long_are_not_written() {
        let long = vec![0; 65_536];
        assert!(Record { leaf: &long, ..sample() }.to_bytes().is_err());
        let longest = Record { leaf: &long[1..], ..sample() }.to_bytes().unwrap();
        assert_eq!(Record::parse(&longest).unwrap().leaf.len(), 65_535);
    }
}
