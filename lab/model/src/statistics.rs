//! Medians and ratios of rounds, and whether a ratio shows anything.

use fastrand::Rng;
use serde::Serialize;

use crate::document::Comparison;

/// The middle and the ends of one figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The spread of at least one value.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        Some(Self { median: f64::midpoint(sorted[lower], sorted[upper]), min, max })
    }

    /// The spread of the ratios `of[i] / to[i]`: neighbours in time are compared, so that a change
    /// of the machine's load between rounds falls out.
    #[must_use]
    pub fn of_ratios(of: &[f64], to: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
        Self::of(&ratios)
    }
}

/// Rows that were measured in the same rounds: a name and one figure per round, `None` where the
/// round does not count.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The row's name in the table.
    pub name: &'a str,
    /// In the order of the rounds.
    pub figures: &'a [Option<f64>],
}

/// Compares two rows by the ratios of rounds that count in both; `None` if there is no such round.
///
/// The interval is the 95% bootstrap interval of the median ratio: over rounds, because the values
/// inside of one are not independent. With fewer than [`ROUNDS_MIN`] it is all the ratios there
/// are, and the verdict says that they are not enough.
#[must_use]
pub fn compare(measure: &str, of: Row<'_>, to: Row<'_>) -> Option<Comparison> {
    let ratios = ratios(of.figures, to.figures);
    let spread = Spread::of(&ratios)?;
    let rounds = ratios.len();
    let enough = rounds >= ROUNDS_MIN;
    let [low, high] = if enough { bootstrap(&ratios) } else { [spread.min, spread.max] };
    let ratio = spread.median;
    let figures = format!("x{ratio:.3}, 95% interval {low:.3} to {high:.3}, {rounds} rounds");
    let (of, to) = (of.name, to.name);
    let verdict = if !enough {
        let all = of_all(rounds);
        format!("{NOT_ENOUGH} of {of} and {to}: {all}")
    } else if low <= 1.0 && 1.0 <= high {
        format!("no difference shown between {of} and {to} ({figures})")
    } else {
        let word = if ratio > 1.0 { "more" } else { "less" };
        let percent = 100.0 * (ratio - 1.0).abs();
        format!("{of}: {percent:.1}% {word} than {to} ({figures})")
    };
    let (measure, of, to) = (measure.to_owned(), of.to_owned(), to.to_owned());
    Some(Comparison { measure, of, to, ratio, interval: [low, high], verdict })
}

/// The spread of the ratios of rounds that count on both sides, as [`compare`] pairs them; `None`
/// with fewer than [`ROUNDS_MIN`], which decide nothing.
#[must_use]
pub fn paired_ratio(of: &[Option<f64>], to: &[Option<f64>]) -> Option<Spread> {
    let ratios = ratios(of, to);
    Spread::of(&ratios).filter(|_| ratios.len() >= ROUNDS_MIN)
}

fn ratios(of: &[Option<f64>], to: &[Option<f64>]) -> Vec<f64> {
    of.iter().zip(to).filter_map(|(of, to)| Some(of.as_ref()? / to.as_ref()?)).collect()
}

impl Comparison {
    /// Whether it rests on [`ROUNDS_MIN`]; else it is a hint, with the least and the most ratio.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        !self.verdict.starts_with(NOT_ENOUGH)
    }
}

fn of_all(rounds: usize) -> String {
    let plural = if rounds == 1 { "round counts" } else { "rounds count" };
    format!("{rounds} {plural} and {ROUNDS_MIN} are needed")
}

