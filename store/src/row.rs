//! The row of a name in the database: a certificate for each kind of key, and a proof.

use sealane_engine::certificates::{CertificateDigest, KeyType, StoredCertificate};

use crate::error::Fault;
use crate::record::{KEY_TYPE_BYTES, key_type_from};
use crate::seal::{PROOF_BYTES, Proof, SealingKeyId};

/// A row that borrows from the database's page.
pub(crate) struct Row<'t> {
    pub(crate) entries: &'t [[u8; ENTRY_BYTES]],
    pub(crate) proof: Proof,
}

impl<'t> Row<'t> {
    /// Reads a row of [`Rows::write`](crate::names::Rows::write).
    pub(crate) fn parse(bytes: &'t [u8]) -> Result<Self, Fault> {
        let cut = || Fault::What("the entry of a name is cut");
        let (entries, proof) = bytes.split_last_chunk::<PROOF_BYTES>().ok_or_else(cut)?;
        match entries.as_chunks() {
            ([], _) => Err(cut()),
            (entries, []) => Ok(Self { entries, proof: Proof::parse(*proof) }),
            _ => Err(cut()),
        }
    }

    /// Reads a row of the format before this one, which proved nothing.
    pub(crate) fn parse_unproven(bytes: &[u8]) -> Result<Vec<StoredCertificate>, Fault> {
        match bytes.as_chunks() {
            (entries, []) => entries.iter().map(entry).collect(),
            _ => Err(Fault::What("the entry of a name is cut")),
        }
    }

    /// The certificates, without a look at the proof.
    pub(crate) fn certificates(&self) -> Result<Vec<StoredCertificate>, Fault> {
        self.entries.iter().map(entry).collect()
    }

    /// The sealing key of its proof.
    pub(crate) fn sealing_key(&self) -> SealingKeyId {
        self.proof.id
    }
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Result<StoredCertificate, Fault> {
    let (kind, digest) = bytes.split_at(KEY_TYPE_BYTES);
    let kind = kind.try_into().map_err(|_| Fault::What("the entry of a name is cut"))?;
    let key_type: KeyType = key_type_from(kind)?;
    Ok(StoredCertificate { digest: digest_from(digest)?, key_type })
}

/// A digest in the database.
pub(crate) fn digest_from(bytes: &[u8]) -> Result<CertificateDigest, Fault> {
    bytes.try_into().map(CertificateDigest).map_err(|_| Fault::What("a digest is cut"))
}

const ENTRY_BYTES: usize = KEY_TYPE_BYTES + 32;
