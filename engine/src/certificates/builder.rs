//! Makes a [`CertificateIndex`] out of PEM texts and reports all errors in them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;

use super::chain::faults;
use super::key::EncodedKey;
use super::leaf::{Leaf, Link};
use super::{
    CERTIFICATES_MAX, Certificate, CertificateDigest, CertificateError, CertificateIndex,
    CertificateWarning, KEYS_TRIED_MAX, KeyType, NAMES_PER_CERTIFICATE_MAX, PemContents,
    RSA_BITS_MAX, RSA_BITS_MIN, RSA_BITS_SLOW_MAX, decode,
};

/// Collects certificates in their configured order; a problem with one does not stop the others.
pub struct IndexBuilder<'a> {
    certificates: Vec<Arc<Certificate>>,
    errors: Vec<CertificateError>,
    intermediates: HashMap<Arc<[u8]>, Arc<Link>>,
    /// Keys that are still decoded as they are added.
    keys_to_try: usize,
    now_s: i64,
    provider: &'a CryptoProvider,
    rsa_bits_max: usize,
    warnings: Vec<CertificateWarning>,
}

impl<'a> IndexBuilder<'a> {
    /// A builder of an empty index. `now_s` is Unix time, for warnings about validity.
    ///
    /// `provider` decodes the first [`KEYS_TRIED_MAX`] keys, to check that they can be used. Of the
    /// others it decodes only those with an encoding that leaves the public half out.
    pub fn new(provider: &'a CryptoProvider, now_s: i64) -> Self {
        Self {
            certificates: Vec::new(),
            errors: Vec::new(),
            intermediates: HashMap::new(),
            keys_to_try: KEYS_TRIED_MAX,
            now_s,
            provider,
            rsa_bits_max: RSA_BITS_MAX,
            warnings: Vec::new(),
        }
    }

    /// The same, for the files of an operator: RSA keys of up to [`RSA_BITS_SLOW_MAX`] bits are
    /// taken, with a warning. Of anybody else one such key would slow down the clients of all.
    #[must_use]
    pub fn take_slow_keys(self) -> Self {
        Self { rsa_bits_max: RSA_BITS_SLOW_MAX, ..self }
    }

    /// Adds a text that holds both chain and key.
    pub fn add(&mut self, label: &str, text: &[u8]) {
        if let Err(error) = self.try_add(label, text) {
            self.errors.push(error);
        }
    }

    /// Adds a certificate of another index as it is: it was in order before its source got a
    /// fault.
    pub fn add_known(&mut self, certificate: Arc<Certificate>) {
        if self.certificates.len() < CERTIFICATES_MAX {
            self.certificates.push(certificate);
        }
    }

    /// Takes the errors so far, so that the caller can join each with its source.
    pub fn take_errors(&mut self) -> Vec<CertificateError> {
        std::mem::take(&mut self.errors)
    }

