//! The command `renew`: has the running agent renew the certificates for a name now.
//!
//! The request is an entry of the store, which the agent follows. It needs no socket, and a user
//! without write access to certificates cannot make one. It stays until the certificate is
//! renewed, also while the agent restarts.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use sealane_renewal::CertificateId;
use tracing::info;

use crate::clock::now_s;
use crate::ledger::{Ledger, LedgerError, RenewalEntry, RenewalState, id_of};
use crate::settings::Settings;

/// Has all certificates renewed that the agent obtains for `name`, and waits until they are.
///
/// # Errors
/// The agent does not obtain one, does not run, or an order fails.
pub(crate) fn renew(
    name: &str,
    file: &Path,
    settings: &Settings,
    ledger: &Ledger,
) -> Result<(), RenewError> {
    let certificates = certificates_for(name, settings, ledger)?;
    if certificates.is_empty() {
        return Err(RenewError::NotOurs {
            name: name.to_owned(),
            file: file.display().to_string(),
        });
    }
    for names in &certificates {
        let held = ledger.held(names)?;
        let entry = RenewalEntry {
            held_put_s: held.map(|held| held.imported_s),
            names: names.clone(),
            state: RenewalState::Asked,
        };
        ledger.keep_renewal(id_of(names), &entry)?;
    }
    for names in &certificates {
        wait_until_heard(names, ledger)?;
    }
    for names in &certificates {
        let all = names.join(", ");
        info!("{all}: the agent orders a new certificate");
        wait_until_renewed(names, ledger)?;
        let left_s = ledger.held(names)?.map_or(0, |held| held.not_after_s - now_s());
        info!("{all}: renewed, good for {} days", left_s / DAY_S);
    }
    Ok(())
}

/// The names of each certificate that the agent obtains for `name`.
fn certificates_for(
    name: &str,
    settings: &Settings,
    ledger: &Ledger,
) -> Result<Vec<Vec<String>>, LedgerError> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let wanted = settings.certificates.iter().map(|certificate| &certificate.names);
    let mut all: Vec<Vec<String>> = wanted.filter(|names| names.contains(&name)).cloned().collect();
    if all.is_empty() && settings.on_demand.is_some() && ledger.demand(&name)?.is_some() {
        all.push(vec![name]);
    }
    Ok(all)
}

fn wait_until_heard(names: &[String], ledger: &Ledger) -> Result<(), RenewError> {
    let (id, until) = (id_of(names), Instant::now() + HEARD_WAIT);
    while let Some(entry) = ledger.renewal(id)? {
        match entry.state {
            RenewalState::Asked if Instant::now() < until => sleep(TICK),
            RenewalState::Asked => return withdraw(id, ledger, RenewError::NotRunning),
            RenewalState::Unknown => {
                let names = names.join(", ");
                return withdraw(id, ledger, RenewError::NotReloaded { names });
            }
            RenewalState::Failed(_) | RenewalState::Ordering => return Ok(()),
        }
    }
    Ok(())
}

/// Waits until the agent has removed the request, because the certificate is in the store.
fn wait_until_renewed(names: &[String], ledger: &Ledger) -> Result<(), RenewError> {
    let (id, until) = (id_of(names), Instant::now() + RENEWED_WAIT);
    while let Some(entry) = ledger.renewal(id)? {
        match entry.state {
            RenewalState::Failed(text) => return Err(RenewError::Failed { text }),
            _ if Instant::now() < until => sleep(TICK),
            _ => return Err(RenewError::StillOrdering { names: names.join(", ") }),
        }
    }
    Ok(())
}

/// Takes a request back, of which nothing comes.
fn withdraw(id: CertificateId, ledger: &Ledger, why: RenewError) -> Result<(), RenewError> {
    ledger.drop_renewal(id)?;
    Err(why)
}

/// Why a certificate is not renewed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenewError {
    /// The order failed, and is tried again.
    #[error("{text}\n  the agent tries again until it is restarted; its log has the next attempt")]
    Failed { text: String },
    /// The store.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// No table has the name.
    #[error(
        "{name}: the agent does not obtain a certificate for it: no [[certificate]] of {file} has \
         the name; replace the certificate where it comes from, or add the name"
    )]
    NotOurs { name: String, file: String },
    /// The process has other settings.
    #[error(
        "{names}: the running agent does not look after it yet; reload the agent (systemctl reload \
         sealane-agent), then try again"
    )]
    NotReloaded { names: String },
    /// Nothing happens.
    #[error(
        "no agent answers on this store within {} s; start it (systemctl start sealane-agent), \
         then try again",
        HEARD_WAIT.as_secs()
    )]
    NotRunning,
    /// The order takes longer than the command waits.
    #[error(
        "{names}: not renewed within {} s; the agent goes on, and its log has what it waits for",
        RENEWED_WAIT.as_secs()
    )]
    StillOrdering { names: String },
}

const DAY_S: i64 = 86_400;
/// How long the agent has to notice a request, which it looks for each second.
const HEARD_WAIT: Duration = Duration::from_secs(10);
/// How long the command waits for the certificate.
const RENEWED_WAIT: Duration = Duration::from_secs(300);
/// How often the command looks for the answer.
const TICK: Duration = Duration::from_millis(100);
