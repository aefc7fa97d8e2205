//! Counts of certificates and the first ones to expire, for operators that have to renew them.

use super::{Certificate, KeyType};

/// The certificates of an index or of a store, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The count of certificates.
    pub certificates: u64,
    /// The count of server names that they are served for, a wildcard counted as one.
    pub names: u64,
    /// Those that expire first, in that order; as many as were asked for.
    pub soonest: Vec<InventoryEntry>,
}

/// A certificate of an [`Inventory`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventoryEntry {
    /// The kind of its key.
    pub key_type: KeyType,
    /// The certificate's first names, at most [`NAMES_LISTED_MAX`].
    pub names: Vec<String>,
    /// Names in all.
    pub names_total: usize,
    /// Last second of validity, in Unix time; of files, that of the whole chain.
    pub not_after_s: i64,
    /// The source that it came from.
    pub source: String,
}

impl InventoryEntry {
    /// An entry with as many of `names` as are listed.
    pub fn new(
        source: &str,
        key_type: KeyType,
        names: &[impl AsRef<str>],
        not_after_s: i64,
    ) -> Self {
        let listed = names.iter().take(NAMES_LISTED_MAX);
        Self {
            key_type,
            names: listed.map(|name| name.as_ref().to_owned()).collect(),
            names_total: names.len(),
            not_after_s,
            source: source.to_owned(),
        }
    }
}

impl InventoryEntry {
    /// The certificate's names in a line, and how many more there are.
    pub fn names_text(&self) -> String {
        let names = self.names.join(", ");
        match self.names_total.saturating_sub(self.names.len()) {
            0 => names,
            more => format!("{names} and {more} more"),
        }
    }
}

impl From<&Certificate> for InventoryEntry {
    fn from(certificate: &Certificate) -> Self {
        let (source, names) = (certificate.label(), certificate.names());
        Self::new(source, certificate.key_type(), names, certificate.chain_not_after_s())
    }
}

/// Names of each certificate in an inventory.
pub const NAMES_LISTED_MAX: usize = 8;
