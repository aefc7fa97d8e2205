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

use std::collections::HashSet;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use sealane_operator::{Priority, say, say_at};
use sealane_store::{
    Answer, GIVEN_BYTES_MAX, Given, HELD, KeyedStore, Proposed, SealingKeys, UnsealError,
};
use serde::{Deserialize, Serialize};

use super::Fleet;
use super::replica::ours;
use crate::etcd::{Change, Compare, Entry, EtcdError};
use crate::failure::plain;

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

/// What the cluster has at a place.
#[derive(Clone, Debug, Default)]
struct There {
    /// The revision at which it was put there; 0: nothing is there.
    at: i64,
    /// The revision at which the place was taken.
    made: i64,
    /// Whether it is sealed with the key that this machine seals with.
    is_current: bool,
    /// Whether it is what only other machines can read.
    is_foreign: bool,
    version: Option<Version>,
}

/// What the cluster has, as this machine has heard.
#[derive(Debug, Default)]
pub(super) struct Heard {
    holds: There,
    proposed: There,
    /// Up to which number what was proposed has ended.
    over: u64,
    /// The number of what was proposed last, as this machine remembers it.
    pub(super) last: u64,
    /// Whether what holds was put again because an older key had sealed it.
    is_resealed: bool,
}

/// What this machine has taken: numbers that only rise, so that nobody sets it back with what was
/// true once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Memory {
    /// The number of what was said last to hold.
    holds: u64,
    /// The number of what was proposed last.
    proposed: u64,
    /// Up to which number nothing is proposed any more.
    over: u64,
}

impl Memory {
    fn read(store: &KeyedStore) -> Result<Self, EtcdError> {
        let kept = store.kept(MEMORY).map_err(|error| ours(&error))?;
        let text = kept.map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
        let mut numbers = text.split(' ').map(|number| number.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Ok(Self { holds: next(), proposed: next(), over: next() })
    }

    fn keep(self, store: &KeyedStore) -> Result<(), EtcdError> {
        let text = format!("{} {} {}", self.holds, self.proposed, self.over);
        let kept = store.keep(&[], 0, &[(MEMORY, Some(text.as_bytes()))]);
        kept.map(drop).map_err(|error| ours(&error))
    }
}

/// What a machine takes of what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Taking {
    memory: Memory,
    /// What is to hold; none: what is here stays.
    held: Option<Given>,
    /// What is to be looked at.
    proposed: Option<Proposed>,
    /// Whether what is there is older than what this machine knows.
    is_old: bool,
}

impl Taking {
    /// What the machine `me`, which remembers `before`, takes of what holds and is proposed.
    fn of(holds: Option<&Version>, proposed: Option<&Version>, me: &str, before: Memory) -> Self {
        let mut memory = before;
        let last = holds.map_or(0, |holds| holds.last);
        let is_old = holds.map_or(0, |holds| holds.number) < memory.holds || last < memory.proposed;
        let holds = holds.filter(|holds| holds.number >= memory.holds);
        memory.holds = holds.map_or(memory.holds, |holds| holds.number);
        memory.proposed = memory.proposed.max(last).max(proposed.map_or(0, |one| one.number));
        // Of all that was proposed once, only the last can be there still.
        let proposed = proposed.filter(|one| {
            one.number == memory.proposed && one.number > memory.holds.max(memory.over)
        });
        if proposed.is_none() {
            memory.over = memory.proposed;
        }
        let proposed = proposed.map(|one| {
            let is_on_trial = one.first.iter().any(|name| name == me);
            Proposed { given: one.given(), is_on_trial }
        });
        let held = holds.filter(|holds| holds.number > 0).map(Version::given);
        Self { memory, held, proposed, is_old }
    }
}

