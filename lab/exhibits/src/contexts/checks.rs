//! The checks of `contexts`: E1 to E8 of the write-up's list, from rows and from the checks' own
//! trials, by a [`Judge`].

use std::collections::{BTreeMap, BTreeSet};

use sealane_lab_harness::{strategies::check, trial::Reply};
use sealane_lab_model::{
    document::{Strategies, StrategyCheck, StrategyRow},
    error::Error,
    statistics::{Row, Spread, compare},
};

use crate::contexts::{
    library::SEALANE,
    mongoc,
    target::Protocol,
    task::{STRATEGIES, Strategy},
};

/// What was asked, and what the trials of the checks told.
pub(super) struct Judge {
    clients: u64,
    sockets: u64,
    pools: u64,
    lanes: u64,
    /// Certificates in the bundle of roots.
    bundle: u64,
    /// By check and stack.
    heard: BTreeMap<(&'static str, String), Told>,
}

/// The figures of a trial, or why it has none.
type Told = Result<BTreeMap<String, f64>, String>;

/// What became of a check: whether it holds, and what shows it.
type Judged = (Option<bool>, String);

impl Judge {
    /// `sockets` are those of one client.
    pub(super) fn new(clients: u64, sockets: u64, pools: u64, lanes: u64, bundle: u64) -> Self {
        let heard = BTreeMap::new();
        Self { clients, sockets: clients * sockets, pools, lanes, bundle, heard }
    }

