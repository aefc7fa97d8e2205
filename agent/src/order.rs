//! One order, from the first request to the certificate in the store. Each step is remembered
//! before the next is taken, so that one who comes after goes on where this one was.

pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use instant_acme::{Error, Identifier, NewOrder, Order, OrderStatus, RetryPolicy};
use sealane_renewal::UnixSeconds;

use crate::account::Opened;
use crate::authorization;
use crate::certificate;
use crate::clock::signed;
use crate::dns;
use crate::failure::{Failed, is_gone, is_unmatched};
use crate::fleet::Claim;
use crate::ledger::{Ledger, OrderEntry};
use crate::nonces::with_nonces;
use crate::order::state::{Carried, Issued, Wanted};
use crate::renewal_info::identifier;

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
}

/// Until an authority is asked for the first time what came of it.
const POLL_FIRST: Duration = Duration::from_millis(250);
/// Between two questions at most.
const POLL_MAX: Duration = Duration::from_secs(10);
/// For how long an authority is asked; then it is later.
const POLL_TIMEOUT: Duration = Duration::from_secs(600);
