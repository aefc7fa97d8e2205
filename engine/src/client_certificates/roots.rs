//! The authorities that issue clients' certificates, and their revocation lists.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::{DistinguishedName, Error};
use sha2::{Digest, Sha256};
use webpki::{ExpirationPolicy, KeyUsage};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::X509Name;

use super::names::{self, ClientName};
use super::presented::{distinguished, read};
use super::{ClientRootsError, Distrust};
use crate::anchors::{Anchors, Asked};
use crate::certificates::{is_authority, is_self_issued};
use crate::client::Roots;
use crate::peer_chain::PeerChain;
use crate::pem::{Foreign, PemError, SectionKind, sections};
use crate::pinned::{Pinned, Purpose};
use crate::revocation::{List, RevocationList, RevocationLists};

/// Authorities that may issue to clients, with their revocation lists: immutable, shared by all
/// lanes, and read-only for them.
///
/// With lists, one of them must cover each certificate of a chain, and lists count only until their
/// next update is due. A self-issued certificate among the roots may be a client's own. If it is no
/// authority's, no other certificate is trusted because of it. Clients need not send an
/// intermediate authority that is among the roots. As with OpenSSL, it is trusted only if a trusted
/// authority issued it.
#[derive(Clone)]
pub struct ClientRoots {
    /// A digest of the roots and of the lists too.
    content: [u8; 32],
    digest: [u8; 32],
    rules: Arc<ClientRules>,
    subjects: Arc<[DistinguishedName]>,
    trust: Arc<Trust>,
}

impl ClientRoots {
    /// The certificates of the PEM texts `ca` and the revocation lists of the PEM texts `crls`.
    ///
    /// # Errors
    /// There is no certificate, a text is damaged, or there is more of something than its limit.
    pub fn from_pem(ca: &[&[u8]], crls: &[&[u8]]) -> Result<Self, ClientRootsError> {
        let label = |kind, texts: &[&[u8]]| -> Vec<String> {
            (0..texts.len()).map(|index| format!("{kind}[{index}]")).collect()
        };
        let (ca_labels, crl_labels) = (label("ca", ca), label("crl", crls));
        Self::from_labelled_pem(&labelled(&ca_labels, ca), &labelled(&crl_labels, crls))
    }

    /// The same with a label before each text, which names it in errors.
    ///
    /// # Errors
    /// There is no certificate, a text is damaged, or there is more of something than its limit.
    pub fn from_labelled_pem(
        ca: &[(&str, &[u8])],
        crls: &[(&str, &[u8])],
    ) -> Result<Self, ClientRootsError> {
        let sources: Vec<_> = ca
            .iter()
            .map(|(label, text)| Roots::from_pem(label, text))
            .collect::<Result<_, _>>()?;
        let roots = Roots::joined(&sources)?;
        if roots.is_empty() {
            return Err(ClientRootsError::NoRoots);
        }
        let mut hash = Sha256::new_with_prefix(b"sealane client authorities 2");
        hash.update(roots.digest());
        let digest = hash.clone().finalize().into();
        let lists = read_crls(crls)?;
        for (der, _) in &lists {
            hash.update(Sha256::digest(der));
        }
        let lists = lists.into_iter().map(|(_, list)| list).collect();
        let crls = RevocationLists::new(lists, roots.ders());
        let anchors =
            roots.anchors(|anchors, der| match is_authority(der) && !is_self_issued(der) {
                true => anchors.know(der),
                false => anchors.trust(der),
            })?;
        let own = roots.ders().filter(|der| is_self_issued(der));
        let pinned = Pinned::all(own, Purpose::Client, !crls.is_empty());
        Ok(Self {
            content: hash.finalize().into(),
            digest,
            rules: Arc::default(),
            subjects: roots.subjects()?.into(),
            trust: Arc::new(Trust { anchors, crls, pinned }),
        })
    }

