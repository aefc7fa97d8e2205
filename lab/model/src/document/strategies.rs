//! What rows of [`Strategies`] say, a figure's values and their median, times
//! [`OverTime`], and what all checks say: a [`Judgement`].

use std::{fmt, iter};

use serde::{Deserialize, Serialize};

use super::{Run, Strategies, StrategyCheck, StrategyRow};
use crate::{
    statistics::{Spread, paired_ratio},
    words,
};

impl Run {
    /// What all its commands come to.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        let of_strategies = self.strategies.iter().map(Strategies::judgement);
        iter::once(self.bulk_judgement()).chain(of_strategies).sum()
    }

    /// What `bulk` comes to.
    #[must_use]
    pub fn bulk_judgement(&self) -> Judgement {
        let failed = self.bulk.iter().filter_map(|series| {
            let of = format!("{} by {}", series.stack, series.runtime);
            Some(Reason { of, why: series.failure.clone()? })
        });
        Judgement::new(&self.checks, failed)
    }
}

impl Strategies {
    /// What its checks say, and its rows without figures.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        let failed = self
            .rows
            .iter()
            .filter_map(|row| Some(Reason { of: row.name(), why: row.failure.clone()? }));
        Judgement::new(&self.checks, failed)
    }
}

impl StrategyRow {
    /// The strategy with what tells its row from others.
    #[must_use]
    pub fn name(&self) -> String {
        let variant = self.variant.iter().map(|(name, value)| format!(", {name} {value}"));
        self.strategy.clone() + &variant.collect::<String>()
    }

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

    /// How many times the figure is what it is in `to`, round by round; `None` of too few rounds,
    /// or if one of them has it in some rounds only, which nobody can pair.
    #[must_use]
    pub fn ratio(&self, to: &Self, figure: &str) -> Option<f64> {
        self.ratio_of(figure, to, figure)
    }

    /// The same of two figures.
    #[must_use]
    pub fn ratio_of(&self, figure: &str, to: &Self, other: &str) -> Option<f64> {
        let (of, to) = (self.values(figure), to.values(other));
        let counting = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        let spread = paired_ratio(&counting(of), &counting(to)).filter(|_| of.len() == to.len());
        spread.map(|spread| spread.median)
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
    /// Checks that fail, by number, rows that have no figures, and steps that did not come to their
    /// end.
    pub failed: Vec<Reason>,
    /// Checks that this machine, or what was asked, cannot decide.
    pub undecided: Vec<Reason>,
    /// Steps that were not taken at all, with what to install.
    pub left_out: Vec<Reason>,
}

/// One check or step, and why it did not come out well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The check's number, the row's name, or the step's title.
    pub of: String,
    /// Why.
    pub why: String,
}

impl Judgement {
    /// What `checks` say of the rows that have figures, and which have `failed`: what holds of some
    /// rows is not called all that there is.
    fn new<'a>(
        checks: impl IntoIterator<Item = &'a StrategyCheck>,
        failed: impl IntoIterator<Item = Reason>,
    ) -> Self {
        let mut judgement = Self { failed: failed.into_iter().collect(), ..Self::default() };
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

impl iter::Sum for Judgement {
    fn sum<I: Iterator<Item = Self>>(judgements: I) -> Self {
        judgements.fold(Self::default(), |mut sum, Self { held, failed, undecided, left_out }| {
            sum.held += held;
            sum.failed.extend(failed);
            sum.undecided.extend(undecided);
            sum.left_out.extend(left_out);
            sum
        })
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
    use crate::document::BulkSeries;

    fn check(id: &str, holds: Option<bool>, shown: &str) -> StrategyCheck {
        let (id, shown) = (id.to_owned(), shown.to_owned());
        StrategyCheck { id, holds, shown, claim: String::new() }
    }

    #[test]
    fn nothing_that_was_not_decided_is_called_held() {
        let mut checks = vec![check("A1", Some(true), "2 of 2"), check("A2", Some(true), "0 left")];
        let all = Judgement::new(&checks, []);
        assert!(all.all_hold());
        assert_eq!((all.to_string(), format!("{all:#}")), ("2 hold".into(), "2 hold".into()));
        checks.push(check("E8", None, "2 processors"));
        let mut judgement = Judgement::new(&checks, []);
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
        assert_eq!(Judgement::new(&checks, []).to_string(), "1 holds, 1 fails (A2)");
        assert!(!Judgement::new(&[], []).all_hold(), "nothing holds where nothing was asked");
    }

    #[test]
    fn what_holds_of_the_rows_that_are_left_is_not_all() {
        let failure = Some("no connection".to_owned());
        let variant = [("threads".to_owned(), "2".to_owned())].into();
        let row =
            StrategyRow { strategy: "lane".into(), variant, failure, ..StrategyRow::default() };
        let checks = vec![check("C5", Some(true), "0")];
        let strategies = Strategies { rows: vec![row], checks, ..Strategies::default() };
        let judgement = strategies.judgement();
        assert!(!judgement.all_hold());
        assert_eq!(format!("{judgement:#}"), "1 holds, 1 fails (lane, threads 2: no connection)");
        let failure = Some("reset".to_owned());
        let (stack, runtime) = ("openssl".to_owned(), "tokio".to_owned());
        let series = BulkSeries { stack, runtime, failure, ..BulkSeries::default() };
        let strategies = vec![strategies];
        let run = Run { bulk: vec![series], strategies, ..Run::default() };
        let failed = run.judgement().failed.into_iter().map(|reason| reason.of);
        assert_eq!(failed.collect::<Vec<_>>(), ["openssl by tokio", "lane, threads 2"]);
    }
}