    /// Adds a chain and a key from two texts. Certificates in the key's text are passed over.
    pub fn add_pair(&mut self, chain_label: &str, chain: &[u8], key_label: &str, key: &[u8]) {
        let chain = PemContents::parse(chain_label, chain);
        let key = PemContents::parse(key_label, key);
        let added = match (chain, key) {
            (Ok(chain), Ok(key)) => self.join(chain_label, chain, key_label, key),
            (Err(chain_error), Err(key_error)) => {
                self.errors.push(chain_error);
                Err(key_error)
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        if let Err(error) = added {
            self.errors.push(error);
        }
    }

    /// Builds the index. Two certificates may have the same kind of key and the same name. Then one
    /// that is in date is preferred, then the one that expires last, then the one that was added
    /// first. The clash is reported. The other one is kept for the time when the first has expired.
    pub fn finish(mut self, default: DefaultCertificate<'_>) -> Indexed {
        let may_be_empty = default == DefaultCertificate::Absent;
        if self.certificates.is_empty() && self.errors.is_empty() && !may_be_empty {
            self.errors.push(CertificateError::NoneGiven);
        }
        let (placed, spares) = self.place_names();
        let mut index = CertificateIndex::new(self.certificates, placed, spares);
        if !index.choose_default(default, self.now_s) {
            let wanted = default.wanted().to_owned();
            self.errors.push(CertificateError::DefaultMissing { wanted });
        }
        Indexed { errors: self.errors, index, warnings: self.warnings }
    }

    fn try_add(&mut self, label: &str, text: &[u8]) -> Result<(), CertificateError> {
        let contents = PemContents::parse(label, text)?;
        let key =
            contents.key.ok_or_else(|| CertificateError::NoKey { label: label.to_owned() })?;
        self.insert(label, &contents.certificates, label, key)
    }

    fn join(
        &mut self,
        chain_label: &str,
        chain: PemContents,
        key_label: &str,
        key: PemContents,
    ) -> Result<(), CertificateError> {
        match (chain.key, key.key) {
            (None, Some(key)) => self.insert(chain_label, &chain.certificates, key_label, key),
            (_, None) => Err(CertificateError::NoKey { label: key_label.into() }),
            (Some(_), Some(_)) => {
                Err(CertificateError::SeveralKeys { label: key_label.into(), count: 2 })
            }
        }
    }

    pub(super) fn insert(
        &mut self,
        label: &str,
        chain: &[Vec<u8>],
        key_label: &str,
        key: EncodedKey,
    ) -> Result<(), CertificateError> {
        let Some((leaf_der, intermediates)) = chain.split_first() else {
            return Err(CertificateError::NoCertificate { label: label.into() });
        };
        if self.certificates.len() == CERTIFICATES_MAX {
            return Err(CertificateError::IndexFull { label: label.into() });
        }
        let leaf = Leaf::parse(leaf_der).map_err(|reason| CertificateError::BadCertificate {
            label: label.into(),
            position: 1,
            reason,
        })?;
        let key_type = served_key_type(label, &leaf, self.rsa_bits_max)?;
        let count = leaf.names.len();
        if count > NAMES_PER_CERTIFICATE_MAX {
            return Err(CertificateError::TooManyNames { label: label.into(), count });
        }
        self.check_fit((label, &leaf, leaf_der), (key_label, &key))?;
        let links = self.intern(label, intermediates)?;
        self.warn(label, &leaf);
        self.warn_of_chain(label, &leaf, chain, &links);
        let ends = links.iter().map(|(_, link)| link.not_after_s);
        let chain_not_after_s = ends.fold(leaf.link.not_after_s, i64::min);
        self.warnings.extend(slow_key(label, key_type));
        let parts = chain.iter().map(Vec::as_slice).chain([key.der()]);
        self.certificates.push(Arc::new(Certificate {
            chain_not_after_s,
            digest: CertificateDigest::of(parts),
            intermediates: links.into_iter().map(|(der, _)| der).collect(),
            key,
            key_type,
            label: label.into(),
            leaf: leaf_der.as_slice().into(),
            names: leaf.names.into_iter().map(Arc::from).collect(),
            not_after_s: leaf.link.not_after_s,
            not_before_s: leaf.not_before_s,
        }));
        Ok(())
    }

    /// Compares the public halves as bytes. Decodes the key as well while there are few keys, so
    /// that an unusable key is found here and not by the first client. Many keys would take
    /// seconds: then only those with an encoding that leaves the public half out are decoded.
    fn check_fit(
        &mut self,
        (label, leaf, leaf_der): (&str, &Leaf, &[u8]),
        (key_label, key): (&str, &EncodedKey),
    ) -> Result<(), CertificateError> {
        let half = key
            .public_half()
            .ok_or_else(|| CertificateError::UnsupportedKey { label: key_label.into() })?;
        let is_tried = self.keys_to_try > 0;
        let fits = match half.bytes {
            _ if Some(half.key_type) != leaf.key_type => false,
            Some(bytes) if bytes != leaf.public_key => false,
            Some(_) if !is_tried => true,
            _ => {
                self.keys_to_try = self.keys_to_try.saturating_sub(1);
                let chain = vec![CertificateDer::from(leaf_der.to_vec())];
                match decode(key_label, chain, key, self.provider) {
                    Ok(_) => true,
                    Err(CertificateError::KeyMismatch { .. }) => false,
                    Err(error) => return Err(error),
                }
            }
        };
        if fits {
            return Ok(());
        }
        Err(CertificateError::KeyMismatch { certificate: label.into(), key: key_label.into() })
    }

    /// A builder that leaves keys to lanes from the first on.
    #[cfg(test)]
    pub(super) fn trying_none(provider: &'a CryptoProvider, now_s: i64) -> Self {
        Self { keys_to_try: 0, ..Self::new(provider, now_s) }
    }

    /// Keeps one copy of each intermediate, however many chains it is in.
    fn intern(&mut self, label: &str, chain: &[Vec<u8>]) -> Result<Interned, CertificateError> {
        let mut interned = Vec::with_capacity(chain.len());
        for (offset, der) in chain.iter().enumerate() {
            if let Some((known, link)) = self.intermediates.get_key_value(der.as_slice()) {
                interned.push((Arc::clone(known), Arc::clone(link)));
                continue;
            }
            let link = Link::parse(der).map_err(|reason| CertificateError::BadCertificate {
                label: label.into(),
                position: offset + 2,
                reason,
            })?;
            let (der, link): (Arc<[u8]>, _) = (der.as_slice().into(), Arc::new(link));
            self.intermediates.insert(Arc::clone(&der), Arc::clone(&link));
            interned.push((der, link));
        }
        Ok(interned)
    }

    /// Warns of faults of the certificates behind the server's own that most clients refuse.
    fn warn_of_chain(
        &mut self,
        label: &str,
        leaf: &Leaf,
        chain: &[Vec<u8>],
        links: &[(Arc<[u8]>, Arc<Link>)],
    ) {
        // As few as keys that are decoded: a signature takes as long.
        let is_tried = self.keys_to_try > 0;
        let algorithms = &self.provider.signature_verification_algorithms;
        let warnings = &mut self.warnings;
        let label = || label.to_owned();
        let own = &leaf.link;
        if leaf.has_common_name_only {
            warnings.push(CertificateWarning::CommonNameOnly { label: label() });
        }
        let is_issuer = |(_, link): &(_, Arc<Link>)| link.subject == own.issuer;
        if own.issuer != own.subject && !links.iter().any(is_issuer) {
            let (label, issuer) = (label(), own.issuer_text());
            let is_published = leaf.is_issuer_published;
            warnings.push(CertificateWarning::IssuerMissing { label, issuer, is_published });
        }
        let own_der = chain.first().map(Vec::as_slice).unwrap_or_default();
        let found = faults((own, own_der), links, is_tried.then_some(algorithms), self.now_s);
        warnings.extend(found.into_iter().map(|fault| {
            let label = label();
            CertificateWarning::Chain { label, fault }
        }));
        for (position, (der, (_, link))) in (2..).zip(chain.iter().skip(1).zip(links)) {
            if chain.iter().take(position - 1).any(|before| before == der) {
                warnings.push(CertificateWarning::Repeated { label: label(), position });
                continue;
            }
            let expired_s = self.now_s.saturating_sub(link.not_after_s);
            if expired_s > 0 {
                let label = label();
                warnings.push(CertificateWarning::ChainExpired { label, position, expired_s });
            }
        }
    }

    fn warn(&mut self, label: &str, leaf: &Leaf) {
        let label = || label.to_owned();
        let (expired_s, valid_in_s) = (
            self.now_s.saturating_sub(leaf.link.not_after_s),
            leaf.not_before_s.saturating_sub(self.now_s),
        );
        if expired_s > 0 {
            self.warnings.push(CertificateWarning::Expired { label: label(), expired_s });
        }
        if valid_in_s > 0 {
            self.warnings.push(CertificateWarning::NotYetValid { label: label(), valid_in_s });
        }
        for name in &leaf.ignored_names {
            let name = name.clone();
            self.warnings.push(CertificateWarning::NameIgnored { label: label(), name });
        }
        if leaf.names.is_empty() {
            self.warnings.push(CertificateWarning::NoNames { label: label() });
        }
    }

    /// Names with the certificates served for them, sorted by name and then by kind of key. The
    /// second list has the certificates that lost a name to another, in the same order.
    fn place_names(&mut self) -> (Vec<PlacedName>, Vec<PlacedName>) {
        let mut wanted: Vec<_> = self
            .certificates
            .iter()
            .enumerate()
            .flat_map(|(order, certificate)| {
                let rank = certificate.key_type.rank();
                // Clients may do without an expired intermediate, but not without the leaf.
                let is_out_of_date = (
                    !certificate.is_leaf_valid_at(self.now_s),
                    !certificate.is_valid_at(self.now_s),
                );
                let last_first = Reverse(certificate.chain_not_after_s);
                certificate
                    .names
                    .iter()
                    .map(move |name| (name, rank, is_out_of_date, last_first, order))
            })
            .collect();
        wanted.sort_unstable();
        let mut placed: Vec<PlacedName> = Vec::with_capacity(wanted.len());
        let mut spares: Vec<PlacedName> = Vec::new();
        let mut clashes = Clashes::default();
        let mut served = None;
        for (name, rank, _, _, order) in wanted {
            let named = PlacedName { name: Arc::clone(name), certificate: order };
            match served {
                // A certificate that repeats a name does not clash with itself.
                Some((kept_name, kept_rank, kept)) if (kept_name, kept_rank) == (name, rank) => {
                    if kept != order {
                        clashes.add(kept, order, name);
                        spares.push(named);
                    }
                }
                _ => {
                    served = Some((name, rank, order));
                    placed.push(named);
                }
            }
        }
        self.warnings.extend(clashes.into_warnings(&self.certificates, self.now_s));
        (placed, spares)
    }
}

/// The certificate that is served for names that no certificate covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultCertificate<'a> {
    /// None: such names are refused, unless a store has something for them.
    Absent,
    /// The one added first.
    First,
    /// The one with this label.
    Label(&'a str),
    /// The certificates that are served for this name.
    Name(&'a str),
}

impl<'a> DefaultCertificate<'a> {
    fn wanted(self) -> &'a str {
        match self {
            Self::Absent | Self::First => "",
            Self::Label(wanted) | Self::Name(wanted) => wanted,
        }
    }
}

/// A finished index with the errors and warnings about its certificates.
#[derive(Debug)]
pub struct Indexed {
    /// Errors of the certificates that are not in the index. Empty if all are.
    pub errors: Vec<CertificateError>,
    /// The certificates that are in order.
    pub index: CertificateIndex,
    /// Warnings for the operator about certificates that are served.
    pub warnings: Vec<CertificateWarning>,
}

/// One name and the position of a certificate that is served for it.
pub(super) struct PlacedName {
    pub(super) certificate: usize,
    pub(super) name: Arc<str>,
}

/// Intermediates, of which others may have the same copy, with their places in the chain.
type Interned = Vec<(Arc<[u8]>, Arc<Link>)>;

/// Clashes by pair of certificates: a renewed file next to the old one is one warning, however many
/// names it has.
#[derive(Default)]
struct Clashes {
    pairs: HashMap<(usize, usize), (String, usize)>,
}

impl Clashes {
    fn add(&mut self, kept: usize, dropped: usize, name: &str) {
        let (_, names) = self.pairs.entry((dropped, kept)).or_insert_with(|| (name.to_owned(), 0));
        *names += 1;
    }

    fn into_warnings(
        self,
        certificates: &[Arc<Certificate>],
        now_s: i64,
    ) -> impl Iterator<Item = CertificateWarning> {
        let mut pairs: Vec<_> = self.pairs.into_iter().collect();
        pairs.sort_unstable();
        pairs.into_iter().map(move |((dropped, kept), (name, names))| {
            let (dropped, kept) = (&certificates[dropped], &certificates[kept]);
            let reason = if kept.is_valid_at(now_s) && !dropped.is_valid_at(now_s) {
                "is in date"
            } else if kept.chain_not_after_s > dropped.chain_not_after_s {
                "expires later"
            } else {
                "comes first"
            };
            CertificateWarning::Clash {
                dropped: dropped.label().to_owned(),
                kept: kept.label().to_owned(),
                key_type: kept.key_type,
                name,
                names,
                reason,
            }
        })
    }
}

fn served_key_type(
    label: &str,
    leaf: &Leaf,
    rsa_bits_max: usize,
) -> Result<KeyType, CertificateError> {
    let key_type = leaf
        .key_type
        .ok_or_else(|| CertificateError::UnsupportedKey { label: label.to_owned() })?;
    if let KeyType::Rsa { bits } = key_type {
        let bits = usize::from(bits);
        if !(RSA_BITS_MIN..=rsa_bits_max).contains(&bits) {
            let label = label.into();
            return Err(CertificateError::RsaKeySize { label, bits, bits_max: rsa_bits_max });
        }
    }
    Ok(key_type)
}

/// The warning that a handshake takes long. The time grows with the third power of the size.
fn slow_key(label: &str, key_type: KeyType) -> Option<CertificateWarning> {
    let KeyType::Rsa { bits } = key_type else { return None };
    let bits = usize::from(bits);
    let ms = RSA_SLOW_MAX_MS * bits.pow(3) / RSA_BITS_SLOW_MAX.pow(3);
    let label = label.into();
    (bits > RSA_BITS_MAX).then_some(CertificateWarning::SlowKey { label, bits, ms })
}

/// Milliseconds of a signature by a key of [`RSA_BITS_SLOW_MAX`], measured on an AMD EPYC.
const RSA_SLOW_MAX_MS: usize = 43;
