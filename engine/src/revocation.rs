//! Revocation lists, and which of them count for a certificate: [`RevocationLists`].
//!
//! Folders keep last week's list next to this week's. An authority may have several lists: one for
//! each key that it has had, and one for each scope. webpki asks only the first list that covers a
//! certificate. So the lists are judged here, for each certificate of a path:
//!
//! ```text
//!   covers      it names the certificate's issuer, and its scope has the certificate
//!   has begun   its thisUpdate is not in the future
//!   signed      the key that issued the certificate signed it
//!   newest      none of these that has the same scope is newer
//! ```
//!
//! None of these lists may have the certificate's number, and at least one of them must be in date.
//! So a list of another key or scope, a list of tomorrow or a list with a wrong signature never
//! hides another one, and a revocation does not end with the list that has it.
//!
//! Newer means a higher number and no earlier date (RFC 5280 section 5.2.3). OpenSSL goes by the
//! date alone. Where number and date contradict each other, both lists count. A certificate that
//! was released from hold is accepted as soon as a newer list counts.
//!
//! With the keys of configured certificates, the signature of a list is verified once, when the
//! list is read. The key of another issuer comes with the client's chain: then the signature is
//! verified in each handshake.

mod list;
mod scope;

use std::fmt;

use rustls::pki_types::{SignatureVerificationAlgorithm, UnixTime};
use webpki::{Error, ExpirationPolicy};

use crate::certificates::Linked;

pub(crate) use list::List;
pub use list::RevocationList;

/// Revocation lists, each once: immutable, shared by all lanes, and read-only for them.
#[derive(Default)]
pub(crate) struct RevocationLists {
    /// The newest first.
    lists: Vec<List>,
}

impl RevocationLists {
    /// All of `lists`. Keys of their issuers are taken from `certificates`, in DER.
    pub(crate) fn new<'a>(
        mut lists: Vec<List>,
        certificates: impl Iterator<Item = &'a [u8]>,
    ) -> Self {
        let certificates: Vec<_> = certificates.filter_map(|der| Linked::parse(der).ok()).collect();
        for list in &mut lists {
            list.find_signer(&certificates);
        }
        lists.sort_by(|one, other| other.age().cmp(&one.age()));
        Self { lists }
    }

    /// Whether there are none: then nothing is revoked.
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The lists that no list of `now_s` supersedes, without the unsigned ones.
    pub(crate) fn counting(&self, now_s: i64) -> Vec<RevocationList> {
        self.shown(|list| !list.is_unsigned() && !self.is_superseded(list, now_s))
    }

    /// All lists but the unsigned ones.
    pub(crate) fn signed(&self) -> Vec<RevocationList> {
        self.shown(|list| !list.is_unsigned())
    }

    /// The lists that one of `now_s` supersedes.
    pub(crate) fn superseded(&self, now_s: i64) -> Vec<RevocationList> {
        self.shown(|list| self.is_superseded(list, now_s))
    }

    /// The lists of issuers among the configured certificates that none of those signed.
    pub(crate) fn unsigned(&self) -> Vec<RevocationList> {
        self.shown(List::is_unsigned)
    }

    fn shown(&self, is_meant: impl Fn(&List) -> bool) -> Vec<RevocationList> {
        self.lists.iter().filter(|list| is_meant(list)).map(|list| list.shown.clone()).collect()
    }

    fn is_superseded(&self, list: &List, now_s: i64) -> bool {
        let mut others = self.lists.iter().filter(|other| other.has_begun(now_s));
        others.any(|other| other.has_signer_of(list) && other.supersedes(list))
    }

    /// Whether a list has this serial number, perhaps of a certificate of another issuer.
    pub(crate) fn have_serial(&self, serial: &[u8]) -> bool {
        self.lists.iter().any(|list| list.has_serial(serial))
    }

    /// Judges a certificate of a path.
    pub(crate) fn judge(
        &self,
        examined: &Examined<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), Error> {
        let (certificate, now) = (examined.certificate, examined.now);
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let mut counting: Vec<&List> = Vec::new();
        let mut is_signature_wrong = false;
        let covering = self.lists.iter().filter(|list| list.covers(certificate, examined.is_own));
        for list in covering.filter(|list| list.has_begun(now_s)) {
            // The newest come first, so one that supersedes it has been seen.
            if counting.iter().any(|newer| newer.supersedes(list)) {
                continue;
            }
            if list.is_signed_by(examined.issuer_key, algorithms) {
                counting.push(list);
            } else {
                is_signature_wrong |= !list.has_signer();
            }
        }
        let Some(newest) = counting.first() else {
            return Err(match is_signature_wrong {
                true => Error::InvalidCrlSignatureForPublicKey,
                false => Error::UnknownRevocationStatus,
            });
        };
        if !examined.may_issuer_sign {
            return Err(Error::IssuerNotCrlSigner);
        }
        // A list that has ended still revokes: a list in date that contradicts it is not newer.
        if counting.iter().any(|list| list.has_serial(certificate.serial)) {
            return Err(Error::CertRevoked);
        }
        let has_ended = counting.iter().all(|list| now >= list.next_update());
        if has_ended && examined.expiration == ExpirationPolicy::Enforce {
            return Err(Error::CrlExpired { time: now, next_update: newest.next_update() });
        }
        Ok(())
    }
}

impl fmt::Debug for RevocationLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevocationLists").field("lists", &self.lists.len()).finish()
    }
}

/// A certificate of a path that lists are asked for.
pub(crate) struct Examined<'a> {
    pub(crate) certificate: &'a Linked<'a>,
    /// Whether lists still count after their next update was due.
    pub(crate) expiration: ExpirationPolicy,
    /// Whether it is the peer's own, and not an authority's.
    pub(crate) is_own: bool,
    /// The SubjectPublicKeyInfo of its issuer, without the header.
    pub(crate) issuer_key: &'a [u8],
    /// Whether that key may sign lists.
    pub(crate) may_issuer_sign: bool,
    pub(crate) now: UnixTime,
}