    /// No authority: every client certificate is refused. It takes the place of authorities or
    /// lists that cannot be read, so that their absence lets no client in.
    pub fn without_authority() -> Self {
        let digest = Sha256::digest(NO_AUTHORITY).into();
        let pinned = Pinned::all(std::iter::empty(), Purpose::Client, false);
        let (anchors, crls) = (Anchors::default(), RevocationLists::default());
        Self {
            content: digest,
            digest,
            rules: Arc::default(),
            subjects: Arc::default(),
            trust: Arc::new(Trust { anchors, crls, pinned }),
        }
    }

    /// Whether no authority is trusted.
    pub fn has_no_authority(&self) -> bool {
        self.digest == <[u8; 32]>::from(Sha256::digest(NO_AUTHORITY))
    }

    /// The same, but clients get no list of the trusted authorities, and choose a certificate
    /// without it.
    pub fn unnamed(self) -> Self {
        Self { subjects: Arc::default(), ..self }
    }

    /// The same under other rules. The parsed roots and lists are shared.
    pub fn under(&self, rules: ClientRules) -> Self {
        Self { rules: Arc::new(rules), ..self.clone() }
    }

    /// The rules for a client in addition to a verified chain.
    pub fn rules(&self) -> &ClientRules {
        &self.rules
    }

    /// The names of the authorities, which clients that are asked get to see.
    pub fn subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    /// The revocation lists that count at a time, in Unix time, or will count later.
    pub fn lists(&self, now_s: i64) -> Vec<RevocationList> {
        self.trust.crls.counting(now_s)
    }

    /// The lists that do not count at a time, in Unix time, because the same key signed a newer one
    /// that does.
    pub fn superseded(&self, now_s: i64) -> Vec<RevocationList> {
        self.trust.crls.superseded(now_s)
    }

    /// The lists of authorities that are among the roots, with a signature that is none of theirs.
    pub fn unsigned(&self) -> Vec<RevocationList> {
        self.trust.crls.unsigned()
    }

    /// The authorities without a revocation list, as RFC 4514 writes names, if there are lists at
    /// all. All clients with a certificate by one of them are rejected.
    pub fn unlisted(&self) -> Vec<String> {
        let lists = self.trust.crls.signed();
        let is_listed = |name: &[u8]| lists.iter().any(|list| *list.issuer == *name);
        let names = self.subjects.iter().filter(|name| !is_listed(name.as_ref()));
        let read = |name: &DistinguishedName| {
            X509Name::from_der(name.as_ref())
                .map_or_else(|_| String::new(), |(_, n)| distinguished(&n))
        };
        if self.trust.crls.is_empty() { Vec::new() } else { names.map(read).collect() }
    }

    /// Identifies these roots. Neither their order nor repetitions count.
    ///
    /// Revocation lists and rules are not in it. A ticket that was sealed under other lists is
    /// judged by these when it is opened. So machines that fetch lists at different times resume
    /// each other's sessions.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Whether the parsed roots are in use elsewhere: by other values that were made from this one.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.trust) > 1
    }

    /// Verifies a client's chain at a time, and returns the kind of lists that it was verified by.
    pub(super) fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<Lists, Error> {
        let verify = |lists| self.trust.verify(leaf, intermediates, (now, lists), algorithms);
        let lists = match verify(Lists::Current).map(|()| Lists::Current) {
            Err(error) if self.rules.accept_ended_lists && is_of_ended_list(&error) => {
                verify(Lists::Ended).map(|()| Lists::Ended)
            }
            judged => judged,
        }?;
        names::admit(&self.rules.names, leaf)?;
        Ok(lists)
    }

    /// Whether a list has a number that one of these certificates has, perhaps of another issuer's:
    /// without one nothing in the chain has been revoked, and that is known without a signature.
    pub(crate) fn may_have_revoked(&self, chain: &[CertificateDer<'_>]) -> bool {
        let is_listed = |certificate: &CertificateDer<'_>| {
            read(certificate).is_none_or(|certificate| self.trust.lists(certificate.raw_serial()))
        };
        chain.iter().any(is_listed)
    }
}

fn labelled<'a>(labels: &'a [String], texts: &[&'a [u8]]) -> Vec<(&'a str, &'a [u8])> {
    labels.iter().map(String::as_str).zip(texts.iter().copied()).collect()
}

