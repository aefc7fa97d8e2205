//! Which rounds figures are made of: [`Standing`] of each, and [`Shown`], those of a point.

use std::{collections::BTreeMap, fmt};

use super::Figure;
use crate::{
    document::{BulkRound, HandshakeRound, Invalid},
    statistics::Spread,
};

/// What a round is worth; the best comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// A round that counts.
    Counts,
    /// A round that was disturbed: shown where nothing counts, and never compared.
    Hint,
    /// A round whose time does not add up, or in which nothing happened: never shown.
    Nothing,
}

/// The rounds of a point that its figures are made of: those that count; if there is none, the
/// disturbed ones, as a hint.
pub struct Shown<'a, R> {
    rounds: Vec<&'a R>,
    /// Where each stands among all rounds of the point.
    places: Vec<usize>,
    standing: Standing,
}

impl<'a, R: Round> Shown<'a, R> {
    /// Those of `rounds`, which are all rounds of a point.
    #[must_use]
    pub fn of(rounds: &'a [R]) -> Self {
        let standing = rounds.iter().map(Round::standing).min().unwrap_or(Standing::Nothing);
        let is_shown = |round: &R| round.standing() == standing && standing != Standing::Nothing;
        let shown = rounds.iter().enumerate().filter(|(_, round)| is_shown(round));
        let (places, rounds) = shown.unzip();
        Self { rounds, places, standing }
    }

    /// The rounds, in the order measured.
    #[must_use]
    pub fn rounds(&self) -> &[&'a R] {
        &self.rounds
    }

    /// Whether there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Whether every round was disturbed.
    #[must_use]
    pub fn is_hint(&self) -> bool {
        self.standing == Standing::Hint
    }

    /// What stands before a figure of these rounds: [`HINT`], or nothing.
    #[must_use]
    pub fn mark(&self) -> &'static str {
        if self.is_hint() { HINT } else { "" }
    }

    /// A figure of each round that tells it.
    #[must_use]
    pub fn values(&self, figure: &Figure<R>) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| (figure.of_round)(round)).collect()
    }

    /// A figure of each round that tells it, by the round's place among all of the point: points
    /// that were measured side by side are compared by it.
    #[must_use]
    pub fn by_round(&self, figure: &Figure<R>) -> BTreeMap<usize, f64> {
        let rounds = self.places.iter().zip(&self.rounds);
        rounds.filter_map(|(place, round)| Some((*place, (figure.of_round)(round)?))).collect()
    }

    /// The middle and the ends of a figure.
    #[must_use]
    pub fn spread(&self, figure: &Figure<R>) -> Option<Spread> {
        Spread::of(&self.values(figure))
    }

    /// The middle of a figure.
    #[must_use]
    pub fn median(&self, figure: &Figure<R>) -> Option<f64> {
        self.spread(figure).map(|spread| spread.median)
    }
}

/// A figure of every round in the order measured, `None` where it does not count: for comparisons.
#[must_use]
pub fn counting<R: Round>(rounds: &[R], figure: &Figure<R>) -> Vec<Option<f64>> {
    let value = |round: &R| (figure.of_round)(round).filter(|_| round.counts());
    rounds.iter().map(value).collect()
}

/// What the rule asks of a round.
pub trait Round {
    /// Why it does not count, if it does not.
    fn invalid(&self) -> Option<&Invalid>;

    /// Whether anything was done, in time that passed.
    fn has_figures(&self) -> bool;

    /// The rule.
    fn standing(&self) -> Standing {
        match self.invalid() {
            _ if !self.has_figures() => Standing::Nothing,
            None => Standing::Counts,
            Some(Invalid::Accounting) => Standing::Nothing,
            Some(
                Invalid::Preempted
                | Invalid::Start
                | Invalid::Starved
                | Invalid::Steal
                | Invalid::Unknown(_),
            ) => Standing::Hint,
        }
    }

    /// Whether it counts.
    fn counts(&self) -> bool {
        self.standing() == Standing::Counts
    }
}

impl Round for HandshakeRound {
    fn invalid(&self) -> Option<&Invalid> {
        self.invalid.as_ref()
    }

