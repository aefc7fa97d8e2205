//! Trust, identity, versions and protocols of a client: plain data with a digest.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use rustls::DistinguishedName;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

use super::error::ClientOptionsError;
use crate::anchors::Anchors;
use crate::certificates::{
    Certificate, CertificateError, DefaultCertificate, IndexBuilder, Linked, is_self_issued,
    not_after_s,
};
use crate::name_constraints::unjudged;
use crate::pem::{Foreign, PemError, SectionKind, sections};
use crate::policy::{Group, Versions};
use crate::provider::{ProviderChoice, lane_provider};

/// The TLS settings of a client. Neither the host nor the server name is among them: they belong
/// to the connection.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Application protocols to offer, the best first, at most [`ALPN_PROTOCOLS_MAX`]; empty: ALPN
    /// is not spoken.
    pub alpn: Vec<Vec<u8>>,
    /// Key exchange groups to offer, the best first.
    pub groups: Vec<Group>,
    /// The certificate to show to a server that asks for one.
    pub identity: Option<ClientIdentity>,
    /// The cryptography.
    pub provider: ProviderChoice,
    /// Whether servers that speak TLS 1.2 without extended master secret (RFC 7627) are refused.
    /// Otherwise their sessions are not resumed. They are refused in any case if there is an
    /// identity.
    pub require_extended_master_secret: bool,
    /// Whether a lane resumes its earlier sessions with a server.
    pub resumption: bool,
    /// Authorities that may issue the server's certificate.
    pub roots: Roots,
    /// The checks of the server's certificate.
    pub verification: Verification,
    /// Protocol versions to offer.
    pub versions: Versions,
}

impl ClientOptions {
    /// Full verification against `roots`, TLS 1.2 and 1.3, every group with the post-quantum hybrid
    /// first, resumption, no ALPN and no client certificate.
    pub fn trusting(roots: Roots) -> Self {
        Self {
            alpn: Vec::new(),
            groups: Group::ALL.to_vec(),
            identity: None,
            provider: ProviderChoice::Auto,
            require_extended_master_secret: false,
            resumption: true,
            roots,
            verification: Verification::Full,
            versions: Versions::Tls12AndTls13,
        }
    }

    /// Identifies these options: equal options have equal digests.
    ///
    /// Roots count as a set of certificates: neither their order, nor repetitions, nor their labels
    /// matter. The order of protocols and of groups does, because a server sees it. An identity is
    /// its chain and its key as encoded. The key is part of the digest, so that a certificate alone
    /// is not enough to get its context. The digest reveals nothing about the key.
    pub fn digest(&self) -> OptionsDigest {
        let mut hash = Sha256::new_with_prefix(b"sealane client options 1");
        hash.update([
            self.versions as u8,
            self.verification as u8,
            u8::from(self.resumption),
            self.provider as u8,
            u8::from(self.require_extended_master_secret),
        ]);
        hash.update((self.groups.len() as u64).to_be_bytes());
        for group in &self.groups {
            hash.update([*group as u8]);
        }
        hash.update((self.alpn.len() as u64).to_be_bytes());
        for protocol in &self.alpn {
            hash.update((protocol.len() as u64).to_be_bytes());
            hash.update(protocol);
        }
        hash.update(self.roots.digest);
        match &self.identity {
            None => hash.update([0]),
            Some(identity) => {
                hash.update([1]);
                hash.update(identity.certificate.digest().0);
            }
        }
        OptionsDigest(hash.finalize().into())
    }
}

/// SHA-256 over [`ClientOptions`]: the key by which a process finds the context of equal options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OptionsDigest(pub [u8; 32]);

/// The checks of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// No verification: any server is accepted, so anyone on the path can read and change
    /// everything. The only check left is that the server holds the key of the certificate it
    /// shows.
    DangerousNone,
    /// A root issued it, it is valid now, and for the name that was asked for.
    Full,
}

/// Certificates of authorities, not yet parsed. A clone shares them.
#[derive(Clone)]
pub struct Roots {
    /// Sorted by hash, each once.
    pub(super) certificates: Arc<[Root]>,
    digest: [u8; 32],
}

/// One authority's certificate.
#[derive(Clone)]
pub(super) struct Root {
    pub(super) der: CertificateDer<'static>,
    hash: [u8; 32],
    /// The source.
    pub(super) label: Arc<str>,
    /// In the source, counted from 1.
    pub(super) position: usize,
}

impl Roots {
    /// No authority: only of use where nothing is verified.
    pub fn none() -> Self {
        Self::of(Vec::new())
    }

