//! What rows of [`Strategies`](super::Strategies) say, a figure's values and their median, times
//! [`OverTime`], and what all checks say: a [`Judgement`].

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Run, StrategyCheck, StrategyRow};
use crate::{statistics::Spread, words};

impl Run {
    /// The checks of all its commands.
    pub fn all_checks(&self) -> impl Iterator<Item = &StrategyCheck> {
        let of_strategies = self.strategies.iter().flat_map(|strategies| &strategies.checks);
        self.checks.iter().chain(of_strategies)
    }
}

impl StrategyRow {
    /// A figure's values, one per round; none if the row does not have it.
    #[must_use]
    pub fn values(&self, figure: &str) -> &[f64] {
        self.figures.get(figure).map_or(&[], Vec::as_slice)
    }

    /// Their median with both ends.
    #[must_use]
    pub fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::of(self.values(figure))
    }

    /// Their median.
    #[must_use]
    pub fn median(&self, figure: &str) -> Option<f64> {
        self.spread(figure).map(|spread| spread.median)
    }
}

/// Times of a load in which something happened, by when they ended; all rounds together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverTime {
    /// What happened, such as `deployment`.
    pub event: String,
    /// When, in seconds from the load's beginning; in the latest of the rounds.
    pub moment_s: f64,
    /// One second after the other, from the beginning on.
    pub seconds: Vec<Second>,
}

/// What ended within one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// How many.
    pub count: u64,
    /// Half of them took at most so long.
    pub p50_ns: u64,
    /// 95% of them.
    pub p95_ns: u64,
    /// 99% of them.
    pub p99_ns: u64,
}

/// What the checks of one or several commands say together, so that what was not decided cannot be
/// taken for what holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// How many hold.
    pub held: usize,
    /// Checks that fail, by number, and steps that did not come to their end.
    pub failed: Vec<Reason>,
    /// Checks that this machine, or what was asked, cannot decide.
    pub undecided: Vec<Reason>,
    /// Steps that were not taken at all, with what to install.
    pub left_out: Vec<Reason>,
}

/// One check or step, and why it did not come out well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The check's number, or the step's title.
    pub of: String,
    /// Why.
    pub why: String,
}

impl Judgement {
    /// What `checks` say.
    pub fn new<'a>(checks: impl IntoIterator<Item = &'a StrategyCheck>) -> Self {
        let mut judgement = Self::default();
        for StrategyCheck { id, holds, shown, .. } in checks {
            let reason = || Reason { of: id.clone(), why: shown.clone() };
            match holds {
                Some(true) => judgement.held += 1,
                Some(false) => judgement.failed.push(reason()),
                None => judgement.undecided.push(reason()),
            }
        }
        judgement
    }

    /// Whether everything that there is to hold was decided, and holds.
    #[must_use]
    pub fn all_hold(&self) -> bool {
        let Self { held, failed, undecided, left_out } = self;
        *held > 0 && [failed, undecided, left_out].iter().all(|reasons| reasons.is_empty())
    }
}

impl Judgement {
    /// What a page must say of steps before anything else.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let told = |what: &str, Reason { of, why }: &Reason| format!("{what}: {of}: {why}");
        let left_out = self.left_out.iter().map(|reason| told("Left out", reason));
        left_out.chain(self.failed.iter().map(|reason| told("Not whole", reason))).collect()
    }
}

/// One line; with `{:#}` it gives the reasons too.
impl fmt::Display for Judgement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, failed, undecided, left_out } = self;
        let verb = |number: usize, many: &str| {
            let end = if number == 1 { "s" } else { "" };
            format!("{number} {many}{end}")
        };
        formatter.write_str(&verb(*held, "hold"))?;
        for (reasons, told) in [
            (failed, verb(failed.len(), "fail")),
            (undecided, format!("{} not decided here", undecided.len())),
            (left_out, format!("{} left out", words::count(left_out.len(), "step"))),
        ] {
            if reasons.is_empty() {
                continue;
            }
            let told_each = reasons.iter().map(|Reason { of, why }| match formatter.alternate() {
                true => format!("{of}: {why}"),
                false => of.clone(),
            });
            let each: Vec<String> = told_each.collect();
            let between = if formatter.alternate() { "; " } else { ", " };
            write!(formatter, ", {told} ({})", each.join(between))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: &str, holds: Option<bool>, shown: &str) -> StrategyCheck {
        let (id, shown) = (id.to_owned(), shown.to_owned());
        StrategyCheck { id, holds, shown, claim: String::new() }
    }

    #[test]
    fn nothing_that_was_not_decided_is_called_held() {
        let mut checks = vec![check("A1", Some(true), "2 of 2"), check("A2", Some(true), "0 left")];
        let all = Judgement::new(&checks);
        assert!(all.all_hold());
        assert_eq!((all.to_string(), format!("{all:#}")), ("2 hold".into(), "2 hold".into()));
        checks.push(check("E8", None, "2 processors"));
        let mut judgement = Judgement::new(&checks);
        assert!(!judgement.all_hold());
        assert_eq!(judgement.to_string(), "2 hold, 1 not decided here (E8)");
        let why = "redis-server is missing; run: apt-get install redis-server".to_owned();
        judgement.left_out.push(Reason { of: "contexts".into(), why });
        assert_eq!(
            format!("{judgement:#}"),
            "2 hold, 1 not decided here (E8: 2 processors), 1 step left out (contexts: \
             redis-server is missing; run: apt-get install redis-server)"
        );
        checks[1].holds = Some(false);
        checks.remove(2);
        assert_eq!(Judgement::new(&checks).to_string(), "1 holds, 1 fails (A2)");
        assert!(!Judgement::new(&[]).all_hold(), "nothing holds where nothing was asked");
    }
}
