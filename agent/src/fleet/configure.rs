//! `sealane-agent fleet configure`: brings a configuration to all machines, or to none.

use std::future::pending;
use std::time::{Duration, Instant};

use sealane_operator::say;
use sealane_store::SealingKeys;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::configuration::Version;
use super::places::Places;
use super::rollout::{Machine, Rollout, Step};
use super::status::{Status, Statuses};
use crate::etcd::{Change, Compare, Entry, Etcd, EtcdError};
use crate::settings::FleetSettings;

/// Brings `text` to the machines of the fleet: all look at it, then it holds on `first_count` of
/// them, then on all. Until then it is there as long as this runs.
///
/// # Errors
/// A machine refuses it, another command is at it, or the cluster does not answer.
pub(crate) async fn configure(
    etcd: &Etcd,
    keys: &SealingKeys,
    settings: &FleetSettings,
    text: String,
    first_count: usize,
) -> Result<(), String> {
    let mut proposal = Proposal::put(etcd, keys, settings, text).await?;
    let number = proposal.version.number;
    let done = tokio::select! {
        done = proposal.bring(settings, first_count) => done,
        () = told_to_end() => Err("it was interrupted".to_owned()),
    };
    // It ends with its lease in any case.
    let _ = timeout(ANSWER_TIMEOUT, proposal.end()).await;
    let Err(why) = done else {
        say(&format!("configuration {number} holds on all machines that are there"));
        return Ok(());
    };
    // The answer to the change that lets it hold may have been lost.
    let holds = match proposal.holds {
        true => Ok(true),
        false => {
            let there = timeout(ANSWER_TIMEOUT, etcd.get(&proposal.places.holds())).await;
            let there = there.unwrap_or_else(|_| Err(EtcdError::ours("it does not answer")));
            there.map(|entry| proposal.is_it(entry.as_ref()))
        }
    };
    Err(match holds {
        Ok(true) => format!(
            "configuration {number} holds, but not on all machines: {why}\n  who does not take it \
             serves on by the one before, and says so in: sealane fleet status"
        ),
        Ok(false) => format!(
            "configuration {number} is withdrawn, and everywhere the one before holds: {why}"
        ),
        Err(error) => format!(
            "configuration {number} is withdrawn, or holds: {why}\n  which one is not known, \
             because {error}; once the cluster answers, see: sealane fleet status"
        ),
    })
}

/// Takes back what another command proposes, which ends that.
///
/// # Errors
/// The cluster does not answer.
pub(crate) async fn withdraw(etcd: &Etcd, settings: &FleetSettings) -> Result<bool, String> {
    let place = Places::below(&settings.prefix).proposed();
    let failed = |error: EtcdError| error.to_string();
    let is_there = etcd.get(&place).await.map_err(failed)?.is_some();
    etcd.change(&[Change::Delete(&place)]).await.map_err(failed)?;
    Ok(is_there)
}

/// What is proposed, for as long as its lease lives.
struct Proposal<'c> {
    etcd: &'c Etcd,
    keys: &'c SealingKeys,
    /// Whether it is what holds by now.
    holds: bool,
    lease: i64,
    /// The revision at which it was put there.
    made: i64,
    places: Places,
    version: Version,
    /// Who was there when it was proposed.
    before: Vec<Machine>,
}

impl<'c> Proposal<'c> {
    async fn put(
        etcd: &'c Etcd,
        keys: &'c SealingKeys,
        settings: &FleetSettings,
        text: String,
    ) -> Result<Self, String> {
        let failed = |error: EtcdError| error.to_string();
        let places = Places::below(&settings.prefix);
        let (place, holding) = (places.proposed(), places.holds());
        let entry = etcd.get(&holding).await.map_err(failed)?;
        let at = entry.as_ref().map_or(0, |entry| entry.mod_revision);
        let mut holds = holding_now(entry.as_ref(), keys)?;
        let told = told_by_all(etcd, settings).await?;
        // Above all that a machine has seen: one that has seen more takes nothing with less.
        let each = told.iter().filter_map(Status::configured).map(|one| one.told);
        let seen = each.flat_map(|told| [told.last, told.holds, told.checked]);
        let seen = seen.filter(|number| *number < NUMBER_MAX).max().unwrap_or(0);
        let number = holds.number.max(holds.last).max(seen) + 1;
        holds.last = number;
        let lease = etcd.grant(LEASE).await.map_err(failed)?;
        let version = Version { number, text, lease, ..Version::default() };
        let (value, held) = (version.seal(&place, keys), holds.seal(&holding, keys));
        let (value, held) = (value.map_err(failed)?, held.map_err(failed)?);
        let put = [Change::Put(&place, &value, lease), Change::Put(&holding, &held, 0)];
        let compare = [Compare::Created(&place, 0), Compare::Modified(&holding, at)];
        let Some(made) = etcd.change_if(&compare, &put).await.map_err(failed)? else {
            let _ = etcd.revoke(lease).await;
            return Err(format!(
                "another command proposes a configuration, or did until {} s ago; wait for it, or \
                 end it with: sealane fleet configure --withdraw",
                LEASE.as_secs()
            ));
        };
        say(&format!("configuration {number} is proposed to all machines"));
        let others = told.iter().filter(|one| one.configured().is_none());
        let others: Vec<String> = others.map(Status::name).collect();
        if !others.is_empty() {
            let others = others.join(", ");
            say(&format!(
                "no part of it, because nothing there includes what a fleet gives: {others}"
            ));
        }
        let before = told.iter().filter_map(Status::configured).collect();
        Ok(Self { etcd, keys, holds: false, lease, made, places, version, before })
    }

