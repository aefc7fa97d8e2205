//! What is said of MongoDB's driver, by rows as it made them.

use super::*;

const CLIENTS: u64 = 200;
const BUNDLE: u64 = 145;

fn row(
    strategy: &str,
    contexts: u64,
    certificates: u64,
    build_ms: f64,
    cpu_ms: f64,
) -> StrategyRow {
    let figures = [
        ("contexts_built", contexts as f64),
        ("certificates_parsed", certificates as f64),
        ("build_cpu_ms", build_ms),
        ("total_cpu_ms", cpu_ms),
    ];
    let variant = [("stack", "openssl"), ("target", "mongodb")];
    StrategyRow {
        strategy: strategy.to_owned(),
        variant: variant.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        figures: figures.map(|(name, value)| (name.to_owned(), vec![value])).into(),
        ..StrategyRow::default()
    }
}

fn judge() -> Judge {
    let (clients, sockets, heard) = (CLIENTS, CLIENTS, BTreeMap::new());
    let outlooks = BTreeMap::new();
    Judge { clients, sockets, pools: 1, lanes: 2, bundle: BUNDLE, refusals: 0, heard, outlooks }
}

/// The driver's rows behind the lab's own of both strategies, and what is said of them.
fn judged_of(drivers: Vec<StrategyRow>) -> (Vec<String>, Vec<(Option<bool>, String)>) {
    let judge = judge();
    let mut rows = vec![
        row("per-socket", CLIENTS, CLIENTS * BUNDLE, 7_000.0, 7_500.0),
        row("per-pool", 1, BUNDLE, 35.0, 200.0),
    ];
    rows.extend(drivers);
    rows.iter_mut().for_each(|row| judge.label(row));
    let rows: Vec<&StrategyRow> = rows.iter().collect();
    let labels = rows[2..].iter().map(|row| row.strategy.clone()).collect();
    (labels, judge.libmongoc(&rows).into_iter().map(|(_, _, judged)| judged).collect())
}

fn before() -> StrategyRow {
    row("libmongoc 1.23.1", 202, 201 * BUNDLE, 8_084.0, 8_421.0)
}

fn after() -> StrategyRow {
    row("libmongoc 1.30.4", 3, BUNDLE, 21.7, 222.0)
}

#[test]
fn a_driver_is_called_by_what_was_seen_and_held_to_its_own_remedy() {
    let (labels, judged) = judged_of(vec![before(), after()]);
    assert_eq!(labels, ["libmongoc 1.23.1 (per-socket)", "libmongoc 1.30.4 (per-pool)"]);
    assert!(judged.iter().all(|(holds, _)| *holds == Some(true)), "{judged:?}");
    assert!(judged[1].1.contains("x37.9"), "{judged:?}");
}

#[test]
fn one_driver_alone_is_no_before_and_after_and_the_other_is_named() {
    for driver in [before(), after()] {
        let (_, judged) = judged_of(vec![driver]);
        assert_eq!([judged[0].0, judged[1].0], [Some(true), None], "{judged:?}");
        assert!(judged[1].1.contains("stacks build libmongoc@1.30 --from FOLDER"), "{judged:?}");
    }
}

#[test]
fn a_remedy_that_cures_nothing_or_half_fails() {
    let dear = row("libmongoc 1.30.4", 3, BUNDLE, 21.7, 8_000.0);
    assert_eq!(judged_of(vec![before(), dear]).1[1].0, Some(false));
    let half = row("libmongoc 1.30.4", 100, 100 * BUNDLE, 4_000.0, 4_200.0);
    let (labels, judged) = judged_of(vec![before(), half]);
    assert_eq!(labels[1], format!("libmongoc 1.30.4 ({UNNAMED})"));
    assert_eq!([judged[0].0, judged[1].0], [Some(false), None], "{judged:?}");
    let slow = row("libmongoc 1.23.1", 202, 201 * BUNDLE, 60_000.0, 61_000.0);
    assert_eq!(judged_of(vec![slow, after()]).1[0].0, Some(false));
}

#[test]
fn contexts_of_lanes_that_share_as_much_as_one_fail() {
    let shared = |counts: Option<[f64; 2]>| {
        let figures = counts.map(|[one, each]| {
            let named = [(SHARED, one), (EACH, each)];
            named.map(|(name, value)| (name.to_owned(), value)).into()
        });
        let heard = figures.map(|figures| (("E8", "openssl".to_owned()), Ok(figures)));
        Judge { heard: heard.into_iter().collect(), ..judge() }.shared(&[]).remove(0).0
    };
    assert_eq!(shared(Some([4.0, 0.0])), Some(true));
    assert_eq!(shared(Some([0.0, 0.0])), Some(true), "nothing is left to take away");
    assert_eq!(shared(Some([4.0, 4.0])), Some(false));
    assert_eq!(shared(None), None);
    // A stack that cannot be counted here is not decided, and takes nothing from one that can.
    let counted: BTreeMap<String, f64> = [(SHARED.to_owned(), 4.0), (EACH.to_owned(), 0.0)].into();
    let heard = [
        (("E8", "openssl".to_owned()), Ok(counted)),
        (("E8", "sealane".to_owned()), Err("x is missing".to_owned())),
    ];
    let told: outlook::Told = Ok(outlook::known(&[("one context", 0.2)]));
    let outlooks = [("openssl".to_owned(), told)].into();
    let judged = Judge { heard: heard.into(), outlooks, ..judge() }.shared(&[]);
    let [openssl, sealane] = &judged[..] else { panic!("one of each stack") };
    assert!(openssl.0 == Some(true) && openssl.1.contains("one context keeps"), "{openssl:?}");
    assert_eq!(*sealane, (None, "sealane: x is missing".to_owned()));
}

#[test]
fn without_a_driver_nothing_is_said_of_one() {
    assert!(judged_of(Vec::new()).1.is_empty());
}
