//! What runs beside the loop: orders, and the accounts that they are made with.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use sealane_renewal::AuthorityId;
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use crate::account::Opened;
use crate::clock::now;
use crate::dns;
use crate::failure::Failed;
use crate::fleet::{Claim, Fleet};
use crate::ledger::Ledger;
use crate::order::state::{Carried, Issued, Wanted};
use crate::settings::{Authority, Challenge, Settings};

/// The authorities of the settings, each with its account once that is open.
pub(super) struct Authorities {
    all: Vec<(Authority, Mutex<Option<Opened>>)>,
    fleet: Option<Rc<Fleet>>,
    ledger: Ledger,
}

impl Authorities {
    pub(super) fn of(settings: &Settings, ledger: &Ledger, fleet: Option<&Rc<Fleet>>) -> Self {
        let all = settings.authorities.iter().cloned();
        Self {
            all: all.map(|each| (each, Mutex::default())).collect(),
            fleet: fleet.cloned(),
            ledger: ledger.clone(),
        }
    }

    /// The account with an authority; who comes while it is being opened waits for that.
    pub(super) async fn opened(&self, AuthorityId(at): AuthorityId) -> Result<Opened, Failed> {
        let Some((authority, account)) = self.all.get(usize::from(at)) else {
            return Err(Failed::ours("there is no such authority any more"));
        };
        let mut account = account.lock().await;
        if let Some(opened) = &*account {
            return Ok(opened.clone());
        }
        let opened = Opened::with(authority, &self.ledger, self.fleet.as_deref(), now()).await?;
        *account = Some(opened.clone());
        Ok(opened)
    }

    /// Orders a certificate, or goes on with its order.
    pub(super) async fn order(&self, at: AuthorityId, wanted: &Wanted) -> Result<Issued, Failed> {
        let whole = async {
            let claim = self.claimed(wanted).await?;
            let opened = self.opened(at).await?;
            let begun = Carried::begun(wanted, &opened, &self.ledger, claim.as_ref(), now);
            begun.await?.carry_out().await
        };
        let limit = limit_of(wanted);
        let came = tokio::time::timeout(limit, whole).await;
        let came = came.unwrap_or_else(|_| {
            let limit_s = limit.as_secs();
            let names = wanted.names.join(", ");
            Err(Failed::later(format!("{names}: the order took more than {limit_s} s")))
        });
        if came.as_ref().is_err_and(|failed| failed.loses_account) {
            self.lose(at).await?;
        }
        if came.as_ref().is_err_and(|failed| failed.loses_order) {
            self.ledger.hand_over_order(wanted.id)?;
        }
        came
    }

    /// The right to order it, in a fleet, with what another machine had begun.
    async fn claimed(&self, wanted: &Wanted) -> Result<Option<Claim>, Failed> {
        let Some(fleet) = &self.fleet else { return Ok(None) };
        let label = wanted.names.join(", ");
        let (claim, begun) = fleet.claim(wanted.id, &label).await?;
        let is_here = claim.wait_until_all_is_here().await;
        let put_s = self.ledger.held(&wanted.names)?.map_or(i64::MIN, |held| held.imported_s);
        if !is_here || put_s > wanted.held_put_s {
            let what = match is_here {
                true => "another machine of the fleet has just obtained it",
                false => "not ordered before all that is in the fleet's etcd has come here",
            };
            let text = format!("{label}: {what}");
            return Err(Failed::held(now().plus(TAKEN_WAIT_S), text));
        }
        if let Some(begun) = begun {
            self.ledger.take_over(wanted.id, &begun)?;
        }
        Ok(Some(claim))
    }

    /// Lets the account be opened anew, with the same key.
    async fn lose(&self, AuthorityId(at): AuthorityId) -> Result<(), Failed> {
        let Some((authority, account)) = self.all.get(usize::from(at)) else { return Ok(()) };
        let mut account = account.lock().await;
        if let Some(mut entry) = self.ledger.account(&authority.directory)? {
            entry.url = None;
            self.ledger.keep_account(&authority.directory, &entry)?;
        }
        *account = None;
        Ok(())
    }
}

/// What comes of a task of its own: one that panics has failed, and all others go on.
pub(super) async fn apart<T: 'static>(
    what: &str,
    task: impl Future<Output = Result<T, Failed>> + 'static,
) -> Result<T, Failed> {
    spawn_local(task).await.unwrap_or_else(|error| {
        Err(Failed::later(format!(
            "{what}: given up by a fault of the agent's: {error}; report it"
        )))
    })
}

/// For how long an order may be under way: longer by what commands may take for a record of each
/// name, one after the other.
fn limit_of(wanted: &Wanted) -> Duration {
    let records = match wanted.challenge {
        Challenge::Dns01(_) => u32::try_from(wanted.names.len()).unwrap_or(u32::MAX),
        Challenge::Http01 | Challenge::TlsAlpn01 => 0,
    };
    // Made, and taken away.
    ORDER_TIMEOUT.saturating_add(dns::COMMAND_TIMEOUT.saturating_mul(2).saturating_mul(records))
}

/// Until a certificate is looked at again that another machine may just have obtained.
const TAKEN_WAIT_S: u64 = 60;
/// For how long one order may be under way, without records.
const ORDER_TIMEOUT: Duration = Duration::from_secs(1_800);