    /// The certificates of several sources, at most [`ROOTS_MAX`] in all.
    ///
    /// # Errors
    /// There are more.
    pub fn joined(sources: &[Self]) -> Result<Self, ClientOptionsError> {
        let joined = Self::of(sources.iter().flat_map(|each| each.certificates.to_vec()).collect());
        match joined.len() {
            count if count > ROOTS_MAX => {
                Err(ClientOptionsError::TooManyRoots { label: joined.label(), count })
            }
            _ => Ok(joined),
        }
    }

    /// The certificates of a PEM text, such as the system's bundle. Private keys are skipped.
    /// `label` names the text in errors; a file's path.
    ///
    /// # Errors
    /// The text cannot be read, has a revocation list or no certificate, or there are more than
    /// [`ROOTS_MAX`] or [`ROOTS_BYTES_MAX`] allow.
    pub fn from_pem(label: &str, text: &[u8]) -> Result<Self, ClientOptionsError> {
        check_size(label, text.len())?;
        let found = sections(text).map_err(|PemError { damage, line }| {
            ClientOptionsError::BrokenRootPem { label: label.into(), line, damage }
        })?;
        let mut certificates = Vec::new();
        for section in found {
            match section.kind {
                SectionKind::Certificate => certificates.push(section.into_public().into()),
                SectionKind::RevocationList => {
                    let (label, line) = (label.into(), section.line);
                    return Err(ClientOptionsError::ListAmongRoots { label, line });
                }
                SectionKind::EncryptedKey | SectionKind::Key(_) => {}
            }
        }
        if certificates.is_empty() {
            let (label, found) = (label.into(), Foreign::of(text));
            return Err(ClientOptionsError::NoRootInSource { label, found });
        }
        Self::checked(label, certificates)
    }

    /// Certificates as DER. `label` names their source in errors.
    ///
    /// # Errors
    /// There is none, or there are more than [`ROOTS_MAX`] or [`ROOTS_BYTES_MAX`] allow.
    pub fn from_der(label: &str, certificates: &[&[u8]]) -> Result<Self, ClientOptionsError> {
        check_size(label, certificates.iter().map(|der| der.len()).sum())?;
        let owned = certificates.iter().map(|der| CertificateDer::from(der.to_vec())).collect();
        Self::checked(label, owned)
    }

    /// The certificates that can be authorities: a system's bundle may have others.
    pub fn usable(&self) -> Self {
        let is_usable = |root: &&Root| Anchors::default().trust(&root.der).is_ok();
        Self::of(self.certificates.iter().filter(is_usable).cloned().collect())
    }

    /// The count of different certificates.
    pub fn len(&self) -> usize {
        self.certificates.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Last second of validity of the authority that expires first, in Unix time, or `None` if
    /// there is no authority. After it, certificates by that authority are rejected.
    ///
    /// # Errors
    /// One of them is no certificate.
    pub fn soonest_expiry_s(&self) -> Result<Option<i64>, ClientOptionsError> {
        let mut soonest = None;
        for root in &*self.certificates {
            let not_after_s = not_after_s(&root.der).map_err(|reason| root.bad(reason.into()))?;
            soonest = Some(soonest.map_or(not_after_s, |known: i64| known.min(not_after_s)));
        }
        Ok(soonest)
    }

    /// Whether a chain can end here: one of the certificates is its own issuer.
    pub fn has_root(&self) -> bool {
        self.certificates.iter().any(|root| is_self_issued(&root.der))
    }

    /// The kinds of names that one of them constrains, and that Sealane cannot judge: certificates
    /// with such names are refused below it.
    pub fn unjudged_constraints(&self) -> BTreeSet<&'static str> {
        self.ders().flat_map(unjudged).collect()
    }

    /// Their certificates, as DER.
    pub fn ders(&self) -> impl Iterator<Item = &[u8]> {
        self.certificates.iter().map(|root| root.der.as_ref())
    }

    /// Their certificates, each added by `place`. The error names a certificate that cannot be
    /// added.
    pub(crate) fn anchors(
        &self,
        place: impl Fn(&mut Anchors, &CertificateDer<'_>) -> Result<(), String>,
    ) -> Result<Anchors, ClientOptionsError> {
        let mut anchors = Anchors::default();
        for root in &*self.certificates {
            place(&mut anchors, &root.der).map_err(|reason| root.bad(reason))?;
        }
        Ok(anchors)
    }

    /// Their names.
    pub(crate) fn subjects(&self) -> Result<Vec<DistinguishedName>, ClientOptionsError> {
        let subject = |root: &Root| {
            let linked = Linked::parse(&root.der).map_err(|reason| root.bad(reason.into()))?;
            Ok(DistinguishedName::from(linked.subject.to_vec()))
        };
        self.certificates.iter().map(subject).collect()
    }

    /// Identifies this set of certificates.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.digest
    }

