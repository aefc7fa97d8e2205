//! What one machine takes of what a fleet's cluster has, by what it remembers: [`Taking`].

use sealane_store::{Given, KeyedStore, Proposed};

use super::Version;
use crate::etcd::EtcdError;
use crate::fleet::replica::ours;

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
    /// What `store` remembers of the fleet whose keys begin with `prefix`: of another it is nothing
    /// here.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) fn read(store: &KeyedStore, prefix: &str) -> Result<Self, EtcdError> {
        let kept = store.kept(MEMORY).map_err(|error| ours(&error))?;
        let text = kept.map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
        let mut parts = text.splitn(4, ' ');
        let mut next = || parts.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let memory = Self { holds: next(), proposed: next(), over: next() };
        Ok(if parts.next() == Some(prefix) { memory } else { Self::default() })
    }

    /// Leaves it there.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(super) fn keep(self, store: &KeyedStore, prefix: &str) -> Result<(), EtcdError> {
        let text = format!("{} {} {} {prefix}", self.holds, self.proposed, self.over);
        let kept = store.keep(&[], 0, &[(MEMORY, Some(text.as_bytes()))]);
        kept.map(drop).map_err(|error| ours(&error))
    }
}

/// What a machine takes of what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taking {
    pub(super) memory: Memory,
    /// What is to hold; none: what is here stays.
    pub(super) held: Option<Given>,
    /// What is to be looked at.
    pub(super) proposed: Option<Proposed>,
    /// Whether what is there is older than what this machine knows.
    pub(super) is_old: bool,
}

impl Taking {
    /// What the machine `me`, which remembers `before`, takes of what holds and is proposed.
    pub(super) fn of(
        holds: Option<&Version>,
        proposed: Option<&Version>,
        me: &str,
        before: Memory,
    ) -> Self {
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

/// The entry with what is remembered: three numbers, and of which fleet they are.
const MEMORY: &str = "fleet/configuration";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::{Machine as Real, with_machine};

    fn proposed(number: u64, first: &[&str]) -> Version {
        let first = first.iter().map(|name| (*name).to_owned()).collect();
        Version { number, text: format!("text {number}"), first, ..Version::default() }
    }

    fn holding(number: u64, last: u64) -> Version {
        Version { number, text: format!("text {number}"), last, ..Version::default() }
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

    /// Numbers are a fleet's own, and a text goes to another by nobody's order.
    #[test]
    fn what_was_remembered_of_another_fleet_is_nothing() {
        with_machine(async |Real { store, .. }| {
            let memory = Memory { holds: 5, proposed: 6, over: 6 };
            memory.keep(&store, "/sealane/a b/").unwrap();
            assert_eq!(Memory::read(&store, "/sealane/a b/").unwrap(), memory);
            assert_eq!(Memory::read(&store, "/sealane/a/").unwrap(), Memory::default());
        });
    }
}
