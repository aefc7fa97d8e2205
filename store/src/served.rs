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

    /// Reads back the certificates that expire after the one with this last second and digest, or
    /// from the first to expire: at most `count_max`, and none after [`READ_BYTES_MAX`] of chains.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_back_by_expiry(
        &self,
        after: Option<(i64, CertificateDigest)>,
        count_max: usize,
    ) -> Result<ReadBack, StoreError> {
        let after = after.map(|(not_after_s, digest)| expiry_key(not_after_s, digest));
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.read(|txn| {
            let keys = self.tables.expiry.range(txn, &(from, Bound::Unbounded))?;
            let digests = keys.take(count_max).map(|entry| digest_of_expiry_key(entry?.0));
            let mut read =
                ReadBack { generation: self.tables.generation(txn)?, served: Vec::new() };
            let mut bytes = 0;
            for digest in digests {
                let served = self.served(txn, digest?)?;
                bytes += served.chain_bytes();
                read.served.push(served);
                if bytes >= READ_BYTES_MAX {
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
        let served = digests.map(|digest| self.served(txn, digest?)).collect::<Result<_, _>>()?;
        Ok(ReadBack { generation, served })
    }

    fn served(&self, txn: &RoTxn<'_, AnyTls>, digest: CertificateDigest) -> Result<Served, Fault> {
        let listed = self.listed(txn, digest)?;
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
