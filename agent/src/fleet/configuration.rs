//! The configuration that a fleet gives to its machines, as one of them takes it: [`Taking`].
//!
//! ```text
//!   PREFIX/configuration/proposed  -- under the lease of the command that proposes it
//!   PREFIX/configuration/holds     -- what holds                    (both sealed)
//!         |  heard by the replica
//!   the store's folder:  fleet-proposed.toml, fleet.toml  -->  sealane serve  -->  fleet-answer
//! ```
//!
//! Nothing is served that a machine's own `sealane serve` has not found in order. What it serves on
//! trial it serves for as long as this agent finds it proposed, and says so again and again.

mod heard;
mod taking;

use std::collections::HashSet;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use sealane_operator::{Priority, say, say_at};
use sealane_store::{Answer, GIVEN_BYTES_MAX, Given, HELD, Proposed, SealingKeys, UnsealError};
use serde::{Deserialize, Serialize};

use super::Fleet;
use crate::etcd::{Change, Compare, Entry, EtcdError};

use crate::settings::FleetSettings;
pub(super) use heard::Heard;
use heard::There;
use taking::{Memory, Taking};

/// A text of the fleet's, as it is sealed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Version {
    /// The number by which it is known; 0: nothing holds yet.
    pub(super) number: u64,
    pub(super) text: String,
    /// The machines that serve by it while it is proposed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) first: Vec<String>,
    /// The number of what was proposed last, beside what holds.
    #[serde(default)]
    pub(super) last: u64,
    /// The lease of the command that proposes it.
    #[serde(default)]
    pub(super) lease: i64,
}

impl Version {
    /// What the entry holds that was put at its key.
    ///
    /// # Errors
    /// No sealing key of this machine opens it, or it is nothing of this version's.
    pub(super) fn open(entry: &Entry, keys: &SealingKeys) -> Result<Self, NotOpened> {
        let opened = keys.open_at(&entry.key, &entry.value)?;
        let version: Self = serde_json::from_slice(&opened).map_err(|_| NotOpened::Strange)?;
        match version.text.len() > GIVEN_BYTES_MAX {
            true => Err(NotOpened::Strange),
            false => Ok(version),
        }
    }

    /// The value for the key `place`.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn seal(&self, place: &str, keys: &SealingKeys) -> Result<Vec<u8>, EtcdError> {
        let ours = |error: &dyn ToString| EtcdError::ours(&error.to_string());
        let text = serde_json::to_vec(self).map_err(|error| ours(&error))?;
        keys.seal_for(place, &text).map_err(|error| ours(&error))
    }

    fn given(&self) -> Given {
        Given { number: self.number, text: self.text.clone() }
    }
}

/// Why an entry is none of this fleet's configuration.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotOpened {
    /// The seal.
    #[error(transparent)]
    Seal(#[from] UnsealError),
    /// What is sealed.
    #[error("it is not as this version writes it")]
    Strange,
}

impl NotOpened {
    /// Whether a machine of this fleet may have written it, which knows more than this one.
    pub(super) const fn may_be_ours(&self) -> bool {
        !matches!(self, Self::Seal(UnsealError::Damaged))
    }
}

impl Fleet {
    /// Notes what is put below the place of the configuration, or is there no more.
    ///
    /// # Errors
    /// It cannot be opened; that is noted all the same.
    pub(super) fn hear_configuration(
        &self,
        key: &str,
        entry: Option<&Entry>,
    ) -> Result<(), NotOpened> {
        let mut heard = self.configuration.borrow_mut();
        let mut refused = Ok(());
        let there = entry.map_or_else(There::default, |entry| {
            let opened = Version::open(entry, &self.keys);
            There {
                at: entry.mod_revision,
                made: entry.create_revision,
                lease: entry.lease,
                is_current: self.keys.is_current(&entry.value),
                is_foreign: opened.as_ref().is_err_and(NotOpened::may_be_ours),
                version: opened.map_err(|error| refused = Err(error)).ok(),
            }
        });
        if key == self.places.holds() {
            heard.holds = there;
        } else if key == self.places.proposed() {
            heard.hear_proposed(there, Instant::now());
        }
        refused
    }

    /// Notes that nothing else is there than these keys.
    pub(super) fn forget_configuration(&self, there: &HashSet<String>) {
        let gone = [self.places.holds(), self.places.proposed()];
        gone.iter().filter(|key| !there.contains(*key)).for_each(|key| {
            // What is not there is nothing to open.
            let _ = self.hear_configuration(key, None);
        });
    }