    /// Takes it away, also if somebody has put it there without its lease meanwhile.
    async fn end(&self) {
        let place = self.places.proposed();
        let ours = [Compare::Created(&place, self.made)];
        let _ = self.etcd.change_if(&ours, &[Change::Delete(&place)]).await;
        let _ = self.etcd.revoke(self.lease).await;
    }

    /// Goes from stage to stage, by what machines tell.
    async fn bring(&mut self, settings: &FleetSettings, first_count: usize) -> Result<(), String> {
        let (begun, mut said) = (Instant::now(), String::new());
        let mut rollout = Rollout::new(self.version.number, first_count, &self.before);
        let (mut alive, mut slow) = (Instant::now(), 0);
        loop {
            let asked = Instant::now();
            let told = told_by_all(self.etcd, settings).await?;
            let machines: Vec<Machine> = told.iter().filter_map(Status::configured).collect();
            let before = rollout.clone();
            let mut step = rollout.step(&machines, begun.elapsed());
            // What was told long ago is no ground to go on.
            let goes_on = matches!(step, Step::First(_) | Step::All);
            if goes_on && asked.elapsed() > ANSWER_TIMEOUT {
                (rollout, slow) = (before, slow + 1);
                let text = "the cluster is slow".to_owned();
                step = if slow < SLOW_MAX { Step::Wait(text) } else { Step::Stop(text) };
            }
            match step {
                Step::Wait(text) => {
                    // Seconds that are left are no news.
                    let news = text.split(';').next().unwrap_or_default();
                    if said != news {
                        said = news.to_owned();
                        say(&text);
                    }
                }
                Step::First(names) => {
                    say(&format!(
                        "all have found it in order; it holds first on {}",
                        names.join(", ")
                    ));
                    self.version.first = names;
                    self.put_again().await?;
                }
                Step::All => {
                    say("it holds on all from now on");
                    self.let_hold().await?;
                }
                Step::Done => return Ok(()),
                Step::Stop(why) => return Err(why),
            }
            if alive.elapsed() > LEASE / 4 && !self.holds {
                alive = Instant::now();
                let _ = self.etcd.keep_alive(self.lease).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn put_again(&mut self) -> Result<(), String> {
        let place = self.places.proposed();
        let value = self.version.seal(&place, self.keys).map_err(|error| error.to_string())?;
        self.fenced(&[Change::Put(&place, &value, self.lease)]).await
    }

    /// Makes it what holds, and proposes it no more, at once.
    async fn let_hold(&mut self) -> Result<(), String> {
        let (holds, proposed) = (self.places.holds(), self.places.proposed());
        self.version.first.clear();
        self.version.last = self.version.number;
        let value = self.version.seal(&holds, self.keys).map_err(|error| error.to_string())?;
        let changes = [Change::Put(&holds, &value, 0), Change::Delete(&proposed)];
        let fenced = timeout(ANSWER_TIMEOUT, self.fenced(&changes)).await;
        if let Err(why) = fenced.unwrap_or_else(|_| Err("the cluster does not answer".to_owned())) {
            // Its answer may have been lost, and another server asked again.
            let there = self.etcd.get(&holds).await.map_err(|error| error.to_string())?;
            if !self.is_it(there.as_ref()) {
                return Err(why);
            }
        }
        self.holds = true;
        Ok(())
    }

    /// Whether this is what holds, by its entry.
    fn is_it(&self, holding: Option<&Entry>) -> bool {
        let held = holding.and_then(|entry| Version::open(entry, self.keys).ok());
        let Version { number, text, .. } = &self.version;
        held.is_some_and(|held| held.number == *number && held.text == *text)
    }

    async fn fenced(&self, changes: &[Change<'_>]) -> Result<(), String> {
        let place = self.places.proposed();
        let made = self.etcd.change_if(&[Compare::Created(&place, self.made)], changes).await;
        match made.map_err(|error| error.to_string())? {
            Some(_) => Ok(()),
            None => Err("somebody has withdrawn it".to_owned()),
        }
    }
}

/// What all machines tell.
///
/// # Errors
/// The cluster does not answer, or one tells what cannot be read: it may have to do with this.
async fn told_by_all(etcd: &Etcd, settings: &FleetSettings) -> Result<Vec<Status>, String> {
    let all = Statuses::ask(etcd, &settings.prefix).await.map_err(|error| error.to_string())?;
    match all.strange.into_iter().next() {
        Some(strange) => Err(strange),
        None => Ok(all.told),
    }
}

/// Waits for a signal by which people and programs end a command.
async fn told_to_end() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// What holds, by its entry: nothing, if that is nothing of ours, which machines replace.
///
/// # Errors
/// It is sealed with a key that is not here: then nothing is known of it.
fn holding_now(entry: Option<&Entry>, keys: &SealingKeys) -> Result<Version, String> {
    match entry.map(|entry| Version::open(entry, keys)) {
        Some(Ok(version)) => Ok(version),
        Some(Err(error)) if error.may_be_ours() => {
            Err(format!("what holds cannot be read: {error}"))
        }
        Some(Err(_)) | None => Ok(Version::default()),
    }
}

/// How long what is proposed stays after its command was killed.
const LEASE: Duration = Duration::from_secs(15);
/// How long an answer is waited for on which others hang: a change that lets it hold later would
/// rest on what machines told long before.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Looks in each of which the cluster took longer than that to tell how machines are.
const SLOW_MAX: u32 = 24;
/// How often machines are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Up to which number machines are believed what they have seen: anybody who can write to the
/// cluster can say so.
const NUMBER_MAX: u64 = 1 << 40;
