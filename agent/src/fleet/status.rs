//! How each machine is, told in the cluster while it runs: [`Reported`], [`table`].

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sealane_operator::value;
use serde::{Deserialize, Serialize};

use super::member::Fleet;
use super::places::{MACHINES_MAX, Places};
use crate::clock::now_s;
use crate::etcd::{Change, Etcd, EtcdError};
use crate::failure::plain;

/// The last reports of this machine to the others.
pub(super) struct Reported {
    /// The time of the last report that this machine is there.
    alive: Option<Instant>,
    /// The time of the last query for changes that a watch may have missed.
    pub(super) looked: Instant,
    /// The number of entries of the cluster that this machine rejected.
    pub(super) refused: Cell<u64>,
    told: Option<(Instant, Status)>,
}

impl Default for Reported {
    fn default() -> Self {
        Self { alive: None, looked: Instant::now(), refused: Cell::new(0), told: None }
    }
}

impl Reported {
    /// Reports that this machine is there (every 10 s), its challenge answers, and its status
    /// (every 30 s, or sooner if it has changed). Watches of other machines see none of this, only
    /// machines that come or go.
    pub(super) async fn renew(
        &mut self,
        fleet: &Fleet,
        certificates: usize,
        answers: &mut BTreeSet<i64>,
    ) -> Result<(), EtcdError> {
        self.stay(fleet).await?;
        self.tell_answers(fleet, answers).await?;
        let mut status = self.status(fleet, certificates);
        let is_due = match &self.told {
            Some((at, told)) => {
                // That it goes on is no news.
                let (generation, told_s) = (status.generation, status.told_s);
                let before = Status { generation, told_s, ..told.clone() };
                at.elapsed() > EVERY || (before != status && at.elapsed() > NEWS_EVERY)
            }
            None => true,
        };
        if !is_due {
            return Ok(());
        }
        status.told_s = Some(now_s());
        let text = serde_json::to_vec(&status).unwrap_or_default();
        let place = fleet.places.status(&status.machine);
        fleet.etcd.change(&[Change::Put(&place, &text, fleet.status_lease.get())]).await?;
        self.told = Some((Instant::now(), status));
        Ok(())
    }

    /// Notes that this machine's entry was deleted.
    pub(super) fn note_deleted(&mut self) {
        self.alive = None;
    }

    /// Keeps this machine's lease and its entry alive.
    async fn stay(&mut self, fleet: &Fleet) -> Result<(), EtcdError> {
        if fleet.is_leaving.get() {
            return Ok(());
        }
        let mut lease = fleet.status_lease.get();
        if lease != 0 && self.alive.is_some_and(|at| at.elapsed() < ALIVE_EVERY) {
            return Ok(());
        }
        let is_kept = lease != 0 && fleet.etcd.keep_alive(lease).await?;
        if !is_kept {
            lease = fleet.etcd.grant(LEASE).await?;
            // The status on the lease before has expired with it.
            self.told = None;
        }
        if !is_kept || self.alive.is_none() {
            let place = fleet.places.machine(&fleet.settings.machine);
            fleet.etcd.change(&[Change::Put(&place, b"", lease)]).await?;
        }
        fleet.status_lease.set(lease);
        self.alive = Some(Instant::now());
        Ok(())
    }

    /// Reports that this machine has the answers that were put at these revisions: orders wait for
    /// that.
    async fn tell_answers(
        &self,
        fleet: &Fleet,
        answers: &mut BTreeSet<i64>,
    ) -> Result<(), EtcdError> {
        let (machine, lease) = (&fleet.settings.machine, fleet.status_lease.get());
        let places = answers.iter().map(|revision| fleet.places.answered(*revision) + machine);
        let places: Vec<String> = places.collect();
        for some in places.chunks(PUTS_AT_ONCE) {
            let puts: Vec<_> = some.iter().map(|place| Change::Put(place, b"", lease)).collect();
            fleet.etcd.change(&puts).await?;
        }
        answers.clear();
        Ok(())
    }

