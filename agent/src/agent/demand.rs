//! Certificates on demand: names that clients asked for, from the question whether there may be one
//! to the day on which nobody has asked for it any more.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::time::{Duration, Instant};

use sealane_operator::{Priority, say, say_at, value};
use sealane_renewal::{CertificateId, Demand, Failure, Held, Outcome, Ticket, UnixSeconds};
use tokio::task::spawn_local;

use super::{Agent, Came, now};
use crate::ledger::{DemandEntry, OrderEntry, id_of};
use crate::on_demand::{Asked, Service, Task, listen};
use crate::settings::{OnDemandSettings, WantedCertificate};

/// What an agent knows of names on demand.
#[derive(Default)]
pub(super) struct Demanded {
    known: HashMap<CertificateId, Known>,
    /// Who listens, of whom there are as many as sockets.
    listeners: Vec<Task>,
    /// When the first certificate ends that nobody has asked for.
    next_lapse: Option<UnixSeconds>,
    /// What came too fast since that was told last.
    refused_for_rate: u64,
    service: Option<Rc<Service>>,
    told_at: Option<Instant>,
}

/// A name that a certificate was allowed for.
struct Known {
    entry: DemandEntry,
    /// Nobody asked for it in the life of its certificate, which ends then.
    lapses_at: Option<UnixSeconds>,
    /// What is remembered of it over a restart.
    kept: Option<DemandEntry>,
}

impl Known {
    fn new(entry: DemandEntry) -> Self {
        Self { entry, lapses_at: None, kept: None }
    }
}

impl Demanded {
    /// Nothing known yet, and the service that `settings` name.
    ///
    /// # Errors
    /// Who is trusted to vouch for the service cannot be read.
    pub(super) fn new(settings: Option<&OnDemandSettings>) -> Result<Self, String> {
        let service = settings.map(|settings| Service::new(&settings.permission)).transpose();
        let service = service.map_err(|error| format!("on_demand: {error}"))?;
        Ok(Self { service: service.map(Rc::new), ..Self::default() })
    }

    /// Whether a certificate was allowed on demand.
    pub(super) fn knows(&self, id: CertificateId) -> bool {
        self.known.contains_key(&id)
    }
}

impl Agent {
    /// Asks another service from now on; what is known of names stays.
    pub(super) fn change_service(&mut self, other: Demanded) {
        let before = std::mem::replace(&mut self.demanded, other);
        (self.demanded.known, self.demanded.next_lapse) = (before.known, before.next_lapse);
    }

    /// Listens to those who serve on this machine.
    pub(super) fn listen(&mut self) {
        let Some(on_demand) = &self.settings.on_demand else { return };
        for socket in &on_demand.admin {
            let sender = self.sender.clone();
            // Nobody is there to hear it at the end of the process.
            let tell = move |asked| drop(sender.send(Came::Asked(asked)));
            self.demanded.listeners.push(Task::begin(listen(socket.clone(), tell)));
        }
    }

    /// Takes up what is remembered. `before` has what was looked after until now.
    pub(super) fn adopt_demands(
        &mut self,
        demands: Vec<(DemandEntry, Option<Held>)>,
        orders: &[(CertificateId, OrderEntry)],
        before: &HashMap<CertificateId, WantedCertificate>,
    ) {
        let Some(on_demand) = &self.settings.on_demand else {
            self.demanded.known.clear();
            return;
        };
        let challenge = &on_demand.challenge;
        for (entry, held) in demands {
            let id = id_of(std::slice::from_ref(&entry.name));
            if self.certificates.contains_key(&id) {
                // It is listed now, and lives as long as that.
                self.demanded.known.remove(&id);
                continue;
            }
            let names = vec![entry.name.clone()];
            let is_ordered = orders.iter().any(|(ordered, _)| *ordered == id);
            let is_known = before.contains_key(&id) || self.under_way.contains_key(&id);
            match held {
                Some(held) => self.schedule.want(now(), id, names.clone(), Some(held)),
                None if is_ordered || is_known => {
                    self.schedule.resume_demand(now(), id, &entry.name);
                }
                // Allowed once, and nothing came of it: who comes again is asked about again.
                None => {
                    self.forget_demand(&entry.name);
                    continue;
                }
            }
            let wanted = WantedCertificate { challenge: challenge.clone(), names };
            self.certificates.insert(id, wanted);
            let kept = Some(entry.clone());
            let known = self.demanded.known.entry(id).or_insert_with(|| Known::new(entry));
            known.kept = kept;
        }
        let listed = &self.certificates;
        self.demanded.known.retain(|id, _| listed.contains_key(id));
    }

    /// Takes what clients have asked for.
    pub(super) fn note_asked(&mut self, asked: &Asked) {
        for name in &asked.served {
            self.note_seen(id_of(std::slice::from_ref(name)));
        }
        for name in &asked.wanted {
            let id = id_of(std::slice::from_ref(name));
            if self.schedule.on_demand(now(), id, name) == Demand::Full {
                self.demanded.refused_for_rate += 1;
            }
        }
        let is_told = self.demanded.told_at.is_some_and(|at| at.elapsed() < TOLD_INTERVAL);
        if self.demanded.refused_for_rate > 0 && !is_told {
            self.demanded.told_at = Some(Instant::now());
            let count = std::mem::take(&mut self.demanded.refused_for_rate);
            say_at(
                Priority::Warning,
                &format!(
                    "on_demand: {count} times a name was not asked about, because of rate or \
                     waiting; raise them if these are names of yours"
                ),
            );
        }
    }

