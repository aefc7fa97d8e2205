//! What the write-ups' checks C5 and C6 say about the rows.

use sealane_lab_harness::strategies::{check, word};
use sealane_lab_model::{
    document::{Strategies, StrategyCheck, StrategyRow},
    statistics::Spread,
};

use super::{ROTATION, SHARED_ISSUE, SHARED_RESUME, Strategy, TICKETS};

/// Adds the checks, on a machine of so many processors.
pub(super) fn judge(strategies: &mut Strategies, processors: usize) {
    let rows = Rows(&strategies.rows);
    let checks = vec![
        waits(rows),
        shared_writes(rows),
        scaling(rows, processors),
        ages(rows),
        generated(rows, &strategies.settings["rotation"]),
    ];
    strategies.checks.extend(checks);
}

#[derive(Clone, Copy)]
struct Rows<'a>(&'a [StrategyRow]);

impl<'a> Rows<'a> {
    /// Those with figures, of at least so many threads.
    fn of(
        self,
        strategy: Strategy,
        keys: &'a str,
        threads_min: usize,
    ) -> impl Iterator<Item = &'a StrategyRow> + Clone {
        self.0.iter().filter(move |row| {
            row.strategy == word(&strategy)
                && row.failure.is_none()
                && row.variant["keys"] == keys
                && threads(row) >= threads_min
        })
    }

    /// All rounds' values of a figure.
    fn values(self, strategy: Strategy, keys: &'a str, threads_min: usize, name: &str) -> Vec<f64> {
        let rows = self.of(strategy, keys, threads_min);
        rows.flat_map(|row| row.values(name)).copied().collect()
    }

    /// The row with exactly so many threads.
    fn with(self, strategy: Strategy, threads_wanted: usize) -> Option<&'a StrategyRow> {
        let mut rows = self.of(strategy, TICKETS, threads_wanted);
        rows.find(|row| threads(row) == threads_wanted)
    }

    /// A count of the rotation.
    fn rotation(self, strategy: Strategy, name: &str) -> Option<f64> {
        self.values(strategy, ROTATION, 1, name).first().copied()
    }
}

fn threads(row: &StrategyRow) -> usize {
    row.variant["threads"].parse().unwrap_or(0)
}

/// C5 on few processors. What a lane would wait for, shared writes show.
fn waits(rows: Rows<'_>) -> StrategyCheck {
    let claim = "threads wait for the mutex";
    let waits = rows.values(Strategy::Mutex, TICKETS, 2, "lock_waits");
    match Spread::of(&waits) {
        Some(Spread { min, max, .. }) => {
            check("C5", claim, Some(max > 0.0), format!("{min} to {max} waits in a window"))
        }
        None => check("C5", claim, None, "it takes mutex with two threads"),
    }
}

/// C5 as an instrument sees it.
fn shared_writes(rows: Rows<'_>) -> StrategyCheck {
    let claim = "a lock is written for every ticket, and a lane writes nothing that another writes";
    let of = |strategy| {
        let [issue, resume] = [SHARED_ISSUE, SHARED_RESUME].map(|name| {
            let values = rows.values(strategy, TICKETS, 2, name);
            values.first().copied()
        });
        Some([issue?, resume?])
    };
    let counted: Vec<_> =
        STRATEGIES.iter().filter_map(|strategy| Some((*strategy, of(*strategy)?))).collect();
    if counted.is_empty() {
        let text = "it takes --shared-writes (apt-get install valgrind) and two threads";
        return check("C5", claim, None, text);
    }
    let holds = counted.iter().all(|(strategy, writes)| match strategy {
        Strategy::Lane => *writes == [0.0, 0.0],
        Strategy::Mutex | Strategy::RwLock => writes.iter().all(|writes| *writes > 0.0),
    });
    let told = counted.iter().map(|(strategy, [issue, resume])| {
        format!("{} {issue} per issue and {resume} per resume", word(strategy))
    });
    let told = told.collect::<Vec<_>>().join(", ");
    match holds && counted.len() < STRATEGIES.len() {
        true => check("C5", claim, None, format!("{told}; it takes {ALL}")),
        false => check("C5", claim, Some(holds), told),
    }
}

