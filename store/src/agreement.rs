//! Whether the tables agree with each other, found out in one pass over their entries: each
//! certificate has its date, each date and each name its certificate, and no table has more.
//!
//! Tables come in the order of their names, and entries in the order of their keys, so what a later
//! table leads to has been seen before: nothing is looked up in the database.

use std::collections::BTreeSet;

use sealane_engine::certificates::CertificateDigest;

use crate::error::Fault;
use crate::record::Record;
use crate::row::{Row, digest_from};
use crate::tables::{
    CERTIFICATES, EXPIRY, GONE, INTERMEDIATES, NAMES, SEALED_WITH, chain_part,
    digest_of_expiry_key, expiry_key,
};

/// What was found in a store that is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Examined {
    /// Certificates in it.
    pub certificates: u64,
    /// Names in it.
    pub names: u64,
}

/// What is known of the tables so far.
#[derive(Default)]
pub(crate) struct Agreement {
    /// For each beginning of a digest, how many certificates have a smaller one; as far as they
    /// were seen. To search all of them took a third of the time.
    before: Vec<usize>,
    /// In the order of their keys, which is that of digests.
    certificates: Vec<Dated>,
    dates: usize,
    /// What was wrong first. It counts only in a store of the present format.
    fault: Option<Fault>,
    /// Intermediates that records name, until they are seen.
    intermediates: BTreeSet<[u8; 32]>,
    names: u64,
}

/// A certificate, with its date if its record can be read.
struct Dated {
    digest: CertificateDigest,
    /// Whether it stands in the list by date.
    is_listed: bool,
    not_after_s: Option<i64>,
}

impl Agreement {
    /// Takes an entry of a table. Tables that this version does not know are nobody's business.
    pub(crate) fn see(&mut self, table: &[u8], key: &[u8], value: &[u8]) {
        if self.fault.is_none() {
            self.fault = self.seen(table, key, value).err();
        }
    }

    /// How much there is, if all agrees.
    pub(crate) fn judge(self) -> Result<Examined, Fault> {
        let certificates = self.certificates.len();
        match (self.fault, self.intermediates.first()) {
            (Some(fault), _) => Err(fault),
            (None, Some(_)) => Err(Fault::What("an intermediate is missing")),
            (None, None) if self.dates != certificates => {
                Err(Fault::What("the list by date has other certificates than there are"))
            }
            (None, None) => Ok(Examined { certificates: certificates as u64, names: self.names }),
        }
    }

    fn seen(&mut self, table: &[u8], key: &[u8], value: &[u8]) -> Result<(), Fault> {
        if table == CERTIFICATES.as_bytes() {
            self.certificate(key, value)
        } else if table == EXPIRY.as_bytes() {
            self.date(key)
        } else if table == GONE.as_bytes() {
            digest_from(value).map(drop)
        } else if table == INTERMEDIATES.as_bytes() {
            self.intermediate(key, value)
        } else if table == NAMES.as_bytes() {
            self.name(key, value)
        } else if table == SEALED_WITH.as_bytes() {
            let count: Result<[u8; 8], _> = value.try_into();
            count.map(drop).map_err(|_| Fault::What("a count of private keys is cut"))
        } else {
            Ok(())
        }
    }

    fn certificate(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        let digest = digest_from(key)?;
        // A record that cannot be read is refused by itself, and healed by an import.
        let record = Record::parse(value).ok();
        let not_after_s = record.as_ref().map(|record| record.not_after_s);
        let seen = self.certificates.len();
        self.before.resize(self.before.len().max(beginning(digest) + 1), seen);
        self.certificates.push(Dated { digest, is_listed: false, not_after_s });
        self.intermediates.extend(record.into_iter().flat_map(|record| record.intermediates));
        Ok(())
    }

    /// Each leads to a certificate of its own, so as many as there are certificates are all.
    fn date(&mut self, key: &[u8]) -> Result<(), Fault> {
        self.dates += 1;
        let digest = digest_of_expiry_key(key)?;
        let position = self.find(digest).ok_or(Fault::What("a date leads to no certificate"))?;
        let Some(dated) = self.certificates.get_mut(position) else { return Ok(()) };
        let is_its_own = dated.not_after_s.is_none_or(|date_s| key == expiry_key(date_s, digest));
        match is_its_own && !std::mem::replace(&mut dated.is_listed, true) {
            true => Ok(()),
            false => Err(Fault::What("the list by date has another date than a certificate")),
        }
    }

    fn intermediate(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        chain_part(value)?;
        if let Ok(hash) = key.try_into() {
            self.intermediates.remove::<[u8; 32]>(hash);
        }
        Ok(())
    }

    fn name(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        self.names += 1;
        str::from_utf8(key).map_err(|_| Fault::What("a name is no text"))?;
        for placed in Row::parse(value)?.certificates()? {
            self.find(placed.digest).ok_or(Fault::What("a name leads to no certificate"))?;
        }
        Ok(())
    }

