//! Revocation lists, and which of them count for a chain: [`RevocationLists`].
//!
//! webpki asks the first list that covers a certificate, and no other. But folders keep last week's
//! list next to this week's, and an authority may have several lists: one for each key that it has
//! had, and one for each scope. So lists are chosen here, before webpki sees them:
//!
//! ```text
//!   superseded    the same issuer, key and scope has a newer list: dropped when lists are read
//!   of a chain    lists of the issuers of its certificates, by name and by key identifier
//!   first         those in date, and of these the newest: the one that webpki asks
//!   every other   that is in date is asked for the certificate's number: on any list is revoked
//! ```
//!
//! Newer means a higher number and no earlier date (RFC 5280 section 5.2.3). OpenSSL goes by the
//! date alone. Where number and date contradict each other, no list is dropped. Then a certificate
//! that any of them revokes is refused. So a certificate that was released from hold is accepted as
//! soon as a newer list is there.

use std::cmp::Reverse;

use rustls::pki_types::UnixTime;
use webpki::{CertRevocationList, ExpirationPolicy, OwnedCertRevocationList};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{CertificateRevocationList, FromDer as _};

use crate::anchors::words;
use crate::certificates::Linked;
use crate::client_certificates::distinguished;

/// The lists that count, each once: immutable, shared by all lanes, and read-only for them.
#[derive(Debug, Default)]
pub(crate) struct RevocationLists {
    lists: Vec<List>,
}

impl RevocationLists {
    /// Those of `lists` that no other one supersedes, and those that one does.
    pub(crate) fn choose(mut lists: Vec<List>) -> (Self, Vec<RevocationList>) {
        let mut superseded = Vec::new();
        let mut at = 0;
        while let Some(list) = lists.get(at) {
            if lists.iter().any(|other| other.supersedes(list)) {
                superseded.push(lists.remove(at).shown);
            } else {
                at += 1;
            }
        }
        (Self { lists }, superseded)
    }

    /// Whether there are none: then nothing is revoked.
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The lists as they are shown.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &RevocationList> {
        self.lists.iter().map(|list| &list.shown)
    }

    /// Whether a list has this serial number, perhaps of a certificate of another issuer.
    pub(crate) fn have_serial(&self, serial: &[u8]) -> bool {
        self.lists.iter().any(|list| list.has_serial(serial))
    }

    /// The lists for the certificates of a chain at a time.
    pub(crate) fn of_chain(
        &self,
        chain: &[Linked<'_>],
        now: UnixTime,
        expiration: ExpirationPolicy,
    ) -> ChainLists<'_> {
        let of_name = |list: &&List| chain.iter().any(|each| *each.issuer == *list.shown.issuer);
        let mut lists: Vec<&List> = self.lists.iter().filter(of_name).collect();
        if lists.is_empty() {
            // webpki takes no list at all for a wish not to look: it has to find that none covers.
            lists = self.lists.iter().collect();
        }
        let is_of_key = |list: &List| chain.iter().any(|each| list.may_cover(each));
        // A list of another key of that name is left for webpki to refuse.
        lists.sort_by_key(|list| {
            (!is_of_key(list), !list.is_current(now), Reverse((list.this_update_s, &list.number)))
        });
        let asked_too = lists.iter().copied().filter(|list| {
            is_of_key(list) && (expiration == ExpirationPolicy::Ignore || list.is_current(now))
        });
        ChainLists { asked_too: asked_too.collect(), lists }
    }
}

/// The lists for one chain at one time.
pub(crate) struct ChainLists<'a> {
    /// Those of which each one counts.
    asked_too: Vec<&'a List>,
    lists: Vec<&'a List>,
}

impl ChainLists<'_> {
    /// In the order in which webpki is to look for one that covers a certificate.
    pub(crate) fn in_order(&self) -> Vec<&CertRevocationList<'static>> {
        self.lists.iter().map(|list| &list.list).collect()
    }

    /// Whether any list that counts has a certificate of this issuer. webpki gives the name without
    /// the header of its sequence.
    pub(crate) fn revoke(&self, issuer: &[u8], serial: &[u8]) -> bool {
        let mut of_issuer = self.asked_too.iter().filter(|list| list.list.issuer() == issuer);
        of_issuer.any(|list| list.has_serial(serial))
    }
}

/// A revocation list, with what decides whether it counts.
#[derive(Debug)]
pub(crate) struct List {
    /// Which of its issuer's keys signed it, if it says so.
    key_id: Option<Box<[u8]>>,
    list: CertRevocationList<'static>,
    next_update: UnixTime,
    /// Big-endian, without leading zeros, behind its length: it sorts as the number does.
    number: Option<(usize, Box<[u8]>)>,
    shown: RevocationList,
    this_update_s: i64,
}

impl List {
    /// Reads one in DER; no signature is checked. `label` names its source.
    pub(crate) fn parse(label: &str, der: &[u8]) -> Result<Self, String> {
        let list = OwnedCertRevocationList::from_der(der).map_err(|error| words(&error))?;
        let (_, parsed) =
            CertificateRevocationList::from_der(der).map_err(|_| "its structure cannot be read")?;
        // webpki takes none without it.
        let next_update_s = parsed.next_update().ok_or("it has no next update")?.timestamp();
        let key_id = parsed.extensions().iter().find_map(|each| match each.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref(),
            _ => None,
        });
        let number = parsed.crl_number().map(|number| {
            let bytes = number.to_bytes_be();
            (bytes.len(), bytes.into_boxed_slice())
        });
        Ok(Self {
            key_id: key_id.map(|id| id.0.into()),
            list: list.into(),
            next_update: unix_time(next_update_s),
            number,
            shown: RevocationList {
                issuer: parsed.issuer().as_raw().into(),
                issuer_text: distinguished(parsed.issuer()),
                label: label.into(),
                next_update_s,
            },
            this_update_s: parsed.last_update().timestamp(),
        })
    }

    /// Whether this one is newer than `other`, and for the same certificates.
    fn supersedes(&self, other: &Self) -> bool {
        let is_same = self.list.issuer() == other.list.issuer()
            && self.key_id == other.key_id
            && self.list.issuing_distribution_point() == other.list.issuing_distribution_point();
        let is_newer = match (&self.number, &other.number) {
            (Some(own), Some(others)) => own > others && self.this_update_s >= other.this_update_s,
            (None, None) => self.this_update_s > other.this_update_s,
            _ => false,
        };
        is_same && is_newer
    }

    /// Whether the issuer of `certificate` is this list's, as far as names and keys tell.
    fn may_cover(&self, certificate: &Linked<'_>) -> bool {
        let is_of_key = match (self.key_id.as_deref(), certificate.issuer_key_id) {
            (Some(own), Some(wanted)) => own == wanted,
            _ => true,
        };
        *certificate.issuer == *self.shown.issuer && is_of_key
    }

    fn is_current(&self, now: UnixTime) -> bool {
        now < self.next_update
    }

    fn has_serial(&self, serial: &[u8]) -> bool {
        !matches!(self.list.find_serial(serial), Ok(None))
    }
}

/// A revocation list as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    /// The name of its issuer, in DER.
    pub issuer: Box<[u8]>,
    /// The same in words, as RFC 4514 writes names.
    pub issuer_text: String,
    /// The name of its source.
    pub label: String,
    /// When the next one is due, in Unix time: from then on it has ended.
    pub next_update_s: i64,
}

fn unix_time(unix_s: i64) -> UnixTime {
    let since = std::time::Duration::from_secs(u64::try_from(unix_s).unwrap_or(0));
    UnixTime::since_unix_epoch(since)
}
