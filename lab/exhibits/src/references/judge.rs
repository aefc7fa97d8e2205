//! What the rows must show: the checks R1 to R4, of TLSnappy's `CRYPTO_add_lock`.

use sealane_lab_harness::strategies::{check, word};
use sealane_lab_model::document::{Strategies, StrategyCheck, StrategyRow};

use super::{CPU_NS, RATE, SHARED, Strategy};
use crate::outlook;

/// Adds the checks, on a machine of so many processors; with what many threads come to, if that was
/// asked for.
pub(super) fn judge(
    strategies: &mut Strategies,
    processors: usize,
    outlook: Option<&outlook::Told>,
) {
    let rows = &strategies.rows;
    strategies.checks = vec![
        writes(rows),
        kept(rows, processors),
        lock(rows, processors),
        many(rows, processors, outlook),
    ];
}

/// CPU time of a reference where one thread counts alone.
pub(super) fn alone_ns(rows: &[StrategyRow], strategy: Strategy) -> Option<f64> {
    if_fits(rows, strategy, 1).find_map(|row| row.median(CPU_NS))
}

/// The most threads that had a processor each.
pub(super) fn most_threads(rows: &[StrategyRow], processors: usize) -> Option<u32> {
    let fitting = rows.iter().filter(|row| !alone(row) && threads(row) <= processors);
    fitting.map(threads).max().and_then(|most| u32::try_from(most).ok())
}

/// R1: who writes what another one writes.
fn writes(rows: &[StrategyRow]) -> StrategyCheck {
    let claim = "taking a reference and giving it back writes what other threads write, behind a \
                 lock and by an atomic; a lane's own is written by nobody else";
    let of = |strategy| {
        let counted = several(rows, strategy).find_map(|row| row.median(SHARED));
        counted.map(|writes| (strategy, writes))
    };
    let found: Vec<_> = STRATEGIES.into_iter().filter_map(of).collect();
    if found.is_empty() {
        return check("R1", claim, None, TAKES_A_COUNT);
    }
    let holds = found.iter().all(|(strategy, writes)| match strategy {
        Strategy::Lane => writes.total_cmp(&0.0).is_eq(),
        Strategy::Atomic | Strategy::Lock => *writes >= 2.0,
    });
    let told = found.iter().map(|(strategy, writes)| format!("{} {writes}", word(strategy)));
    check("R1", claim, Some(holds), told.collect::<Vec<_>>().join(", "))
}

/// R2: what is left of one thread's rate where each has a processor.
fn kept(rows: &[StrategyRow], processors: usize) -> StrategyCheck {
    let claim = "with a processor for each thread, a lane counts at 0.9 of the rate of one alone, \
                 and threads that share an atomic at half of it at most";
    let share = |strategy| kept_by(rows, strategy, processors);
    match (share(Strategy::Lane), share(Strategy::Atomic)) {
        (Some(lane), Some(atomic)) => {
            let shown = format!("lane {lane:.2}, atomic {atomic:.2}");
            check("R2", claim, Some(lane >= 0.9 && atomic <= 0.5), shown)
        }
        _ => check("R2", claim, None, "it takes lane and atomic, with 1 and 2 threads"),
    }
}

/// R3: whether the patch of 2012 was one.
fn lock(rows: &[StrategyRow], processors: usize) -> StrategyCheck {
    let claim = "an atomic counts faster than a lock, alone and with others";
    let rate = |strategy, is_alone: bool| {
        let mut rows = if_fits(rows, strategy, processors).filter(|row| alone(row) == is_alone);
        rows.find_map(|row| row.median(RATE))
    };
    let pair =
        |is_alone| Some([rate(Strategy::Atomic, is_alone)?, rate(Strategy::Lock, is_alone)?]);
    match (pair(true), pair(false)) {
        (Some([atomic, lock]), Some([atomic_with, lock_with])) => {
            let (one, several) = (atomic / lock, atomic_with / lock_with);
            let shown = format!("x{one:.2} alone, x{several:.2} with others");
            check("R3", claim, Some(one > 1.0 && several > 1.0), shown)
        }
        _ => check("R3", claim, None, "it takes lock and atomic, with 1 and 2 threads"),
    }
}

/// R4: what the counts come to, beside what was measured.
fn many(rows: &[StrategyRow], processors: usize, outlook: Option<&outlook::Told>) -> StrategyCheck {
    let claim = "many threads that count one number fall below 70% of their speed alone, behind a \
                 lock and by an atomic, and those with a number of their own do not: a forecast \
                 from what was counted";
    let outlook = match outlook {
        None => return check("R4", claim, None, TAKES_A_COUNT),
        Some(Err(reason)) => return check("R4", claim, None, reason),
        Some(Ok(outlook)) => outlook,
    };
    let keeps = |strategy: Strategy| outlook.keeps(&word(&strategy));
    let shared = [Strategy::Lock, Strategy::Atomic].map(keeps);
    let holds = match (keeps(Strategy::Lane), shared) {
        (Some(lane), [Some(lock), Some(atomic)]) => Some(lane && !lock && !atomic),
        _ => None,
    };
    let threads = most_threads(rows, processors).unwrap_or_default();
    let beside = STRATEGIES.into_iter().filter_map(|strategy| {
        let forecast = outlook.at(&word(&strategy), threads)?.efficiency;
        let measured = kept_by(rows, strategy, processors)?;
        Some(format!("{} {forecast:.2}/{measured:.2}", word(&strategy)))
    });
    let beside: Vec<String> = beside.collect();
    let beside = match beside.is_empty() {
        true => String::new(),
        false => format!("; FORECAST/measured with {threads} threads: {}", beside.join(", ")),
    };
    check("R4", claim, holds, format!("{outlook}{beside}"))
}

