//! Server name to certificates, in constant time and without an allocation.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::builder::PlacedName;
use super::{
    AskedName, Certificate, CertificateDigest, DefaultCertificate, Inventory, InventoryEntry,
};

/// All certificates of one generation. Immutable: lanes share it by reading only.
#[derive(Debug)]
pub struct CertificateIndex {
    /// Positions in `certificates`, sorted by the digests of the certificates there.
    by_digest: Box<[u32]>,
    certificates: Box<[Arc<Certificate>]>,
    default: Box<[Arc<Certificate>]>,
    /// The certificates of each name side by side; `names` points in here.
    groups: Box<[Arc<Certificate>]>,
    names: HashMap<Arc<str>, Range<usize>>,
    /// For names that several certificates of one kind of key have, those not in `groups`, behind
    /// the certificates of `groups`: for when those have expired.
    spare_names: HashMap<Arc<str>, Range<usize>>,
}

impl CertificateIndex {
    /// `placed` and `spares` are sorted by name, then by preference.
    pub(super) fn new(
        certificates: Vec<Arc<Certificate>>,
        placed: Vec<PlacedName>,
        spares: Vec<PlacedName>,
    ) -> Self {
        let grouped = placed.iter().chain(&spares);
        let groups = grouped.map(|placed| Arc::clone(&certificates[placed.certificate])).collect();
        let spares_from = placed.len();
        let names = ranges(placed, 0);
        let spare_names = ranges(spares, spares_from);
        // No index has more certificates than a position has numbers: CERTIFICATES_MAX.
        let mut by_digest: Box<[u32]> = (0_u32..).take(certificates.len()).collect();
        by_digest.sort_unstable_by_key(|position| certificates[*position as usize].digest().0);
        let certificates = certificates.into();
        Self { by_digest, certificates, default: Box::default(), groups, names, spare_names }
    }

    /// The certificates served for `server_name`, one of each kind of key, best first. Empty for an
    /// unknown name.
    ///
    /// The exact name hides a wildcard. A wildcard matches exactly one label. Case and one trailing
    /// dot do not matter.
    pub fn find(&self, server_name: &str) -> &[Arc<Certificate>] {
        let Some(mut name) = AskedName::new(server_name) else { return &[] };
        let group = self.named(name.exact()).or_else(|| self.named(name.wildcard()?));
        group.map(|group| self.group(&group)).unwrap_or_default()
    }

    /// The certificates for names that no certificate covers, one of each kind of key, best first.
    pub fn default_certificates(&self) -> &[Arc<Certificate>] {
        &self.default
    }

