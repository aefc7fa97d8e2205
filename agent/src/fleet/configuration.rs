//! The configuration that a fleet gives to its machines, as one of them takes it: [`Taking`].
//!
//! ```text
//!   PREFIX/configuration/proposed  -- under the lease of the command that proposes it
//!   PREFIX/configuration/holds     -- what holds                    (both sealed)
//!         |
//!   the store's folder:  fleet-proposed.toml, fleet.toml  -->  sealane serve  -->  fleet-answer
//! ```
//!
//! Nothing holds on a machine that its own `sealane serve` has not found in order. With the
//! command that proposes a text, the text goes.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use sealane_operator::{Priority, say, say_at};
use sealane_store::{Answer, GIVEN_BYTES_MAX, Given, HELD, KeyedStore, PROPOSED, SealingKeys};
use serde::{Deserialize, Serialize};

use super::Fleet;
use super::places::Places;
use super::replica::ours;
use crate::etcd::{Change, Compare, Entry, EtcdError, Seen};
use crate::failure::plain;

/// A text of the fleet's, as it is sealed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Version {
    pub(super) number: u64,
    pub(super) text: String,
    /// The machines on which it holds while it is proposed.
    #[serde(default)]
    pub(super) first: Vec<String>,
}

impl Version {
    /// What the entry holds that was put at its key.
    ///
    /// # Errors
    /// No sealing key of this machine opens it, or it is nothing of this version's.
    pub(super) fn open(entry: &Entry, keys: &SealingKeys) -> Result<Self, String> {
        let opened = keys.open_at(&entry.key, &entry.value).map_err(|error| error.to_string())?;
        let read: Result<Self, _> = serde_json::from_slice(&opened);
        let version = read.map_err(|_| "it is not as this version writes it".to_owned())?;
        match version.text.len() > GIVEN_BYTES_MAX {
            true => Err("it is longer than a configuration may be".to_owned()),
            false => Ok(version),
        }
    }

    /// The value for the key `place`.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn seal(&self, place: &str, keys: &SealingKeys) -> Result<Vec<u8>, String> {
        let text = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        keys.seal_for(place, &text).map_err(|error| error.to_string())
    }

    fn given(&self) -> Given {
        Given { number: self.number, text: self.text.clone() }
    }
}

impl Places {
    /// Where the configuration of the fleet is.
    pub(super) fn configuration(&self) -> String {
        format!("{}configuration/", self.all())
    }

    /// Where the one is that holds.
    pub(super) fn holds(&self) -> String {
        self.configuration() + "holds"
    }

    /// Where the one is that is proposed.
    pub(super) fn proposed(&self) -> String {
        self.configuration() + "proposed"
    }
}

/// What the cluster has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct There {
    pub(super) holds: Option<Version>,
    pub(super) proposed: Option<Version>,
}

/// What this machine has taken: numbers that only rise, so that nobody sets it back with what was
/// true once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// The number of what was said last to hold.
    pub(super) holds: u64,
    /// The number of what was proposed last.
    pub(super) proposed: u64,
    /// Up to which number nothing is proposed any more.
    pub(super) over: u64,
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
pub(super) struct Taking {
    pub(super) memory: Memory,
    /// What is to be looked at.
    pub(super) proposed: Option<Given>,
    /// What is to hold; none: nothing.
    pub(super) held: Option<Given>,
    /// Whether what is there is older than what this machine knows to hold.
    pub(super) is_old: bool,
}

impl Taking {
    /// What the machine `me` takes of what is `there`, with what it remembers, holds and answers.
    pub(super) fn of(
        there: &There,
        me: &str,
        before: Memory,
        held: Option<Given>,
        answer: &Answer,
    ) -> Self {
        let mut memory = before;
        let holds = there.holds.as_ref().filter(|holds| holds.number >= memory.holds);
        let is_old = holds.is_none() && (there.holds.is_some() || memory.holds > 0);
        memory.holds = holds.map_or(memory.holds, |holds| holds.number);
        let newest = memory.over.max(memory.holds);
        let proposed = there
            .proposed
            .as_ref()
            .filter(|one| one.number > newest && one.number >= memory.proposed);
        match proposed {
            Some(proposed) => memory.proposed = proposed.number,
            None => memory.over = memory.over.max(memory.proposed),
        }
        let is_first = |one: &&Version| one.first.iter().any(|name| name == me);
        let target = proposed.filter(is_first).or(holds).map(Version::given);
        let number = held.as_ref().map_or(0, |held| held.number);
        let is_there = |target: &Given| target.number == number;
        let next = match &target {
            // On trial here, and withdrawn before anything held.
            None if memory.holds == 0 => None,
            Some(target) if answer.accepts(target.number) == Some(true) => Some(target.clone()),
            _ => held,
        };
        let unlooked = target.filter(|target| !is_there(target));
        let proposed = proposed.map(Version::given).or(unlooked);
        Self { memory, proposed, held: next, is_old }
    }
}

