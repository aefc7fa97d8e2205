//! How far forecasts are off, in figures: [`score`].

use sealane_lab_model::{
    document::{Score, ValidatedCurve},
    verdict::{TWICE, off},
};

/// The score of the curves that have a bar; missing ones leave open whether it is reached.
pub(super) fn judged(curves: &[ValidatedCurve]) -> Score {
    let score = score(curves);
    let is_complete = curves.iter().all(|curve| curve.failure.is_none());
    let passed = is_complete.then_some(score.within_twice >= WITHIN_TWICE_MIN);
    Score { within_twice_min: WITHIN_TWICE_MIN, passed, ..score }
}

/// How well any curves agree, beside what is right of them if every thread keeps all.
pub(super) fn score(curves: &[ValidatedCurve]) -> Score {
    let with = || curves.iter().filter(|curve| curve.failure.is_none());
    let unfitted: Vec<_> = with().filter(|curve| !curve.fitted).collect();
    let last =
        |curve: &ValidatedCurve| curve.points.last().map(|point| (point.forecast, point.published));
    let is_near = |pair: &(f64, f64)| off(*pair) <= TWICE;
    let keeps_all = |(_, published): (f64, f64)| (1.0, published);
    let ends: Vec<(f64, f64)> = unfitted.iter().filter_map(|curve| last(curve)).collect();
    let points: Vec<(f64, f64)> = unfitted
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|point| (point.forecast, point.published))
        .collect();
    let near = |pairs: &[(f64, f64)]| count(pairs.iter().filter(|pair| is_near(pair)).count());
    let baseline = [&ends, &points].map(|pairs| {
        let pairs: Vec<_> = pairs.iter().copied().map(keeps_all).collect();
        near(&pairs)
    });
    let mut factors: Vec<f64> = points.iter().map(|pair| off(*pair)).collect();
    factors.sort_by(f64::total_cmp);
    let pairs: Vec<(f64, f64)> = with().filter_map(last).collect();
    Score {
        unfitted: count(unfitted.len()),
        within_twice: near(&ends),
        baseline,
        points: [count(points.len()), near(&points)],
        median_factor: quantile(&factors, 0.5),
        p90_factor: quantile(&factors, 0.9),
        rank_correlation: rank_correlation(&pairs),
        ..Score::default()
    }
}

/// The quantile of values in ascending order, between the two neighbours.
fn quantile(values: &[f64], share: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else {
        return 0.0;
    };
    let at = share * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the length")]
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    values[below] + (values[above] - values[below]) * (at - below as f64)
}

/// Spearman's: Pearson's of the ranks, equal values sharing theirs.
fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let a = ranks(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>());
    let b = ranks(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>());
    let mean = (pairs.len() as f64 + 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum()
    };
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    if spread > 0.0 { product(&a, &b) / spread } else { 0.0 }
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let same = values.iter().filter(|other| other.total_cmp(value).is_eq()).count();
        below as f64 + (same as f64 + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The bar, set before the first forecast was made: of the 17 curves on which nothing was fitted.
const WITHIN_TWICE_MIN: u32 = 15;

#[cfg(test)]
mod tests {
    use sealane_lab_model::document::ValidatedPoint;

    use super::*;

    fn curve(forecast: f64, published: f64) -> ValidatedCurve {
        let point = ValidatedPoint { threads: 80, published, forecast };
        ValidatedCurve { points: vec![point], ..ValidatedCurve::default() }
    }

    #[test]
    fn a_factor_is_the_same_either_way() {
        assert!((off((0.2, 0.4)) - 2.0).abs() < 1e-12 && (off((0.4, 0.2)) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn fifteen_of_seventeen_pass_and_fourteen_do_not() {
        let curves = |misses: usize| -> Vec<ValidatedCurve> {
            let fitted = ValidatedCurve { fitted: true, ..curve(1.0, 1.0) };
            let misses = (0..misses).map(|_| curve(0.9, 0.44));
            let hits = (0..17).map(|_| curve(0.9, 0.46));
            [fitted].into_iter().chain(misses).chain(hits).take(18).collect()
        };
        let passed = judged(&curves(2));
        assert_eq!((passed.unfitted, passed.within_twice), (17, 15));
        assert_eq!(passed.passed, Some(true));
        assert_eq!(judged(&curves(3)).passed, Some(false));
    }

    #[test]
    fn what_is_missing_leaves_it_open() {
        let missing = ValidatedCurve { failure: Some("no file".into()), ..curve(0.0, 0.5) };
        let score = judged(&[curve(0.5, 0.5), missing]);
        assert_eq!((score.unfitted, score.passed), (1, None));
    }

    #[test]
    fn that_every_thread_keeps_all_is_right_of_curves_that_stay_above_a_half() {
        let fitted = ValidatedCurve { fitted: true, ..curve(1.0, 1.0) };
        let score = score(&[curve(0.1, 0.6), curve(0.4, 0.5), curve(0.3, 0.4), fitted]);
        assert_eq!((score.unfitted, score.within_twice, score.points), (3, 2, [3, 2]));
        assert_eq!(score.baseline, [2, 2]);
    }

    #[test]
    fn ranks_agree_or_are_opposite() {
        let up: Vec<(f64, f64)> = (0..9).map(|x| (f64::from(x), f64::from(x * x))).collect();
        let down: Vec<(f64, f64)> = up.iter().map(|(a, b)| (*a, -b)).collect();
        assert!((rank_correlation(&up) - 1.0).abs() < 1e-12);
        assert!((rank_correlation(&down) + 1.0).abs() < 1e-12);
        assert!(rank_correlation(&[(1.0, 1.0), (1.0, 2.0)]).abs() < 1e-12, "all the same");
        assert_eq!(ranks(&[3.0, 1.0, 3.0]), [2.5, 1.0, 2.5]);
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert!((quantile(&[1.0, 2.0], 0.5) - 1.5).abs() < 1e-12);
        assert!((quantile(&[1.0, 2.0, 5.0], 0.9) - 4.4).abs() < 1e-12);
        assert!(quantile(&[], 0.5).abs() < 1e-12);
    }
}