    fn find(&self, digest: CertificateDigest) -> Option<usize> {
        let from = *self.before.get(beginning(digest))?;
        let to = self.before.get(beginning(digest) + 1).copied();
        let same = self.certificates.get(from..to.unwrap_or(self.certificates.len()))?;
        let found = same.binary_search_by(|dated| dated.digest.0.cmp(&digest.0));
        found.ok().map(|position| from + position)
    }
}

/// Two bytes, by which certificates are told apart almost.
fn beginning(digest: CertificateDigest) -> usize {
    let [first, second, ..] = digest.0;
    usize::from(u16::from_be_bytes([first, second]))
}

#[cfg(test)]
mod tests {
    use sealane_engine::certificates::KeyType;

    use super::*;
    use crate::record::key_type_bytes;
    use crate::seal::{NONCE_BYTES, PROOF_BYTES, SealingKeyId};

    type Entry = (&'static str, Vec<u8>, Vec<u8>);

    /// A certificate with its digest, its date, and the intermediate that it names.
    fn certificate(digest: u8, not_after_s: i64, intermediate: u8) -> Entry {
        let record = Record {
            key_type: KeyType::EcdsaP256,
            not_before_s: 0,
            not_after_s,
            imported_s: 0,
            sealing_key: SealingKeyId([0; 8]),
            nonce: [0; NONCE_BYTES],
            sealed_key: b"sealed",
            label: "site.pem",
            names: vec!["a.test"],
            leaf: b"leaf",
            intermediates: vec![[intermediate; 32]],
        };
        (CERTIFICATES, vec![digest; 32], record.to_bytes().unwrap())
    }

    fn date(digest: u8, not_after_s: i64) -> Entry {
        (EXPIRY, expiry_key(not_after_s, CertificateDigest([digest; 32])), Vec::new())
    }

    fn name(digest: u8) -> Entry {
        let entry = [key_type_bytes(KeyType::EcdsaP256).as_slice(), &[digest; 32]].concat();
        (NAMES, b"a.test".to_vec(), [entry, vec![0; PROOF_BYTES]].concat())
    }

    fn whole() -> Vec<Entry> {
        vec![
            certificate(1, 100, 9),
            certificate(2, 200, 9),
            date(1, 100),
            date(2, 200),
            (GONE, vec![0; 8], vec![3; 32]),
            (INTERMEDIATES, vec![9; 32], vec![0; 8]),
            name(2),
            (SEALED_WITH, vec![0; 8], vec![0; 8]),
        ]
    }

    fn judged(entries: &[Entry]) -> Result<Examined, String> {
        let mut agreement = Agreement::default();
        entries.iter().for_each(|(table, key, value)| agreement.see(table.as_bytes(), key, value));
        agreement.judge().map_err(Fault::text)
    }

    #[test]
    fn whatever_does_not_agree_is_found() {
        assert_eq!(judged(&whole()), Ok(Examined { certificates: 2, names: 1 }));
        for (position, entry, expected) in [
            (0, certificate(1, 101, 9), "the list by date has another date"),
            (0, certificate(1, 100, 8), "an intermediate is missing"),
            (0, (CERTIFICATES, vec![1; 31], Vec::new()), "a digest is cut"),
            (2, date(1, 101), "the list by date has another date"),
            (2, date(2, 200), "the list by date has another date"),
            (2, date(4, 100), "a date leads to no certificate"),
            (2, (GONE, Vec::new(), vec![0; 32]), "the list by date has other certificates"),
            (4, (GONE, vec![0; 8], vec![3; 31]), "a digest is cut"),
            (5, (INTERMEDIATES, vec![9; 32], vec![0; 7]), "an intermediate is cut"),
            (5, (INTERMEDIATES, vec![8; 32], vec![0; 8]), "an intermediate is missing"),
            (6, name(4), "a name leads to no certificate"),
            (6, (NAMES, b"a.test".to_vec(), vec![0; 3]), "the entry of a name is cut"),
            (6, (NAMES, vec![0xff], name(2).2), "a name is no text"),
            (7, (SEALED_WITH, vec![0; 8], vec![0; 7]), "a count of private keys is cut"),
        ] {
            let mut entries = whole();
            entries[position] = entry;
            let error = judged(&entries).unwrap_err();
            assert!(error.contains(expected), "{error:?} is not {expected:?}");
        }
    }

    #[test]
    fn a_record_that_cannot_be_read_has_one_date_whatever_it_is() {
        let mut entries = whole();
        entries[0].2.truncate(10);
        assert_eq!(judged(&entries), Ok(Examined { certificates: 2, names: 1 }));
        entries.insert(3, date(1, 101));
        entries.remove(4);
        assert!(judged(&entries).is_err(), "one has two dates, and one has none");
    }
}