impl Fleet {
    /// Takes the configuration of the fleet until the process ends, where who serves from this
    /// machine's store includes it.
    pub(crate) async fn keep_configuration(self: Rc<Self>) {
        loop {
            let is_taken = Answer::read(self.store.store().path()).is_some();
            // What is wrong with the cluster is said by who takes the rest.
            let wait = match is_taken && self.follow_configuration().await.is_err() {
                true => AWAY_WAIT.mul_f64(0.5 + fastrand::f64() / 2.0),
                false => LOOK,
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn follow_configuration(&self) -> Result<(), EtcdError> {
        let below = self.places.configuration();
        let page = self.etcd.page(&below, None, 0).await?;
        let mut there = There::default();
        for entry in page.entries {
            self.learn(&mut there, &entry.key.clone(), Some(entry));
        }
        let mut watch = self.etcd.watch(&below, page.revision.saturating_add(1)).await?;
        let mut reported: Option<String> = None;
        loop {
            let Some(answer) = Answer::read(self.store.store().path()) else { return Ok(()) };
            let taken = self.take_configuration(&there, &answer).await;
            let problem = taken.err().map(|error| error.to_string());
            if let Some(problem) = problem.as_ref().filter(|now| reported.as_ref() != Some(now)) {
                say_at(Priority::Warning, &format!("fleet: configuration: {problem}"));
            }
            reported = problem;
            match tokio::time::timeout(LOOK, watch.next()).await {
                Err(_) => {}
                Ok(seen) => match seen? {
                    Seen::Compacted => return Ok(()),
                    Seen::Changes { events, .. } => {
                        events.into_iter().for_each(|(key, entry)| {
                            self.learn(&mut there, &key, entry);
                        });
                    }
                },
            }
        }
    }

    fn learn(&self, there: &mut There, key: &str, entry: Option<Entry>) {
        let version = entry.and_then(|entry| match Version::open(&entry, &self.keys) {
            Ok(version) => Some(version),
            Err(error) => {
                let text = format!("fleet: {}: not taken: {error}", plain(key));
                say_at(Priority::Warning, &text);
                None
            }
        });
        if key == self.places.holds() {
            there.holds = version;
        } else if key == self.places.proposed() {
            there.proposed = version;
        }
    }

    async fn take_configuration(&self, there: &There, answer: &Answer) -> Result<(), EtcdError> {
        let store = &self.store;
        let folder = store.store().path();
        let failed = |error: io::Error| EtcdError::ours(&format!("{}: {error}", folder.display()));
        let held = Given::read(folder, HELD).map_err(failed)?;
        let before = Memory::read(store)?;
        let me = &self.settings.machine;
        let taking = Taking::of(there, me, before, held.clone(), answer);
        // First: a number that was seen is never forgotten.
        if taking.memory != before {
            taking.memory.keep(store)?;
        }
        write(folder, PROPOSED, taking.proposed.as_ref()).map_err(failed)?;
        if taking.held != held {
            write(folder, HELD, taking.held.as_ref()).map_err(failed)?;
            let number = taking.held.as_ref().map_or(0, |held| held.number);
            say(&format!("fleet: configuration {number} is put where it is served"));
        }
        match held.filter(|held| taking.is_old && held.number == taking.memory.holds) {
            Some(held) => self.put_back(there, held).await,
            None => Ok(()),
        }
    }

    /// Puts what holds here into a cluster that has lost it, or was given an older one.
    async fn put_back(&self, there: &There, held: Given) -> Result<(), EtcdError> {
        let Given { number, text } = held;
        let place = self.places.holds();
        let value = Version { number, text, first: Vec::new() }.seal(&place, &self.keys);
        let value = value.map_err(|error| EtcdError::ours(&error))?;
        let at = self.etcd.get(&place).await?;
        // If another was faster, the watch brings that one.
        if at.is_some() != there.holds.is_some() {
            return Ok(());
        }
        let at = at.map_or(0, |entry| entry.mod_revision);
        let compare = [Compare::Modified(&place, at)];
        let put = [Change::Put(&place, &value, 0)];
        if self.etcd.change_if(&compare, &put).await?.is_some() {
            let text = format!("fleet: configuration {number} is put back, the cluster had none");
            say_at(Priority::Warning, &text);
        }
        Ok(())
    }
}

/// Has `given` in the file, or nothing; writes only what is new.
fn write(folder: &Path, file: &str, given: Option<&Given>) -> io::Result<()> {
    // One that cannot be read is replaced.
    if Given::read(folder, file).ok().as_ref().map(Option::as_ref) == Some(given) {
        return Ok(());
    }
    match given {
        Some(given) => given.put(folder, file),
        None => Given::take_back(folder, file),
    }
}

/// How long the cluster is left alone when it does not answer.
const AWAY_WAIT: Duration = Duration::from_secs(5);
/// How often it is looked what who serves answers.
const LOOK: Duration = Duration::from_millis(500);
/// The entry with what is remembered: three numbers.
const MEMORY: &str = "fleet/configuration";

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64, first: &[&str]) -> Version {
        let first = first.iter().map(|name| (*name).to_owned()).collect();
        Version { number, text: format!("text {number}"), first }
    }

    /// A machine, turn by turn.
    #[derive(Default)]
    struct Machine {
        answer: Answer,
        held: Option<Given>,
        memory: Memory,
        proposed: Option<u64>,
        refuses: Vec<u64>,
    }

    impl Machine {
        fn sees(&mut self, holds: Option<Version>, proposed: Option<Version>) -> u64 {
            let there = There { holds, proposed };
            // Until nothing changes: serve answers what is proposed, and takes what is held.
            for _ in 0..5 {
                let held = self.held.take();
                let taking = Taking::of(&there, "me", self.memory, held, &self.answer);
                (self.memory, self.held) = (taking.memory, taking.held);
                self.proposed = taking.proposed.map(|given| given.number);
                self.answer.holds = self.number();
                if let Some(number) = self.proposed {
                    let refusal = if self.refuses.contains(&number) { "no" } else { "" };
                    (self.answer.checked, self.answer.refusal) = (number, refusal.into());
                }
            }
            self.number()
        }

        fn number(&self) -> u64 {
            self.held.as_ref().map_or(0, |held| held.number)
        }
    }

    #[test]
    fn what_is_proposed_is_looked_at_and_held_by_the_first_and_then_by_all() {
        let mut machine = Machine::default();
        assert_eq!(machine.sees(None, None), 0);
        assert_eq!(machine.sees(None, Some(version(5, &[]))), 0);
        assert_eq!(machine.answer.accepts(5), Some(true));
        assert_eq!(machine.sees(None, Some(version(5, &["other"]))), 0);
        assert_eq!(machine.sees(None, Some(version(5, &["me"]))), 5);
        assert_eq!(machine.sees(Some(version(5, &[])), None), 5);
        assert_eq!(machine.proposed, None);
        // One on which it did not hold first.
        assert_eq!(machine.sees(Some(version(5, &[])), Some(version(6, &["other"]))), 5);
        assert_eq!(machine.sees(Some(version(6, &[])), None), 6);
    }

    #[test]
    fn what_is_withdrawn_is_gone_and_does_not_come_back() {
        let mut machine = Machine::default();
        assert_eq!(machine.sees(None, Some(version(5, &["me"]))), 5);
        assert_eq!(machine.sees(None, None), 0, "nothing held before");
        machine.sees(Some(version(6, &[])), None);
        assert_eq!(machine.sees(Some(version(6, &[])), Some(version(7, &["me"]))), 7);
        assert_eq!(machine.sees(Some(version(6, &[])), None), 6, "the command has ended");
        for old in [5, 7] {
            assert_eq!(machine.sees(Some(version(6, &[])), Some(version(old, &["me"]))), 6);
        }
        assert_eq!(machine.sees(Some(version(6, &[])), Some(version(8, &["me"]))), 8);
    }

    #[test]
    fn what_is_older_than_what_holds_is_not_taken() {
        let mut machine = Machine::default();
        machine.sees(Some(version(6, &[])), None);
        for holds in [Some(version(5, &[])), None] {
            let there = There { holds: holds.clone(), proposed: None };
            let held = machine.held.clone();
            let taking = Taking::of(&there, "me", machine.memory, held, &machine.answer);
            assert!(taking.is_old, "it is put back");
            assert_eq!(machine.sees(holds, None), 6);
        }
        assert_eq!(machine.proposed, None);
    }

    #[test]
    fn what_is_refused_here_does_not_hold_here_until_it_is_in_order() {
        let mut machine = Machine::default();
        machine.sees(Some(version(5, &[])), None);
        machine.refuses = vec![6];
        assert_eq!(machine.sees(Some(version(5, &[])), Some(version(6, &["me"]))), 5);
        assert_eq!(machine.sees(Some(version(6, &[])), None), 5);
        assert_eq!((machine.proposed, machine.answer.accepts(6)), (Some(6), Some(false)));
        machine.refuses.clear();
        machine.sees(Some(version(6, &[])), None);
        assert_eq!(machine.number(), 6);
        assert_eq!(machine.memory.holds, 6);
    }
}