    fn label(&self) -> String {
        let mut labels: Vec<&str> = self.certificates.iter().map(|root| &*root.label).collect();
        labels.sort_unstable();
        labels.dedup();
        labels.join(", ")
    }

    fn checked(
        label: &str,
        certificates: Vec<CertificateDer<'static>>,
    ) -> Result<Self, ClientOptionsError> {
        match certificates.len() {
            0 => {
                let (label, found) = (label.into(), Foreign::Empty);
                Err(ClientOptionsError::NoRootInSource { label, found })
            }
            count if count > ROOTS_MAX => {
                Err(ClientOptionsError::TooManyRoots { label: label.into(), count })
            }
            _ => {
                let label: Arc<str> = label.into();
                let numbered = certificates.into_iter().zip(1..);
                Ok(Self::of(numbered.map(|each| Root::new(each.0, &label, each.1)).collect()))
            }
        }
    }

    fn of(mut certificates: Vec<Root>) -> Self {
        certificates.sort_by_key(|root| root.hash);
        certificates.dedup_by_key(|root| root.hash);
        let mut hash = Sha256::new_with_prefix(b"sealane client roots 1");
        for root in &certificates {
            hash.update(root.hash);
        }
        Self { certificates: certificates.into(), digest: hash.finalize().into() }
    }
}

impl Root {
    fn new(der: CertificateDer<'static>, label: &Arc<str>, position: usize) -> Self {
        let hash = Sha256::digest(&der).into();
        Self { der, hash, label: Arc::clone(label), position }
    }

    /// That it is no certificate.
    fn bad(&self, reason: String) -> ClientOptionsError {
        ClientOptionsError::BadRoot { label: (*self.label).into(), position: self.position, reason }
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roots").field("label", &self.label()).field("len", &self.len()).finish()
    }
}

/// A client's own certificate with its key, which belong together.
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    certificate: Arc<Certificate>,
}

impl ClientIdentity {
    /// Chain and key from one PEM text; `label` names it in errors.
    ///
    /// # Errors
    /// The text is damaged or incomplete, or the key does not fit.
    pub fn from_pem(label: &str, text: &[u8]) -> Result<Self, ClientOptionsError> {
        Self::indexed(|builder| builder.add(label, text))
    }

    /// Chain and key from two PEM texts.
    ///
    /// # Errors
    /// One of the texts is damaged or incomplete, or the key does not fit.
    pub fn from_pem_pair(
        (chain_label, chain): (&str, &[u8]),
        (key_label, key): (&str, &[u8]),
    ) -> Result<Self, ClientOptionsError> {
        Self::indexed(|builder| builder.add_pair(chain_label, chain, key_label, key))
    }

    /// The certificate, for example to watch its dates.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// A client's certificate is read and checked like a server's.
    fn indexed(add: impl FnOnce(&mut IndexBuilder<'_>)) -> Result<Self, ClientOptionsError> {
        let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL)?.crypto;
        // Its dates are looked at where a clock is.
        let mut builder = IndexBuilder::new(&provider, 0).take_slow_keys();
        add(&mut builder);
        let indexed = builder.finish(DefaultCertificate::First);
        if let Some(error) = indexed.errors.into_iter().next() {
            return Err(error.into());
        }
        let certificate = indexed.index.default_certificates().first();
        let certificate = certificate.ok_or(CertificateError::NoneGiven)?;
        Ok(Self { certificate: Arc::clone(certificate) })
    }
}

fn check_size(label: &str, bytes: usize) -> Result<(), ClientOptionsError> {
    if bytes > ROOTS_BYTES_MAX {
        return Err(ClientOptionsError::RootsTooLarge { label: label.into(), bytes });
    }
    Ok(())
}

/// Application protocols that a client offers.
pub const ALPN_PROTOCOLS_MAX: usize = 16;
/// Bytes of all roots of one source together; the systems' bundles have about 200 KiB.
pub const ROOTS_BYTES_MAX: usize = 4 << 20;
/// Roots of one source; the systems' bundles have about 150.
pub const ROOTS_MAX: usize = 4_096;
