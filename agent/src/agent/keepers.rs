//! Which machine of a fleet looks after which certificate: one of those that are there, so that
//! fifty of them ask an authority no more than one does. That a certificate is ordered once is the
//! claim's doing; this decides which machine tries first.

use sealane_renewal::{CertificateId, Outcome, UnixSeconds};

use super::book::Book;
use super::demand::Demanded;
use crate::clock::now;

/// Until when a certificate that is due is left to another machine; none if this one orders it.
pub(super) fn left_to_another(
    book: &mut Book,
    demanded: &Demanded,
    id: CertificateId,
    is_held: bool,
) -> Option<UnixSeconds> {
    let until = match keeps(book, demanded, id) {
        true => None,
        false => book.left.until(now(), id, is_held),
    };
    if until.is_none() {
        book.left.forget(id);
    }
    until
}

/// The answer about the renewal of a certificate that another machine asks about.
pub(super) fn heard_by_another(
    book: &Book,
    demanded: &Demanded,
    id: CertificateId,
) -> Option<Outcome> {
    // A window that ends before it begins is none.
    let none = Outcome::RenewalInfo {
        start: UnixSeconds(1),
        end: UnixSeconds(0),
        retry_after_s: Some(ASKED_AGAIN_S),
    };
    (!keeps(book, demanded, id)).then_some(none)
}

fn keeps(book: &Book, demanded: &Demanded, id: CertificateId) -> bool {
    demanded.knows_alone(book, id) || book.fleet.as_ref().is_none_or(|fleet| fleet.keeps(id))
}

/// Until it is decided again which machine asks about a certificate: as often as one asks.
const ASKED_AGAIN_S: u64 = 6 * 3_600;

#[cfg(test)]
mod tests {
    use super::super::tests::{DIRECTORY, Home, id};
    use super::*;
    use crate::agent::Agent;

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
            let fleets = agents.iter().filter_map(|agent| agent.book.fleet.as_ref());
            fleets.for_each(|fleet| fleet.note_machine(machine, is_there));
        };
        machines.iter().for_each(|machine| note(&agents, machine, true));
        let names: Vec<_> = (0..60).map(|number| id(&format!("n{number}.test"))).collect();
        let kept = |agents: &mut [Agent], name: CertificateId| -> Vec<bool> {
            let each = agents.iter_mut();
            each.map(|agent| {
                let is_left =
                    left_to_another(&mut agent.book, &agent.demanded, name, true).is_some();
                assert_eq!(heard_by_another(&agent.book, &agent.demanded, name).is_some(), is_left);
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
}