    fn note_seen(&mut self, id: CertificateId) {
        let Some(known) = self.demanded.known.get_mut(&id) else { return };
        let now = now();
        known.entry.seen_s = now.0;
        let is_old = known.kept.as_ref().is_none_or(|kept| now.0 - kept.seen_s.min(now.0) > SEEN_S);
        let name = known.entry.name.clone();
        if is_old && self.ledger.keep_demand(&known.entry).is_ok() {
            known.kept = Some(known.entry.clone());
        }
        if known.lapses_at.take().is_some() {
            let held = self.ledger.held(std::slice::from_ref(&name)).ok().flatten();
            let held = held.map(|held| super::held_of(&self.settings, &held));
            self.schedule.want(now, id, vec![name], held);
        }
    }

    /// Asks whether there may be a certificate for a name.
    pub(super) fn ask_permission(&mut self, ticket: Ticket, id: CertificateId, name: String) {
        let is_listed =
            self.certificates.values().any(|certificate| certificate.names.contains(&name));
        let service = self.demanded.service.clone().filter(|_| !is_listed);
        let Some(service) = service else {
            // Nobody is asked, or its certificate is on its way with others.
            let refused = Outcome::Permission { is_given: false };
            return self.schedule.happened(now(), ticket, refused);
        };
        let (sender, generation) = (self.sender.clone(), self.generation);
        spawn_local(async move {
            let asked = name.clone();
            let task = spawn_local(async move { service.ask(&asked).await });
            let outcome = match task.await {
                Ok(Ok(is_given)) => Outcome::Permission { is_given },
                Ok(Err(why)) => {
                    say_at(Priority::Warning, &format!("on_demand: {why}"));
                    Outcome::Failed(Failure::TryLater)
                }
                Err(_) => Outcome::Failed(Failure::TryLater),
            };
            let _ = sender.send(Came::Permission { generation, id, name, outcome, ticket });
        });
    }

    /// Takes the service's word, before the schedule does.
    pub(super) fn note_permission(&mut self, id: CertificateId, name: String, outcome: &Outcome) {
        let Some(on_demand) = &self.settings.on_demand else { return };
        if *outcome != (Outcome::Permission { is_given: true }) {
            return;
        }
        let challenge = on_demand.challenge.clone();
        if let Entry::Vacant(place) = self.certificates.entry(id) {
            say(&format!("{name}: a client asked for it, and the service allows it"));
            place.insert(WantedCertificate { challenge, names: vec![name.clone()] });
            let entry = DemandEntry { name, seen_s: now().0 };
            self.demanded.known.insert(id, Known::new(entry));
        }
    }

    /// Whether a certificate that is due is to be ordered: one on demand only if somebody has asked
    /// for it since the one in the store is valid.
    pub(super) fn is_still_demanded(&mut self, id: CertificateId) -> bool {
        let Some(known) = self.demanded.known.get_mut(&id) else { return true };
        let name = known.entry.name.clone();
        let held = self.ledger.held(std::slice::from_ref(&name)).ok().flatten();
        let held = held.map(|held| super::held_of(&self.settings, &held));
        if let Some(held) = held.filter(|held| known.entry.seen_s < held.not_before.0) {
            let left = Duration::from_secs(held.not_after.since(now()));
            let left = value::duration_text(left);
            say(&format!("{name}: nobody has asked for it; its certificate ends in {left}"));
            known.lapses_at = Some(held.not_after);
            let next = self.demanded.next_lapse.map_or(held.not_after, |at| at.min(held.not_after));
            self.demanded.next_lapse = Some(next);
            self.schedule.forget(id);
            return false;
        }
        // Before it is ordered, so that the order goes on after a restart.
        if known.kept.is_none() {
            match self.ledger.keep_demand(&known.entry) {
                Ok(()) => known.kept = Some(known.entry.clone()),
                Err(error) => {
                    say_at(Priority::Warning, &format!("{name}: not remembered: {error}"));
                }
            }
        }
        true
    }

    /// An order has failed: of a name on demand that may be the end.
    pub(super) fn settle_demanded(&mut self, id: CertificateId) {
        if self.schedule.contains(id) || !self.certificates.contains_key(&id) {
            return;
        }
        if let Some(known) = self.demanded.known.remove(&id) {
            self.certificates.remove(&id);
            self.forget_demand(&known.entry.name);
        }
    }

    /// Takes certificates out of the store that nobody has asked for and that have run out: who
    /// asks for the name then is one that it is to be asked about.
    pub(super) fn let_lapse(&mut self, now: UnixSeconds) {
        if self.demanded.next_lapse.is_none_or(|at| at > now) {
            return;
        }
        let known = &self.demanded.known;
        let lapsed = known.iter().filter(|(_, known)| known.lapses_at.is_some_and(|at| at <= now));
        let lapsed: Vec<_> = lapsed.map(|(id, known)| (*id, known.entry.name.clone())).collect();
        for (id, name) in lapsed {
            self.demanded.known.remove(&id);
            self.certificates.remove(&id);
            // Somebody may have brought another one meanwhile.
            let held = self.ledger.held(std::slice::from_ref(&name)).ok().flatten();
            let is_over = held.is_none_or(|held| super::seconds(held.not_after_s) <= now);
            if is_over && let Err(error) = self.ledger.remove(&name) {
                say_at(Priority::Warning, &format!("{name}: not removed: {error}"));
            }
            self.forget_demand(&name);
        }
        self.demanded.next_lapse =
            self.demanded.known.values().filter_map(|known| known.lapses_at).min();
    }

    fn forget_demand(&self, name: &str) {
        if let Err(error) = self.ledger.drop_demand(name) {
            say_at(Priority::Warning, &format!("{name}: not forgotten: {error}"));
        }
    }
}

/// By how much what is remembered of when a name was asked for may be too early.
const SEEN_S: u64 = 3 * 3_600;
/// How often it is told that names come too fast.
const TOLD_INTERVAL: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