    /// Takes the configuration of the fleet until the process ends, where who serves from this
    /// machine's store includes it.
    pub(crate) async fn keep_configuration(self: Rc<Self>) {
        let mut reported: Option<String> = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let is_taken = Answer::read(self.store.store().path()).is_some();
            // While the cluster is away nothing changes here, but that what is on trial ends.
            if !is_taken || !self.is_complete() {
                continue;
            }
            let problem = self.take_configuration().await.err().map(|error| error.to_string());
            if let Some(problem) = problem.as_ref().filter(|now| reported.as_ref() != Some(now)) {
                say_at(Priority::Warning, &format!("fleet: configuration: {problem}"));
            }
            reported = problem;
        }
    }

    async fn take_configuration(&self) -> Result<(), EtcdError> {
        let folder = self.store.store().path();
        let failed = |error: io::Error| EtcdError::ours(&format!("{}: {error}", folder.display()));
        let FleetSettings { machine: me, prefix, .. } = &self.settings;
        let before = Memory::read(&self.store, prefix)?;
        let (taking, is_foreign) = {
            let mut heard = self.configuration.borrow_mut();
            let proposed = heard.proposed(Instant::now()).cloned();
            let holds = heard.holds.version.as_ref();
            (Taking::of(holds, proposed.as_ref(), me, before), heard.holds.is_foreign)
        };
        // First: a number that was seen is never forgotten.
        if taking.memory != before {
            taking.memory.keep(&self.store, prefix)?;
        }
        let is_on_trial = taking.proposed.as_ref().is_some_and(|proposed| proposed.is_on_trial);
        self.configuration.borrow_mut().told = (taking.memory.proposed, taking.memory.over);
        // One that cannot be read is replaced.
        let held = Given::read(folder, HELD).ok().flatten();
        if let Some(given) = taking.held.as_ref().filter(|given| held.as_ref() != Some(given)) {
            given.put(folder, HELD).map_err(failed)?;
            say(&format!("fleet: configuration {} is put where it is served", given.number));
        }
        if is_on_trial && !self.is_still_proposed().await? {
            return Proposed::take_back(folder).map_err(failed);
        }
        match &taking.proposed {
            // Again and again: who serves believes it for a while.
            Some(proposed) => proposed.put(folder).map_err(failed)?,
            None => Proposed::take_back(folder).map_err(failed)?,
        }
        match is_foreign {
            // A machine that has another sealing key knows more.
            true => Ok(()),
            false => self.mend(&taking, held).await,
        }
    }

    /// Asks whether what is proposed is still there: a watch that says nothing may be one that
    /// hears nothing. What has come in its place the watch brings, in order.
    async fn is_still_proposed(&self) -> Result<bool, EtcdError> {
        let entry = self.etcd.get(&self.places.proposed()).await?;
        let known = self.configuration.borrow().proposed_since();
        Ok(entry.is_some_and(|entry| entry.create_revision == known))
    }

    /// Puts what holds here into a cluster that has lost it, has an older one, or has it sealed
    /// with an older key.
    async fn mend(&self, taking: &Taking, held: Option<Given>) -> Result<(), EtcdError> {
        let Memory { holds, proposed, .. } = taking.memory;
        let (at, is_to_be_resealed) = {
            let heard = self.configuration.borrow();
            let There { at, is_current, .. } = heard.holds;
            (at, at != 0 && !is_current && !heard.is_resealed)
        };
        let held = taking.held.clone().or(held).filter(|held| held.number == holds);
        let text = match held {
            Some(held) => held.text,
            None if holds == 0 => String::new(),
            // Another machine has it.
            None => return Ok(()),
        };
        if !taking.is_old && !is_to_be_resealed {
            self.configuration.borrow_mut().mended_at = None;
            return Ok(());
        }
        if !self.is_mended_now() {
            return Ok(());
        }
        let place = self.places.holds();
        let version = Version { number: holds, text, last: proposed, ..Version::default() };
        let value = version.seal(&place, &self.keys)?;
        let put = [Change::Put(&place, &value, 0)];
        let put = self.etcd.change_if(&[Compare::Modified(&place, at)], &put).await?;
        let mut heard = self.configuration.borrow_mut();
        heard.is_resealed |= is_to_be_resealed;
        // If another was faster, the watch brings that one.
        let Some(revision) = put else { return Ok(()) };
        heard.holds =
            There { at: revision, is_current: true, version: Some(version), ..There::default() };
        if taking.is_old && holds > 0 {
            let text = format!(
                "fleet: configuration {holds} is put back, the cluster had none, or an older one"
            );
            say_at(Priority::Warning, &text);
        }
        Ok(())
    }

    /// Whether it is this machine's turn to mend what all see at one moment: the first of them is
    /// enough, and the others hear of that.
    fn is_mended_now(&self) -> bool {
        let wait = MENDED_WITHIN.mul_f64(fastrand::f64());
        let mut heard = self.configuration.borrow_mut();
        *heard.mended_at.get_or_insert_with(|| Instant::now() + wait) <= Instant::now()
    }
}

/// How often it is looked what there is.
const LOOK: Duration = Duration::from_millis(500);
/// Within what time one of the machines puts what holds there again.
const MENDED_WITHIN: Duration = Duration::from_secs(3);