    fn status(&self, fleet: &Fleet, certificates: usize) -> Status {
        let soonest = fleet.store.store().by_expiry(None, 1);
        let soonest = soonest.ok().and_then(|found| found.first().map(|one| one.not_after_s));
        Status {
            certificates,
            generation: fleet.store.store().generation().unwrap_or_default(),
            is_clock_ahead: fleet.clocks.judge(),
            machine: fleet.settings.machine.clone(),
            not_taken: self.refused.get() + fleet.passed_over.borrow().len() as u64,
            soonest_end_s: soonest,
            told_s: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// How a machine is.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Status {
    certificates: usize,
    generation: u64,
    /// Whether it knows that its clock is ahead of those of the others.
    #[serde(default)]
    is_clock_ahead: bool,
    machine: String,
    /// Certificates and entries of the fleet that it did not take.
    not_taken: u64,
    /// When the first of its certificates runs out, in Unix time.
    soonest_end_s: Option<i64>,
    /// When it told this by its own clock, in Unix time; not told by versions before.
    #[serde(default)]
    told_s: Option<i64>,
    version: String,
}

/// By how many seconds this machine's clock is ahead of the one of whoever told a status just now.
pub(super) fn ahead_s(status: &[u8]) -> Option<i64> {
    let status: Status = serde_json::from_slice(status).ok()?;
    status.told_s.map(|told_s| now_s().saturating_sub(told_s))
}

/// How all machines of the fleet are that are there, at one moment.
#[derive(Debug, Default)]
pub(crate) struct Statuses {
    pub(crate) told: Vec<Status>,
    /// What is no status that this version reads: a line for each.
    pub(crate) strange: Vec<String>,
}

impl Statuses {
    /// Asks the cluster.
    ///
    /// # Errors
    /// It does not answer as it should, or there are more machines than a fleet may have.
    pub(crate) async fn ask(etcd: &Etcd, prefix: &str) -> Result<Self, EtcdError> {
        let (prefix, mut after, mut revision) =
            (Places::below(prefix).statuses(), None::<String>, 0);
        let mut all = Self::default();
        loop {
            let page = etcd.page(&prefix, after.as_deref(), revision).await?;
            if revision == 0 {
                revision = page.revision;
            }
            for entry in &page.entries {
                match serde_json::from_slice(&entry.value) {
                    Ok(status) => all.told.push(status),
                    Err(error) => all.strange.push(format!(
                        "{}: is nothing that a machine of this version tells: {error}; bring all \
                         machines to one version, or remove what is no machine's with etcdctl del",
                        plain(&entry.key)
                    )),
                }
            }
            after = page.entries.into_iter().next_back().map(|entry| entry.key);
            if !page.has_more || after.is_none() {
                return Ok(all);
            }
            if all.told.len() + all.strange.len() >= MACHINES_MAX {
                let text = format!("more than {MACHINES_MAX} machines tell how they are");
                return Err(EtcdError::ours(&text));
            }
        }
    }
}

/// The machines as people read them.
pub(crate) fn table(statuses: &[Status]) -> String {
    let now_s = now_s();
    let mut text = format!(
        "{:<24} {:<9} {:>12} {:>10} {:>9} {:>10} {:>6}\n",
        "MACHINE", "VERSION", "CERTIFICATES", "GENERATION", "NOT TAKEN", "FIRST ENDS", "CLOCK"
    );
    for one in statuses {
        let ends = one.soonest_end_s.map_or("-".to_owned(), |end| {
            match u64::try_from(end.saturating_sub(now_s)) {
                Ok(left) if left >= DAY_S => format!("in {}d", left / DAY_S),
                Ok(left) => format!("in {}", value::duration_text(Duration::from_secs(left))),
                Err(_) => "expired".to_owned(),
            }
        });
        text += &format!(
            "{:<24} {:<9} {:>12} {:>10} {:>9} {:>10} {:>6}\n",
            plain(&one.machine),
            plain(&one.version),
            one.certificates,
            one.generation,
            one.not_taken,
            ends,
            clock_text(one.told_s.map(|told_s| told_s.saturating_sub(now_s)))
        );
    }
    text
}

/// A clock as people read it, by how much it is ahead of the one here. What a machine has told may
/// be some seconds old.
fn clock_text(ahead_s: Option<i64>) -> String {
    let Some(ahead_s) = ahead_s else { return "-".to_owned() };
    let by = match (ahead_s.unsigned_abs() + 30) / 60 * 60 {
        by_s @ DAY_S.. => format!("{}d", by_s / DAY_S),
        by_s => value::duration_text(Duration::from_secs(by_s)),
    };
    match ahead_s {
        -59..=59 => "right".to_owned(),
        ..=-60 => format!("-{by}"),
        _ => format!("+{by}"),
    }
}

const DAY_S: u64 = 86_400;
/// The interval of reports that a machine is there.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
/// The interval of status reports.
const EVERY: Duration = Duration::from_secs(30);
/// The interval of reports of a changed status.
const NEWS_EVERY: Duration = Duration::from_secs(5);
/// Answers in one report: etcd takes 128 changes in a request.
const PUTS_AT_ONCE: usize = 100;
/// How long a machine counts as there after its last report.
const LEASE: Duration = Duration::from_secs(30);

impl Fleet {
    /// Checks the clocks of a few other machines from time to time, and soon after a machine has
    /// joined. A status may be half a minute old.
    pub(super) async fn look_at_clocks(&self) -> Result<(), EtcdError> {
        let count = self.machines.borrow().len();
        let is_due = self.clocks.looked.get().is_none_or(|(at, before)| {
            at.elapsed() > LOOK_EVERY || (count != before && at.elapsed() > LOOK_AGAIN)
        });
        if !is_due || count == 0 {
            return Ok(());
        }
        let others: Vec<String> = {
            let machines = self.machines.borrow();
            machines.keys().filter(|name| **name != self.settings.machine).cloned().collect()
        };
        let some = fastrand::choose_multiple(&others, LOOKED_AT_ONCE);
        let places: Vec<String> = some.iter().map(|name| self.places.status(name)).collect();
        let asked: Vec<&str> = places.iter().map(String::as_str).collect();
        let statuses = self.etcd.all_of(&asked).await?;
        let told = statuses.len();
        for status in statuses {
            if let Some(machine) = status.key.strip_prefix(&self.places.statuses()) {
                self.clocks.note(machine, ahead_s(&status.value));
            }
        }
        // A machine that has just joined reports its status in a moment.
        let seen = if told == places.len() { count } else { 0 };
        self.clocks.looked.set(Some((Instant::now(), seen)));
        Ok(())
    }
}

/// How many machines' clocks are looked at.
const LOOKED_AT_ONCE: usize = 16;
/// How soon clocks are looked at again if machines have come or gone.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How often clocks are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(300);
