//! Certificates on demand: names that clients asked for, from the question whether there may be one
//! to the day on which nobody has asked for it any more.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::time::{Duration, Instant};

use sealane_operator::value;
use sealane_renewal::{CertificateId, Demand, Failure, Held, Outcome, Ticket, UnixSeconds};
use tokio::task::spawn_local;
use tracing::{info, warn};

use super::book::{Book, Came};
use super::orders::Orders;
use crate::clock::now;
use crate::ledger::{DemandEntry, LedgerError, OrderEntry, id_of};
use crate::on_demand::{Asked, Service, Task, Turns, listen};
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
    turns: Turns,
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

    fn kept(&mut self, id: CertificateId, entry: DemandEntry) {
        if let Some(known) = self.known.get_mut(&id) {
            known.kept = Some(entry);
        }
    }

    /// Asks another service from now on; what is known of names stays.
    pub(super) fn change_service(&mut self, other: Self) {
        let before = std::mem::replace(self, other);
        (self.known, self.next_lapse) = (before.known, before.next_lapse);
        self.turns = before.turns;
    }

    /// Listens to those who serve on this machine.
    pub(super) fn listen(&mut self, book: &Book) {
        let Some(on_demand) = &book.settings.on_demand else { return };
        for socket in &on_demand.admin {
            let sender = book.sender.clone();
            // Nobody is there to hear it at the end of the process.
            let tell = move |asked| drop(sender.send(Came::Asked(asked)));
            self.listeners.push(Task::begin(listen(socket.clone(), tell)));
        }
    }

    /// Takes up what is remembered. `before` has what was looked after until now.
    pub(super) fn adopt(
        &mut self,
        book: &mut Book,
        under_way: &Orders,
        demands: Vec<(DemandEntry, Option<Held>)>,
        orders: &[(CertificateId, OrderEntry)],
        before: &HashMap<CertificateId, WantedCertificate>,
    ) {
        let Some(on_demand) = &book.settings.on_demand else {
            self.known.clear();
            return;
        };
        let challenge = &on_demand.challenge;
        for (entry, held) in demands {
            let id = id_of(std::slice::from_ref(&entry.name));
            if book.certificates.contains_key(&id) {
                // It is listed now, and lives as long as that.
                self.known.remove(&id);
                continue;
            }
            let names = vec![entry.name.clone()];
            let is_ordered = orders.iter().any(|(ordered, _)| *ordered == id);
            let is_known = before.contains_key(&id) || under_way.is_under_way(id);
            match held {
                Some(held) => {
                    book.schedule.want(now(), id, names.clone(), Some(held));
                }
                None if is_ordered || is_known => {
                    book.schedule.resume_demand(now(), id, &entry.name);
                }
                // Another machine may be ordering it.
                None if book.fleet.is_some() && now().0 < entry.seen_s + FLEET_ORDER_S => continue,
                // Allowed once, and nothing came of it: who comes again is asked about again.
                None => {
                    forget_demand(book, &entry.name);
                    continue;
                }
            }
            let wanted = WantedCertificate { challenge: challenge.clone(), names };
            book.certificates.insert(id, wanted);
            let kept = Some(entry.clone());
            let known = self.known.entry(id).or_insert_with(|| Known::new(entry));
            known.kept = kept;
        }
        let listed = &book.certificates;
        self.known.retain(|id, _| listed.contains_key(id));
    }

    /// Looks after names on demand, too, that other machines of the fleet have obtained: the one
    /// that has may be gone when they are to be renewed. These names, or all that there are.
    pub(super) fn adopt_shared(
        &mut self,
        book: &mut Book,
        under_way: &Orders,
        of: Option<&[String]>,
    ) {
        if book.fleet.is_none() || book.settings.on_demand.is_none() {
            return;
        }
        let entries = match of {
            Some([name]) => book.ledger.demand(name).map(|found| found.into_iter().collect()),
            Some(_) => return,
            None => book.ledger.demands(),
        };
        let mut adopted = Vec::new();
        for entry in entries.unwrap_or_default() {
            let names = std::slice::from_ref(&entry.name);
            if !book.certificates.contains_key(&id_of(names))
                && let Ok(Some(held)) = book.ledger.held(names)
            {
                let held = book.held_of(&held);
                adopted.push((entry, Some(held)));
            }
        }
        if !adopted.is_empty() {
            self.adopt(book, under_way, adopted, &[], &HashMap::new());
        }
    }

    /// Whether a name was allowed on demand that no other machine looks after yet: they do once
    /// there is a certificate.
    pub(super) fn knows_alone(&self, book: &Book, id: CertificateId) -> bool {
        self.known.get(&id).is_some_and(|known| {
            let held = book.ledger.held(std::slice::from_ref(&known.entry.name));
            held.is_ok_and(|held| held.is_none())
        })
    }

    /// Takes what clients have asked for.
    pub(super) fn note_asked(&mut self, book: &mut Book, mut asked: Asked) {
        for name in &asked.served {
            self.note_seen(book, id_of(std::slice::from_ref(name)));
        }
        self.turns.order(now(), &mut asked.wanted);
        for wanted in &asked.wanted {
            let id = id_of(std::slice::from_ref(&wanted.name));
            match book.schedule.on_demand(now(), id, &wanted.name) {
                Demand::Begun => self.turns.note(now(), wanted),
                Demand::Full => self.refused_for_rate += 1,
                Demand::Held | Demand::Refused { .. } | Demand::UnderWay => {}
            }
        }
        let is_told = self.told_at.is_some_and(|at| at.elapsed() < TOLD_INTERVAL);
        if self.refused_for_rate > 0 && !is_told {
            self.told_at = Some(Instant::now());
            let count = std::mem::take(&mut self.refused_for_rate);
            warn!(
                "on_demand: {count} times a name was not asked about, because of rate or \
                     waiting; raise them if these are names of yours"
            );
        }
    }

    fn note_seen(&mut self, book: &mut Book, id: CertificateId) {
        let Some(known) = self.known.get_mut(&id) else { return };
        let now = now();
        known.entry.seen_s = now.0;
        let (entry, lapses) = (known.entry.clone(), known.lapses_at.take());
        let kept_s = known.kept.as_ref().map(|kept| kept.seen_s);
        let name = entry.name.clone();
        // Whichever machine remembered it last.
        let shared_s = book.ledger.demand(&name).ok().flatten().map(|shared| shared.seen_s);
        let is_old =
            kept_s.max(shared_s).is_none_or(|kept_s| now.0.saturating_sub(kept_s) > SEEN_S);
        if is_old && keep_demand(book, &entry).is_ok() {
            self.kept(id, entry);
        }
        if lapses.is_some() {
            let held = book.held(&name);
            book.schedule.want(now, id, vec![name], held);
        }
    }

    /// Asks whether there may be a certificate for a name.
    pub(super) fn ask_permission(
        &self,
        book: &mut Book,
        ticket: Ticket,
        id: CertificateId,
        name: String,
    ) {
        let is_listed =
            book.certificates.values().any(|certificate| certificate.names.contains(&name));
        let service = self.service.clone().filter(|_| !is_listed);
        let Some(service) = service else {
            // Nobody is asked, or its certificate is on its way with others.
            let refused = Outcome::Permission { is_given: false };
            return book.schedule.happened(now(), ticket, refused);
        };
        let (sender, generation) = (book.sender.clone(), book.generation);
        spawn_local(async move {
            let asked = name.clone();
            let task = spawn_local(async move { service.ask(&asked).await });
            let outcome = match task.await {
                Ok(Ok(is_given)) => Outcome::Permission { is_given },
                Ok(Err(why)) => {
                    warn!("on_demand: {why}");
                    Outcome::Failed(Failure::TryLater)
                }
                Err(_) => Outcome::Failed(Failure::TryLater),
            };
            let _ = sender.send(Came::Permission { generation, id, name, outcome, ticket });
        });
    }

    /// Takes the service's word, before the schedule does.
    pub(super) fn note_permission(
        &mut self,
        book: &mut Book,
        id: CertificateId,
        name: String,
        outcome: &Outcome,
    ) {
        let Some(on_demand) = &book.settings.on_demand else { return };
        if *outcome != (Outcome::Permission { is_given: true }) {
            return;
        }
        let challenge = on_demand.challenge.clone();
        if let Entry::Vacant(place) = book.certificates.entry(id) {
            info!("{name}: a client asked for it, and the service allows it");
            place.insert(WantedCertificate { challenge, names: vec![name.clone()] });
            let entry = DemandEntry { name, seen_s: now().0 };
            self.known.insert(id, Known::new(entry));
        }
    }

    /// Whether a certificate that is due is to be ordered: one on demand only if somebody has asked
    /// for it since the one in the store is valid.
    pub(super) fn is_still_demanded(&mut self, book: &mut Book, id: CertificateId) -> bool {
        let Some(known) = self.known.get(&id) else { return true };
        let (entry, is_kept) = (known.entry.clone(), known.kept.is_some());
        let (name, seen_s) = (entry.name.clone(), seen_s(book, &entry));
        let held = book.held(&name);
        if let Some(held) = held.filter(|held| seen_s < held.not_before.0) {
            let left = Duration::from_secs(held.not_after.since(now()));
            let left = value::duration_text(left);
            info!("{name}: nobody has asked for it; its certificate ends in {left}");
            if let Some(known) = self.known.get_mut(&id) {
                known.lapses_at = Some(held.not_after);
            }
            let next = self.next_lapse.map_or(held.not_after, |at| at.min(held.not_after));
            self.next_lapse = Some(next);
            book.schedule.forget(id);
            return false;
        }
        // Before it is ordered, so that the order goes on after a restart.
        if !is_kept {
            match keep_demand(book, &entry) {
                Ok(()) => self.kept(id, entry),
                Err(error) => {
                    warn!("{name}: not remembered: {error}");
                }
            }
        }
        true
    }

    /// An order has failed: of a name on demand that may be the end.
    pub(super) fn settle(&mut self, book: &mut Book, id: CertificateId) {
        if book.schedule.contains(id) || !book.certificates.contains_key(&id) {
            return;
        }
        if let Some(known) = self.known.remove(&id) {
            book.certificates.remove(&id);
            forget_demand(book, &known.entry.name);
        }
    }

    /// Takes certificates out of the store that nobody has asked for and that have run out: who
    /// asks for the name then is one that it is to be asked about.
    pub(super) fn let_lapse(&mut self, book: &mut Book, now: UnixSeconds) {
        if self.next_lapse.is_none_or(|at| at > now) {
            return;
        }
        let known = &self.known;
        let lapsed = known.iter().filter(|(_, known)| known.lapses_at.is_some_and(|at| at <= now));
        let lapsed: Vec<_> = lapsed.map(|(id, known)| (*id, known.entry.name.clone())).collect();
        for (id, name) in lapsed {
            // Somebody may have brought another one meanwhile, here or on another machine.
            let held = book.held(&name);
            if let Some(held) = held.filter(|held| held.not_after > now) {
                if let Some(known) = self.known.get_mut(&id) {
                    known.lapses_at = None;
                }
                book.schedule.want(now, id, vec![name], Some(held));
                continue;
            }
            self.known.remove(&id);
            book.certificates.remove(&id);
            book.schedule.forget(id);
            if let Err(error) = book.ledger.remove(&name) {
                warn!("{name}: not removed: {error}");
            }
            forget_demand(book, &name);
        }
        self.next_lapse = self.known.values().filter_map(|known| known.lapses_at).min();
    }

    /// Whether a certificate is looked after because a client asked for its name.
    pub(super) fn is_demanded(&self, id: CertificateId) -> bool {
        self.known.contains_key(&id)
    }

    /// Notes that the store has no certificate on demand for a name. One that it had was removed:
    /// the service is asked again when the next client comes. Returns whether it had one.
    fn note_removed(&mut self, book: &mut Book, id: CertificateId) -> bool {
        if book.schedule.held(id).is_none() {
            return false;
        }
        book.schedule.forget(id);
        book.certificates.remove(&id);
        if let Some(known) = self.known.remove(&id) {
            forget_demand(book, &known.entry.name);
        }
        true
    }

    /// Reports the certificate that the store has now, if any, to the schedule. Returns whether it
    /// was news. The certificate may have more names than are wanted.
    pub(super) fn look_again(&mut self, book: &mut Book, id: CertificateId) -> bool {
        let Some(known) = book.certificates.get(&id) else { return false };
        let Ok(listed) = book.ledger.held(&known.names) else { return false };
        if listed.is_none() && self.is_demanded(id) {
            return self.note_removed(book, id);
        }
        let held = listed.map(|listed| book.held_of(&listed));
        let is_news = book.schedule.want(now(), id, known.names.clone(), held);
        if is_news {
            book.left.forget(id);
        }
        is_news
    }
}

