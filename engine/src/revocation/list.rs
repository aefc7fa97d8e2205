//! One revocation list: [`List`].

use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{SignatureVerificationAlgorithm, UnixTime};
use webpki::{BorrowedCertRevocationList, Error};
use x509_parser::extensions::ParsedExtension;
use x509_parser::oid_registry::{
    OID_X509_EXT_INVALIDITY_DATE, OID_X509_EXT_ISSUER, OID_X509_EXT_ISSUER_DISTRIBUTION_POINT,
    OID_X509_EXT_REASON_CODE,
};
use x509_parser::prelude::{CertificateRevocationList, FromDer as _};
use x509_parser::revocation_list::RevokedCertificate;

use super::scope::Scope;
use crate::anchors::words;
use crate::certificates::Linked;
use crate::client_certificates::distinguished;
use crate::signed::is_signed_by;

/// A revocation list, with the facts that decide whether it counts.
pub(crate) struct List {
    der: Box<[u8]>,
    /// The identifier of the key that signed it, if it has one.
    key_id: Option<Box<[u8]>>,
    number: Option<Number>,
    scope: Scope,
    /// The numbers of the certificates on it, sorted.
    serials: Box<[Box<[u8]>]>,
    pub(super) shown: RevocationList,
    signer: Signer,
}

/// Big-endian, without leading zeros, behind its length: it sorts as the number does.
type Number = (usize, Box<[u8]>);

/// The key that signed a list.
enum Signer {
    /// The public key of a configured certificate.
    Key(Box<[u8]>),
    /// None of these, the keys of all configured certificates with the issuer's name.
    Stranger(Box<[Box<[u8]>]>),
    /// No configured certificate has the issuer's name.
    Unknown,
}