    fn has_figures(&self) -> bool {
        self.window_ns > 0 && self.per_thread.iter().any(|count| *count > 0)
    }
}

impl Round for BulkRound {
    fn invalid(&self) -> Option<&Invalid> {
        self.invalid.as_ref()
    }

    fn has_figures(&self) -> bool {
        self.wall_ns > 0 && self.bytes > 0
    }
}

/// How many rounds count, and why the others do not: `4 of 5, 1 steal`.
#[derive(Default)]
pub struct Tally<'a> {
    all: usize,
    counting: usize,
    causes: BTreeMap<&'a Invalid, usize>,
}

impl<'a> Tally<'a> {
    /// The tally of `rounds`.
    #[must_use]
    pub fn of<R: Round>(rounds: &'a [R]) -> Self {
        let mut tally = Self::default();
        tally.add(rounds);
        tally
    }

    /// More rounds.
    pub fn add<R: Round>(&mut self, rounds: &'a [R]) {
        self.all += rounds.len();
        self.counting += rounds.iter().filter(|round| round.counts()).count();
        for cause in rounds.iter().filter_map(Round::invalid) {
            *self.causes.entry(cause).or_default() += 1;
        }
    }

    /// How many there are.
    #[must_use]
    pub fn all(&self) -> usize {
        self.all
    }
}

impl fmt::Display for Tally<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.counting, self.all)?;
        self.causes.iter().try_for_each(|(cause, count)| write!(f, ", {count} {cause}"))
    }
}

/// The mark of a hint.
pub const HINT: &str = "~";

#[cfg(test)]
mod tests {
    use super::*;

    /// Causes, and what must be shown of rounds with them.
    #[track_caller]
    fn shows(words: &[&str], shown: &[u64], is_hint: bool, said: &str) {
        let cause = |word: &str| match word {
            "" => None,
            word => Some(serde_json::from_str(&format!("\"{word}\"")).unwrap()),
        };
        let round = |(bytes, word): (u64, &&str)| BulkRound {
            bytes,
            wall_ns: 1,
            invalid: cause(word),
            ..BulkRound::default()
        };
        let rounds: Vec<BulkRound> = (1..).zip(words).map(round).collect();
        let found = Shown::of(&rounds);
        let bytes: Vec<u64> = found.rounds().iter().map(|round| round.bytes).collect();
        assert_eq!((bytes.as_slice(), found.is_hint()), (shown, is_hint), "{words:?}");
        assert_eq!(Tally::of(&rounds).to_string(), said);
    }

    #[test]
    fn what_counts_is_shown_alone_and_what_was_disturbed_where_nothing_counts() {
        shows(&["", "steal", ""], &[1, 3], false, "2 of 3, 1 steal");
        shows(
            &["start", "starved", "accounting"],
            &[1, 2],
            true,
            "0 of 3, 1 accounting, 1 start, \
                                                                   1 starved",
        );
        shows(&["preempted", "thermal"], &[1, 2], true, "0 of 2, 1 preempted, 1 thermal");
        shows(&["accounting"], &[], false, "0 of 1, 1 accounting");
        shows(&[], &[], false, "0 of 0");
    }

    #[test]
    fn a_round_in_which_nothing_happened_is_nothing() {
        let empty = HandshakeRound { window_ns: 1, per_thread: vec![0], ..Default::default() };
        assert_eq!(empty.standing(), Standing::Nothing);
        let full = HandshakeRound { per_thread: vec![0, 1], ..empty };
        assert_eq!(full.standing(), Standing::Counts);
    }

    #[test]
    fn only_what_counts_is_compared() {
        let figure =
            Figure { name: "", head: "", unit: "", of_round: |r: &BulkRound| Some(r.bytes as f64) };
        let round = |bytes, invalid| BulkRound { bytes, wall_ns: 1, invalid, ..Default::default() };
        let rounds = [round(1, None), round(2, Some(Invalid::Steal)), round(0, None)];
        assert_eq!(counting(&rounds, &figure), [Some(1.0), None, None]);
    }
}