    /// All certificates in their configured order, also those that lost every name to another.
    pub fn iter(&self) -> std::slice::Iter<'_, Arc<Certificate>> {
        self.certificates.iter()
    }

    /// Whether a certificate is here, served or not.
    pub(super) fn contains(&self, digest: &CertificateDigest) -> bool {
        let at = |position: &u32| self.certificates[*position as usize].digest().0;
        self.by_digest.binary_search_by_key(&digest.0, at).is_ok()
    }

    /// The count of certificates.
    pub fn len(&self) -> usize {
        self.certificates.len()
    }

    /// Whether there is no certificate at all.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// The count of names that are served, a wildcard counted as one.
    pub fn name_count(&self) -> usize {
        self.names.len()
    }

    /// Counts of certificates and names, with the first `entries_max` certificates to expire.
    pub fn inventory(&self, entries_max: usize) -> Inventory {
        let mut by_expiry: Vec<&Certificate> = self.iter().map(|each| &**each).collect();
        by_expiry.sort_by_key(|certificate| certificate.chain_not_after_s());
        let soonest = by_expiry.into_iter().take(entries_max);
        Inventory {
            certificates: self.len() as u64,
            names: self.name_count() as u64,
            soonest: soonest.map(InventoryEntry::from).collect(),
        }
    }

    /// An estimate of the heap this index takes, with the allocator's rounding.
    pub fn memory_bytes(&self) -> usize {
        let mut seen = HashSet::new();
        let certificates: usize = self
            .certificates
            .iter()
            .map(|certificate| {
                let shared: usize = certificate
                    .intermediates
                    .iter()
                    .filter(|der| seen.insert(der.as_ptr()))
                    .map(|der| allocation_bytes(ARC_COUNTS_BYTES + der.len()))
                    .sum();
                certificate_bytes(certificate) + shared
            })
            .sum();
        let table = table_bytes(&self.names) + table_bytes(&self.spare_names);
        let pointers = self.certificates.len() + self.groups.len() + self.default.len();
        let sorted = allocation_bytes(size_of_val(&*self.by_digest));
        certificates + sorted + table + pointers * size_of::<Arc<Certificate>>()
    }

    /// Chooses the default, and returns false if there is no such certificate.
    ///
    /// A chosen certificate brings along the other kinds of key for its first name. Otherwise
    /// clients that cannot use its own kind would be refused. A certificate that is only the first
    /// of all, or not in date, gives way to the one that is served for that name.
    pub(super) fn choose_default(&mut self, default: DefaultCertificate<'_>, now_s: i64) -> bool {
        let chosen = match default {
            DefaultCertificate::Absent => return true,
            DefaultCertificate::First => self.certificates.first(),
            DefaultCertificate::Label(label) => {
                self.certificates.iter().find(|certificate| certificate.label() == label)
            }
            DefaultCertificate::Name(name) => {
                self.default = self.find(name).into();
                return !self.default.is_empty();
            }
        };
        let Some(chosen) = chosen else {
            return default == DefaultCertificate::First;
        };
        let group = chosen.names().first().map(|name| self.find(name)).unwrap_or_default();
        let gives_way = default == DefaultCertificate::First || !chosen.is_valid_at(now_s);
        let is_served = group.iter().any(|certificate| Arc::ptr_eq(certificate, chosen));
        self.default = if is_served || gives_way && !group.is_empty() {
            group.into()
        } else {
            Box::new([Arc::clone(chosen)])
        };
        true
    }

    /// The certificates that are served for exactly `name`, in lower case.
    pub(super) fn named(&self, name: &str) -> Option<Group> {
        self.names.get(name).cloned().map(Group::Named)
    }

    /// Certificates for exactly `name`, in lower case, that are not served because another of
    /// their kind is preferred.
    pub(super) fn spare(&self, name: &str) -> Option<Group> {
        self.spare_names.get(name).cloned().map(Group::Named)
    }

    /// The certificates of a group of this index, best first.
    pub(super) fn group(&self, group: &Group) -> &[Arc<Certificate>] {
        match group {
            Group::Default => &self.default,
            Group::Named(range) => self.groups.get(range.clone()).unwrap_or_default(),
        }
    }
}

/// The positions of the certificates of each name, counted from `first`.
fn ranges(placed: Vec<PlacedName>, first: usize) -> HashMap<Arc<str>, Range<usize>> {
    let mut names: HashMap<Arc<str>, Range<usize>> = HashMap::with_capacity(placed.len());
    for (position, placed) in (first..).zip(placed) {
        names.entry(placed.name).or_insert(position..position).end = position + 1;
    }
    names.shrink_to_fit();
    names
}

/// Certificates of an index that are served together, one of each kind of key.
#[derive(Debug)]
pub(super) enum Group {
    /// For names that nothing covers.
    Default,
    /// For one name: where they stand.
    Named(Range<usize>),
}

impl<'a> IntoIterator for &'a CertificateIndex {
    type Item = &'a Arc<Certificate>;
    type IntoIter = std::slice::Iter<'a, Arc<Certificate>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The bytes that are allocated for one certificate alone.
fn certificate_bytes(certificate: &Certificate) -> usize {
    let names: usize =
        certificate.names.iter().map(|name| allocation_bytes(ARC_COUNTS_BYTES + name.len())).sum();
    names
        + allocation_bytes(ARC_COUNTS_BYTES + size_of::<Certificate>())
        + allocation_bytes(certificate.key.der().len())
        + allocation_bytes(certificate.label.len())
        + allocation_bytes(certificate.leaf.len())
        + allocation_bytes(size_of_val(&*certificate.names))
        + allocation_bytes(size_of_val(&*certificate.intermediates))
}

/// The bytes that glibc takes for an allocation: a size word more, in steps of 16 bytes, 32 at
/// least.
fn allocation_bytes(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

/// The heap bytes of a table of names.
fn table_bytes(names: &HashMap<Arc<str>, Range<usize>>) -> usize {
    match names.capacity() {
        0 => 0,
        capacity => {
            let buckets = (capacity * 8 / 7).next_power_of_two();
            allocation_bytes(buckets * (size_of::<(Arc<str>, Range<usize>)>() + 1))
        }
    }
}

const ARC_COUNTS_BYTES: usize = 16;
