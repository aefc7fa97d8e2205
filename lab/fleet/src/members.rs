//! Which machine looks after which name, as machines come and go.

use std::collections::BTreeSet;

use sealane_renewal::{CertificateId, MachineId, keeper};

/// The machines that the store calls alive, and the keeper of each name among them.
pub(crate) struct Members {
    alive: Vec<bool>,
    /// The keeper while all are alive.
    home: Vec<u32>,
    at_home: Vec<Vec<u32>>,
    keeper: Vec<u32>,
    /// Names whose keeper is not the one while all are alive.
    away: BTreeSet<u32>,
}

impl Members {
    pub(crate) fn new(machines: u32, names: u32) -> Self {
        let all = || (0..machines).map(|machine| MachineId(machine.into()));
        let home: Vec<u32> = (0..names).map(|name| of(name, all())).collect();
        let mut at_home = vec![Vec::new(); machines as usize];
        for (name, machine) in (0..).zip(&home) {
            at_home[*machine as usize].push(name);
        }
        let alive = vec![true; machines as usize];
        Self { alive, keeper: home.clone(), home, at_home, away: BTreeSet::new() }
    }

    pub(crate) fn keeper(&self, name: u32) -> u32 {
        self.keeper[name as usize]
    }

    /// A machine went: its names, which have other keepers now. The last one stays.
    pub(crate) fn leave(&mut self, machine: u32) -> Vec<u32> {
        let others = self.alive.iter().filter(|alive| **alive).count();
        if !self.alive[machine as usize] || others < 2 {
            return Vec::new();
        }
        self.alive[machine as usize] = false;
        let kept = |name: &u32| self.keeper[*name as usize] == machine;
        let at_home = self.at_home[machine as usize].iter().copied().filter(kept);
        let away = self.away.iter().copied().filter(kept);
        let moved: BTreeSet<u32> = at_home.chain(away).collect();
        for name in &moved {
            let alive = (0..).zip(&self.alive).filter(|(_, alive)| **alive);
            self.keeper[*name as usize] = of(*name, alive.map(|(machine, _)| MachineId(machine)));
            self.away.insert(*name);
        }
        moved.into_iter().collect()
    }

    /// A machine came: the names that it keeps now, and who kept them.
    pub(crate) fn join(&mut self, machine: u32) -> Vec<(u32, u32)> {
        if std::mem::replace(&mut self.alive[machine as usize], true) {
            return Vec::new();
        }
        let candidates = self.away.iter().copied();
        let moved: Vec<(u32, u32)> = candidates
            .map(|name| (name, self.keeper[name as usize]))
            .filter(|(name, keeper)| {
                of(*name, [machine, *keeper].map(|machine| MachineId(machine.into()))) == machine
            })
            .collect();
        for (name, _) in &moved {
            self.keeper[*name as usize] = machine;
            if self.home[*name as usize] == machine {
                self.away.remove(name);
            }
        }
        moved
    }
}

/// The keeper of a name among some machines; the first, if there are none.
fn of(name: u32, machines: impl IntoIterator<Item = MachineId>) -> u32 {
    let kept_by = keeper(CertificateId(name.into()), machines);
    kept_by.and_then(|MachineId(machine)| u32::try_from(machine).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_move_with_their_machine_alone_and_come_back_with_it() {
        let mut members = Members::new(20, 2_000);
        let before = members.keeper.clone();
        let moved = members.leave(3);
        assert!((50..150).contains(&moved.len()), "{}", moved.len());
        for name in 0..2_000 {
            let is_moved = moved.contains(&name);
            assert_eq!(is_moved, before[name as usize] == 3);
            assert_eq!(is_moved, members.keeper(name) != before[name as usize]);
        }
        members.leave(5);
        let back = members.join(3);
        assert_eq!(back.iter().filter(|(name, _)| moved.contains(name)).count(), moved.len());
        members.join(5);
        assert_eq!(members.keeper, before);
        assert!(members.away.is_empty());
    }
}
