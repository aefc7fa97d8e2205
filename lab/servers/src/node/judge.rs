//! The bars: what the package must reach beside Node's own TLS, [`BARS`], and whether it does.

use sealane_lab_harness::strategies::check;
use sealane_lab_model::{
    document::{Strategies, StrategyCheck, StrategyRow},
    statistics::{ROUNDS_MIN, Spread},
};

/// A figure that a row must reach, by itself or beside another row.
struct Bar {
    id: &'static str,
    claim: &'static str,
    case: &'static str,
    body: &'static str,
    figure: &'static str,
    /// The mode that it is compared with; a bar without one is of the figure itself.
    beside: Option<&'static str>,
    wanted: Wanted,
}

#[derive(Clone, Copy)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

/// Adds the checks. Figures that mean nothing, as of a debug build, are shown and not judged.
pub(super) fn judge(strategies: &mut Strategies, means_something: bool) {
    let rows = &strategies.rows;
    let mut checks: Vec<StrategyCheck> = BARS.iter().map(|bar| bar.judge(rows)).collect();
    checks.push(nowhere_slower(rows));
    if !means_something {
        for check in &mut checks {
            check.holds = None;
            check.shown += "; tiny amounts or a debug build of the lab: no verdict";
        }
    }
    strategies.checks = checks;
}

impl Bar {
    fn judge(&self, rows: &[StrategyRow]) -> StrategyCheck {
        let found = |mode: &str| {
            let mut rows = rows.iter().filter(|row| row.strategy == mode);
            rows.find(|row| {
                let is =
                    |name: &str, value: &str| row.variant.get(name).is_some_and(|v| v == value);
                row.failure.is_none() && is("case", self.case) && is("body", self.body)
            })
        };
        let not_shown = |why: String| check(self.id, self.claim, None, why);
        let Some(ours) = found(OURS) else {
            return not_shown(format!("it takes {OURS} in the case {}", self.case));
        };
        let Some(other) = self.beside else {
            let spread = ours.figures.get(self.figure).and_then(|values| Spread::of(values));
            return match spread {
                None => not_shown(format!("no {} was measured", self.figure)),
                Some(spread) => self.verdict(spread, ours.order.len(), found("https")),
            };
        };
        let Some(theirs) = found(other) else {
            return not_shown(format!("it takes {other} in the same rounds"));
        };
        match ratios(ours, theirs, self.figure) {
            Ok(spread) => self.verdict(spread, ours.order.len(), None),
            Err(why) => not_shown(why),
        }
    }

    fn verdict(
        &self,
        spread: Spread,
        rounds: usize,
        beside: Option<&StrategyRow>,
    ) -> StrategyCheck {
        let Spread { median, min, max } = spread;
        let digits = |value: f64| if value < 1.0 { 3 } else { 2 };
        let told = |value: f64| format!("{value:.0$}", digits(value));
        let times = if self.beside.is_some() { "x" } else { "" };
        let mut shown =
            format!("{times}{} [{}-{}], {rounds} rounds", told(median), told(min), told(max));
        let theirs = beside.and_then(|row| Spread::of(row.figures.get(self.figure)?));
        if let Some(theirs) = theirs {
            shown += &format!("; https {}", told(theirs.median));
        }
        let reached = match self.wanted {
            Wanted::AtLeast(least) => median >= least,
            Wanted::AtMost(most) => median <= most,
        };
        check(self.id, self.claim, (rounds >= ROUNDS_MIN).then_some(reached), shown)
    }
}

/// The last bar: every row with a rate, beside https.
fn nowhere_slower(rows: &[StrategyRow]) -> StrategyCheck {
    let claim = "on no row are fewer requests answered than by https";
    let mut least: Option<(f64, String, usize)> = None;
    let mut refused = None;
    for ours in rows.iter().filter(|row| row.strategy == OURS) {
        let mut others = rows.iter().filter(|row| row.variant == ours.variant);
        let Some(theirs) = others.find(|row| row.strategy == "https") else { continue };
        if let Some(failed) = [ours, theirs].into_iter().find(|row| row.failure.is_some()) {
            refused = Some(format!("{} failed in a row: {:?}", failed.strategy, failed.variant));
            continue;
        }
        if ![ours, theirs].iter().all(|row| row.figures.contains_key("rate")) {
            continue;
        }
        match ratios(ours, theirs, "rate") {
            Ok(Spread { median, .. }) if least.as_ref().is_none_or(|least| median < least.0) => {
                let of = |name: &str| ours.variant.get(name).map_or("", String::as_str);
                let name = format!("{}, body {}", of("case"), of("body"));
                let row = format!("{name}, concurrency {}", of("concurrency"));
                least = Some((median, row, ours.order.len()));
            }
            Ok(_) => {}
            Err(why) => refused = Some(why),
        }
    }
    match (least, refused) {
        (_, Some(why)) => check("N13", claim, None, why),
        (None, None) => check("N13", claim, None, "it takes sealane and https"),
        (Some((ratio, row, rounds)), None) => {
            let shown = format!("x{ratio:.2} at the least: {row}; {rounds} rounds");
            check("N13", claim, (rounds >= ROUNDS_MIN).then_some(ratio >= 1.0), shown)
        }
    }
}

