//! A private key that is still encoded, and the public half as far as its encoding has it.

use std::fmt;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use x509_parser::asn1_rs::{Any, Class, FromDer, Tag};
use zeroize::Zeroizing;

use super::KeyType;

/// A private key as its file holds it; zeroed when dropped.
pub struct EncodedKey {
    encoding: KeyEncoding,
    der: Zeroizing<Box<[u8]>>,
}

impl EncodedKey {
    /// Copies `der` into an allocation of exactly its size: shrinking one could leave a second
    /// copy of the key behind.
    pub fn new(encoding: KeyEncoding, der: &[u8]) -> Self {
        Self { encoding, der: Zeroizing::new(Box::from(der)) }
    }

    /// The form in which it is encoded.
    pub fn encoding(&self) -> KeyEncoding {
        self.encoding
    }

    /// The encoded bytes: a secret.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// A copy for a provider to decode. The provider owns it, and erasing it is up to the provider.
    pub fn to_rustls(&self) -> PrivateKeyDer<'static> {
        let der = self.der.to_vec();
        match self.encoding {
            KeyEncoding::Pkcs1 => PrivatePkcs1KeyDer::from(der).into(),
            KeyEncoding::Pkcs8 => PrivatePkcs8KeyDer::from(der).into(),
            KeyEncoding::Sec1 => PrivateSec1KeyDer::from(der).into(),
        }
    }

    /// The public half as far as the encoding has it without any arithmetic. `None` if this is no
    /// key that is served.
    pub(super) fn public_half(&self) -> Option<PublicHalf<'_>> {
        match self.encoding {
            KeyEncoding::Pkcs1 => pkcs1(&self.der),
            KeyEncoding::Pkcs8 => pkcs8(&self.der),
            KeyEncoding::Sec1 => sec1(&self.der, None),
        }
    }
}

impl fmt::Debug for EncodedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedKey").field("encoding", &self.encoding).finish_non_exhaustive()
    }
}

/// The three ways to write a private key down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEncoding {
    /// RFC 8017: RSA only.
    Pkcs1,
    /// RFC 5958: any kind.
    Pkcs8,
    /// RFC 5915: elliptic curves only.
    Sec1,
}

/// The public half of a key: in a certificate always whole, in a private key sometimes left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PublicHalf<'a> {
    /// The kind of key.
    pub(super) key_type: KeyType,
    /// RSA: the modulus without leading zeros. Curves: the encoded point.
    pub(super) bytes: Option<&'a [u8]>,
}

impl<'a> PublicHalf<'a> {
    /// The public half in the fields of a SubjectPublicKeyInfo; `None` if it is not served.
    pub(super) fn of_certificate(
        algorithm: &[u8],
        parameters: Option<&[u8]>,
        key: &'a [u8],
    ) -> Option<Self> {
        match algorithm {
            OID_EC => Some(Self { key_type: curve(parameters?)?, bytes: Some(key) }),
            OID_ED25519 => Some(Self { key_type: KeyType::Ed25519, bytes: Some(key) }),
            OID_RSA => rsa(integer(&mut sequence(key)?)?),
            _ => None,
        }
    }
}

/// `OneAsymmetricKey`: version, algorithm, key, then optional attributes and public key.
fn pkcs8(der: &[u8]) -> Option<PublicHalf<'_>> {
    let fields = &mut sequence(der)?;
    integer(fields)?;
    let algorithm = &mut next(fields, Class::Universal, Tag::Sequence)?;
    let oid = next(algorithm, Class::Universal, Tag::Oid)?;
    let key = next(fields, Class::Universal, Tag::OctetString)?;
    match oid {
        OID_EC => {
            let parameters = next(algorithm, Class::Universal, Tag::Oid)?;
            sec1(key, Some(curve(parameters)?))
        }
        OID_ED25519 => {
            let _attributes = next(fields, Class::ContextSpecific, Tag(0));
            let public = next(fields, Class::ContextSpecific, Tag(1)).and_then(whole_bytes);
            Some(PublicHalf { key_type: KeyType::Ed25519, bytes: public })
        }
        OID_RSA => pkcs1(key),
        _ => None,
    }
}

/// `RSAPrivateKey`: version, modulus, and fields that are not read here.
fn pkcs1(der: &[u8]) -> Option<PublicHalf<'_>> {
    let fields = &mut sequence(der)?;
    integer(fields)?;
    rsa(integer(fields)?)
}

/// `ECPrivateKey`: version, key, then optional curve and public key. Inside PKCS#8 the curve is in
/// the outer structure.
fn sec1(der: &[u8], outer: Option<KeyType>) -> Option<PublicHalf<'_>> {
    let fields = &mut sequence(der)?;
    integer(fields)?;
    next(fields, Class::Universal, Tag::OctetString)?;
    let inner = next(fields, Class::ContextSpecific, Tag(0))
        .and_then(|mut tagged| next(&mut tagged, Class::Universal, Tag::Oid));
    let key_type = match (outer, inner) {
        (Some(outer), _) => outer,
        (None, Some(inner)) => curve(inner)?,
        (None, None) => return None,
    };
    let point = next(fields, Class::ContextSpecific, Tag(1))
        .and_then(|mut tagged| next(&mut tagged, Class::Universal, Tag::BitString))
        .and_then(whole_bytes)
        // A compressed point cannot be compared with a certificate's without arithmetic.
        .filter(|point| point.first() == Some(&POINT_UNCOMPRESSED));
    Some(PublicHalf { key_type, bytes: point })
}

fn rsa(modulus: &[u8]) -> Option<PublicHalf<'_>> {
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let modulus = &modulus[zeros..];
    let bits = modulus.len() * 8 - modulus.first()?.leading_zeros() as usize;
    let key_type = KeyType::Rsa { bits: u16::try_from(bits).ok()? };
    Some(PublicHalf { key_type, bytes: Some(modulus) })
}

fn curve(oid: &[u8]) -> Option<KeyType> {
    match oid {
        OID_P256 => Some(KeyType::EcdsaP256),
        OID_P384 => Some(KeyType::EcdsaP384),
        OID_P521 => Some(KeyType::EcdsaP521),
        _ => None,
    }
}

/// The contents of a BIT STRING that ends on a whole byte.
fn whole_bytes(bits: &[u8]) -> Option<&[u8]> {
    bits.strip_prefix(&[0])
}

fn sequence(mut der: &[u8]) -> Option<&[u8]> {
    next(&mut der, Class::Universal, Tag::Sequence)
}

fn integer<'a>(fields: &mut &'a [u8]) -> Option<&'a [u8]> {
    next(fields, Class::Universal, Tag::Integer)
}

/// Takes the contents of the next element off `fields` if it is of this kind.
fn next<'a>(fields: &mut &'a [u8], class: Class, tag: Tag) -> Option<&'a [u8]> {
    let (rest, element) = Any::from_der(fields).ok()?;
    if element.class() != class || element.tag() != tag {
        return None;
    }
    *fields = rest;
    Some(element.data)
}

const OID_EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const OID_ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const OID_P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const OID_P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const OID_P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];
const OID_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const POINT_UNCOMPRESSED: u8 = 4;
