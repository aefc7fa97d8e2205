//! How a configuration comes to a fleet, by what machines tell: [`Rollout`]. It asks nobody and
//! knows no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use sealane_operator::value;
use serde::{Deserialize, Serialize};

/// What a machine tells of the fleet's configuration.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Configured {
    /// The number of what it serves; 0: nothing of the fleet's.
    pub(super) holds: u64,
    /// The number of what it has looked at last.
    pub(super) checked: u64,
    /// What is wrong with that there; empty if it is in order.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) refusal: String,
    /// The process that serves, told from those before it.
    #[serde(default)]
    pub(super) process: u64,
    /// For how many seconds that has served by what is on trial, by its own clock.
    #[serde(default)]
    pub(super) trial_s: u64,
    /// The number of what was proposed last, as it remembers.
    #[serde(default)]
    pub(super) last: u64,
    /// Up to which number what was proposed has ended, as it remembers.
    #[serde(default)]
    pub(super) over: u64,
}

/// A machine that is there and takes what the fleet gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) told: Configured,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Let it hold on these machines.
    First(Vec<String>),
    /// Let it hold on all.
    All,
    /// Nothing more: all that are there serve by it.
    Done,
    /// Nothing, for now.
    Wait(String),
    /// To end it, for this reason.
    Stop(String),
}

/// A configuration on its way.
#[derive(Clone, Debug)]
pub(super) struct Rollout {
    number: u64,
    /// On how many machines it holds first.
    first_count: usize,
    stage: Stage,
    /// When the stage began.
    began: Duration,
    /// Who was there since it was proposed, each with the process that serves.
    seen: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// All look at it.
    Check,
    /// These serve by it.
    First(Vec<String>),
    /// All are to serve by it.
    All,
}

impl Rollout {
    /// One of the configuration `number`, which holds on so many machines first, of these and of
    /// those that come.
    pub(super) fn new(number: u64, first_count: usize, machines: &[Machine]) -> Self {
        let began = Duration::ZERO;
        let stage = Stage::Check;
        let seen = machines.iter().map(|one| (one.name.clone(), one.told.process)).collect();
        Self { number, first_count, stage, began, seen }
    }

    /// What follows from what machines tell, so long after it was proposed. After
    /// [`Step::First`] and [`Step::All`] that counts as done.
    pub(super) fn step(&mut self, machines: &[Machine], at: Duration) -> Step {
        let number = self.number;
        let refused =
            machines.iter().find(|one| one.told.checked == number && !one.told.refusal.is_empty());
        if let Some(Machine { name, told }) = refused {
            return Step::Stop(format!("{name} refuses it:\n{}", told.refusal));
        }
        if let Some(why) = self.who_left(machines) {
            return Step::Stop(why);
        }
        let ended = machines.iter().find(|one| one.told.over >= number);
        if self.stage != Stage::All
            && let Some(Machine { name, .. }) = ended
        {
            return Step::Stop(format!(
                "{name} knows it as ended: somebody has withdrawn it, or etcd was set back; in \
                 that case try again in a minute"
            ));
        }
        match &self.stage {
            Stage::Check => {
                let is_done = |one: &Machine| one.told.checked == number;
                if let Some(step) = self.wait(machines, at, "have found it in order", is_done) {
                    return step;
                }
                let names = machines.iter().map(|one| one.name.clone());
                let first: Vec<_> = names.take(self.first_count).collect();
                self.enter(Stage::First(first.clone()), at);
                Step::First(first)
            }
            Stage::First(first) => {
                let of_first: Vec<Machine> =
                    machines.iter().filter(|one| first.contains(&one.name)).cloned().collect();
                let has_served =
                    |one: &Machine| one.told.holds == number && one.told.trial_s >= SERVED_S;
                let has_looked = |one: &Machine| one.told.checked == number;
                let what = format!("have served by it for {SERVED_S} s");
                // Who came meanwhile has to look at it, too.
                let first = self.wait(&of_first, at, &what, has_served);
                let looked = || self.wait(machines, at, "have found it in order", has_looked);
                if let Some(step) = first.or_else(looked) {
                    return step;
                }
                self.enter(Stage::All, at);
                Step::All
            }
            Stage::All => {
                // On trial it is for as long as somebody says so.
                let holds = |one: &Machine| one.told.holds == number && one.told.trial_s == 0;
                self.wait(machines, at, "serve by it", holds).unwrap_or(Step::Done)
            }
        }
    }