/// The rounds' ratios of two rows; or why they may not be compared.
fn ratios(of: &StrategyRow, to: &StrategyRow, figure: &str) -> Result<Spread, String> {
    let named = format!("{} and {}", of.strategy, to.strategy);
    if !are_interleaved(of, to) {
        return Err(format!("{named} were not measured in the same interleaved rounds"));
    }
    let [of, to] = [of, to].map(|row| row.figures.get(figure).map_or(&[][..], Vec::as_slice));
    let spread = if of.len() == to.len() { Spread::of_ratios(of, to) } else { None };
    spread.ok_or_else(|| format!("{named} have not both {figure} in every round"))
}

/// Whether both had their turn in every round before the next one began, and not always in the same
/// order: what changes with time then touches both.
fn are_interleaved(of: &StrategyRow, to: &StrategyRow) -> bool {
    let (of, to) = (&of.order, &to.order);
    let turns: Vec<[u32; 2]> = of.iter().zip(to).map(|(a, b)| [*a.min(b), *a.max(b)]).collect();
    let in_turn = turns.windows(2).all(|rounds| rounds[0][1] < rounds[1][0]);
    // Backwards every other round, so that neither is always the first.
    let alternate = of.iter().zip(to).map(|(a, b)| a < b).collect::<Vec<_>>();
    let alternate = alternate.chunks_exact(2).all(|pair| pair[0] != pair[1]);
    !of.is_empty() && of.len() == to.len() && in_turn && alternate
}