impl Fleet {
    /// Notes what is put below the place of the configuration, or is there no more.
    pub(super) fn hear_configuration(&self, key: &str, entry: Option<&Entry>) {
        let there = entry.map_or_else(There::default, |entry| {
            let opened = Version::open(entry, &self.keys);
            if let Err(error) = &opened {
                let text = format!("fleet: {}: not taken: {error}", plain(key));
                say_at(Priority::Warning, &text);
            }
            There {
                at: entry.mod_revision,
                made: entry.create_revision,
                is_current: self.keys.is_current(&entry.value),
                is_foreign: opened.as_ref().is_err_and(NotOpened::may_be_ours),
                version: opened.ok(),
            }
        });
        let mut heard = self.configuration.borrow_mut();
        if key == self.places.holds() {
            heard.holds = there;
        } else if key == self.places.proposed() {
            // A command takes the place once, under its lease: what stands there without, or came
            // anew, is somebody else's copy of what has ended.
            let is_copy = entry.is_none_or(|entry| entry.lease == 0);
            if is_copy || heard.proposed.made != there.made {
                let before = heard.proposed.version.as_ref().map_or(0, |one| one.number);
                heard.over = heard.over.max(before);
            }
            let over = heard.over;
            let version = there.version.filter(|one| !is_copy && one.number > over);
            heard.proposed = There { version, ..there };
        }
    }

    /// The number of what is proposed, as this machine has heard.
    #[cfg(test)]
    pub(super) fn heard_proposed(&self) -> Option<u64> {
        self.configuration.borrow().proposed.version.as_ref().map(|one| one.number)
    }

