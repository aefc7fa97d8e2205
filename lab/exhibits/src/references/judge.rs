//! What the rows must show: the checks R1 to R4, of TLSnappy's `CRYPTO_add_lock`.

use sealane_lab_harness::strategies::{check, word};
use sealane_lab_model::document::{KNEE, Strategies, StrategyCheck, StrategyRow};

use super::{RATE, SHARED, Strategy};

/// Adds the checks, on a machine of so many processors.
pub(super) fn judge(strategies: &mut Strategies, processors: usize) {
    let rows = &strategies.rows;
    strategies.checks =
        vec![writes(rows), kept(rows, processors), lock(rows, processors), many(rows, processors)];
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
    let told = told.collect::<Vec<_>>().join(", ");
    match holds && found.len() < STRATEGIES.len() {
        true => check("R1", claim, None, format!("{told}; it takes lock, atomic and lane")),
        false => check("R1", claim, Some(holds), told),
    }
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
        _ => check("R2", claim, None, format!("it takes lane and atomic, {LACKING}")),
    }
}

/// R3: whether the patch of 2012 was one.
fn lock(rows: &[StrategyRow], processors: usize) -> StrategyCheck {
    let claim = "an atomic counts faster than a lock, alone and with others";
    let gain = |is_alone: bool| {
        let mut atomics = if_fits(rows, Strategy::Atomic, processors);
        let atomic = atomics.find(|row| alone(row) == is_alone)?;
        let mut locks = if_fits(rows, Strategy::Lock, processors);
        atomic.ratio(locks.find(|row| row.variant == atomic.variant)?, RATE)
    };
    match (gain(true), gain(false)) {
        (Some(one), Some(several)) => {
            let shown = format!("x{one:.2} alone, x{several:.2} with others");
            check("R3", claim, Some(one > 1.0 && several > 1.0), shown)
        }
        _ => check("R3", claim, None, format!("it takes lock and atomic, {LACKING}")),
    }
}

/// R4: the rates of many threads, on a machine that has a processor for each.
fn many(rows: &[StrategyRow], processors: usize) -> StrategyCheck {
    let claim = "16 threads or more that count one number fall below 70% of their speed alone, \
                 behind a lock and by an atomic, and those with a number of their own do not";
    let most = rows.iter().map(threads).filter(|threads| *threads <= processors).max();
    if most.is_none_or(|most| most < MANY) {
        return check("R4", claim, None, format!("it takes {MANY} threads with a processor each"));
    }
    let kept = STRATEGIES.map(|strategy| kept_by(rows, strategy, processors));
    match kept {
        [Some(lock), Some(atomic), Some(lane)] => {
            let shown = format!("lock {lock:.2}, atomic {atomic:.2}, lane {lane:.2}");
            check("R4", claim, Some(lock < KNEE && atomic < KNEE && lane >= KNEE), shown)
        }
        _ => check("R4", claim, None, format!("it takes lock, atomic and lane, {LACKING}")),
    }
}

/// The share of one thread's rate that each of the most threads keeps.
fn kept_by(rows: &[StrategyRow], strategy: Strategy, processors: usize) -> Option<f64> {
    let one = if_fits(rows, strategy, processors).find(|row| alone(row))?;
    if_fits(rows, strategy, processors).filter(|row| !alone(row)).last()?.ratio(one, RATE)
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
/// Fewer rounds decide no rate.
const LACKING: &str = "with 1 and 2 threads and --rounds=5";
/// Threads at which a shared number shows on any machine.
const MANY: usize = 16;
const STRATEGIES: [Strategy; 3] = [Strategy::Lock, Strategy::Atomic, Strategy::Lane];

#[cfg(test)]
mod tests {
    use sealane_lab_harness::strategies::named;
    use sealane_lab_model::statistics::ROUNDS_MIN;

    use super::*;

    fn row(strategy: Strategy, threads: usize, rate: f64, writes: Option<f64>) -> StrategyRow {
        let writes = writes.map(|writes| (SHARED, vec![writes]));
        StrategyRow {
            strategy: word(&strategy),
            variant: named([("threads", threads.to_string())]),
            figures: named([(RATE, vec![rate; ROUNDS_MIN])].into_iter().chain(writes)),
            ..StrategyRow::default()
        }
    }

    /// Lock, atomic and lane: rates with two threads, of 50, 100 and 100 alone, and writes.
    fn judged(rates: [f64; 3], writes: [f64; 3], processors: usize) -> Vec<Option<bool>> {
        let mut holds = checked(rates, writes, 2, processors);
        assert_eq!(holds.pop(), Some(None), "R4 takes more threads");
        holds
    }

    fn checked(
        rates: [f64; 3],
        writes: [f64; 3],
        threads: usize,
        processors: usize,
    ) -> Vec<Option<bool>> {
        let mut rows = Vec::new();
        for (at, strategy) in STRATEGIES.into_iter().enumerate() {
            rows.push(row(strategy, 1, if at == 0 { 50.0 } else { 100.0 }, None));
            rows.push(row(strategy, threads, rates[at], Some(writes[at])));
        }
        let mut strategies = Strategies { rows, ..Strategies::default() };
        judge(&mut strategies, processors);
        strategies.checks.into_iter().map(|check| check.holds).collect()
    }

    #[test]
    fn many_threads_decide_on_a_machine_with_as_many_processors() {
        let of = |rates, threads, processors| {
            checked(rates, [4.0, 2.0, 0.0], threads, processors).pop().unwrap()
        };
        assert_eq!(of([5.0, 20.0, 98.0], 16, 16), Some(true));
        for rates in [[45.0, 20.0, 98.0], [5.0, 90.0, 98.0], [5.0, 20.0, 60.0]] {
            assert_eq!(of(rates, 16, 16), Some(false), "{rates:?}");
        }
        assert_eq!(of([5.0, 20.0, 98.0], 16, 8), None);
    }

    #[test]
    fn writes_of_some_strategies_do_not_hold_of_all() {
        let judged = |strategy, counted| writes(&[row(strategy, 2, 1.0, Some(counted))]).holds;
        assert_eq!(judged(Strategy::Lane, 0.0), None);
        assert_eq!(judged(Strategy::Lock, 4.0), None);
        assert_eq!(judged(Strategy::Lane, 2.0), Some(false));
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

    #[test]
    fn rates_of_one_round_are_compared_and_of_enough() {
        let rates = |strategy, threads, rates: &[f64]| StrategyRow {
            figures: named([(RATE, rates.to_vec())]),
            ..row(strategy, threads, 0.0, None)
        };
        // The machine slows down, and each round has the same share.
        let of = [100.0, 50.0, 25.0, 12.0, 6.0].map(|rate| (rate, 0.95 * rate));
        let (one, two): (Vec<f64>, Vec<f64>) = of.into_iter().unzip();
        let rows = |rounds| {
            vec![rates(Strategy::Lane, 1, &one[..rounds]), rates(Strategy::Lane, 2, &two[..rounds])]
        };
        let share = kept_by(&rows(5), Strategy::Lane, 2).unwrap();
        assert!((share - 0.95).abs() < 1e-9, "{share}");
        assert_eq!(kept_by(&rows(4), Strategy::Lane, 2), None);
    }
}
