//! What each check says of rows that are made up.

use sealane_lab_harness::strategies::named;

use super::*;

fn row(strategy: &str, injected: bool, figures: &[(&str, f64)]) -> StrategyRow {
    let cost = injected.then(|| (INJECTED, "2 ms".to_owned()));
    StrategyRow {
        strategy: strategy.into(),
        variant: named([(LIVE, "100".to_owned())].into_iter().chain(cost)),
        figures: named(figures.iter().map(|(name, value)| (*name, vec![*value]))),
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
    assert_eq!(slow([40.0, 5.0], [30.0, 7.0], 2), [Some(true); 2]);
    assert_eq!(slow([14.0, 5.0], [30.0, 7.0], 2), [Some(false), Some(true)]);
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
