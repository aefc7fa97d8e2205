//! The write-up's library, whose threads meet at a lock: [`slows`] and [`library`].

use sealane_lab_harness::strategies::check;
use sealane_lab_model::{
    document::{BulkRound, BulkSeries, StrategyCheck},
    figures::bulk::RATE,
};

use super::{Ends, Found, Series, is_under_asio, worst};
use crate::stacks::libssl;

/// A7: many threads at one lock, which lanes alone do not cure; put back into a library that has
/// lost it, or the write-up's own library with locks that keep their order.
pub(super) fn slows(series: &Series<'_>, processors: usize) -> StrategyCheck {
    let claim = "with the lock around error queues, many threads carry less than one";
    let found = |pair: [Ends<'_>; 2]| {
        let is_taken = pair.iter().all(|ends| {
            ends.last.rounds.iter().all(|round| round.lock_calls > 0)
                && !ends.last.rounds.is_empty()
        });
        let [(shared, text), (lanes, other)] = pair.map(|it| it.growth(&RATE));
        if !is_taken {
            let shown = format!("{text}; {other}: the lock was not taken");
            return Found { holds: Some(false), reach: 0.0, shown };
        }
        let (Some(shared), Some(lanes)) = (shared, lanes) else {
            return Found::too_few(&[text, other]);
        };
        let [shared, lanes] = [shared, lanes].map(|spread| spread.median);
        let shown =
            format!("{text}: x{shared:.2}; {other}, for lanes alone are no cure: x{lanes:.2}");
        let reach = 1.0 / shared;
        // On few processors the kernel may keep threads from meeting at the lock at all, or
        // others may take what the threads have: it shows nothing, either way.
        if processors < LOCK_PROCESSORS_MIN {
            let shown = format!("{shown}; {processors} processors of {LOCK_PROCESSORS_MIN}");
            return Found { holds: None, reach, shown };
        }
        Found { holds: Some(shared < 1.0), reach, shown }
    };
    let lacking = "it takes --emulate error-lock, or fair-locks for OpenSSL 1.0.2, with 1 thread \
                   and with 4 or more";
    let pairs = LOCKS.into_iter().flat_map(|lock| series.pairs(Some(lock)));
    worst("A7", claim, pairs.map(found), lacking)
}

/// A8: the locks that the libraries themselves take, as they count them, whatever the strategy.
pub(super) fn library(series: &Series<'_>) -> StrategyCheck {
    let claim = "OpenSSL 1.0.2 takes its locks a thousand times per MB or more, four of five for \
                 error queues; its successors take none";
    let own = series.0.iter().copied().filter(|it| {
        is_under_asio(it)
            && it.emulate.as_deref() != Some(PUT_BACK)
            && it.rounds.iter().any(|round| round.bytes > 0)
    });
    let (old, new): (Vec<_>, Vec<_>) = own.partition(|it| libssl::is_old(&it.stack));
    if old.is_empty() {
        return check("A8", claim, None, WITHOUT_THE_LIBRARY);
    }
    if new.is_empty() {
        return check("A8", claim, None, "it takes a newer OpenSSL under Asio beside it");
    }
    let old = Counted::of(&old);
    let new = Counted::of(&new);
    let holds = old.per_mb.0 >= PER_MB_MIN && old.of_errors_min >= OF_ERRORS_MIN && new.calls == 0;
    let shown = format!(
        "{:.0} to {:.0} per MB, {:.0}% of them for error queues; successors took {}",
        old.per_mb.0,
        old.per_mb.1,
        100.0 * old.of_errors_min,
        new.calls
    );
    check("A8", claim, Some(holds), shown)
}

/// Acquisitions in all rounds of some series.
struct Counted {
    calls: u64,
    /// The least and the most of a round.
    per_mb: (f64, f64),
    /// The least share of a round that was for error queues, from 0 to 1.
    of_errors_min: f64,
}

