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
    target::Protocol,
    task::{STRATEGIES, Strategy},
};

/// What was asked, and what the trials of the checks told.
pub(super) struct Judge {
    pub(super) clients: u64,
    /// Those of all clients.
    pub(super) sockets: u64,
    pub(super) pools: u64,
    pub(super) lanes: u64,
    /// Certificates in the bundle of roots.
    pub(super) bundle: u64,
    /// Clients that ask for a wrong name.
    pub(super) refusals: u64,
    /// By check and stack.
    pub(super) heard: BTreeMap<(&'static str, String), Told>,
}

/// The figures of a trial, or why it has none.
pub(super) type Told = Result<BTreeMap<String, f64>, String>;

/// What became of a check: whether it holds, and what shows it.
type Judged = (Option<bool>, String);

impl Judge {
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
        ];
        let shared = self.shared(&rows).into_iter().map(|judged| {
            ("E8", "lanes with a context each share fewer writes than with one", judged)
        });
        let checks = judged.into_iter().chain(shared).chain(self.libmongoc(&rows));
        checks.map(|(id, claim, (holds, shown))| check(id, claim, holds, shown)).collect()
    }

    /// Calls a row of MongoDB's driver by what was seen of it.
    pub(super) fn label(&self, row: &mut StrategyRow) {
        if strategy_of(row).is_some() || row.failure.is_some() {
            return;
        }
        let [contexts, certificates] =
            ["contexts_built", "certificates_parsed"].map(|name| median(row, name));
        let (clients, bundle) = (self.clients as f64, self.bundle as f64);
        let seen = if contexts >= clients && certificates >= clients * bundle {
            Strategy::PerSocket.name()
        } else if certificates == bundle {
            Strategy::PerPool.name()
        } else {
            UNNAMED
        };
        row.strategy = format!("{} ({seen})", row.strategy);
    }

    /// MongoDB's own driver: beside the lab's row of the strategy that was seen of it, and before
    /// its own remedy and after.
    fn libmongoc(&self, rows: &[&StrategyRow]) -> Vec<(&'static str, &'static str, Judged)> {
        let drivers: Vec<_> = rows.iter().filter(|row| strategy_of(row).is_none()).collect();
        if drivers.is_empty() {
            return Vec::new();
        }
        let seen = |strategy: Strategy| {
            let label = format!("({})", strategy.name());
            drivers.iter().find(move |row| row.strategy.ends_with(&label))
        };
        let (mut wrong, mut right) = (Vec::new(), Vec::new());
        for strategy in [Strategy::PerSocket, Strategy::PerPool] {
            let ours = rows.iter().find(|row| {
                let target = row.variant.get("target").map(String::as_str);
                is(row, "openssl", strategy) && target == Some(Protocol::Mongodb.name())
            });
            let Some((theirs, ours)) = seen(strategy).zip(ours) else { continue };
            let [one, other] = [theirs, ours].map(|row| parse_us(row));
            let text = format!(
                "{} {one:.0} us, {} {other:.0} us of CPU per certificate",
                theirs.strategy, ours.strategy
            );
            let alike = (1.0 / LIKENESS..=LIKENESS).contains(&(one / other));
            if alike { &mut right } else { &mut wrong }.push(text);
        }
        wrong.extend(drivers.iter().filter(|row| row.strategy.contains(UNNAMED)).map(|row| {
            let [contexts, certificates] =
                ["contexts_built", "certificates_parsed"].map(|name| shown(row, name));
            format!("{}: {contexts} contexts, {certificates} certificates", row.strategy)
        }));
        let alike = match self.bundle < BUNDLE_MIN {
            true => self.few_roots(),
            false => judged(&wrong, &right, ""),
        };
        let both = seen(Strategy::PerSocket).zip(seen(Strategy::PerPool));
        let remedied = match both {
            None => (None, ONE_DRIVER.to_owned()),
            Some((before, after)) => self.remedied(before, after),
        };
        vec![
            ("E2", "a context costs libmongoc what the lab's rows of its strategy show", alike),
            ("E2", "libmongoc's own remedy parses the roots once for a pool", remedied),
        ]
    }

    fn remedied(&self, before: &StrategyRow, after: &StrategyRow) -> Judged {
        if self.bundle < BUNDLE_MIN {
            return self.few_roots();
        }
        let [many, one] = [before, after].map(|row| median(row, "total_cpu_ms"));
        let told = [before, after].map(|row| {
            let [contexts, certificates] =
                ["contexts_built", "certificates_parsed"].map(|name| shown(row, name));
            let cpu_ms = median(row, "total_cpu_ms");
            let name = &row.strategy;
            format!("{name} {contexts} contexts, {certificates} certificates, {cpu_ms:.0} ms")
        });
        let fewer = median(after, "contexts_built") < self.clients as f64;
        let holds = fewer && many >= REMEDY_MIN * one;
        (Some(holds), format!("{}: x{:.1}", told.join("; "), many / one))
    }

    fn few_roots(&self) -> Judged {
        (None, format!("a bundle of {} roots cannot show it", self.bundle))
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
            return self.few_roots();
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
            (Some(swaps > 0.0 && trusted > 0.0 && refused > 0.0), text)
        })
    }

    /// By the rows' counts, and while contexts are swapped, without which it is not decided.
    fn freed(&self, rows: &[&StrategyRow]) -> Judged {
        let (mut wrong, mut sums) = (Vec::new(), [0.0; 2]);
        for row in rows.iter().filter(|row| strategy_of(row).is_some()) {
            let sum = |name: &str| row.figures.get(name).into_iter().flatten().sum::<f64>();
            let [built, freed] = ["contexts_built", "contexts_freed"].map(sum);
            sums[0] += built;
            sums[1] += freed;
            if built.total_cmp(&freed).is_ne() {
                wrong.push(format!("{} freed {freed:.0} of {built:.0}", row.strategy));
            }
        }
        let (swapped, told) = self.told("E3", |figures| {
            let [built, freed, threads, most, after] =
                ["contexts_built", "contexts_freed", "threads", "live_most", "live_after"]
                    .map(|name| value(figures, name));
            // One in the slot, one that was just taken out of it, and one in the hands of each
            // thread; when the threads have ended, the one in the slot.
            let held = built == freed && most <= threads + 2.0 && after == 1.0;
            let text = format!(
                "while contexts were swapped, {freed:.0} of {built:.0} freed, {most:.0} there at \
                 once with {threads:.0} threads, and {after:.0} when these had ended"
            );
            (Some(held), text)
        });
        match (swapped, wrong.is_empty()) {
            (Some(true), true) => {
                (swapped, format!("{:.0} built, {:.0} freed; {told}", sums[0], sums[1]))
            }
            (None, true) => (None, "it takes the swaps of E3, and a Redis for them".to_owned()),
            (Some(false), _) => {
                wrong.push(told);
                (Some(false), wrong.join("; "))
            }
            (_, false) => (Some(false), wrong.join("; ")),
        }
    }

    /// By what the server has counted: a client that was told another name never got through.
    fn names(&self) -> Judged {
        self.told("E5", |figures| {
            let [refused, connections, pings, built] =
                ["refused", "connections", "pings", "contexts_built"]
                    .map(|name| value(figures, name));
            let text = format!(
                "{refused:.0} refused by the client, and {connections:.0} connections with \
                 {pings:.0} pings that the server counted, for {} of each; {built:.0} context",
                self.refusals
            );
            let right = [refused, connections, pings].iter().all(|n| *n == self.refusals as f64);
            (Some(self.refusals > 0 && right && built == 1.0), text)
        })
    }

    fn bad_options(&self) -> Judged {
        self.told("E6", |figures| {
            let [errors, pings, live, slowest] =
                ["errors", "pings", "live", "slowest_cpu_ms"].map(|name| value(figures, name));
            let text = format!(
                "{errors:.0} errors, each naming its file, {slowest:.1} ms of CPU at most; \
                 {pings:.0} pings between them that the server counted, {live:.0} context left"
            );
            let untouched = errors > 0.0 && pings == errors && live == 1.0;
            (Some(untouched && slowest <= ERROR_CPU_MS_MAX), text)
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

    /// By shared writes, which are the same on every machine; where one context has none, there is
    /// nothing to take away, and nothing is decided. Which of the two is faster at 16 threads takes
    /// as many processors, and is not decided. A stack decides for itself: one that cannot be
    /// counted in this build decides nothing of another.
    fn shared(&self, rows: &[&StrategyRow]) -> Vec<Judged> {
        let lanes = self.lanes;
        let rates = self.rates(rows);
        let rates = format!("which is faster is not decided with {lanes} threads: {rates}");
        let told = self.heard.iter().filter(|((check, _), _)| *check == "E8");
        let of_stacks = told.map(|((_, stack), told)| match told {
            Err(reason) => (None, format!("{stack}: {reason}")),
            Ok(figures) => {
                let [shared, each] = [SHARED, EACH].map(|name| value(figures, name));
                let shown = format!(
                    "{stack}: {shared} per connection from one context, {each} from one each; \
                     {rates}"
                );
                match (shared, each) {
                    (0.0, 0.0) => (None, format!("{shown}: there is nothing to take away")),
                    _ => (Some(each < shared), shown),
                }
            }
        });
        let of_stacks: Vec<Judged> = of_stacks.collect();
        match of_stacks.is_empty() {
            true => {
                vec![(None, format!("shared writes are counted with --shared-writes; {rates}"))]
            }
            false => of_stacks,
        }
    }

    fn rates(&self, rows: &[&StrategyRow]) -> String {
        let mut texts = Vec::new();
        let of_lanes = |strategy: Strategy| {
            let is_it = move |row: &&StrategyRow| {
                row.variant.contains_key("threads") && strategy_of(row) == Some(strategy)
            };
            rows.iter().copied().filter(is_it)
        };
        for shared in of_lanes(Strategy::PerPool) {
            let same = |row: &&StrategyRow| row.variant == shared.variant;
            let Some(lane) = of_lanes(Strategy::PerLane).find(same) else { continue };
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
        if texts.is_empty() { "not measured".to_owned() } else { texts.join("; ") }
    }

    /// What all stacks told for one check; one that cannot decide it leaves it to the others.
    fn told(&self, wanted: &str, judge: impl Fn(&BTreeMap<String, f64>) -> Judged) -> Judged {
        let (mut wrong, mut right, mut open) = (Vec::new(), Vec::new(), String::new());
        for ((_, stack), told) in self.heard.iter().filter(|((check, _), _)| *check == wanted) {
            match told.as_ref().map(&judge) {
                Ok((Some(true), text)) => right.push(format!("{stack}: {text}")),
                Ok((Some(false), text)) => wrong.push(format!("{stack}: {text}")),
                Ok((None, text)) => open += &format!("; {stack}: {text}"),
                Err(reason) => wrong.push(format!("{stack}: {reason}")),
            }
        }
        let (holds, text) = judged(&wrong, &right, "");
        (holds, text + &open)
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

/// CPU in contexts for each certificate that was parsed.
fn parse_us(row: &StrategyRow) -> f64 {
    1e3 * median(row, "build_cpu_ms") / median(row, "certificates_parsed")
}

fn value(figures: &BTreeMap<String, f64>, name: &str) -> f64 {
    figures.get(name).copied().unwrap_or(f64::NAN)
}

/// Fewer roots are parsed too fast to be seen beside a handshake.
const BUNDLE_MIN: u64 = 100;
/// Two programs that parse the same roots by the same library differ by less.
const LIKENESS: f64 = 3.0;
/// The least ratio of libmongoc's CPU before its remedy to that after it; published was 9.7.
const REMEDY_MIN: f64 = 3.0;
/// Behind the name of a driver that does neither what was before nor what came after.
const UNNAMED: &str = "neither per socket nor per pool";
const ONE_DRIVER: &str = "one driver only: apt-get install libmongoc-dev brings one of before its \
    remedy; one of after it: sealane-lab stacks build libmongoc@1.30 --from FOLDER, the folder of \
    mongo-c-driver's sources";
/// Figures of E8: shared writes per connection.
pub(super) const SHARED: &str = "shared_writes_of_one_context";
pub(super) const EACH: &str = "shared_writes_of_one_each";
/// CPU that an attempt to use what cannot be used may take.
const ERROR_CPU_MS_MAX: f64 = 50.0;

#[cfg(test)]
mod tests;
