//! One order, from the first request to the certificate in the store. Each step is remembered
//! before the next is taken, so that one who comes after goes on where this one was.

#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use instant_acme::{Error, Identifier, NewOrder, Order, OrderStatus, RetryPolicy};
use sealane_renewal::{CertificateId, UnixSeconds};

use crate::account::Opened;
use crate::agent::signed;
use crate::authorization;
use crate::certificate::{self, KnownAs};
use crate::dns;
use crate::failure::{Failed, is_bad_nonce, is_gone, is_unmatched};
use crate::fleet::Claim;
use crate::ledger::{Answer, Ledger, OrderEntry};
use crate::renewal_info::identifier;
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

impl<'o> Carried<'o> {
    /// The order that is remembered for `wanted`, or a new one with a key of its own.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub(crate) async fn begun(
        wanted: &'o Wanted,
        opened: &'o Opened,
        ledger: &'o Ledger,
        claim: Option<&'o Claim>,
        now: fn() -> UnixSeconds,
    ) -> Result<Self, Failed> {
        let mut names = wanted.names.clone();
        names.sort();
        let known = ledger.order(wanted.id)?;
        let fits = |entry: &OrderEntry| {
            let is_same = entry.directory == wanted.directory && entry.names == names;
            Ok::<_, Failed>(is_same && !ledger.is_over(entry)?)
        };
        let entry = match known {
            Some(entry) if fits(&entry)? => entry,
            known => {
                if let Some(other) = known {
                    dns::clean_up(&other.records).await;
                    ledger.drop_order(wanted.id, &other)?;
                }
                OrderEntry {
                    answers: Vec::new(),
                    begun_s: signed(now()),
                    directory: wanted.directory.clone(),
                    held_put_s: Some(wanted.held_put_s),
                    key: certificate::new_key(wanted.key)?,
                    names,
                    records: Vec::new(),
                    url: None,
                }
            }
        };
        let carried = Self { claim, entry, ledger, now, opened, wanted };
        carried.keep()?;
        carried.share(&[]).await?;
        Ok(carried)
    }

    /// Carries it to its end: the certificate is in the store then, and the order forgotten. One
    /// that came to nothing is forgotten too; any other failure leaves it for the next time.
    ///
    /// # Errors
    /// It came to nothing, or not yet to an end.
    pub(crate) async fn carry_out(mut self) -> Result<Issued, Failed> {
        match self.steps().await {
            Err(failed) if failed.ends_order => {
                authorization::take_back(&mut self).await;
                if let Some(claim) = self.claim {
                    claim.forget(&self.entry).await?;
                }
                self.ledger.drop_order(self.wanted.id, &self.entry)?;
                Err(failed)
            }
            came => came,
        }
    }

    async fn steps(&mut self) -> Result<Issued, Failed> {
        let mut order = match self.known().await? {
            Some(order) => order,
            None => self.create().await?,
        };
        loop {
            match order.state().status {
                OrderStatus::Pending => {
                    authorization::show_all(self, &mut order).await?;
                    self.poll(&mut order, "validation").await?;
                }
                OrderStatus::Ready => {
                    authorization::take_back(self).await;
                    self.finalize(&mut order).await?;
                }
                OrderStatus::Processing => self.poll(&mut order, "issuance").await?,
                OrderStatus::Valid => return self.download(&mut order).await,
                OrderStatus::Invalid => return Err(authorization::failures(self).await),
            }
        }
    }

    /// The order that the authority was asked for before, if it still has it.
    async fn known(&mut self) -> Result<Option<Order>, Failed> {
        let Some(url) = self.entry.url.clone() else { return Ok(None) };
        let account = &self.opened.account;
        match with_nonces(async || account.order(url.clone()).await).await {
            Ok(order) => Ok(Some(order)),
            Err(error) if is_gone(&error) => self.renewed().await,
            Err(error) => Err(self.failed("the order", &error)),
        }
    }

    /// Forgets what the authority has given up while nobody was there, and begins with another key.
    async fn renewed(&mut self) -> Result<Option<Order>, Failed> {
        authorization::take_back(self).await;
        self.ledger.drop_order(self.wanted.id, &self.entry)?;
        self.entry.answers.clear();
        self.entry.begun_s = signed((self.now)());
        self.entry.held_put_s = Some(self.wanted.held_put_s);
        self.entry.key = certificate::new_key(self.wanted.key)?;
        self.entry.url = None;
        self.keep()?;
        Ok(None)
    }

    async fn create(&mut self) -> Result<Order, Failed> {
        let names = self.wanted.names.iter();
        let identifiers: Vec<Identifier> = names.cloned().map(Identifier::Dns).collect();
        let account = &self.opened.account;
        let mut replaces = self.wanted.replaces.as_ref();
        let created = loop {
            let created = with_nonces(async || {
                let mut new = NewOrder::new(&identifiers);
                if let Some(profile) = &self.wanted.profile {
                    new = new.profile(profile);
                }
                if let Some(known_as) = replaces {
                    new = new.replaces(identifier(known_as));
                }
                account.new_order(&new).await
            });
            match created.await {
                // An authority without renewal information has no use for it.
                Err(Error::Unsupported(_)) if replaces.is_some() => replaces = None,
                // Nor has one that keeps nothing of it; what it made of that is known to nobody.
                Err(error) if replaces.is_some() && is_unmatched(&error) => replaces = None,
                created => break created,
            }
        };
        let order = created.map_err(|error| self.failed("a new order", &error))?;
        self.entry.url = Some(order.url().to_owned());
        self.keep()?;
        self.share(&[]).await?;
        Ok(order)
    }

    async fn finalize(&self, order: &mut Order) -> Result<(), Failed> {
        let request = certificate::request(&self.wanted.names, &self.entry.key)?;
        match with_nonces(async || order.finalize_csr(&request).await).await {
            Ok(()) => Ok(()),
            Err(error) => {
                // Before the next answer: what this one told is in no other.
                let failed = self.failed("the request for the certificate", &error);
                // One that came before, and whose answer was lost, may have done it.
                self.refresh(order).await?;
                match order.state().status {
                    OrderStatus::Processing | OrderStatus::Valid => Ok(()),
                    _ => Err(failed),
                }
            }
        }
    }

    /// Waits until the authority has done its part, as long as it likes to be asked and a bound
    /// allows.
    async fn poll(&self, order: &mut Order, what: &str) -> Result<(), Failed> {
        let before = order.state().status;
        let waiting = async {
            let mut wait = POLL_FIRST;
            loop {
                tokio::time::sleep(wait).await;
                self.refresh(order).await?;
                if order.state().status != before {
                    return Ok(());
                }
                let told = self.opened.https.asked_again_at();
                let told = told.and_then(|at| at.duration_since(SystemTime::now()).ok());
                wait = told.unwrap_or((wait * 2).min(POLL_MAX));
            }
        };
        match tokio::time::timeout(POLL_TIMEOUT, waiting).await {
            Ok(done) => done,
            Err(_) => {
                let limit_s = POLL_TIMEOUT.as_secs();
                let text = format!("{}: {what} took the CA more than {limit_s} s", self.label());
                Err(Failed::later(text))
            }
        }
    }

    async fn refresh(&self, order: &mut Order) -> Result<(), Failed> {
        let refreshed = with_nonces(async || order.refresh().await.map(drop)).await;
        refreshed.map_err(|error| self.failed("the order", &error))
    }

    async fn download(&self, order: &mut Order) -> Result<Issued, Failed> {
        let patience = RetryPolicy::new().timeout(POLL_TIMEOUT);
        let chain = with_nonces(async || order.poll_certificate(&patience).await).await;
        // What it issued and does not hand out now, or not as text, it never will.
        let chain = chain.map_err(|error| {
            let failed = self.failed("the certificate", &error);
            let is_lost = is_gone(&error) || matches!(error, Error::Str(_));
            Failed { ends_order: failed.ends_order || is_lost, ..failed }
        })?;
        let now_s = signed((self.now)());
        let (key, names) = (&self.entry.key, &self.wanted.names);
        let directory = &self.wanted.directory;
        let certificate = certificate::join(&chain, key, names, directory, now_s)?;
        if let Some(claim) = self.claim {
            claim.issue(directory, (&certificate, now_s), &self.entry).await?;
        }
        self.ledger.issue(self.wanted.id, &self.entry, &certificate, now_s)?;
        let (not_before_s, not_after_s) = (certificate.not_before_s(), certificate.not_after_s());
        Ok(Issued { not_after_s, not_before_s })
    }

    /// Remembers what it has come to.
    pub(crate) fn keep(&self) -> Result<(), Failed> {
        Ok(self.ledger.keep_order(self.wanted.id, &self.entry, Vec::new())?)
    }

    /// Tells the fleet what it has come to, and gives it answers to give.
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

/// Calls again while the authority refuses nothing but the number that is to be used once; the
/// library does so twice.
pub(crate) async fn with_nonces<T>(
    mut call: impl AsyncFnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let mut left = NONCES_MAX;
    loop {
        match call().await {
            Err(error) if left > 0 && is_bad_nonce(&error) => left -= 1,
            answer => return answer,
        }
    }
}

/// Calls in which an authority may refuse three numbers in a row.
const NONCES_MAX: usize = 10;
/// Until an authority is asked for the first time what came of it.
const POLL_FIRST: Duration = Duration::from_millis(250);
/// Between two questions at most.
const POLL_MAX: Duration = Duration::from_secs(10);
/// For how long an authority is asked; then it is later.
const POLL_TIMEOUT: Duration = Duration::from_secs(600);