impl List {
    /// Reads one in DER; no signature is checked. `label` names its source.
    pub(crate) fn parse(label: &str, der: &[u8]) -> Result<Self, String> {
        let is_without_point = match BorrowedCertRevocationList::from_der(der) {
            Ok(_) => false,
            // webpki finds that last: all else is in order. OpenSSL honours such a scope too.
            Err(Error::UnsupportedCrlIssuingDistributionPoint) => true,
            Err(error) => return Err(words(&error)),
        };
        let (_, parsed) =
            CertificateRevocationList::from_der(der).map_err(|_| "its structure cannot be read")?;
        // webpki takes none without it.
        let next_update_s = parsed.next_update().ok_or("it has no next update")?.timestamp();
        let mut extensions = parsed.extensions().iter();
        let key_id = extensions.clone().find_map(|each| match each.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref(),
            _ => None,
        });
        let point = extensions.find(|each| each.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT);
        let scope = match point {
            Some(point) => Scope::parse(point.value).ok_or("its scope cannot be read")?,
            None => Scope::default(),
        };
        if is_without_point && scope.has_point() {
            return Err(words(&Error::UnsupportedCrlIssuingDistributionPoint));
        }
        let number = parsed.crl_number().map(|number| {
            let bytes = number.to_bytes_be();
            (bytes.len(), bytes.into_boxed_slice())
        });
        let mut serials = Vec::new();
        for revoked in parsed.iter_revoked_certificates() {
            check_entry(revoked).map_err(|error| words(&error))?;
            serials.push(significant(revoked.raw_serial()).into());
        }
        serials.sort_unstable();
        Ok(Self {
            der: der.into(),
            key_id: key_id.map(|id| id.0.into()),
            number,
            scope,
            serials: serials.into(),
            shown: RevocationList {
                issuer: parsed.issuer().as_raw().into(),
                issuer_text: distinguished(parsed.issuer()),
                label: label.into(),
                next_update_s,
                this_update_s: parsed.last_update().timestamp(),
            },
            signer: Signer::Unknown,
        })
    }

    /// Finds out which of `certificates` signed it.
    pub(super) fn find_signer(&mut self, certificates: &[Linked<'_>]) {
        let issuers = certificates.iter().filter(|each| *each.subject == *self.shown.issuer);
        let keys: Vec<_> = issuers.map(|each| each.public_key).collect();
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        let signer = keys.iter().find(|key| is_signed_by(&self.der, key, algorithms));
        self.signer = match signer {
            Some(key) => Signer::Key((*key).into()),
            None if keys.is_empty() => Signer::Unknown,
            None => Signer::Stranger(keys.into_iter().map(Box::from).collect()),
        };
    }

    /// Whether a configured certificate signed it.
    pub(super) fn has_signer(&self) -> bool {
        matches!(self.signer, Signer::Key(_))
    }

    /// Whether its issuer is among the configured certificates, and none of them signed it.
    pub(super) fn is_unsigned(&self) -> bool {
        matches!(self.signer, Signer::Stranger(_))
    }

    /// Whether the same key signed `other`, as far as that is known without a client's chain.
    pub(super) fn has_signer_of(&self, other: &Self) -> bool {
        self.shown.issuer == other.shown.issuer
            && match (&self.signer, &other.signer) {
                (Signer::Key(own), Signer::Key(others)) => own == others,
                (Signer::Unknown, Signer::Unknown) => {
                    self.key_id.is_some() && self.key_id == other.key_id
                }
                _ => false,
            }
    }

    /// Whether this key, a SubjectPublicKeyInfo without its header, signed it.
    pub(super) fn is_signed_by(
        &self,
        key: &[u8],
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        match &self.signer {
            Signer::Key(signer) => **signer == *key,
            Signer::Stranger(keys) if keys.iter().any(|tried| **tried == *key) => false,
            // A client may send a certificate of the issuer that is not configured.
            Signer::Stranger(_) | Signer::Unknown => is_signed_by(&self.der, key, algorithms),
        }
    }

    /// Whether this one is newer than `other`, and has the same scope. The issuer and the key that
    /// signed them are the caller's to compare.
    pub(super) fn supersedes(&self, other: &Self) -> bool {
        let (own_s, other_s) = (self.shown.this_update_s, other.shown.this_update_s);
        let is_newer = match (&self.number, &other.number) {
            (Some(own), Some(others)) => own > others && own_s >= other_s,
            (None, None) => own_s > other_s,
            _ => false,
        };
        is_newer && self.scope == other.scope
    }

    /// Whether it is for this certificate, by issuer and scope.
    pub(super) fn covers(&self, certificate: &Linked<'_>, is_own: bool) -> bool {
        *certificate.issuer == *self.shown.issuer && self.scope.covers(certificate, is_own)
    }

    /// Sorts lists by age.
    pub(super) fn age(&self) -> (i64, Option<&Number>) {
        (self.shown.this_update_s, self.number.as_ref())
    }

    pub(super) fn has_begun(&self, now_s: i64) -> bool {
        self.shown.this_update_s <= now_s
    }

    pub(super) fn has_serial(&self, serial: &[u8]) -> bool {
        let serial = significant(serial);
        self.serials.binary_search_by(|each| (**each).cmp(serial)).is_ok()
    }

    pub(super) fn next_update(&self) -> UnixTime {
        let since = Duration::from_secs(u64::try_from(self.shown.next_update_s).unwrap_or(0));
        UnixTime::since_unix_epoch(since)
    }
}

/// A revocation list as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    /// The name of its issuer, in DER.
    pub issuer: Box<[u8]>,
    /// The same as text, as RFC 4514 writes names.
    pub issuer_text: String,
    /// The name of its source.
    pub label: String,
    /// The time at which the next one is due, in Unix time. From then on this list has ended.
    pub next_update_s: i64,
    /// The time from which it counts, in Unix time.
    pub this_update_s: i64,
}

/// Checks that nothing limits an entry in a way that is not known here.
fn check_entry(revoked: &RevokedCertificate<'_>) -> Result<(), Error> {
    for extension in revoked.extensions() {
        if extension.oid == OID_X509_EXT_ISSUER {
            return Err(Error::UnsupportedIndirectCrl);
        }
        let is_known = extension.oid == OID_X509_EXT_REASON_CODE
            || extension.oid == OID_X509_EXT_INVALIDITY_DATE;
        if extension.critical && !is_known {
            return Err(Error::UnsupportedCriticalExtension);
        }
    }
    Ok(())
}

/// A number without its leading zeros.
fn significant(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}
