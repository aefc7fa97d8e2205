//! Certificates as clients get them, read back out of a store: [`Served`].

use std::ops::Bound;

use heed::{AnyTls, RoTxn};
use sealane_engine::certificates::CertificateDigest;

use crate::error::{Fault, StoreError};
use crate::store::{Listed, Store};
use crate::tables::{chain_digest, digest_of_expiry_key, expiry_key};

/// A certificate with its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The chain in DER, the server's own certificate first.
    pub chain: Vec<Vec<u8>>,
    /// The certificate.
    pub listed: Listed,
}

impl Served {
    /// Bytes of its chain.
    pub fn chain_bytes(&self) -> usize {
        self.chain.iter().map(Vec::len).sum()
    }
}

/// Certificates that were read in one state of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadBack {
    /// How often the store had been changed.
    pub generation: u64,
    /// The last place that was read, if there may be more behind it.
    pub next: Option<(i64, CertificateDigest)>,
    /// The certificates.
    pub served: Vec<Served>,
}

impl Store {
    /// Reads back what a client gets that asks for `server_name`: a certificate for each kind of
    /// key, the cheapest first.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_back(&self, server_name: &str) -> Result<ReadBack, StoreError> {
        self.read(|txn| {
            let found = self.tables.find(txn, server_name)?;
            self.read_all(txn, found.into_iter().map(|entry| Ok(entry.digest)))
        })
    }

    /// Reads back the certificates with wanted names that expire after the one with this last
    /// second and digest, or from the first to expire: at most `count_max`, none after
    /// [`READ_BYTES_MAX`] of chains, and out of [`SCANNED_MAX`] certificates at most.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_back_by_expiry(
        &self,
        after: Option<(i64, CertificateDigest)>,
        count_max: usize,
        is_wanted: &dyn Fn(&[String]) -> bool,
    ) -> Result<ReadBack, StoreError> {
        let after = after.map(|(not_after_s, digest)| expiry_key(not_after_s, digest));
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.read(|txn| {
            let generation = self.tables.generation(txn)?;
            let mut read = ReadBack { generation, next: None, served: Vec::new() };
            let (mut bytes, mut scanned) = (0, 0);
            for entry in self.tables.expiry.range(txn, &(from, Bound::Unbounded))? {
                let digest = digest_of_expiry_key(entry?.0)?;
                let listed = self.listed(txn, digest)?;
                scanned += 1;
                let place = (listed.not_after_s, digest);
                if is_wanted(&listed.names) {
                    let served = self.served(txn, listed)?;
                    bytes += served.chain_bytes();
                    read.served.push(served);
                }
                let is_full = read.served.len() >= count_max || bytes >= READ_BYTES_MAX;
                if is_full || scanned >= SCANNED_MAX {
                    read.next = Some(place);
                    break;
                }
            }
            Ok(read)
        })
    }

    fn read_all(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        digests: impl Iterator<Item = Result<CertificateDigest, Fault>>,
    ) -> Result<ReadBack, Fault> {
        let generation = self.tables.generation(txn)?;
        let served = digests.map(|digest| self.served(txn, self.listed(txn, digest?)?));
        Ok(ReadBack { generation, next: None, served: served.collect::<Result<_, _>>()? })
    }

    fn served(&self, txn: &RoTxn<'_, AnyTls>, listed: Listed) -> Result<Served, Fault> {
        let digest = listed.digest;
        let record = self.tables.record(txn, digest)?;
        let record = record.ok_or(Fault::What("a name or a date leads to no certificate"))?;
        let chain = self.tables.chain(txn, &record)?;
        // A lane refuses another one as well.
        if chain_digest(chain.iter().copied()) != digest {
            return Err(Fault::What("a chain is not the one that its private key was sealed for"));
        }
        Ok(Served { chain: chain.into_iter().map(<[u8]>::to_vec).collect(), listed })
    }
}

/// Bytes of chains after which no more certificates are read back at once: with usual ones that are
/// several thousand.
pub const READ_BYTES_MAX: usize = 16 << 20;
/// Certificates that one list looks at: a client with few names would look at all otherwise.
pub const SCANNED_MAX: usize = 10_000;
