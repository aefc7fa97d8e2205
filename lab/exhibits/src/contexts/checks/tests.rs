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
    Judge { clients, sockets, pools: 1, lanes: 2, bundle: BUNDLE, refusals: 0, heard }
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
    let shared = |counts: &[[f64; 2]]| {
        let named = |[one, each]: [f64; 2]| {
            [(SHARED, one), (EACH, each)].map(|(name, value)| (name.to_owned(), value)).into()
        };
        let stacks = ["openssl", "sealane"].into_iter().zip(counts);
        let heard = stacks.map(|(stack, it)| (("E8", stack.to_owned()), Ok(named(*it))));
        Judge { heard: heard.collect(), ..judge() }.shared(&[])
    };
    let holds = |counts: &[[f64; 2]]| shared(counts).iter().map(|it| it.0).collect::<Vec<_>>();
    assert_eq!(holds(&[[4.0, 0.0]]), [Some(true)]);
    assert_eq!(holds(&[[4.0, 4.0]]), [Some(false)]);
    assert_eq!(holds(&[[0.0, 4.0]]), [Some(false)], "a write where one context has none");
    assert_eq!(holds(&[[4.0, 0.0], [0.0, 0.0]]), [Some(true), None]);
    assert!(shared(&[[0.0, 0.0]])[0].1.contains("there is nothing to take away"));
    assert_eq!(holds(&[]), [None]);
    assert!(shared(&[])[0].1.contains("--shared-writes"));
    // A stack that cannot be counted here is not decided, and takes nothing from one that can.
    let counted: BTreeMap<String, f64> = [(SHARED.to_owned(), 4.0), (EACH.to_owned(), 0.0)].into();
    let heard = [
        (("E8", "openssl".to_owned()), Ok(counted)),
        (("E8", "sealane".to_owned()), Err("x is missing".to_owned())),
    ];
    let judged = Judge { heard: heard.into(), ..judge() }.shared(&[]);
    let [openssl, sealane] = &judged[..] else { panic!("one of each stack") };
    assert!(openssl.0 == Some(true) && openssl.1.contains("from one context"), "{openssl:?}");
    assert_eq!(*sealane, (None, "sealane: x is missing".to_owned()));
}

#[test]
fn contexts_freed_while_they_are_swapped_decide_with_the_rows() {
    let heard = |told: Option<Result<[f64; 3], &str>>| {
        let named = |[freed, most, after]: [f64; 3]| {
            let pairs = [
                ("contexts_built", 9.0),
                ("contexts_freed", freed),
                ("threads", 8.0),
                ("live_most", most),
                ("live_after", after),
            ];
            pairs.map(|(name, value)| (name.to_owned(), value)).into()
        };
        let told = told.map(|it| (("E3", "openssl".to_owned()), it.map(named)));
        let heard = told.map(|(check, it)| (check, it.map_err(str::to_owned)));
        Judge { heard: heard.into_iter().collect(), ..judge() }
    };
    let row = |freed: f64| {
        let figures = [("contexts_built", 4.0), ("contexts_freed", freed)];
        StrategyRow {
            figures: figures.map(|(name, value)| (name.to_owned(), vec![value])).into(),
            ..row("per-socket", 0, 0, 0.0, 0.0)
        }
    };
    let all = Some(Ok([9.0, 10.0, 1.0]));
    assert_eq!(heard(all).freed(&[&row(4.0)]).0, Some(true));
    assert_eq!(heard(all).freed(&[&row(3.0)]).0, Some(false));
    for wrong in [[8.0, 10.0, 1.0], [9.0, 11.0, 1.0], [9.0, 10.0, 2.0]] {
        assert_eq!(heard(Some(Ok(wrong))).freed(&[&row(4.0)]).0, Some(false), "{wrong:?}");
    }
    let (holds, told) = heard(Some(Err("killed"))).freed(&[&row(4.0)]);
    assert_eq!((holds, told.as_str()), (Some(false), "openssl: killed"));
    assert_eq!(heard(None).freed(&[&row(4.0)]).0, None, "no Redis here");
    assert_eq!(heard(None).freed(&[&row(3.0)]).0, Some(false));
}

#[test]
fn rates_are_compared_within_a_stack() {
    let row = |strategy: &str, stack: &str, rate| {
        let variant = [("stack", stack), ("target", "redis"), ("threads", "2")];
        StrategyRow {
            strategy: strategy.to_owned(),
            variant: variant.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            figures: [("rate".to_owned(), vec![rate; 5])].into(),
            ..StrategyRow::default()
        }
    };
    // The row of OpenSSL's lanes has no figures.
    let rows = [
        row("per-pool", "openssl", 50.0),
        row("per-pool", "sealane", 100.0),
        row("per-lane", "sealane", 200.0),
    ];
    let rows: Vec<&StrategyRow> = rows.iter().collect();
    let told = judge().rates(&rows);
    assert!(told.starts_with("sealane: per-lane: 100.0% more than shared"), "{told}");
}

#[test]
fn without_a_driver_nothing_is_said_of_one() {
    assert!(judged_of(Vec::new()).1.is_empty());
}
