//! The authorities that clients' certificates come from, and what they revoked.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::ClientCertVerified;
use rustls::{CertificateError, DistinguishedName, Error};
use sha2::{Digest, Sha256};
use webpki::{CertRevocationList, KeyUsage, OwnedCertRevocationList};

use super::ClientRootsError;
use super::pinned::Pinned;
use crate::anchors::{Anchors, Asked, refusal};
use crate::certificates::{damage, is_authority, is_self_issued};
use crate::client::Roots;
use crate::peer_chain::PeerChain;
use crate::session::is_authority_as_leaf;

/// Authorities that may issue to clients, with their revocation lists: immutable, shared by all
/// lanes, and read-only for them.
///
/// With a list, every certificate of a chain must be on the books of one, and lists count only
/// until their next update is due. A certificate that issued itself and is given here may be a
/// client's own; if it is no authority's, nobody else's is believed because of it. An intermediate
/// authority that is given here need not be sent by clients, and is believed as far as one that is
/// trusted issued it, as OpenSSL has it.
pub struct ClientRoots {
    /// Of the lists too.
    content: [u8; 32],
    digest: [u8; 32],
    subjects: Vec<DistinguishedName>,
    trust: Arc<Trust>,
}

impl ClientRoots {
    /// The certificates of the PEM texts `ca` and the revocation lists of the PEM texts `crls`.
    ///
    /// # Errors
    /// There is no certificate, a text is damaged, or there is more of something than its limit.
    pub fn from_pem(ca: &[&[u8]], crls: &[&[u8]]) -> Result<Self, ClientRootsError> {
        let texts = ca.iter().enumerate();
        let sources: Vec<_> = texts
            .map(|(index, text)| Roots::from_pem(&format!("ca[{index}]"), text))
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
        let anchors = roots.anchors(|anchors, der| {
            match (is_authority(der), is_self_issued(der)) {
                // webpki believes whatever an anchor signed, also if the anchor may sign nothing.
                (false, _) => Anchors::default().trust(der),
                (true, true) => anchors.trust(der),
                (true, false) => anchors.know(der),
            }
        })?;
        let crls: Vec<_> = lists.into_iter().map(|(_, list)| list).collect();
        let pinned = Pinned::among(roots.ders(), !crls.is_empty());
        Ok(Self {
            content: hash.finalize().into(),
            digest,
            subjects: roots.subjects()?,
            trust: Arc::new(Trust { anchors, crls, pinned }),
        })
    }

    /// The same, but clients are not told who is trusted, and choose for themselves what to show.
    pub fn unnamed(self) -> Self {
        Self { subjects: Vec::new(), ..self }
    }

    /// The names of the authorities, which clients that are asked get to see.
    pub fn subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    /// Tells these roots from all others; neither their order nor repetitions count. The lists are
    /// not in it: a ticket that was sealed under others is judged by these when it is opened, and
    /// machines that fetch their lists at different times resume each other's sessions.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Who is trusted. A lane takes a reference once for each context.
    pub(super) fn trust(&self) -> Arc<Trust> {
        Arc::clone(&self.trust)
    }
}

/// Whom a lane believes, and what was revoked: memory that all lanes read and none writes.
#[derive(Debug)]
pub(super) struct Trust {
    anchors: Anchors,
    crls: Vec<CertRevocationList<'static>>,
    pinned: Pinned,
}

impl Trust {
    /// Whether a client's chain is believed at a time.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<ClientCertVerified, Error> {
        let chain = PeerChain::parse(leaf, intermediates)?;
        let asked = Asked { algorithms, crls: &self.crls, now, usage: KeyUsage::client_auth() };
        let refused = match self.anchors.verify(leaf, &chain, &asked) {
            Ok(_) => return Ok(ClientCertVerified::assertion()),
            Err(Error::InvalidCertificate(error))
                if error == CertificateError::UnknownIssuer || is_authority_as_leaf(&error) =>
            {
                error
            }
            Err(error) => return Err(error),
        };
        match self.pinned.judge(leaf, now) {
            Some(judged) => judged.map(|()| ClientCertVerified::assertion()),
            None => Err(Error::InvalidCertificate(refused)),
        }
    }
}

impl PartialEq for ClientRoots {
    fn eq(&self, other: &Self) -> bool {
        self.content == other.content
    }
}

impl Eq for ClientRoots {}

impl fmt::Debug for ClientRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRoots")
            .field("anchors", &self.trust.anchors)
            .field("crls", &self.trust.crls.len())
            .finish_non_exhaustive()
    }
}

/// A revocation list as it was written, and as it is asked.
type List = (CertificateRevocationListDer<'static>, CertRevocationList<'static>);

/// The lists of all texts, each once, sorted.
fn read_crls(texts: &[&[u8]]) -> Result<Vec<List>, ClientRootsError> {
    let bytes = texts.iter().map(|text| text.len()).sum();
    if bytes > CRL_BYTES_MAX {
        return Err(ClientRootsError::CrlsTooLarge { bytes });
    }
    let mut lists: Vec<List> = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let before = lists.len();
        for (found, section) in CertificateRevocationListDer::pem_slice_iter(text).enumerate() {
            let position = found + 1;
            let crl = section.map_err(|error| ClientRootsError::BrokenCrlPem {
                index,
                position,
                reason: damage(&error),
            })?;
            let list = OwnedCertRevocationList::from_der(&crl).map_err(|error| {
                ClientRootsError::BadCrl { index, position, reason: refusal(error).to_string() }
            })?;
            lists.push((crl, list.into()));
        }
        if lists.len() == before {
            return Err(ClientRootsError::NoCrlInText { index });
        }
    }
    lists.sort_unstable_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));
    lists.dedup_by(|(a, _), (b, _)| a == b);
    if lists.len() > CRLS_MAX {
        return Err(ClientRootsError::TooManyCrls { count: lists.len() });
    }
    Ok(lists)
}

/// Revocation lists of one policy.
pub const CRLS_MAX: usize = 256;
/// Bytes of all revocation lists of one policy together, as PEM.
pub const CRL_BYTES_MAX: usize = 16 << 20;
