//! The certificates of the agent, with the settings, schedule and ledger by which they are planned.

use std::collections::HashMap;
use std::rc::Rc;

use sealane_renewal::{AuthorityId, CertificateId, Held, Outcome, Schedule, Ticket};
use sealane_store::Listed;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::spawn_local;
use tracing::warn;

use super::patience::Left;
use super::plan;
use crate::dns;
use crate::failure::Failed;
use crate::fleet::Fleet;
use crate::ledger::{Ledger, OrderEntry};
use crate::on_demand::Asked;
use crate::order::state::{Issued, Wanted};
use crate::settings::{Settings, WantedCertificate};

/// The certificates of an agent, and everything by which they are planned.
pub(super) struct Book {
    pub(super) certificates: HashMap<CertificateId, WantedCertificate>,
    pub(super) fleet: Option<Rc<Fleet>>,
    /// Counts schedules: an outcome that was begun for another is not reported to this one.
    pub(super) generation: u64,
    pub(super) ledger: Ledger,
    pub(super) left: Left,
    pub(super) schedule: Schedule,
    pub(super) sender: UnboundedSender<Came>,
    pub(super) settings: Settings,
}

impl Book {
    /// Whether nothing is ordered before all that the fleet has is here.
    pub(super) fn is_waiting_for_fleet(&self) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| !fleet.is_complete())
    }

    /// A certificate of the store as the schedule has it.
    pub(super) fn held_of(&self, listed: &Listed) -> Held {
        plan::held_of(&self.settings, listed)
    }

    /// The certificate of the store with these names, as the schedule has it.
    pub(super) fn held(&self, name: &str) -> Option<Held> {
        let listed = self.ledger.held(std::slice::from_ref(&name.to_owned())).ok().flatten();
        listed.map(|listed| self.held_of(&listed))
    }

    /// Forgets an order that is not wanted any more.
    pub(super) fn give_up(&self, id: CertificateId, entry: OrderEntry) {
        if let Err(error) = self.ledger.drop_order(id, &entry) {
            return warn!("{error}");
        }
        spawn_local(async move { dns::clean_up(&entry.records).await });
    }

    /// The order for a certificate.
    pub(super) fn wanted(
        &self,
        id: CertificateId,
        at: AuthorityId,
        replaces: bool,
    ) -> Option<Wanted> {
        let certificate = self.certificates.get(&id)?;
        let authority = self.settings.authorities.get(usize::from(at.0))?;
        let held = self.ledger.held(&certificate.names).ok().flatten();
        let held_put_s = held.as_ref().map_or(i64::MIN, |held| held.imported_s);
        let is_theirs = held.is_some_and(|held| held.label == authority.directory);
        let replaces = (replaces && is_theirs).then(|| self.ledger.known_as(&certificate.names));
        Some(Wanted {
            challenge: certificate.challenge.clone(),
            directory: authority.directory.clone(),
            held_put_s,
            id,
            key: authority.key,
            names: certificate.names.clone(),
            profile: authority.profile.clone(),
            replaces: replaces.flatten(),
        })
    }
}

/// An event of something under way.
pub(super) enum Came {
    /// Names that clients asked for.
    Asked(Asked),
    Answer {
        generation: u64,
        outcome: Outcome,
        ticket: Ticket,
    },
    Order {
        id: CertificateId,
        outcome: Result<Issued, Failed>,
        wanted: Wanted,
    },
    /// Whether there may be a certificate on demand.
    Permission {
        generation: u64,
        id: CertificateId,
        name: String,
        outcome: Outcome,
        ticket: Ticket,
    },
    /// Certificates of the fleet that are in the store now, by their names.
    Taken(Vec<Vec<String>>),
}
