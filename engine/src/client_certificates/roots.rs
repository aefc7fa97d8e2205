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
use crate::certificates::damage;
use crate::client::{Roots, parse_roots};
use crate::policy::Group;
use crate::provider::{ProviderChoice, lane_provider};

/// Authorities that may issue to clients, with their revocation lists: immutable, shared by all
/// lanes, and read-only for them.
///
/// With a list, every certificate of a chain must be on the books of one, and lists count only
/// until their next update is due. A certificate that issued itself and is given here may be a
/// client's own.
pub struct ClientRoots {
    anchors: Arc<RootCertStore>,
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
        let anchors = Arc::new(parse_roots(&roots)?);
        let crls = read_crls(&anchors, crls)?;
        let mut hash = Sha256::new_with_prefix(b"sealane client authorities 1");
        hash.update(roots.digest());
        for crl in &crls {
            hash.update(Sha256::digest(crl));
        }
        let (pinned, subjects) = (Pinned::among(roots.ders()), anchors.subjects());
        Ok(Self { anchors, crls, digest: hash.finalize().into(), pinned, subjects })
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

    /// A verifier of its own for a lane, by its provider.
    pub(super) fn verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.anchors), provider)
            .with_crls(self.crls.iter().cloned())
            .enforce_revocation_expiration()
            .build()
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
            .field("roots", &self.anchors.len())
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
