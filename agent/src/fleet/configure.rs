//! `sealane-agent fleet configure`: brings a configuration to all machines, or to none.

use std::time::{Duration, Instant};

use sealane_operator::say;
use sealane_store::SealingKeys;

use super::configuration::Version;
use super::places::Places;
use super::rollout::{Machine, Rollout, Step};
use super::status::{Status, statuses};
use crate::agent::now;
use crate::etcd::{Change, Compare, Etcd, EtcdError};
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
        _ = tokio::signal::ctrl_c() => Err("it was interrupted".to_owned()),
    };
    // It ends with its lease in any case.
    let _ = etcd.revoke(proposal.lease).await;
    // The answer to the change that lets it hold may have been lost.
    let holds = proposal.holds
        || etcd.get(&proposal.places.holds()).await.ok().flatten().is_some_and(|entry| {
            Version::open(&entry, keys).is_ok_and(|version| version.number == number)
        });
    match done {
        Ok(()) => {
            say(&format!("configuration {number} holds on all machines that are there"));
            Ok(())
        }
        Err(why) if holds => Err(format!(
            "configuration {number} holds, but not on all machines: {why}\n  who does not take it \
             serves on by the one before, and says so in: sealane fleet status"
        )),
        Err(why) => Err(format!(
            "configuration {number} is withdrawn, and everywhere the one before holds: {why}"
        )),
    }
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
        let before = etcd.get(&places.holds()).await.map_err(failed)?;
        // What no key opens, machines do not take either, and put back what they have.
        let before = before.and_then(|entry| Version::open(&entry, keys).ok());
        let number = before.map_or(0, |before| before.number.saturating_add(1)).max(now().0);
        let version = Version { number, text, first: Vec::new() };
        let value = version.seal(&places.proposed(), keys)?;
        let lease = etcd.grant(LEASE).await.map_err(failed)?;
        let place = places.proposed();
        let put = [Change::Put(&place, &value, lease)];
        let made = etcd.change_if(&[Compare::Created(&place, 0)], &put).await.map_err(failed)?;
        let Some(made) = made else {
            let _ = etcd.revoke(lease).await;
            return Err(format!(
                "another command proposes a configuration, or did until {} s ago; wait for it, or \
                 end it with: sealane fleet configure --withdraw",
                LEASE.as_secs()
            ));
        };
        say(&format!("configuration {number} is proposed to all machines"));
        Ok(Self { etcd, keys, holds: false, lease, made, places, version })
    }

    /// Goes from stage to stage, by what machines tell.
    async fn bring(&mut self, settings: &FleetSettings, first_count: usize) -> Result<(), String> {
        let (begun, mut said) = (Instant::now(), String::new());
        let mut rollout = Rollout::new(self.version.number, first_count);
        let mut alive = Instant::now();
        loop {
            let told = statuses(self.etcd, &settings.prefix).await;
            let told = told.map_err(|error| error.to_string())?;
            let machines: Vec<Machine> = told.iter().filter_map(Status::configured).collect();
            match rollout.step(&machines, begun.elapsed()) {
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
        let value = self.version.seal(&place, self.keys)?;
        self.fenced(&[Change::Put(&place, &value, self.lease)]).await
    }

    /// Makes it what holds, and proposes it no more, at once.
    async fn let_hold(&mut self) -> Result<(), String> {
        let (holds, proposed) = (self.places.holds(), self.places.proposed());
        self.version.first.clear();
        let value = self.version.seal(&holds, self.keys)?;
        self.fenced(&[Change::Put(&holds, &value, 0), Change::Delete(&proposed)]).await?;
        self.holds = true;
        Ok(())
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

/// How long what is proposed stays after its command was killed.
const LEASE: Duration = Duration::from_secs(15);
/// How often machines are looked at.
const LOOK: Duration = Duration::from_millis(500);