    /// Takes the result of a trial that `check` rests on.
    pub(super) fn hear(&mut self, check: &'static str, stack: &str, result: Result<Reply, Error>) {
        let told = match result {
            Ok(Reply::Figures { figures, .. }) => Ok(figures),
            Ok(_) => Err("the trial told something else than figures".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        self.heard.insert((check, stack.to_owned()), told);
    }

    /// All of them.
    pub(super) fn checks(&self, strategies: &Strategies) -> Vec<StrategyCheck> {
        let rows: Vec<&StrategyRow> =
            strategies.rows.iter().filter(|row| row.failure.is_none()).collect();
        let judged = [
            ("E1", "contexts are built as often as the strategy says", self.built(&rows)),
            ("E2", "building them is what a context per socket costs", self.costs(&rows)),
            ("E3", "a handshake sees the roots from before a swap or after it", self.swaps()),
            ("E4", "a context is freed after its last connection", self.freed(&rows)),
            ("E5", "a wrong name on one connection does not touch the next", self.names()),
            ("E6", "unusable options name their file and harm nobody", self.bad_options()),
            ("E7", "equal options are parsed once in the process", self.parsed(&rows)),
            ("E8", "which is faster at 16 threads, shared or per lane", self.shared(&rows)),
        ];
        let checks = judged.into_iter().chain(self.beside_libmongoc(&rows));
        checks.map(|(id, claim, (holds, shown))| check(id, claim, holds, shown)).collect()
    }

    /// The engine beside MongoDB's own driver, if that took part: E2 as users have it. A driver
    /// that has the cure is held to what the cure promises.
    fn beside_libmongoc(
        &self,
        rows: &[&StrategyRow],
    ) -> Option<(&'static str, &'static str, Judged)> {
        let pinged = Protocol::Mongodb.name();
        let libmongoc = rows.iter().find(|row| strategy_of(row).is_none())?;
        let ours = rows.iter().find(|row| {
            is(row, SEALANE, Strategy::Digest)
                && row.variant.get("target").is_some_and(|target| target == pinged)
        })?;
        let [theirs, own] = [libmongoc, ours].map(|row| median(row, "total_cpu_ms"));
        let shown = format!(
            "{theirs:.0} ms and {} contexts, {own:.0} ms and {}, for {} clients: x{:.1}",
            shown(libmongoc, "contexts_built"),
            shown(ours, "contexts_built"),
            self.clients,
            theirs / own,
        );
        if !mongoc::is_per_socket(&libmongoc.strategy) {
            let once = all(libmongoc, "certificates_parsed", |value| value == self.bundle as f64);
            let claim = "libmongoc parses the roots once for the clients of a pool, since 1.28";
            return Some(("E2", claim, (Some(once), shown)));
        }
        let holds = (self.bundle >= BUNDLE_MIN).then_some(own * CPU_RATIO_MIN <= theirs);
        let claim = "the engine's clients cost a tenth of libmongoc's CPU, or less";
        Some(("E2", claim, (holds, shown)))
    }

    fn built(&self, rows: &[&StrategyRow]) -> Judged {
        let (mut wrong, mut right) = (Vec::new(), Vec::new());
        for row in rows {
            let Some(strategy) = strategy_of(row) else { continue };
            let expected = match strategy {
                Strategy::PerSocket => self.sockets,
                Strategy::PerClient => self.clients,
                Strategy::PerPool => self.pools,
                Strategy::PerLane => self.lanes,
                Strategy::Digest => 1,
            };
            let tls = Protocol::Tls.name();
            let mute = row.variant.get("target").is_some_and(|target| target == tls);
            let pings = if mute { "sockets" } else { "pings" };
            let is = |name, wanted: u64| all(row, name, |value| value == wanted as f64);
            if !(is("contexts_built", expected) && is(pings, self.sockets)) {
                let [built, pings] = ["contexts_built", pings].map(|name| shown(row, name));
                wrong.push(format!(
                    "{} built {built} contexts, wanted {expected}, and has {pings} of {} answers",
                    row.strategy, self.sockets
                ));
            } else {
                right.push(format!("{} {expected}", row.strategy));
            }
        }
        let mut told = BTreeSet::new();
        right.retain(|text| told.insert(text.clone()));
        judged(&wrong, &right, &format!("; {0} of {0} answers each", self.sockets))
    }

    fn costs(&self, rows: &[&StrategyRow]) -> Judged {
        if self.bundle < BUNDLE_MIN {
            return (None, format!("a bundle of {} roots cannot show it", self.bundle));
        }
        let (mut wrong, mut right) = (Vec::new(), Vec::new());
        for per_socket in rows.iter().filter(|row| is(row, "openssl", Strategy::PerSocket)) {
            let target = |row: &StrategyRow| row.variant.get("target").cloned();
            let same = |row: &&&StrategyRow| {
                is(row, "openssl", Strategy::PerPool) && target(row) == target(per_socket)
            };
            let Some(per_pool) = rows.iter().find(same) else { continue };
            let share = median(per_socket, "build_share");
            let after = median(per_pool, "rebuild_share");
            let [many, one] = [per_socket, per_pool].map(|row| median(row, "total_cpu_ms"));
            let text = format!(
                "{share:.0}% of the CPU with a context per socket, {after:.1}% with one per pool \
                 after its first; {many:.0} ms and {one:.0} ms in all, x{:.1} at {} sockets",
                many / one,
                self.sockets
            );
            let good = share >= 30.0 && after <= 1.0 && many >= 3.0 * one;
            if good { &mut right } else { &mut wrong }.push(text);
        }
        judged(&wrong, &right, "")
    }

    fn swaps(&self) -> Judged {
        self.told("E3", |figures| {
            let [swaps, trusted, refused] =
                ["swaps", "trusted", "refused"].map(|name| value(figures, name));
            let text = format!(
                "{swaps:.0} swaps, {trusted:.0} handshakes right to be trusted, {refused:.0} \
                 right to be refused, 0 others"
            );
            (swaps > 0.0 && trusted > 0.0 && refused > 0.0, text)
        })
    }

    fn freed(&self, rows: &[&StrategyRow]) -> Judged {
        let (mut wrong, mut sums) = (Vec::new(), [0.0; 2]);
        let counted = rows.iter().filter(|row| strategy_of(row).is_some()).map(|row| {
            let sum = |name: &str| row.figures.get(name).into_iter().flatten().sum::<f64>();
            (&*row.strategy, [sum("contexts_built"), sum("contexts_freed")])
        });
        let swapped = self.heard.iter().filter_map(|((check, stack), told)| {
            let figures = told.as_ref().ok().filter(|_| *check == "E3")?;
            let both = ["contexts_built", "contexts_freed"].map(|name| value(figures, name));
            Some((&**stack, both))
        });
        for (name, [built, freed]) in counted.chain(swapped) {
            sums[0] += built;
            sums[1] += freed;
            if built.total_cmp(&freed).is_ne() {
                wrong.push(format!("{name} freed {freed:.0} of {built:.0}"));
            }
        }
        wrong.extend(self.heard.iter().filter_map(|((check, stack), told)| {
            let figures = told.as_ref().ok().filter(|_| *check == "E3")?;
            let [threads, most, after] =
                ["threads", "live_most", "live_after"].map(|name| value(figures, name));
            // One in the slot, one that was just taken out of it, and one in the hands of each
            // thread; when the threads have ended, the one in the slot.
            let held = most <= threads + 2.0 && after.total_cmp(&1.0).is_eq();
            let text = || {
                format!(
                    "{stack}: while contexts were swapped, {most:.0} were there at once with \
                     {threads:.0} threads, and {after:.0} when these had ended"
                )
            };
            (!held).then(text)
        }));
        let right = (sums[0] > 0.0).then(|| format!("{:.0} built, {:.0} freed", sums[0], sums[1]));
        judged(&wrong, right.as_slice(), "")
    }

    fn names(&self) -> Judged {
        self.told("E5", |figures| {
            let [refused, pings, built] =
                ["refused", "pings", "contexts_built"].map(|name| value(figures, name));
            let text =
                format!("{refused:.0} refused and {pings:.0} answered in turn, {built:.0} context");
            (refused > 0.0 && pings >= refused && built.total_cmp(&1.0).is_eq(), text)
        })
    }

    fn bad_options(&self) -> Judged {
        self.told("E6", |figures| {
            let [errors, pings, slowest] =
                ["errors", "pings", "slowest_cpu_ms"].map(|name| value(figures, name));
            let text = format!(
                "{errors:.0} errors, each naming its file, {slowest:.1} ms of CPU at most; \
                 {pings:.0} pings between them"
            );
            (errors > 0.0 && pings >= errors && slowest <= ERROR_CPU_MS_MAX, text)
        })
    }

    fn parsed(&self, rows: &[&StrategyRow]) -> Judged {
        let (mut wrong, mut right) = (Vec::new(), Vec::new());
        for row in rows.iter().filter(|row| strategy_of(row) == Some(Strategy::Digest)) {
            let parsed = shown(row, "certificates_parsed");
            let once = all(row, "certificates_parsed", |parsed| parsed == self.bundle as f64);
            let text = format!(
                "{} certificates of a bundle of {} for {} clients",
                parsed, self.bundle, self.clients
            );
            let good = once && all(row, "contexts_built", |built| built == 1.0);
            if good { &mut right } else { &mut wrong }.push(text);
        }
        right.dedup();
        judged(&wrong, &right, "")
    }

    /// Never decided here: it is about 16 threads on as many processors.
    fn shared(&self, rows: &[&StrategyRow]) -> Judged {
        let mut texts = Vec::new();
        let pair = rows.iter().filter(|row| row.variant.contains_key("threads"));
        let (shared, lanes): (Vec<_>, Vec<_>) =
            pair.partition(|row| strategy_of(row) == Some(Strategy::PerPool));
        for (shared, lane) in shared.into_iter().zip(lanes) {
            let [of, to] = [lane, shared].map(|row: &StrategyRow| {
                let values = row.figures.get("rate").into_iter().flatten();
                values.map(|value| Some(*value)).collect::<Vec<_>>()
            });
            let (of, to) =
                (Row { name: "per-lane", figures: &of }, Row { name: "shared", figures: &to });
            let stack = shared.variant.get("stack").map_or("", String::as_str);
            texts.extend(
                compare("sockets per second", of, to)
                    .map(|found| format!("{stack}: {}", found.verdict)),
            );
        }
        let text = if texts.is_empty() { "not measured".to_owned() } else { texts.join("; ") };
        (None, format!("{} threads here: {text}", self.lanes))
    }

    /// What all stacks told for one check.
    fn told(
        &self,
        wanted: &str,
        judge: impl Fn(&BTreeMap<String, f64>) -> (bool, String),
    ) -> Judged {
        let (mut wrong, mut right) = (Vec::new(), Vec::new());
        for ((_, stack), told) in self.heard.iter().filter(|((check, _), _)| *check == wanted) {
            match told.as_ref().map(&judge) {
                Ok((true, text)) => right.push(format!("{stack}: {text}")),
                Ok((false, text)) => wrong.push(format!("{stack}: {text}")),
                Err(reason) => wrong.push(format!("{stack}: {reason}")),
            }
        }
        judged(&wrong, &right, "")
    }
}

/// What is wrong, or else what is right, or else that nothing shows it.
fn judged(wrong: &[String], right: &[String], behind: &str) -> Judged {
    match (wrong.is_empty(), right.is_empty()) {
        (false, _) => (Some(false), wrong.join("; ")),
        (true, false) => (Some(true), right.join(", ") + behind),
        (true, true) => (None, "nothing that was asked for shows it".to_owned()),
    }
}

/// `None` for a program that is not the lab's.
fn strategy_of(row: &StrategyRow) -> Option<Strategy> {
    STRATEGIES.into_iter().find(|strategy| strategy.name() == row.strategy)
}

/// Whether it is the row of that strategy which has a thread per client.
fn is(row: &StrategyRow, stack: &str, strategy: Strategy) -> bool {
    strategy_of(row) == Some(strategy)
        && row.variant.get("stack").is_some_and(|found| found == stack)
        && !row.variant.contains_key("threads")
}

/// Whether a figure is there, and so in every round.
fn all(row: &StrategyRow, name: &str, holds: impl Fn(f64) -> bool) -> bool {
    let values = row.figures.get(name).map(Vec::as_slice).unwrap_or_default();
    !values.is_empty() && values.iter().all(|value| holds(*value))
}

/// The first value that differs from the others' would be lost in a median: all that there are.
fn shown(row: &StrategyRow, name: &str) -> String {
    let values = row.figures.get(name).map(Vec::as_slice).unwrap_or_default();
    let mut texts: Vec<String> = values.iter().map(|value| format!("{value:.0}")).collect();
    texts.dedup();
    texts.join(" or ")
}

fn median(row: &StrategyRow, name: &str) -> f64 {
    let values = row.figures.get(name).map(Vec::as_slice).unwrap_or_default();
    Spread::of(values).map_or(f64::NAN, |spread| spread.median)
}

fn value(figures: &BTreeMap<String, f64>, name: &str) -> f64 {
    figures.get(name).copied().unwrap_or(f64::NAN)
}

/// Fewer roots are parsed too fast to be seen beside a handshake.
const BUNDLE_MIN: u64 = 100;
/// The least ratio of libmongoc's CPU to the engine's, for the same pings.
const CPU_RATIO_MIN: f64 = 10.0;
/// CPU that an attempt to use what cannot be used may take.
const ERROR_CPU_MS_MAX: f64 = 50.0;
