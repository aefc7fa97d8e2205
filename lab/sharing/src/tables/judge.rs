//! What the checks K1 to K3 say about the rows of `tables`.

use sealane_lab_harness::strategies::check;
use sealane_lab_model::{
    document::{Strategies, StrategyCheck, StrategyRow},
    statistics::Spread,
};

use super::{GROWTHS, SHARERS, Strategy};

/// Adds the checks, on a machine of so many processors.
pub(super) fn judge(strategies: &mut Strategies, processors: usize) {
    let rows = &strategies.rows;
    let checks = vec![sharing(rows), growing(rows), scaling(rows, processors)];
    strategies.checks.extend(checks);
}

fn of(rows: &[StrategyRow], strategy: Strategy) -> impl Iterator<Item = &StrategyRow> {
    rows.iter().filter(move |row| row.strategy == strategy.name() && row.failure.is_none())
}

fn threads(row: &StrategyRow) -> usize {
    row.variant.get("threads").and_then(|threads| threads.parse().ok()).unwrap_or(0)
}

/// All rounds' values with their threads, of rows with several: of the shared table, and of the
/// remedies; `None` if either was not measured.
fn fault_and_remedies(rows: &[StrategyRow], name: &str) -> Option<[Vec<(usize, f64)>; 2]> {
    let values = |strategy: &Strategy| {
        let several = of(rows, *strategy).filter(|row| threads(row) > 1);
        several.flat_map(|row| {
            let figures = row.figures.get(name).into_iter().flatten();
            figures.map(|figure| (threads(row), *figure))
        })
    };
    let both = [&[Strategy::ThreadTable][..], &[Strategy::OwnTable, Strategy::Process]]
        .map(|strategies| strategies.iter().flat_map(values).collect::<Vec<_>>());
    both.iter().all(|values| !values.is_empty()).then_some(both)
}

/// K1: whose the table is, by the kernel's word.
fn sharing(rows: &[StrategyRow]) -> StrategyCheck {
    let claim = "threads of thread-table have one table; those of own-table and process have one \
        each, as kcmp(2) tells";
    let Some([shared, apart]) = fault_and_remedies(rows, SHARERS) else {
        return check("K1", claim, None, BOTH);
    };
    let most = |all: &[(usize, f64)]| all.iter().map(|(_, it)| *it).fold(0.0, f64::max);
    let shown = format!("at most {} threads of one table, and {}", most(&shared), most(&apart));
    let holds = shared.iter().all(|(threads, sharers)| *sharers == *threads as f64)
        && apart.iter().all(|(_, sharers)| *sharers == 1.0);
    check("K1", claim, Some(holds), shown)
}

/// K2: who waits when a table grows.
fn growing(rows: &[StrategyRow]) -> StrategyCheck {
    let claim = "a table of several threads grows while they run, which each of them waits for; \
        tables of one thread make nobody else wait";
    let Some([shared, apart]) = fault_and_remedies(rows, GROWTHS) else {
        return check("K2", claim, None, BOTH);
    };
    let sum = |all: &[(usize, f64)]| all.iter().map(|(_, it)| *it).sum::<f64>();
    let shown = format!("{} growths of shared tables, {}", sum(&shared), sum(&apart));
    let holds = shared.iter().all(|(_, growths)| *growths > 0.0) && sum(&apart) == 0.0;
    check("K2", claim, Some(holds), shown)
}

/// K3: what it costs, where there are processors to show it.
fn scaling(rows: &[StrategyRow], processors: usize) -> StrategyCheck {
    let claim = "with 16 threads or more on as many processors, a table each gives each thread at \
        least 1.5 times the rate";
    if processors < PROCESSORS_MIN {
        let shown = format!("it takes {PROCESSORS_MIN} processors; here are {processors}");
        return check("K3", claim, None, shown);
    }
    let rate = |strategy| {
        let wide = of(rows, strategy)
            .filter(|row| (PROCESSORS_MIN..=processors).contains(&threads(row)))
            .filter(|row| row.variant.get("work").is_some_and(|work| work == "socket"));
        let row = wide.max_by_key(|row| threads(row))?;
        Some(Spread::of(row.figures.get("operations_per_s")?)?.median)
    };
    match (rate(Strategy::ThreadTable), rate(Strategy::OwnTable)) {
        (Some(one), Some(each)) => {
            let shown = format!("{each:.0} per second and thread against {one:.0}");
            check("K3", claim, Some(each >= RATIO_MIN * one), shown)
        }
        _ => check("K3", claim, None, "it takes both strategies with 16 threads"),
    }
}

const BOTH: &str = "it takes thread-table and a remedy with two threads";
const PROCESSORS_MIN: usize = 16;
const RATIO_MIN: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(strategy: Strategy, sharers: f64, growths: f64) -> StrategyRow {
        let figures = [(SHARERS, sharers), (GROWTHS, growths)];
        let variant = [("threads", "2"), ("work", "socket")];
        StrategyRow {
            strategy: strategy.name().into(),
            variant: variant.map(|(name, value)| (name.into(), value.into())).into(),
            figures: figures.map(|(name, figure)| (name.into(), vec![figure])).into(),
            ..StrategyRow::default()
        }
    }

    fn held(rows: Vec<StrategyRow>) -> Vec<Option<bool>> {
        let mut strategies = Strategies { rows, ..Strategies::default() };
        judge(&mut strategies, 2);
        strategies.checks.iter().map(|check| check.holds).collect()
    }

    #[test]
    fn each_check_can_fail() {
        let shared = || row(Strategy::ThreadTable, 2.0, 3.0);
        let own = || row(Strategy::OwnTable, 1.0, 0.0);
        assert_eq!(held(vec![shared(), own()]), [Some(true), Some(true), None]);
        // A table of one's own that is none.
        let fake = row(Strategy::OwnTable, 2.0, 3.0);
        assert_eq!(held(vec![shared(), fake]), [Some(false), Some(false), None]);
        let grown_before = row(Strategy::ThreadTable, 2.0, 0.0);
        assert_eq!(held(vec![grown_before, own()]), [Some(true), Some(false), None]);
        assert_eq!(held(vec![shared()]), [None, None, None]);
    }
}