/// The 95% interval of the median, by resampling.
fn bootstrap(values: &[f64]) -> [f64; 2] {
    let mut random = Rng::with_seed(BOOTSTRAP_SEED);
    let mut medians: Vec<f64> = (0..BOOTSTRAP_SAMPLES)
        .filter_map(|_| {
            let sample: Vec<f64> =
                values.iter().map(|_| values[random.usize(..values.len())]).collect();
            Spread::of(&sample).map(|spread| spread.median)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let tail = BOOTSTRAP_SAMPLES / 40;
    [medians[tail], medians[BOOTSTRAP_SAMPLES - 1 - tail]]
}

/// How a verdict begins that rests on fewer than [`ROUNDS_MIN`].
pub const NOT_ENOUGH: &str = "not enough to say";
/// With fewer rounds nothing can be said: of two stacks that are equal, three rounds would all be
/// on one side of 1 in a quarter of all runs, five in a sixteenth.
pub const ROUNDS_MIN: usize = 5;
const BOOTSTRAP_SAMPLES: usize = 10_000;
/// Fixed, so that a document's verdict can be computed again.
const BOOTSTRAP_SEED: u64 = 1;

/// The least value of each round.
pub fn least_per_round(servers: &[&[f64]]) -> Vec<f64> {
    let rounds = servers.iter().map(|values| values.len()).min().unwrap_or(0);
    (0..rounds)
        .map(|round| servers.iter().map(|values| values[round]).fold(f64::INFINITY, f64::min))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 10.0]);
        assert_eq!(spread, Some(Spread { median: 3.5, min: 1.0, max: 10.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn ratios_pair_the_values_of_one_round() {
        let spread = Spread::of_ratios(&[1.0, 20.0, 3.0], &[2.0, 40.0, 3.0]);
        assert_eq!(spread, Some(Spread { median: 0.5, min: 0.5, max: 1.0 }));
    }

    #[test]
    fn the_best_peer_may_be_another_in_each_round() {
        assert_eq!(least_per_round(&[&[1.0, 5.0], &[2.0, 4.0]]), [1.0, 4.0]);
    }

    #[test]
    fn a_ratio_is_of_the_rounds_that_both_have_and_of_enough() {
        let to: Vec<_> = (0..6).map(|round| Some(f64::from(1 << round))).collect();
        let mut of: Vec<_> = to.iter().map(|value| value.map(|value| 3.0 * value)).collect();
        of[0] = None;
        let ratio = Spread { median: 3.0, min: 3.0, max: 3.0 };
        assert_eq!(paired_ratio(&of, &to), Some(ratio), "the load falls out");
        of[5] = None;
        assert_eq!(paired_ratio(&of, &to), None, "4 rounds");
    }

    fn verdict(of: &[Option<f64>], to: &[Option<f64>]) -> Comparison {
        let (of, to) = (Row { name: "A", figures: of }, Row { name: "B", figures: to });
        compare("time", of, to).unwrap()
    }

    #[test]
    fn a_difference_is_shown_where_all_rounds_agree() {
        // The machine slows down by half; the ratio does not.
        let to: Vec<_> = [1.0, 1.1, 1.2, 1.4, 1.5].map(Some).into();
        let of: Vec<_> = [1.21, 1.31, 1.45, 1.67, 1.81].map(Some).into();
        let shown = verdict(&of, &to);
        assert!(shown.interval[0] > 1.18 && shown.interval[1] < 1.22, "{shown:?}");
        assert!(shown.verdict.contains("A: 20."), "{shown:?}");
        assert!(shown.verdict.contains("more than B"), "{shown:?}");
        assert!(shown.is_enough() && verdict(&to, &of).verdict.contains("less than B"));
    }

    #[test]
    fn no_difference_is_an_answer() {
        let to: Vec<_> = [1.0, 1.0, 1.0, 1.0, 1.0].map(Some).into();
        let of: Vec<_> = [0.9, 1.2, 1.0, 0.8, 1.3].map(Some).into();
        let shown = verdict(&of, &to);
        assert!(shown.verdict.contains("no difference shown between A and B"), "{shown:?}");
        assert!(shown.interval[0] < 1.0 && shown.interval[1] > 1.0);
    }

    /// The same thing twice, in many runs of the fewest rounds that a verdict rests on.
    #[test]
    fn between_equals_a_difference_is_seldom_shown() {
        const RUNS: usize = 200;
        let mut random = Rng::with_seed(7);
        let mut figures =
            || -> Vec<Option<f64>> { (0..ROUNDS_MIN).map(|_| Some(1.0 + random.f64())).collect() };
        let shows = |of: Vec<Option<f64>>, to: Vec<Option<f64>>| {
            !verdict(&of, &to).verdict.contains("no difference shown")
        };
        let shown = (0..RUNS).filter(|_| shows(figures(), figures())).count();
        assert!(shown * 10 < RUNS, "a difference in {shown} of {RUNS} runs");
    }

    #[test]
    fn rounds_that_do_not_count_in_both_rows_do_not_count() {
        let of = [Some(9.0), None, Some(2.0), Some(2.0), None];
        let to = [None, Some(9.0), Some(1.0), Some(1.0), None];
        let shown = verdict(&of, &to);
        assert_eq!((shown.ratio, shown.interval), (2.0, [2.0, 2.0]));
        assert!(!shown.is_enough());
        assert!(
            shown.verdict.contains("not enough to say of A and B: 2 rounds count"),
            "{shown:?}"
        );
        let rows = [Row { name: "A", figures: &of[..2] }, Row { name: "B", figures: &to[..2] }];
        assert_eq!(compare("time", rows[0], rows[1]), None);
    }

    #[test]
    fn the_same_rounds_give_the_same_interval() {
        let of: Vec<_> = [1.3, 1.1, 1.25, 1.17, 1.6].map(Some).into();
        let to = vec![Some(1.0); 5];
        assert_eq!(verdict(&of, &to), verdict(&of, &to));
    }
}
