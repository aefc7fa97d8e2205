//! The state of an order: everything that is known of it between two steps.

use instant_acme::Error;
use sealane_renewal::{CertificateId, UnixSeconds};

use crate::account::Opened;
use crate::certificate::KnownAs;
use crate::failure::Failed;
use crate::fleet::Claim;
use crate::ledger::{Answer, Ledger, OrderEntry};
use crate::settings::{Challenge, KeyKind};

/// What is to be ordered, and where.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) challenge: Challenge,
    pub(crate) directory: String,
    /// When the certificate that is in the store now was put there, in Unix time.
    pub(crate) held_put_s: i64,
    pub(crate) id: CertificateId,
    pub(crate) key: KeyKind,
    pub(crate) names: Vec<String>,
    pub(crate) profile: Option<String>,
    /// The certificate that it takes the place of, as the authority knows it.
    pub(crate) replaces: Option<KnownAs>,
}

/// An order that is being carried out.
pub(crate) struct Carried<'o> {
    /// The right to it, in a fleet.
    pub(crate) claim: Option<&'o Claim>,
    pub(crate) entry: OrderEntry,
    pub(crate) ledger: &'o Ledger,
    pub(crate) now: fn() -> UnixSeconds,
    pub(crate) opened: &'o Opened,
    pub(crate) wanted: &'o Wanted,
}

impl Carried<'_> {
    /// Remembers what it has come to.
    pub(crate) fn keep(&self) -> Result<(), Failed> {
        Ok(self.ledger.keep_order(self.wanted.id, &self.entry, Vec::new())?)
    }

    /// Publishes the state of the order and its answers in the fleet.
    pub(crate) async fn share(&self, answers: &[Answer]) -> Result<(), Failed> {
        let Some(claim) = self.claim else { return Ok(()) };
        claim.keep(&Ledger::order_text(&self.entry)?, answers).await
    }

    /// What is ordered, for people.
    pub(crate) fn label(&self) -> String {
        let names = &self.wanted.names;
        match names.as_slice() {
            [first, _, ..] => format!("{first} and {} more", names.len() - 1),
            _ => names.join(", "),
        }
    }

    /// What the authority answered while `doing` was done.
    pub(crate) fn failed(&self, doing: &str, error: &Error) -> Failed {
        let told_until = self.opened.https.told_until();
        let doing = format!("{}: {doing}", self.label());
        Failed::of_answer(&doing, error, told_until, (self.now)())
    }
}

/// The dates of a certificate that is in the store now, in Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Issued {
    pub(crate) not_after_s: i64,
    pub(crate) not_before_s: i64,
}