/// C5 on a large machine, with the most threads that all three were measured with.
fn scaling(rows: Rows<'_>, processors: usize) -> StrategyCheck {
    let claim = "with 16 threads or more on as many processors, the read-write lock does 3 times \
        the mutex's tickets, and each lane 0.9 of one alone";
    if processors < MANY {
        let shown = format!("{processors} processors cannot show it");
        return check("C5", claim, None, shown);
    }
    let most = (MANY..=processors).rev().find_map(|threads| {
        let [mutex, rwlock, lane] = STRATEGIES.map(|strategy| rows.with(strategy, threads));
        let (lane, alone) = (lane?, rows.with(Strategy::Lane, 1)?);
        Some((threads, rwlock?.ratio(mutex?, RATE)?, lane.ratio(alone, RATE)?))
    });
    match most {
        Some((threads, gain, kept)) => {
            let shown = format!("with {threads} threads {gain:.2} times, and {kept:.2}");
            check("C5", claim, Some(gain >= 3.0 && kept >= 0.9), shown)
        }
        None => {
            let shown = format!(
                "it takes {ALL} with 1 thread, and with 16 to {processors}, and --rounds=5"
            );
            check("C5", claim, None, shown)
        }
    }
}

/// C6: which tickets opened. Only a lane is held to it: the locks' keys change when the next thread
/// comes after their time, so that tickets live as much longer.
fn ages(rows: Rows<'_>) -> StrategyCheck {
    let claim = "while keys change, a lane opens every ticket younger than one lifetime and none \
        older than two";
    let of = |strategy, name| rows.rotation(strategy, name);
    let told = |strategy: Strategy| {
        let [young, refused, old, opened] =
            ["young_opened", "young_refused", "old_refused", "old_opened"].map(|n| of(strategy, n));
        Some((young?, refused?, old?, opened?))
    };
    let Some((young, refused, old, opened)) = told(Strategy::Lane) else {
        return check("C6", claim, None, "it takes lane");
    };
    let holds = young > 0.0 && refused == 0.0 && old > 0.0 && opened == 0.0;
    let mut shown = format!(
        "{refused} of {} young ones refused, {opened} of {} old ones opened",
        young + refused,
        old + opened
    );
    for strategy in [Strategy::Mutex, Strategy::RwLock] {
        if let Some((young, refused, old, opened)) = told(strategy) {
            let name = word(&strategy);
            let (young, old) = (young + refused, old + opened);
            shown += &format!("; {name} {refused} of {young} and {opened} of {old}");
        }
    }
    check("C6", claim, Some(holds), shown)
}

/// C6: where keys came from.
fn generated(rows: Rows<'_>, rotation: &str) -> StrategyCheck {
    let claim = "while keys change, no key is made under a lock; lanes derive theirs, so that \
        they make none from random bytes at all";
    let of = |strategy| {
        let made = rows.rotation(strategy, "keys_generated")?;
        Some((made, rows.rotation(strategy, "keys_generated_locked")?))
    };
    let counted: Vec<_> =
        STRATEGIES.iter().filter_map(|strategy| Some((*strategy, of(*strategy)?))).collect();
    let holds = counted.iter().all(|(strategy, (made, locked))| {
        *locked == 0.0 && (*strategy != Strategy::Lane || *made == 0.0)
    });
    let told = counted.iter().map(|(strategy, (made, locked))| {
        format!("{made} made for {}, {locked} of them under a lock", word(strategy))
    });
    let shown = format!("in {rotation}: {}", told.collect::<Vec<_>>().join("; "));
    match holds && counted.len() < STRATEGIES.len() {
        true => check("C6", claim, None, format!("{shown}; it takes {ALL}")),
        false => check("C6", claim, Some(holds), shown),
    }
}

