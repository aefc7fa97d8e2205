//! Which machine of a fleet looks after which certificate: one of those that are there, so that
//! fifty of them ask an authority no more than one does. That a certificate is ordered once is the
//! claim's doing; this is who tries first.

use std::collections::HashMap;

use sealane_renewal::{CertificateId, Outcome, UnixSeconds};

use super::{Agent, now};

/// Certificates that are due and left to the machines that look after them, each since when.
#[derive(Debug, Default)]
pub(super) struct Left(HashMap<CertificateId, UnixSeconds>);

impl Left {
    /// Until when a certificate that is due is left to its keeper; none once that one has had its
    /// time: it may be set up otherwise, or see no authority. While there is no certificate yet,
    /// that is short.
    fn until(&mut self, now: UnixSeconds, id: CertificateId, is_held: bool) -> Option<UnixSeconds> {
        let since = *self.0.entry(id).or_insert(now);
        let patience_s = if is_held { PATIENCE_S } else { NEW_PATIENCE_S };
        // Where very many are due, each is looked at more seldom.
        let wait_s = LOOK_S + u64::try_from(self.0.len()).unwrap_or(u64::MAX) / LOOKS_A_SECOND;
        (now.since(since) < patience_s).then(|| now.plus(wait_s))
    }

    /// Forgets one that is there now, or that this machine orders.
    pub(super) fn forget(&mut self, id: CertificateId) {
        self.0.remove(&id);
    }
}

impl Agent {
    /// Until when a certificate that is due is left to another machine; none if this one orders it.
    pub(super) fn left_to_another(
        &mut self,
        id: CertificateId,
        is_held: bool,
    ) -> Option<UnixSeconds> {
        let until = match self.keeps(id) {
            true => None,
            false => self.left.until(now(), id, is_held),
        };
        if until.is_none() {
            self.left.forget(id);
        }
        until
    }

    /// What a machine hears of the renewal of a certificate that another one asks about.
    pub(super) fn heard_by_another(&self, id: CertificateId) -> Option<Outcome> {
        // A window that ends before it begins is none.
        let none = Outcome::RenewalInfo {
            start: UnixSeconds(1),
            end: UnixSeconds(0),
            retry_after_s: Some(ASKED_AGAIN_S),
        };
        (!self.keeps(id)).then_some(none)
    }

    fn keeps(&self, id: CertificateId) -> bool {
        // A name on demand is known to the machine alone that was asked for it.
        self.demanded.knows(id) || self.fleet.as_ref().is_none_or(|fleet| fleet.keeps(id))
    }
}

/// Until it is seen anew who asks about a certificate: as often as one is asked about.
const ASKED_AGAIN_S: u64 = 6 * 3_600;
/// The shortest until it is looked again whether a certificate has come.
const LOOK_S: u64 = 20;
/// Looks in a second, about, however many are due.
const LOOKS_A_SECOND: u64 = 1_000;
/// How long the keeper has of one that is not there yet.
const NEW_PATIENCE_S: u64 = 30;
/// How long the keeper of a certificate has, once it is due.
const PATIENCE_S: u64 = 3_600;

#[cfg(test)]
mod tests {
    use super::super::tests::{DIRECTORY, Home, id};
    use super::*;

    #[test]
    fn each_certificate_is_looked_after_by_one_of_the_machines_that_are_there() {
        let machines = ["m0", "m1", "m2"];
        let homes = machines.map(|_| Home::new());
        let mut agents: Vec<Agent> = machines
            .iter()
            .zip(&homes)
            .map(|(machine, home)| {
                let table = format!(
                    "[fleet]\netcd = [\"http://127.0.0.1:1\"]\nprefix = \"/t/\"\n\
                     machine = \"{machine}\"\n"
                );
                home.agent_with(home.settings_with(DIRECTORY, &["a.test"], &table))
            })
            .collect();
        let note = |agents: &[Agent], machine, is_there| {
            let fleets = agents.iter().filter_map(|agent| agent.fleet.as_ref());
            fleets.for_each(|fleet| fleet.note_machine(machine, is_there));
        };
        machines.iter().for_each(|machine| note(&agents, machine, true));
        let names: Vec<_> = (0..60).map(|number| id(&format!("n{number}.test"))).collect();
        let kept = |agents: &mut [Agent], name: CertificateId| -> Vec<bool> {
            let each = agents.iter_mut();
            each.map(|agent| {
                let is_left = agent.left_to_another(name, true).is_some();
                assert_eq!(agent.heard_by_another(name).is_some(), is_left);
                !is_left
            })
            .collect()
        };
        let before: Vec<_> = names.iter().map(|name| kept(&mut agents, *name)).collect();
        assert!(before.iter().all(|by| by.iter().filter(|is_kept| **is_kept).count() == 1));
        for machine in 0..3 {
            let count = before.iter().filter(|by| by[machine]).count();
            assert!((8..=36).contains(&count), "{count} of 60");
        }
        // What the one that goes has kept goes over to the others, and nothing else.
        note(&agents, "m2", false);
        for (name, before) in names.iter().zip(before) {
            let after = kept(&mut agents[..2], *name);
            match before[2] {
                true => assert_ne!(after[0], after[1]),
                false => assert_eq!(after, before[..2]),
            }
        }
    }

    #[test]
    fn what_is_due_is_left_to_another_for_an_hour() {
        let (mut left, id) = (Left::default(), CertificateId(7));
        let begun = UnixSeconds(1_000_000);
        assert_eq!(left.until(begun, id, true), Some(begun.plus(LOOK_S)));
        let last = begun.plus(PATIENCE_S - 1);
        assert_eq!(left.until(last, id, true), Some(last.plus(LOOK_S)));
        assert_eq!(left.until(begun.plus(PATIENCE_S), id, true), None);
        assert_eq!(left.until(begun.plus(NEW_PATIENCE_S), id, false), None);
        // The next time that it is due is another.
        left.forget(id);
        assert!(left.until(begun.plus(PATIENCE_S), id, true).is_some());
        // A million are looked at in a quarter of an hour, not in seconds.
        for number in 0..1_000_000 {
            left.0.insert(CertificateId(number), begun);
        }
        assert_eq!(left.until(begun, id, true), Some(begun.plus(LOOK_S + 1_000)));
    }
}