    /// Notes that nothing else is there than these keys.
    pub(super) fn forget_configuration(&self, there: &HashSet<String>) {
        let gone = [self.places.holds(), self.places.proposed()];
        gone.iter().filter(|key| !there.contains(*key)).for_each(|key| {
            self.hear_configuration(key, None);
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
        let before = Memory::read(&self.store)?;
        let me = &self.settings.machine;
        let (taking, is_foreign) = {
            let heard = self.configuration.borrow();
            let (holds, proposed) = (heard.holds.version.as_ref(), heard.proposed.version.as_ref());
            (Taking::of(holds, proposed, me, before), heard.holds.is_foreign)
        };
        // First: a number that was seen is never forgotten.
        if taking.memory != before {
            taking.memory.keep(&self.store)?;
        }
        let is_on_trial = taking.proposed.as_ref().is_some_and(|proposed| proposed.is_on_trial);
        self.configuration.borrow_mut().last = taking.memory.proposed;
        // One that cannot be read is replaced.
        let held = Given::read(folder, HELD).ok().flatten();
        if let Some(given) = taking.held.as_ref().filter(|given| held.as_ref() != Some(given)) {
            given.put(folder, HELD).map_err(failed)?;
            say(&format!("fleet: configuration {} is put where it is served", given.number));
        }
        if is_on_trial && !self.is_still_proposed().await? {
            return Ok(());
        }
        let there = Proposed::read(folder).ok().flatten();
        match &taking.proposed {
            Some(proposed) if is_on_trial || there.as_ref() != Some(proposed) => {
                proposed.put(folder).map_err(failed)?;
            }
            Some(_) => {}
            None => Proposed::take_back(folder).map_err(failed)?,
        }
        match is_foreign {
            // A machine that has another sealing key knows more.
            true => Ok(()),
            false => self.mend(&taking, held).await,
        }
    }

    /// Asks for what is proposed: a watch that says nothing may be one that hears nothing.
    async fn is_still_proposed(&self) -> Result<bool, EtcdError> {
        let place = self.places.proposed();
        let entry = self.etcd.get(&place).await?;
        let known = self.configuration.borrow().proposed.at;
        let is_there = entry.as_ref().is_some_and(|entry| entry.mod_revision == known);
        if !is_there {
            self.hear_configuration(&place, entry.as_ref());
        }
        Ok(is_there)
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
            return Ok(());
        }
        let place = self.places.holds();
        let version = Version { number: holds, text, first: Vec::new(), last: proposed };
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
}

/// How often it is looked what there is.
const LOOK: Duration = Duration::from_millis(500);
/// The entry with what is remembered: three numbers.
const MEMORY: &str = "fleet/configuration";

#[cfg(test)]
mod tests {
    use super::*;

    fn proposed(number: u64, first: &[&str]) -> Version {
        let first = first.iter().map(|name| (*name).to_owned()).collect();
        Version { number, text: format!("text {number}"), first, last: 0 }
    }

    fn holding(number: u64, last: u64) -> Version {
        Version { number, text: format!("text {number}"), first: Vec::new(), last }
    }

    /// What a machine has, turn by turn.
    #[derive(Default)]
    struct Machine {
        held: u64,
        is_old: bool,
        memory: Memory,
        /// The number of what is looked at, and whether it is on trial.
        proposed: Option<(u64, bool)>,
    }

    impl Machine {
        fn sees(&mut self, holds: Option<&Version>, proposed: Option<&Version>) {
            let taking = Taking::of(holds, proposed, "me", self.memory);
            self.held = taking.held.map_or(self.held, |held| held.number);
            self.proposed = taking.proposed.map(|one| (one.given.number, one.is_on_trial));
            (self.memory, self.is_old) = (taking.memory, taking.is_old);
        }
    }

    #[test]
    fn what_is_proposed_is_looked_at_then_on_trial_and_then_holds() {
        let mut machine = Machine::default();
        machine.sees(None, None);
        assert!((machine.held, machine.proposed, machine.is_old) == (0, None, false));
        machine.sees(Some(&holding(0, 1)), Some(&proposed(1, &[])));
        assert_eq!(machine.proposed, Some((1, false)));
        machine.sees(Some(&holding(0, 1)), Some(&proposed(1, &["other"])));
        assert_eq!((machine.held, machine.proposed), (0, Some((1, false))));
        machine.sees(Some(&holding(0, 1)), Some(&proposed(1, &["other", "me"])));
        assert_eq!((machine.held, machine.proposed), (0, Some((1, true))));
        machine.sees(Some(&holding(1, 1)), None);
        assert!((machine.held, machine.proposed, machine.is_old) == (1, None, false));
    }

    #[test]
    fn what_was_withdrawn_is_proposed_no_more_whoever_puts_it_there() {
        let mut machine = Machine::default();
        machine.sees(Some(&holding(1, 2)), Some(&proposed(2, &["me"])));
        assert_eq!(machine.proposed, Some((2, true)));
        machine.sees(Some(&holding(1, 2)), None);
        assert_eq!((machine.held, machine.proposed), (1, None));
        machine.sees(Some(&holding(1, 2)), Some(&proposed(2, &["me"])));
        assert_eq!(machine.proposed, None, "it is over");
        machine.sees(Some(&holding(1, 3)), Some(&proposed(3, &[])));
        assert_eq!(machine.proposed, Some((3, false)));
        machine.sees(Some(&holding(1, 3)), Some(&proposed(2, &["me"])));
        assert_eq!(machine.proposed, None, "another came after it");
        let mut late = Machine::default();
        late.sees(Some(&holding(1, 3)), Some(&proposed(3, &[])));
        late.sees(Some(&holding(1, 3)), Some(&proposed(2, &["me"])));
        assert_eq!(late.proposed, None, "though it never heard of that one");
        // A machine that was away meanwhile hears of the number alone.
        let mut away = Machine::default();
        away.sees(Some(&holding(1, 3)), None);
        away.sees(Some(&holding(1, 3)), Some(&proposed(3, &["me"])));
        assert_eq!(away.proposed, None);
    }

    #[test]
    fn what_is_older_than_what_holds_is_not_taken_but_put_right() {
        let mut machine = Machine::default();
        machine.sees(Some(&holding(6, 6)), None);
        for holds in [Some(&holding(5, 6)), Some(&holding(6, 5)), Some(&holding(0, 0)), None] {
            machine.sees(holds, None);
            assert!(machine.is_old, "{:?}", machine.memory);
            assert_eq!(machine.held, 6);
        }
        machine.sees(Some(&holding(6, 6)), None);
        assert!(!machine.is_old);
        // What was proposed, with a number that was used, to a cluster that was set back.
        machine.sees(Some(&holding(5, 6)), Some(&proposed(6, &["me"])));
        assert_eq!((machine.held, machine.proposed), (6, None));
    }
}
