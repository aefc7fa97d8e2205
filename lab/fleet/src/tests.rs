//! A small fleet through all its misfortunes, and fleets that break a rule each.

use sealane_lab_model::document::Fleet;

use super::*;
use crate::plan::Breach;

fn plan() -> Plan {
    Plan { seed: 3, machines: 20, names: 2_000, days: 120, orders: 300, away_days: 3, breach: None }
}

fn run(plan: &Plan) -> Fleet {
    let (tally, counts) = simulate(plan, |_| Ok(())).unwrap();
    document(plan, &tally, judge::checks(plan, &tally, counts))
}

fn failing(plan: &Plan) -> Vec<String> {
    let checks = run(plan).checks.into_iter();
    checks.filter(|check| check.holds == Some(false)).map(|check| check.id).collect()
}

#[test]
fn all_holds_through_every_misfortune_and_the_same_seed_is_the_same_fleet() {
    let fleet = run(&plan());
    for check in &fleet.checks {
        assert_eq!(check.holds, Some(true), "{check:#?}\n{}", text(&fleet));
    }
    // None of it was spared.
    let idle = fleet.figures.iter().filter(|figure| figure.value == 0.0).collect::<Vec<_>>();
    assert!(idle.is_empty(), "{idle:?}");
    assert_eq!(run(&plan()), fleet);
}

#[test]
fn each_check_fails_for_a_fleet_that_breaks_its_rule() {
    for (breach, check) in [
        (Breach::NoTakeover, "L1"),
        (Breach::NoRecords, "L2"),
        (Breach::NoFence, "L2"),
        (Breach::NoSharedLimit, "L3"),
        (Breach::NoInformation, "L4"),
        (Breach::WatchedStatuses, "L6"),
        (Breach::WildClocks, "L5"),
    ] {
        let orders = if breach == Breach::NoSharedLimit { 5 } else { 300 };
        let plan = Plan { breach: Some(breach), orders, ..plan() };
        let failing = failing(&plan);
        assert!(failing.iter().any(|id| id == check), "{breach:?}: {failing:?}");
    }
}

#[test]
fn an_absence_longer_than_the_margin_explains_what_expires() {
    let plan = Plan { away_days: 18, ..plan() };
    let fleet = run(&plan);
    let served = &fleet.checks[0];
    assert_eq!(served.holds, Some(true), "{served:#?}");
    assert!(!served.shown.starts_with("0 expired"), "{served:#?}");
}

#[test]
fn what_comes_too_late_in_a_short_run_is_not_decided() {
    let plan = Plan { days: 3, ..plan() };
    let fleet = run(&plan);
    assert_eq!(fleet.checks[3].holds, None);
    assert_eq!(fleet.moments, []);
}