    /// Who has gone since it was proposed, or serves with another process: what it had to say, its
    /// refusal too, is not known then. Who comes is one more.
    fn who_left(&mut self, machines: &[Machine]) -> Option<String> {
        for (name, process) in &self.seen {
            match machines.iter().find(|one| one.name == *name) {
                None => {
                    let what = "has gone since it was proposed, or sealane serve there";
                    return Some(format!("{name} {what}: see its log"));
                }
                Some(one) if one.told.process != *process => {
                    let what = "was started anew since it was proposed";
                    return Some(format!("sealane serve on {name} {what}: see its log"));
                }
                Some(_) => {}
            }
        }
        self.seen.extend(machines.iter().map(|one| (one.name.clone(), one.told.process)));
        None
    }

    /// What is to be done until all of `machines` are so; none once they are.
    fn wait(
        &self,
        machines: &[Machine],
        at: Duration,
        what: &str,
        is_so: impl Fn(&Machine) -> bool,
    ) -> Option<Step> {
        let missing: Vec<&str> =
            machines.iter().filter(|one| !is_so(one)).map(|one| one.name.as_str()).collect();
        let (all, so) = (machines.len(), machines.len() - missing.len());
        if all > 0 && missing.is_empty() {
            return None;
        }
        let left = STAGE_TIMEOUT.saturating_sub(at.saturating_sub(self.began));
        if !left.is_zero() {
            let left = value::duration_text(Duration::from_secs(left.as_secs()));
            return Some(Step::Wait(format!("{so} of {all} machines {what}; {left} left")));
        }
        let shown = missing.iter().take(SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
        Some(Step::Stop(match all {
            0 => {
                "no machine that is there takes what the fleet gives: see that sealane serve runs \
                  there, and that its file has include = [\"store:PATH\"]"
                    .to_owned()
            }
            _ => format!("{so} of {all} machines {what}, and not {shown}: does sealane serve run?"),
        }))
    }

    fn enter(&mut self, stage: Stage, at: Duration) {
        (self.stage, self.began) = (stage, at);
    }
}

/// For how many seconds it holds on the first machines before it does on all.
const SERVED_S: u64 = 6;
/// Machines that are named when they are missing.
const SHOWN_MAX: usize = 10;
/// For how long a stage is waited for.
const STAGE_TIMEOUT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, holds: u64, checked: u64, refusal: &str) -> Machine {
        let refusal = refusal.to_owned();
        let told = Configured { holds, checked, refusal, ..Configured::default() };
        Machine { name: name.to_owned(), told }
    }

    /// The same, on trial for so many seconds.
    fn served(machine: &Machine, trial_s: u64) -> Machine {
        let told = Configured { trial_s, ..machine.told.clone() };
        Machine { told, ..machine.clone() }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn waits(step: &Step, text: &str) {
        assert!(matches!(step, Step::Wait(said) if said.contains(text)), "{step:?}, not {text}");
    }

    fn stops(step: &Step, text: &str) {
        assert!(matches!(step, Step::Stop(said) if said.contains(text)), "{step:?}, not {text}");
    }

    #[test]
    fn it_is_looked_at_by_all_then_holds_on_the_first_and_then_on_all() {
        let mut rollout = Rollout::new(9, 1, &[]);
        let old = [machine("a", 5, 5, ""), machine("b", 5, 0, ""), machine("c", 5, 9, "")];
        waits(&rollout.step(&old, s(1)), "1 of 3 machines have found it in order; 119s left");
        let looked = ["a", "b", "c"].map(|name| machine(name, 5, 9, ""));
        assert_eq!(rollout.step(&looked, s(2)), Step::First(vec!["a".into()]));
        waits(&rollout.step(&looked, s(3)), "0 of 1 machines have served by it");
        let first = |trial_s| {
            [served(&machine("a", 9, 9, ""), trial_s), looked[1].clone(), looked[2].clone()]
        };
        waits(&rollout.step(&first(1), s(4)), "0 of 1");
        waits(&rollout.step(&looked, s(5)), "0 of 1");
        // A word that is late is none of later seconds.
        waits(&rollout.step(&first(5), s(60)), "0 of 1 machines have served by it");
        // Who comes meanwhile looks at it, too.
        let more = [&first(6)[..], &[machine("d", 5, 0, "")]].concat();
        waits(&rollout.step(&more, s(61)), "3 of 4 machines have found it in order");
        let more = [&first(7)[..], &[machine("d", 5, 9, "")]].concat();
        assert_eq!(rollout.step(&more, s(62)), Step::All);
        waits(&rollout.step(&more, s(63)), "0 of 4 machines serve by it");
        let all = ["a", "b", "c", "d"].map(|name| machine(name, 9, 9, ""));
        stops(&rollout.step(&all[1..], s(64)), "a has gone since it was proposed");
        assert_eq!(rollout.step(&all, s(65)), Step::Done);
    }

    #[test]
    fn what_a_machine_knows_as_ended_is_not_waited_for() {
        let mut rollout = Rollout::new(9, 1, &[]);
        let mut one = machine("a", 5, 0, "");
        one.told.over = 8;
        waits(&rollout.step(&[one.clone()], s(1)), "0 of 1");
        one.told.over = 9;
        stops(&rollout.step(&[one], s(2)), "a knows it as ended");
    }

    #[test]
    fn the_first_refusal_ends_it_in_any_stage() {
        let looked = ["a", "b"].map(|name| machine(name, 5, 9, ""));
        let refused = [looked[0].clone(), machine("b", 5, 9, "x.toml:3:1: no")];
        let mut rollout = Rollout::new(9, 5, &[]);
        stops(&rollout.step(&refused, s(1)), "b refuses it:\nx.toml:3:1: no");
        let old = [machine("b", 5, 8, "of another"), machine("a", 5, 9, "")];
        waits(&rollout.step(&old, s(1)), "1 of 2");
        assert_eq!(rollout.step(&looked, s(2)), Step::First(vec!["a".into(), "b".into()]));
        stops(&rollout.step(&refused, s(3)), "b refuses it");
        stops(&rollout.step(&looked[..1], s(3)), "b has gone since it was proposed");
    }

    #[test]
    fn who_was_started_anew_while_it_held_first_ends_it() {
        let mut rollout = Rollout::new(9, 1, &[]);
        assert_eq!(rollout.step(&[machine("a", 5, 9, "")], s(1)), Step::First(vec!["a".into()]));
        let mut one = machine("a", 9, 9, "");
        waits(&rollout.step(&[one.clone()], s(2)), "0 of 1");
        one.told.process = 1;
        stops(&rollout.step(&[one], s(3)), "sealane serve on a was started anew");
    }

    /// One may have ended at its check, and the others would be all that there are.
    #[test]
    fn who_goes_before_all_have_looked_ends_it() {
        let before = ["a", "b"].map(|name| machine(name, 5, 5, ""));
        let looked = ["a", "b"].map(|name| machine(name, 5, 9, ""));
        let mut rollout = Rollout::new(9, 1, &before);
        stops(&rollout.step(&looked[..1], s(1)), "b has gone since it was proposed");
        let mut rollout = Rollout::new(9, 1, &before);
        let mut anew = looked.clone();
        anew[1].told.process = 7;
        stops(&rollout.step(&anew, s(1)), "sealane serve on b was started anew");
        // One that comes meanwhile counts too.
        let mut rollout = Rollout::new(9, 1, &before[..1]);
        waits(&rollout.step(&[looked[0].clone(), before[1].clone()], s(1)), "1 of 2");
        stops(&rollout.step(&looked[..1], s(2)), "b has gone since it was proposed");
    }

    #[test]
    fn who_does_not_answer_in_time_is_named() {
        let mut rollout = Rollout::new(9, 1, &[]);
        waits(&rollout.step(&[], s(119)), "0 of 0 machines");
        stops(&rollout.step(&[], s(120)), "no machine that is there takes what the fleet gives");
        let one = [machine("a", 5, 9, ""), machine("b", 5, 5, "")];
        let said = rollout.step(&one, s(120));
        stops(&said, "1 of 2 machines have found it in order, and not b");
        let looked = ["a", "b"].map(|name| machine(name, 5, 9, ""));
        rollout.step(&looked, s(121));
        waits(&rollout.step(&looked, s(240)), "0 of 1");
        stops(
            &rollout.step(&looked, s(241)),
            "0 of 1 machines have served by it for 6 s, and not a",
        );
    }
}