/// The share of one thread's rate that each of the most threads keeps.
fn kept_by(rows: &[StrategyRow], strategy: Strategy, processors: usize) -> Option<f64> {
    let one = if_fits(rows, strategy, processors).find(|row| alone(row))?.median(RATE)?;
    let last = if_fits(rows, strategy, processors).filter(|row| !alone(row)).last()?;
    Some(last.median(RATE)? / one)
}

fn if_fits(
    rows: &[StrategyRow],
    strategy: Strategy,
    processors: usize,
) -> impl Iterator<Item = &StrategyRow> {
    let of_strategy = rows.iter().filter(move |row| row.strategy == word(&strategy));
    of_strategy.filter(move |row| row.failure.is_none() && threads(row) <= processors)
}

fn several(rows: &[StrategyRow], strategy: Strategy) -> impl Iterator<Item = &StrategyRow> {
    if_fits(rows, strategy, usize::MAX).filter(|row| !alone(row))
}

fn alone(row: &StrategyRow) -> bool {
    threads(row) == 1
}

fn threads(row: &StrategyRow) -> usize {
    row.variant["threads"].parse().unwrap_or(usize::MAX)
}

const TAKES_A_COUNT: &str = "it takes --shared-writes (apt-get install valgrind) and two threads";
const STRATEGIES: [Strategy; 3] = [Strategy::Lock, Strategy::Atomic, Strategy::Lane];

#[cfg(test)]
mod tests {
    use sealane_lab_harness::strategies::named;

    use super::*;

    fn row(strategy: Strategy, threads: usize, rate: f64, writes: Option<f64>) -> StrategyRow {
        let writes = writes.map(|writes| (SHARED, vec![writes]));
        StrategyRow {
            strategy: word(&strategy),
            variant: named([("threads", threads.to_string())]),
            figures: named([(RATE, vec![rate])].into_iter().chain(writes)),
            ..StrategyRow::default()
        }
    }

    /// Lock, atomic and lane: rates with two threads, of 50, 100 and 100 alone, and writes.
    fn judged(rates: [f64; 3], writes: [f64; 3], processors: usize) -> Vec<Option<bool>> {
        let mut holds = checked(rates, writes, processors, None);
        assert_eq!(holds.pop(), Some((None, TAKES_A_COUNT.to_owned())));
        holds.into_iter().map(|(holds, _)| holds).collect()
    }

    fn checked(
        rates: [f64; 3],
        writes: [f64; 3],
        processors: usize,
        outlook: Option<&outlook::Told>,
    ) -> Vec<(Option<bool>, String)> {
        let mut rows = Vec::new();
        for (at, strategy) in STRATEGIES.into_iter().enumerate() {
            rows.push(row(strategy, 1, if at == 0 { 50.0 } else { 100.0 }, None));
            rows.push(row(strategy, 2, rates[at], Some(writes[at])));
        }
        let mut strategies = Strategies { rows, ..Strategies::default() };
        judge(&mut strategies, processors, outlook);
        strategies.checks.into_iter().map(|check| (check.holds, check.shown)).collect()
    }

    #[test]
    fn a_forecast_holds_if_only_those_with_their_own_keep_their_speed() {
        let forecast = |kept: &[(&str, f64)]| {
            let outlook = Ok(outlook::known(kept));
            let mut checks = checked([5.0, 20.0, 98.0], [4.0, 2.0, 0.0], 2, Some(&outlook));
            checks.pop().unwrap()
        };
        let (holds, shown) = forecast(&[("lock", 0.01), ("atomic", 0.02), ("lane", 1.0)]);
        assert_eq!(holds, Some(true));
        let beside = "FORECAST/measured with 2 threads: lock 0.01/0.10, atomic 0.02/0.20, lane \
                      1.00/0.98";
        assert!(shown.ends_with(beside), "{shown}");
        for kept in [[0.9, 0.02, 1.0], [0.01, 0.9, 1.0], [0.01, 0.02, 0.6]] {
            let [lock, atomic, lane] = kept;
            let kept = [("lock", lock), ("atomic", atomic), ("lane", lane)];
            assert_eq!(forecast(&kept).0, Some(false), "{kept:?}");
        }
        assert_eq!(forecast(&[("lane", 1.0)]).0, None);
        let lacking = Err("x is missing".to_owned());
        let told = checked([5.0, 20.0, 98.0], [4.0, 2.0, 0.0], 2, Some(&lacking)).pop();
        assert_eq!(told, Some((None, "x is missing".to_owned())));
    }

    #[test]
    fn each_check_can_fail_and_two_processors_decide() {
        let (rates, writes) = ([5.0, 20.0, 98.0], [4.0, 2.0, 0.0]);
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(judged(rates, writes, 2), [yes; 3]);
        assert_eq!(judged(rates, writes, 1), [yes, None, None], "no processor for each");
        assert_eq!(judged(rates, [4.0, 2.0, 2.0], 2)[0], no);
        assert_eq!(judged(rates, [4.0, 0.0, 0.0], 2)[0], no);
        assert_eq!(judged([5.0, 20.0, 80.0], writes, 2)[1], no);
        assert_eq!(judged([5.0, 90.0, 98.0], writes, 2)[1], no);
        assert_eq!(judged([25.0, 20.0, 98.0], writes, 2)[2], no);
    }
}
