//! Where everything is in the cluster: [`Places`].

use sealane_engine::certificates::KeyType;
use sealane_renewal::CertificateId;
use sha2::{Digest as _, Sha256};

/// The keys of one fleet.
#[derive(Clone, Debug)]
pub(super) struct Places {
    prefix: String,
}

impl Places {
    /// Those that begin with `prefix`, which ends with `/`.
    pub(super) fn below(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Where certificates are.
    pub(super) fn certificates(&self) -> String {
        format!("{}certificate/", self.prefix)
    }

    /// Where the certificate for these names with this kind of key is.
    pub(super) fn certificate<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
        key_type: KeyType,
    ) -> String {
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        let mut digest = Sha256::new();
        for name in names {
            digest.update(name.as_bytes());
            digest.update([0]);
        }
        digest.update(key_type.to_string().as_bytes());
        format!("{}{}", self.certificates(), hex(digest))
    }

    /// Where words of removed names are.
    pub(super) fn removals(&self) -> String {
        format!("{}removed/", self.prefix)
    }

    /// Where the word of one is.
    pub(super) fn removal(&self, name: &str) -> String {
        format!("{}{}", self.removals(), hex(Sha256::new_with_prefix(name)))
    }

    /// Where entries of the store are that all machines have.
    pub(super) fn entries(&self) -> String {
        format!("{}entry/", self.prefix)
    }

    /// Where the entry `name` of the store is.
    pub(super) fn entry(&self, name: &str) -> String {
        format!("{}entry/{name}", self.prefix)
    }

    /// The claim of the machine that orders a certificate.
    pub(super) fn claim(&self, CertificateId(number): CertificateId) -> String {
        format!("{}claim/{number:016x}", self.prefix)
    }

    /// The state of an order that is under way.
    pub(super) fn order(&self, CertificateId(number): CertificateId) -> String {
        format!("{}order/{number:016x}", self.prefix)
    }

    /// The keys that every machine watches, from the first to the one behind the last: all except
    /// statuses and reports of answers. No entry that all machines write at regular times is among
    /// them.
    pub(super) fn watched(&self) -> (String, String) {
        (self.certificates(), self.statuses())
    }

    /// The machines that are there.
    pub(super) fn machines(&self) -> String {
        format!("{}machine/", self.prefix)
    }

    /// The entry of a machine that is there.
    pub(super) fn machine(&self, machine: &str) -> String {
        format!("{}machine/{machine}", self.prefix)
    }

    /// The heartbeat: a machine with a silent watch writes it, and that watch has to report it.
    pub(super) fn heartbeat(&self) -> String {
        format!("{}heartbeat", self.prefix)
    }

    /// The machines that have the answers that were put at a revision.
    pub(super) fn answered(&self, revision: i64) -> String {
        format!("{}answered/{revision:016x}/", self.prefix)
    }

    /// The prefix of the machines' statuses.
    pub(super) fn statuses(&self) -> String {
        format!("{}status/", self.prefix)
    }

    /// Where one tells it.
    pub(super) fn status(&self, machine: &str) -> String {
        format!("{}status/{machine}", self.prefix)
    }
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Machines that are counted.
pub(super) const MACHINES_MAX: usize = 10_000;
