//! The authorities that clients' certificates come from, and what they revoked.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DistinguishedName, RootCertStore};
use sha2::{Digest, Sha256};

use super::ClientRootsError;
use super::pinned::Pinned;
use crate::certificates::{damage, is_authority};
use crate::client::{Roots, parse_roots};
use crate::policy::Group;
use crate::provider::{ProviderChoice, lane_provider};

/// Authorities that may issue to clients, with their revocation lists: immutable, shared by all
/// lanes, and read-only for them.
///
/// With a list, every certificate of a chain must be on the books of one, and lists count only
/// until their next update is due. A certificate that issued itself and is given here may be a
/// client's own; if it is no authority's, nobody else's is believed because of it.
pub struct ClientRoots {
    authorities: Arc<RootCertStore>,
    crls: Vec<CertificateRevocationListDer<'static>>,
    digest: [u8; 32],
    pinned: Pinned,
    subjects: Vec<DistinguishedName>,
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
        let given = Arc::new(parse_roots(&roots)?);
        let crls = read_crls(&given, crls)?;
        // webpki believes whatever an anchor signed, also if the anchor may sign nothing.
        let anchors = given.roots.iter().zip(roots.ders());
        let authorities = anchors.filter(|(_, der)| is_authority(der));
        let authorities = authorities.map(|(anchor, _)| anchor.clone()).collect();
        let mut hash = Sha256::new_with_prefix(b"sealane client authorities 1");
        hash.update(roots.digest());
        for crl in &crls {
            hash.update(Sha256::digest(crl));
        }
        Ok(Self {
            authorities: Arc::new(authorities),
            digest: hash.finalize().into(),
            pinned: Pinned::among(roots.ders(), !crls.is_empty()),
            crls,
            subjects: given.subjects(),
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

    /// Tells these roots and lists from all others; neither their order nor repetitions count.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Those that a client may show as its own.
    pub(super) fn pinned(&self) -> Pinned {
        self.pinned.clone()
    }

    /// A verifier of chains of its own for a lane, by its provider; none if nobody is an authority.
    pub(super) fn verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, VerifierBuilderError> {
        if self.authorities.is_empty() {
            return Ok(None);
        }
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.authorities), provider)
            .with_crls(self.crls.iter().cloned())
            .enforce_revocation_expiration()
            .build()
            .map(Some)
    }
}

impl PartialEq for ClientRoots {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for ClientRoots {}

impl fmt::Debug for ClientRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRoots")
            .field("authorities", &self.authorities.len())
            .field("crls", &self.crls.len())
            .finish_non_exhaustive()
    }
}

/// The lists of all texts, each once, sorted, and each tried.
fn read_crls(
    anchors: &Arc<RootCertStore>,
    texts: &[&[u8]],
) -> Result<Vec<CertificateRevocationListDer<'static>>, ClientRootsError> {
    let bytes = texts.iter().map(|text| text.len()).sum();
    if bytes > CRL_BYTES_MAX {
        return Err(ClientRootsError::CrlsTooLarge { bytes });
    }
    let mut crls = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let before = crls.len();
        for (found, section) in CertificateRevocationListDer::pem_slice_iter(text).enumerate() {
            let position = found + 1;
            let crl = section.map_err(|error| ClientRootsError::BrokenCrlPem {
                index,
                position,
                reason: damage(&error),
            })?;
            try_crl(anchors, &crl, index, position)?;
            crls.push(crl);
        }
        if crls.len() == before {
            return Err(ClientRootsError::NoCrlInText { index });
        }
    }
    crls.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
    crls.dedup();
    if crls.len() > CRLS_MAX {
        return Err(ClientRootsError::TooManyCrls { count: crls.len() });
    }
    Ok(crls)
}

fn try_crl(
    anchors: &Arc<RootCertStore>,
    crl: &CertificateRevocationListDer<'static>,
    index: usize,
    position: usize,
) -> Result<(), ClientRootsError> {
    let provider = Arc::new(lane_provider(ProviderChoice::AwsLc, &Group::ALL)?.crypto);
    let tried = WebPkiClientVerifier::builder_with_provider(Arc::clone(anchors), provider)
        .with_crls([crl.clone()])
        .build();
    match tried {
        Ok(_) => Ok(()),
        Err(error) => Err(ClientRootsError::BadCrl { index, position, reason: error.to_string() }),
    }
}

/// Revocation lists of one policy.
pub const CRLS_MAX: usize = 256;
/// Bytes of all revocation lists of one policy together, as PEM.
pub const CRL_BYTES_MAX: usize = 16 << 20;
