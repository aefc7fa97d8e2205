//! What each check says of rows that are made up.

use sealane_lab_harness::strategies::named;
use sealane_lab_model::document::{OverTime, Second};

use super::*;

fn row(strategy: &str, injected: bool, figures: &[(&str, f64)]) -> StrategyRow {
    let cost = injected.then(|| (INJECTED, "2 ms".to_owned()));
    StrategyRow {
        strategy: strategy.into(),
        variant: named([(LIVE, "100".to_owned())].into_iter().chain(cost)),
        figures: named(figures.iter().map(|(name, value)| (*name, vec![*value; ROUNDS_MIN]))),
        ..StrategyRow::default()
    }
}

/// The D5 of round trips with an injected cost and without, p50 of the owner's first.
fn slow(injected: [f64; 2], plain: [f64; 2], processors: usize) -> [Option<bool>; 2] {
    let pair = |is_injected, [central, alone]: [f64; 2]| {
        let times = |p50: f64| [("p50_ms", p50), ("p99_ms", p50 * 1.5)];
        [(CENTRAL, central), (PER_CONNECTION, alone)]
            .map(|(strategy, p50)| row(strategy, is_injected, &times(p50)))
    };
    let all = [pair(true, injected), pair(false, plain)].concat();
    let rows = Rows(all.iter().collect());
    the_owner_is_slow(&rows, 16, processors).unwrap().map(|check| check.holds)
}

#[test]
fn a_gain_that_is_only_injected_is_not_called_shown() {
    assert_eq!(slow([40.0, 5.0], [5.8, 7.0], 2), [Some(true), None]);
    assert_eq!(slow([40.0, 5.0], [5.8, 7.0], 16), [Some(true), Some(false)]);
    assert_eq!(slow([40.0, 5.0], [30.0, 7.0], 2), [Some(true), None], "either way");
    assert_eq!(slow([40.0, 5.0], [30.0, 7.0], 16), [Some(true); 2]);
    assert_eq!(slow([14.0, 5.0], [30.0, 7.0], 16), [Some(false), Some(true)]);
}

/// The best round of one beside the best of another was a gain that no round had.
#[test]
fn round_trips_are_compared_round_by_round() {
    let of = |strategy: &str, p50: &[f64]| StrategyRow {
        figures: named([
            ("p50_ms", p50.to_vec()),
            ("p99_ms", p50.iter().map(|ms| ms * 1.1).collect()),
        ]),
        ..row(strategy, true, &[])
    };
    let judged = |central: &[f64], alone: &[f64]| {
        let (central, alone) = (of(CENTRAL, central), of(PER_CONNECTION, alone));
        round_trips(Some(&central), Some(&alone), None).unwrap().unwrap().0
    };
    let quiet = [30.0, 60.0, 90.0, 60.0, 30.0];
    assert_eq!(judged(&quiet, &[10.0, 20.0, 30.0, 20.0, 10.0]), Some(true));
    assert_eq!(judged(&quiet, &[10.0, 30.0, 60.0, 30.0, 20.0]), Some(false));
    assert_eq!(judged(&quiet[..4], &[10.0, 20.0, 30.0, 20.0]), None, "too few");
}

#[test]
fn an_owner_without_a_queue_and_a_remedy_with_messages_are_found() {
    let depth = |waiting: f64, of_others: f64, injected: bool| {
        let figures = |waiting| [("messages", waiting), ("waiting", waiting)];
        let all =
            [row(CENTRAL, injected, &figures(waiting)), row(LANE, injected, &figures(of_others))];
        the_owner_is_a_queue(&Rows(all.iter().collect()), 4).holds
    };
    assert_eq!((depth(3.0, 0.0, true), depth(2.0, 0.0, true)), (Some(true), Some(false)));
    assert_eq!((depth(3.0, 1.0, true), depth(3.0, 0.0, false)), (Some(false), None));
}

#[test]
fn a_remedy_that_does_not_take_over_is_found_and_one_that_nobody_saw_is_not_judged() {
    let deployed = |strategy, failed: f64, messages: f64, seconds: [u64; 4]| {
        let figures = [("verified", 50.0), ("failed", failed), ("messages", messages)];
        let second = |count| Second { count, ..Second::default() };
        let over_time = OverTime {
            event: "deployment".into(),
            moment_s: 2.0005,
            seconds: seconds.map(second).to_vec(),
        };
        let mut row = row(strategy, false, &figures);
        row.variant.insert(DEPLOYED.to_owned(), "in the middle".to_owned());
        StrategyRow { over_time: Some(over_time), ..row }
    };
    let judged = |failed, messages, seconds| {
        let all =
            [deployed(CENTRAL, 0.0, 2.0, [9, 9, 9, 9]), deployed(LANE, failed, messages, seconds)];
        deploying_is_clean(&Rows(all.iter().collect()), 4).holds
    };
    assert_eq!(judged(0.0, 1.1, [9, 9, 9, 9]), Some(true));
    assert_eq!(judged(0.0, 2.0, [9, 9, 9, 9]), Some(false));
    assert_eq!(judged(0.0, 0.0, [9, 9, 9, 9]), Some(false));
    assert_eq!(judged(1.0, 1.1, [9, 9, 9, 9]), Some(false));
    // The third second began before the moment, and four may have been accepted before.
    assert_eq!(judged(0.0, 2.0, [9, 9, 9, 4]), None);
    assert_eq!(judged(0.0, 0.0, [0, 0, 9, 9]), None);
}