/// Remembers a name on demand, on all machines of a fleet.
fn keep_demand(book: &Book, entry: &DemandEntry) -> Result<(), LedgerError> {
    let (name, value) = book.ledger.keep_demand(entry)?;
    if let Some(fleet) = &book.fleet {
        fleet.put_soon(name, Some(value));
    }
    Ok(())
}

/// When a client of any machine was seen that asked for it, in Unix time.
fn seen_s(book: &Book, entry: &DemandEntry) -> u64 {
    let shared = book.ledger.demand(&entry.name).ok().flatten();
    shared.map_or(0, |shared| shared.seen_s).max(entry.seen_s)
}

fn forget_demand(book: &Book, name: &str) {
    match (book.ledger.drop_demand(name), &book.fleet) {
        (Err(error), _) => {
            warn!("{name}: not forgotten: {error}");
        }
        (Ok(shared), Some(fleet)) => fleet.put_soon(shared, None),
        (Ok(_), None) => {}
    }
}

/// How long another machine may take to obtain what a client was seen to ask for.
const FLEET_ORDER_S: u64 = 86_400;
/// By how much what is remembered of when a name was asked for may be too early.
const SEEN_S: u64 = 3 * 3_600;
/// How often it is told that names come too fast.
const TOLD_INTERVAL: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