const STRATEGIES: [Strategy; 3] = [Strategy::Mutex, Strategy::RwLock, Strategy::Lane];
const RATE: &str = "tickets_per_s";
const ALL: &str = "mutex, rwlock and lane";
/// Processors that show how strategies scale.
const MANY: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(strategy: &str, keys: &str, threads: &str, figures: &[(&str, f64)]) -> StrategyRow {
        let variant = [("threads", threads), ("keys", keys)];
        let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), vec![*value]));
        StrategyRow {
            strategy: strategy.into(),
            variant: variant.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            figures: figures.collect(),
            ..StrategyRow::default()
        }
    }

    /// How each check of these rows came out.
    fn judged(rows: Vec<StrategyRow>, processors: usize) -> Vec<Option<bool>> {
        let settings = [("rotation".to_owned(), "10 x 1000 ms".to_owned())].into();
        let mut strategies = Strategies { rows, settings, ..Strategies::default() };
        judge(&mut strategies, processors);
        strategies.checks.iter().map(|check| check.holds).collect()
    }

    fn rotation(young_refused: f64, old_opened: f64, generated: f64) -> StrategyRow {
        let figures = [
            ("young_opened", 100.0),
            ("young_refused", young_refused),
            ("old_refused", 50.0),
            ("old_opened", old_opened),
            ("keys_generated", generated),
            ("keys_generated_locked", 0.0),
        ];
        row("lane", ROTATION, "2", &figures)
    }

    #[test]
    fn nothing_measured_is_nothing_shown() {
        assert_eq!(judged(Vec::new(), 2), [None; 5]);
        let alone = [("lock_waits", 0.0), ("tickets_per_s", 1.0)];
        let rows = vec![row("mutex", TICKETS, "1", &alone), row("lane", TICKETS, "1", &alone)];
        assert_eq!(judged(rows, 2), [None; 5]);
    }

    #[test]
    fn a_mutex_nobody_waits_for_is_found() {
        for (waits, holds) in [(9.0, true), (0.0, false)] {
            let rows = vec![row("mutex", TICKETS, "2", &[("lock_waits", waits)])];
            assert_eq!(judged(rows, 2)[0], Some(holds), "{waits}");
        }
    }

    #[test]
    fn a_write_that_lanes_share_is_found() {
        let written = |strategy: &str, resume: f64| {
            row(strategy, TICKETS, "2", &[(SHARED_ISSUE, 0.0), (SHARED_RESUME, resume)])
        };
        let all = |resume| {
            let locks = ["mutex", "rwlock"].map(|strategy| {
                row(strategy, TICKETS, "2", &[(SHARED_ISSUE, 2.0), (SHARED_RESUME, 2.0)])
            });
            judged([locks.to_vec(), vec![written("lane", resume)]].concat(), 2)[1]
        };
        assert_eq!((all(0.0), all(0.5)), (Some(true), Some(false)));
        assert_eq!(judged(vec![written("lane", 0.0)], 2)[1], None, "no lock was measured");
        assert_eq!(judged(vec![written("mutex", 2.0)], 2)[1], Some(false));
    }

    #[test]
    fn sixteen_processors_are_asked_for_their_rates() {
        let row = |strategy: &str, threads: &str, rate: f64| {
            let row = row(strategy, TICKETS, threads, &[]);
            StrategyRow { figures: [(RATE.to_owned(), vec![rate; 5])].into(), ..row }
        };
        let with = |threads: &str, mutex: f64, lane: f64| {
            let wide = [("mutex", mutex), ("rwlock", 90.0), ("lane", lane)];
            let wide = wide.map(|(strategy, rate)| row(strategy, threads, rate));
            [vec![row("lane", "1", 100.0)], wide.to_vec()].concat()
        };
        assert_eq!(judged(with("16", 30.0, 90.0), 8)[2], None);
        assert_eq!(judged(with("16", 30.0, 90.0), 16)[2], Some(true));
        assert_eq!(judged(with("16", 31.0, 90.0), 16)[2], Some(false));
        assert_eq!(judged(with("16", 30.0, 89.0), 16)[2], Some(false));
        // The short form measures with one thread, and with as many as processors.
        assert_eq!(judged(with("64", 30.0, 89.0), 64)[2], Some(false));
        assert_eq!(judged(with("128", 30.0, 90.0), 64)[2], None, "they take turns");
        let mut unlike = with("64", 30.0, 90.0);
        unlike.push(row("lane", "128", 89.0));
        assert_eq!(judged(unlike, 128)[2], Some(true), "no lock was measured with 128");
    }

    #[test]
    fn a_ticket_refused_too_early_or_opened_too_late_and_a_key_made_are_found() {
        for (refused, opened, made, [ages, generated]) in [
            (0.0, 0.0, 0.0, [true, true]),
            (1.0, 0.0, 0.0, [false, true]),
            (0.0, 1.0, 0.0, [false, true]),
            (0.0, 0.0, 1.0, [true, false]),
        ] {
            let locks = ["mutex", "rwlock"].map(|strategy| {
                let figures = [("keys_generated", 9.0), ("keys_generated_locked", 0.0)];
                row(strategy, ROTATION, "2", &figures)
            });
            let rotation = vec![rotation(refused, opened, made)];
            let checks = judged([locks.to_vec(), rotation].concat(), 2);
            assert_eq!(checks[3..], [Some(ages), Some(generated)], "{refused} {opened} {made}");
        }
    }

    #[test]
    fn a_key_made_under_a_lock_is_found() {
        for (locked, holds) in [(0.0, true), (1.0, false)] {
            let row = |strategy: &str, locked: f64| {
                let figures = [("keys_generated", 9.0), ("keys_generated_locked", locked)];
                row(strategy, ROTATION, "2", &figures)
            };
            let rows = vec![row("mutex", 0.0), row("rwlock", locked), rotation(0.0, 0.0, 0.0)];
            assert_eq!(
                judged(rows[1..].to_vec(), 2)[4],
                Some(false).filter(|_| !holds),
                "{locked}"
            );
            assert_eq!(judged(rows, 2)[4], Some(holds), "{locked}");
        }
    }
}