const OURS: &str = "sealane";
const fn bar(
    id: &'static str,
    claim: &'static str,
    [case, body, figure]: [&'static str; 3],
    beside: Option<&'static str>,
    wanted: Wanted,
) -> Bar {
    Bar { id, claim, case, body, figure, beside, wanted }
}
/// On 2 processors with one lane.
const BARS: [Bar; 12] = [
    bar(
        "N1",
        "a full P-256 handshake with its request costs the main thread at most 1/10 of https",
        ["full", "11", "main_us"],
        Some("https"),
        Wanted::AtMost(0.1),
    ),
    bar(
        "N2",
        "a kept-alive request costs the main thread at most 1/2 of https",
        ["keep-alive", "11", "main_us"],
        Some("https"),
        Wanted::AtMost(0.5),
    ),
    bar(
        "N3",
        "a kept-alive answer of 100 KB costs the main thread at most 1/2 of https",
        ["keep-alive", "100000", "main_us"],
        Some("https"),
        Wanted::AtMost(0.5),
    ),
    bar(
        "N4",
        "a full P-256 handshake with its request costs the server at most 1/2 of https",
        ["full", "11", "cpu_us"],
        Some("https"),
        Wanted::AtMost(0.5),
    ),
    bar(
        "N5",
        "at least 2.5 times as many P-256 handshakes with a request as https",
        ["full", "11", "rate"],
        Some("https"),
        Wanted::AtLeast(2.5),
    ),
    bar(
        "N6",
        "at least 2 times as many P-256 handshakes with a request as a cluster",
        ["full", "11", "rate"],
        Some("cluster"),
        Wanted::AtLeast(2.0),
    ),
    bar(
        "N7",
        "at least 1.7 times as many RSA-2048 handshakes with a request as https",
        ["full-rsa", "11", "rate"],
        Some("https"),
        Wanted::AtLeast(1.7),
    ),
    bar(
        "N8",
        "at least 1.4 times as many kept-alive requests as https",
        ["keep-alive", "11", "rate"],
        Some("https"),
        Wanted::AtLeast(1.4),
    ),
    bar(
        "N9",
        "at least as many kept-alive answers of 100 KB as https",
        ["keep-alive", "100000", "rate"],
        Some("https"),
        Wanted::AtLeast(1.0),
    ),
    bar(
        "N10",
        "a connection that stands takes at most 25 kB",
        ["idle", "11", "memory_kb"],
        None,
        Wanted::AtMost(25.0),
    ),
    bar(
        "N11",
        "with the main thread away for half of the time, the handshake's p95 is at most 10 ms",
        ["blocked", "11", "handshake_p95_ms"],
        None,
        Wanted::AtMost(10.0),
    ),
    bar(
        "N12",
        "no fewer requests over HTTP/2 than https",
        ["h2", "11", "rate"],
        Some("https"),
        Wanted::AtLeast(1.0),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of five rounds in the order of a schedule, its place in a round `at` of two.
    fn row(mode: &str, case: &str, figure: (&str, f64), at: u32) -> StrategyRow {
        let order = (0..5).map(|round| 2 * round + if round % 2 == 0 { at } else { 1 - at });
        let variant = [("case", case), ("body", "11"), ("concurrency", "32")];
        StrategyRow {
            strategy: mode.into(),
            variant: variant.map(|(name, value)| (name.into(), value.into())).into(),
            figures: [(figure.0.to_owned(), vec![figure.1; 5])].into(),
            order: order.collect(),
            ..StrategyRow::default()
        }
    }

    fn judged(rows: Vec<StrategyRow>) -> Vec<StrategyCheck> {
        let mut strategies = Strategies { rows, ..Strategies::default() };
        judge(&mut strategies, true);
        strategies.checks
    }

    fn verdict(checks: &[StrategyCheck], id: &str) -> Option<bool> {
        checks.iter().find(|check| check.id == id).unwrap().holds
    }

    #[test]
    fn a_bar_holds_from_its_figure_on() {
        for (ours, holds) in [(250.0, true), (249.0, false)] {
            let rows = vec![
                row("https", "full", ("rate", 100.0), 0),
                row("sealane", "full", ("rate", ours), 1),
            ];
            let checks = judged(rows);
            assert_eq!(verdict(&checks, "N5"), Some(holds));
            assert_eq!(verdict(&checks, "N13"), Some(true));
            assert_eq!(verdict(&checks, "N6"), None, "there is no cluster");
        }
        for (ours, holds) in [(25.0, true), (25.1, false)] {
            let checks = judged(vec![row("sealane", "idle", ("memory_kb", ours), 0)]);
            assert_eq!(verdict(&checks, "N10"), Some(holds));
        }
        let slow =
            vec![row("https", "h2", ("rate", 100.0), 0), row("sealane", "h2", ("rate", 99.0), 1)];
        let checks = judged(slow);
        assert_eq!((verdict(&checks, "N12"), verdict(&checks, "N13")), (Some(false), Some(false)));
    }

    #[test]
    fn a_row_that_failed_is_not_left_out() {
        for failed in [2, 3] {
            let mut rows = vec![
                row("https", "full", ("rate", 100.0), 0),
                row("sealane", "full", ("rate", 900.0), 1),
                row("https", "h2", ("rate", 100.0), 0),
                row("sealane", "h2", ("rate", 900.0), 1),
            ];
            rows[failed].failure = Some("it ended".into());
            rows[failed].figures.clear();
            let checks = judged(rows);
            assert_eq!((verdict(&checks, "N12"), verdict(&checks, "N13")), (None, None));
            assert_eq!(verdict(&checks, "N5"), Some(true));
        }
    }

    #[test]
    fn runs_that_are_not_interleaved_are_not_compared() {
        let pair = |change: fn(&mut [StrategyRow; 2])| {
            let mut rows = [
                row("https", "full", ("rate", 100.0), 0),
                row("sealane", "full", ("rate", 900.0), 1),
            ];
            change(&mut rows);
            judged(rows.into())
        };
        assert_eq!(verdict(&pair(|_| {}), "N5"), Some(true));
        for change in [
            // One after the other.
            |rows: &mut [StrategyRow; 2]| {
                rows[0].order = vec![0, 1, 2, 3, 4];
                rows[1].order = vec![5, 6, 7, 8, 9];
            },
            // Always the same one first.
            |rows: &mut [StrategyRow; 2]| {
                rows[0].order = vec![0, 2, 4, 6, 8];
                rows[1].order = vec![1, 3, 5, 7, 9];
            },
            // In changing order, but not round by round.
            |rows: &mut [StrategyRow; 2]| {
                rows[0].order = vec![0, 7, 2, 9, 4];
                rows[1].order = vec![5, 1, 6, 3, 8];
            },
            // From a document that does not tell.
            |rows: &mut [StrategyRow; 2]| rows[1].order.clear(),
        ] {
            let checks = pair(change);
            for id in ["N5", "N13"] {
                let found = checks.iter().find(|check| check.id == id).unwrap();
                assert_eq!(found.holds, None);
                assert!(found.shown.contains("interleaved"), "{found:?}");
            }
        }
    }

    #[test]
    fn few_rounds_and_figures_that_mean_nothing_have_no_verdict() {
        let rows = vec![
            row("https", "full", ("rate", 100.0), 0),
            row("sealane", "full", ("rate", 900.0), 1),
        ];
        let mut few = rows.clone();
        for row in &mut few {
            row.order.truncate(4);
            row.figures.values_mut().for_each(|values| values.truncate(4));
        }
        assert_eq!(verdict(&judged(few), "N5"), None);
        let mut strategies = Strategies { rows, ..Strategies::default() };
        judge(&mut strategies, false);
        assert_eq!(verdict(&strategies.checks, "N5"), None);
    }
}