impl Counted {
    fn of(series: &[&BulkSeries]) -> Self {
        let carried = |round: &&BulkRound| round.bytes > 0;
        let rounds = || series.iter().flat_map(|it| &it.rounds).filter(carried);
        let per_mb = |round: &BulkRound| round.lock_calls as f64 * 1e6 / round.bytes as f64;
        let of_errors = |round: &BulkRound| {
            let errors = round.locks.get(ERRORS).copied().unwrap_or(0);
            errors as f64 / round.lock_calls.max(1) as f64
        };
        Self {
            calls: rounds().map(|round| round.lock_calls).sum(),
            per_mb: (
                rounds().map(per_mb).fold(f64::INFINITY, f64::min),
                rounds().map(per_mb).fold(0.0, f64::max),
            ),
            of_errors_min: rounds().map(of_errors).fold(1.0, f64::min),
        }
    }
}

/// Emulations with a lock at which threads wait in order.
const LOCKS: [&str; 2] = [PUT_BACK, "fair-locks"];
/// The emulation whose lock is not the library's own.
pub(super) const PUT_BACK: &str = "error-lock";
/// What OpenSSL 1.0.2 calls the lock around its error queues.
const ERRORS: &str = "err";
/// Locks of the library, where 1.0.2zp was counted to take 1,376 to 1,528 per MB, 84% of them and
/// more for error queues.
const PER_MB_MIN: f64 = 1_000.0;
const OF_ERRORS_MIN: f64 = 0.8;
/// Fewer need not show what a lock costs.
const LOCK_PROCESSORS_MIN: usize = 4;
const WITHOUT_THE_LIBRARY: &str = "it takes OpenSSL 1.0.2, which no package carries: \
     sealane-lab stacks build openssl@1.0.2 --from FOLDER";

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{as_published, cell},
        *,
    };

    /// Beside the newer library, the write-up's own with so many locks per MB, so many of them for
    /// error queues.
    fn with_library(per_mb: u64, errors: u64) -> Vec<BulkSeries> {
        let mut all = as_published();
        all.iter_mut().for_each(|it| it.runtime = "asio".into());
        let mut old = cell("shared", None, 2, [400, 400]);
        (old.stack, old.runtime) = ("openssl@1.0.2".into(), "asio".into());
        for round in &mut old.rounds {
            let megabytes = round.bytes / 1_000_000;
            round.lock_calls = per_mb * megabytes;
            round.locks = [(ERRORS, errors), ("ssl_ctx", per_mb - errors)]
                .map(|(name, calls)| (name.to_owned(), calls * megabytes))
                .into();
        }
        all.push(old);
        all
    }

    fn judged(series: &[BulkSeries]) -> StrategyCheck {
        library(&Series(series.iter().collect()))
    }

    #[test]
    fn the_library_is_known_by_its_locks_and_its_successor_by_none() {
        let told = judged(&with_library(1_500, 1_350));
        assert_eq!((told.holds, told.id.as_str()), (Some(true), "A8"), "{told:?}");
        assert!(told.shown.starts_with("1500 to 1500 per MB, 90% of them"), "{told:?}");
        assert_eq!(judged(&with_library(999, 990)).holds, Some(false), "too few");
        assert_eq!(judged(&with_library(1_500, 1_199)).holds, Some(false), "of others");
        let mut leaking = with_library(1_500, 1_350);
        leaking[0].rounds[4].lock_calls = 1;
        assert_eq!(judged(&leaking).holds, Some(false), "the successor took one");
    }

    #[test]
    fn without_the_library_or_its_successor_nothing_is_decided() {
        let all = with_library(1_500, 1_350);
        let told = judged(&all[..8]);
        assert!(told.holds.is_none() && told.shown.contains("--from FOLDER"), "{told:?}");
        assert_eq!(judged(&all[8..]).holds, None);
    }

    #[test]
    fn locks_in_order_slow_the_write_ups_own_library_too() {
        let mut series = as_published();
        let of_lock = series.iter_mut().filter(|it| it.emulate.is_some());
        for it in of_lock {
            (it.stack, it.emulate) = ("openssl@1.0.2".into(), Some("fair-locks".into()));
        }
        let told = slows(&Series(series.iter().collect()), 8);
        assert!(told.holds == Some(true) && told.shown.starts_with("openssl@1.0.2"), "{told:?}");
        series[5].rounds.iter_mut().for_each(|round| round.wall_ns /= 3);
        assert_eq!(slows(&Series(series.iter().collect()), 8).holds, Some(false));
    }
}