/// The rules for a client in addition to a verified chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRules {
    /// Whether a list counts on when its next update is overdue.
    pub accept_ended_lists: bool,
    /// Whether connections end that stand when a list comes that revokes their certificates.
    pub cut_revoked: bool,
    /// The names of which its own certificate must have one; none: any will do.
    pub names: Vec<ClientName>,
    /// For how long after a full handshake sessions resume; none: as long as there are tickets.
    pub proof_age_max: Option<Duration>,
}

/// The kind of lists by which a chain was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lists {
    /// They are in date, or there are none.
    Current,
    /// One has ended.
    Ended,
}

fn is_of_ended_list(error: &Error) -> bool {
    Distrust::of(error.clone(), &[]) == Distrust::CrlExpired
}

/// The trusted authorities and the revoked certificates: memory that all lanes read and none
/// writes.
#[derive(Debug)]
pub(super) struct Trust {
    anchors: Anchors,
    crls: RevocationLists,
    pinned: Pinned,
}

impl Trust {
    /// Whether a client's chain is believed at a time.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        (now, lists): (UnixTime, Lists),
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), Error> {
        let chain = PeerChain::parse(leaf, intermediates)?;
        let crl_expiration = match lists {
            Lists::Current => ExpirationPolicy::Enforce,
            Lists::Ended => ExpirationPolicy::Ignore,
        };
        let usage = KeyUsage::client_auth();
        let asked = Asked { algorithms, crl_expiration, crls: &self.crls, now, usage };
        match self.anchors.verify(leaf, &chain, &asked) {
            Ok(_) => Ok(()),
            Err(error) => self.pinned.admit(leaf, error, now),
        }
    }

    fn lists(&self, serial: &[u8]) -> bool {
        self.crls.have_serial(serial)
    }
}

impl PartialEq for ClientRoots {
    fn eq(&self, other: &Self) -> bool {
        (self.content, &self.rules) == (other.content, &other.rules)
    }
}

impl Eq for ClientRoots {}

impl fmt::Debug for ClientRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRoots")
            .field("anchors", &self.trust.anchors)
            .field("crls", &self.trust.crls)
            .finish_non_exhaustive()
    }
}

/// The lists of all texts, each once, sorted.
fn read_crls(
    texts: &[(&str, &[u8])],
) -> Result<Vec<(CertificateRevocationListDer<'static>, List)>, ClientRootsError> {
    let bytes = texts.iter().map(|(_, text)| text.len()).sum();
    if bytes > CRL_BYTES_MAX {
        return Err(ClientRootsError::CrlsTooLarge { bytes });
    }
    let mut lists = Vec::new();
    for (label, text) in texts {
        let before = lists.len();
        let found = sections(text).map_err(|PemError { damage, line }| {
            ClientRootsError::BrokenCrlPem { label: (*label).to_owned(), line, damage }
        })?;
        // Certificates of the issuers may be in the same file; the trusted ones are named
        // elsewhere.
        let found = found.into_iter().filter(|each| each.kind == SectionKind::RevocationList);
        for (found, section) in found.enumerate() {
            let position = found + 1;
            let crl = CertificateRevocationListDer::from(section.into_public());
            let bad =
                |reason| ClientRootsError::BadCrl { label: (*label).to_owned(), position, reason };
            let list = List::parse(label, &crl).map_err(bad)?;
            lists.push((crl, list));
        }
        if lists.len() == before {
            let (label, found) = ((*label).to_owned(), Foreign::of(text));
            return Err(ClientRootsError::NoCrlInText { label, found });
        }
    }
    lists.sort_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));
    lists.dedup_by(|(a, _), (b, _)| a == b);
    if lists.len() > CRLS_MAX {
        return Err(ClientRootsError::TooManyCrls { count: lists.len() });
    }
    Ok(lists)
}

/// The input of the digest of an empty set of authorities.
const NO_AUTHORITY: &[u8] = b"sealane client authorities 2, none";
/// Revocation lists of one policy.
pub const CRLS_MAX: usize = 256;
/// Bytes of all revocation lists of one policy together, as PEM.
pub const CRL_BYTES_MAX: usize = 16 << 20;
