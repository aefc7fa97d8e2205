//! What the rows must show: the checks D1 to D7 of the write-ups' list.

use sealane_lab_harness::strategies::check;
use sealane_lab_model::{
    document::{Strategies, StrategyCheck, StrategyRow},
    error::Error,
    histogram::Times,
    statistics::ROUNDS_MIN,
};

use crate::certificates::{
    Arguments, INJECTED, LIVE, PLAIN, REPLACED,
    generation::{CHAIN_CERTIFICATES, REPLACED_EVERY},
    held,
    task::ROUND_TRIP,
};

/// All of them.
///
/// # Errors
/// A row's times are no times.
pub(super) fn checks(
    strategies: &Strategies,
    arguments: &Arguments,
    processors: usize,
) -> Result<Vec<StrategyCheck>, Error> {
    let rows = Rows(strategies.rows.iter().filter(|row| row.failure.is_none()).collect());
    let connections = f64::from(arguments.conns);
    let [injected, plain] = the_owner_is_slow(&rows, arguments.clients, processors)?;
    Ok(vec![
        names_are_answered(&rows, connections),
        closes_cost_the_same(&rows),
        work_is_done_once(&rows, arguments.certs),
        the_owner_is_a_queue(&rows, arguments.threads),
        injected,
        plain,
        replacing_is_clean(&rows, arguments),
        handshakes_are_timed(&rows, arguments)?,
    ])
}

/// Rows that have figures.
struct Rows<'s>(Vec<&'s StrategyRow>);

impl<'s> Rows<'s> {
    fn with_tls(&self) -> impl Iterator<Item = &'s StrategyRow> {
        self.0.iter().copied().filter(|row| row.strategy != PLAIN)
    }

    fn of(&self, strategy: &str) -> impl Iterator<Item = &'s StrategyRow> {
        self.with_tls().filter(move |row| row.strategy == strategy)
    }

    /// The row of `strategy` under some circumstance, and no other.
    fn under(&self, strategy: &str, circumstance: &str) -> Option<&'s StrategyRow> {
        self.of(strategy).find(|row| row.variant.contains_key(circumstance))
    }

    /// The fewest of a figure in any row with TLS, as text.
    fn told(&self, figure: &str, of: f64) -> String {
        let fewest = self.with_tls().map(|row| least(row, figure).unwrap_or(0.0));
        let fewest = fewest.reduce(f64::min).unwrap_or(0.0);
        format!("{fewest} of {of} at least, in {} rows", self.with_tls().count())
    }

    /// The rows of `strategy` in the order of live entries, without other circumstances.
    fn by_live(&self, strategy: &str) -> Vec<(f64, &'s StrategyRow)> {
        let live = |row: &'s StrategyRow| {
            let number = row.variant.get(LIVE).and_then(|text| text.parse().ok());
            number.map(|number: f64| (number, row))
        };
        let is_plain = |row: &&StrategyRow| {
            ![INJECTED, REPLACED].iter().any(|key| row.variant.contains_key(*key))
        };
        let mut rows: Vec<_> = self.of(strategy).filter(is_plain).filter_map(live).collect();
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        rows
    }
}

/// D1.
fn names_are_answered(rows: &Rows<'_>, connections: f64) -> StrategyCheck {
    let claim = "every handshake shows the certificate that was made for the name asked for";
    let holds = all(rows.with_tls(), |row| least(row, "verified") == Some(connections));
    check("D1", claim, holds, rows.told("verified", connections))
}

/// D2.
fn closes_cost_the_same(rows: &Rows<'_>) -> StrategyCheck {
    let claim = "with a hundred times as many live entries, a close by the owner looks at 20 times \
                 as many or more; the others have no table to look through";
    let mut holds = None;
    let mut shown = Vec::new();
    for strategy in STRATEGIES {
        let by_live = rows.by_live(strategy);
        let (Some((few, less)), Some((many, more))) = (by_live.first(), by_live.last()) else {
            continue;
        };
        let (Some(before), Some(after)) = (most(less, "visited"), least(more, "visited")) else {
            continue;
        };
        // Nothing visited is as good as one entry.
        let growth = after.max(1.0) / before.max(1.0);
        shown.push(format!("{strategy} {before:.0} of {few} and {after:.0} of {many}"));
        if many / few.max(1.0) >= GROWTH_OF_LIVE_MIN {
            let fine = if strategy == CENTRAL { growth >= 20.0 } else { growth <= 1.5 };
            holds = Some(holds.unwrap_or(true) && fine);
        }
    }
    check("D2", claim, holds, shown.join(", "))
}

/// D3.
fn work_is_done_once(rows: &Rows<'_>, names: u32) -> StrategyCheck {
    let claim = "the owner and every connection for itself decode a whole chain per handshake; a \
                 lane a leaf at its first use, and the index every certificate once for all lanes";
    // What is replaced is decoded once more.
    let rows: Vec<_> = rows.with_tls().filter(|row| !row.variant.contains_key(REPLACED)).collect();
    let distinct = f64::from(names + CHAIN_CERTIFICATES - 1);
    let holds = all(rows.iter().copied(), |row| {
        row.values("decoded").iter().enumerate().all(|(round, decoded)| {
            let in_round = |name| row.values(name).get(round).copied();
            let chains = |handshakes| handshakes * f64::from(CHAIN_CERTIFICATES);
            Some(*decoded)
                == match row.strategy == LANE {
                    true => in_round("first_uses"),
                    false => in_round("handshakes").map(chains),
                }
        }) && (row.strategy != LANE || least(row, "indexed") == Some(distinct))
    });
    let first = |strategy: &&str| rows.iter().find(|row| row.strategy == **strategy);
    let told = |row: &&StrategyRow| {
        let figure = |name| most(row, name).unwrap_or(0.0);
        let (strategy, decoded) = (&row.strategy, figure("decoded"));
        let before = match row.strategy == LANE {
            true => format!(" and {} indexed before", figure("indexed")),
            false => String::new(),
        };
        format!("{strategy} {decoded}{before}, for {} handshakes", figure("handshakes"))
    };
    let shown: Vec<_> = STRATEGIES.iter().filter_map(first).map(told).collect();
    check("D3", claim, holds, shown.join("; "))
}

/// D4, of an owner with an injected cost: one that costs little need not be a queue everywhere.
fn the_owner_is_a_queue(rows: &Rows<'_>, threads: u32) -> StrategyCheck {
    let claim = "with an injected cost of the owner's, as many messages as the server has threads \
                 but one wait for it at once; the others have none to send to";
    let others = rows.with_tls().filter(|row| row.strategy != CENTRAL);
    let silent =
        all(others, |row| most(row, "messages") == Some(0.0) && most(row, "waiting") == Some(0.0));
    let busy = rows.under(CENTRAL, INJECTED).and_then(|row| least(row, "waiting"));
    let holds = match (busy, silent) {
        (_, Some(false)) => Some(false),
        (Some(depth), Some(true)) => Some(depth >= f64::from(threads - 1)),
        _ => None,
    };
    let plain = rows.of(CENTRAL).filter(|row| !row.variant.contains_key(INJECTED));
    let plain = most_of(plain, "waiting").unwrap_or(0.0);
    let messages = most_of(rows.of(CENTRAL), "messages").unwrap_or(0.0);
    let shown = match busy {
        Some(depth) => format!(
            "{threads} threads, {messages} messages per connection: {depth} waiting with the \
             injected cost, {plain} at most with the owner's work alone"
        ),
        None => "it takes --owner-cost-ms".to_owned(),
    };
    check("D4", claim, holds, shown)
}

/// D5, twice: with an injected cost, which the claim names, and with the owner's work alone, which
/// is what a user would have.
fn the_owner_is_slow(
    rows: &Rows<'_>,
    clients: u32,
    processors: usize,
) -> Result<[StrategyCheck; 2], Error> {
    let injected = |strategy| rows.under(strategy, INJECTED);
    let plain = |strategy| rows.by_live(strategy).first().map(|(_, row)| *row);
    let claims = [
        "with an injected cost of the owner's, half of its round trips take 3 times as long as \
         half of those without an owner, and longer than 99% of them",
        "with the owner's work alone, the same",
    ];
    let told = [
        round_trips(injected(CENTRAL), injected(PER_CONNECTION), injected(LANE))?,
        round_trips(plain(CENTRAL), plain(PER_CONNECTION), plain(LANE))?,
    ];
    let [with, without] = told;
    let enough = clients >= CLIENTS_MIN;
    let injected = match with {
        None => check("D5", claims[0], None, "it takes --owner-cost-ms, and both strategies"),
        Some((holds, shown)) => check("D5", claims[0], holds.filter(|_| enough), shown),
    };
    let plain = match without {
        None => check("D5", claims[1], None, "it takes both strategies"),
        Some((_, shown)) if processors < PUBLISHED_PROCESSORS => {
            let text = format!("{processors} processors of {PUBLISHED_PROCESSORS}: {shown}");
            check("D5", claims[1], None, text)
        }
        Some((holds, shown)) => check("D5", claims[1], holds.filter(|_| enough), shown),
    };
    Ok([injected, plain])
}

/// Whether round trips of the first are as much slower than those of the second as was published,
/// round by round, if there are enough; and those of all rounds in words.
fn round_trips(
    central: Option<&StrategyRow>,
    alone: Option<&StrategyRow>,
    lane: Option<&StrategyRow>,
) -> Result<Option<(Option<bool>, String)>, Error> {
    let Some((before, after)) = central.zip(alone) else { return Ok(None) };
    let ratios = before.ratio(after, "p50_ms").zip(after.ratio_of("p99_ms", before, "p50_ms"));
    let holds = ratios.map(|(slower, tail)| slower >= 3.0 && tail < 1.0);
    let mut shown = match ratios {
        Some((slower, tail)) => format!(
            "half with an owner take x{slower:.2} of what half take without; 99% without take \
             x{tail:.2} of what half take with one"
        ),
        None => format!("it takes {ROUNDS_MIN} rounds"),
    };
    for row in [central, alone, lane].into_iter().flatten() {
        if let Some(times) = row.times.get(ROUND_TRIP) {
            let times = Times::read(times)?;
            let ms = |percentile| times.percentile_ns(percentile) as f64 / 1e6;
            let name = &row.strategy;
            shown += &format!("; all of {name} p50 {:.2}, p99 {:.2}", ms(50.0), ms(99.0));
        }
    }
    Ok(Some((holds, shown)))
}

/// D6.
fn replacing_is_clean(rows: &Rows<'_>, arguments: &Arguments) -> StrategyCheck {
    let claim = "while certificates are replaced, no handshake fails or mixes a certificate with \
                 another's key, old connections go on, and 1 s after the last one nothing is left";
    let rows: Vec<_> = rows.with_tls().filter(|row| row.variant.contains_key(REPLACED)).collect();
    let connections = f64::from(arguments.conns);
    let replaced = f64::from(arguments.certs.div_ceil(REPLACED_EVERY));
    let old = |row: &StrategyRow| {
        let live = row.variant.get(LIVE).and_then(|text| text.parse().ok());
        live.map_or(0.0, |live| f64::from(held(live)))
    };
    let holds = all(rows.iter().copied(), |row| {
        least(row, "verified") == Some(connections)
            && most(row, "failed") == Some(0.0)
            && least(row, "replaced_shown") == Some(replaced)
            && least(row, "held_answered") == Some(old(row))
            && most(row, "left") == Some(0.0)
    });
    let told = |row: &&StrategyRow| {
        let [failed, left] = ["failed", "left"].map(|name| most(row, name).unwrap_or(0.0));
        let [shown, answered] =
            ["replaced_shown", "held_answered"].map(|name| least(row, name).unwrap_or(0.0));
        let (strategy, old) = (&row.strategy, old(row));
        format!(
            "{strategy}: {failed} failed, {shown} of {replaced} replaced are shown, {answered} of \
             {old} old connections answered, {left} left"
        )
    };
    let shown: Vec<_> = rows.iter().map(told).collect();
    check("D6", claim, holds, shown.join("; "))
}

/// D7.
fn handshakes_are_timed(rows: &Rows<'_>, arguments: &Arguments) -> Result<StrategyCheck, Error> {
    let claim = "every handshake is timed, from before its connect(), so that no round trip is \
                 shorter than what the owner sleeps over it";
    let (connections, cost_ms) = (f64::from(arguments.conns), f64::from(arguments.owner_cost_ms));
    let timed = |row: &StrategyRow| least(row, "timed").unwrap_or(0.0);
    let mut holds = all(rows.with_tls(), |row| timed(row) == connections);
    let mut shown = rows.told("timed", connections);
    let slowed = rows.under(CENTRAL, INJECTED).and_then(|row| row.times.get(ROUND_TRIP));
    if let Some(times) = slowed {
        let shortest_ms = Times::read(times)?.percentile_ns(0.0) as f64 / 1e6;
        holds = holds.map(|holds| holds && shortest_ms >= cost_ms * (1.0 - HISTOGRAM_ROUNDING));
        let with = format!("; the shortest {shortest_ms:.2} ms with an owner that takes {cost_ms}");
        shown.push_str(&with);
    }
    Ok(check("D7", claim, holds, shown))
}

/// Whether it holds for all, if there is any.
fn all<'s>(
    rows: impl Iterator<Item = &'s StrategyRow>,
    holds: impl Fn(&StrategyRow) -> bool,
) -> Option<bool> {
    rows.map(holds).reduce(|one, other| one && other)
}

fn least(row: &StrategyRow, figure: &str) -> Option<f64> {
    row.values(figure).iter().copied().reduce(f64::min)
}

fn most_of<'s>(rows: impl Iterator<Item = &'s StrategyRow>, figure: &str) -> Option<f64> {
    rows.filter_map(|row| most(row, figure)).reduce(f64::max)
}

fn most(row: &StrategyRow, figure: &str) -> Option<f64> {
    row.values(figure).iter().copied().reduce(f64::max)
}

const CENTRAL: &str = "central";
const LANE: &str = "lane";
const PER_CONNECTION: &str = "per-connection";
/// Those of the machine that the figures were published of.
const PUBLISHED_PROCESSORS: usize = 16;
const STRATEGIES: [&str; 3] = [CENTRAL, PER_CONNECTION, LANE];
/// Three digits are kept.
const HISTOGRAM_ROUNDING: f64 = 0.001;
/// Fewer at once do not show a queue.
const CLIENTS_MIN: u32 = 4;
/// D2 compares 10,000 with 100.
const GROWTH_OF_LIVE_MIN: f64 = 100.0;

#[cfg(test)]
mod tests {
    use sealane_lab_harness::strategies::named;

    use super::*;

    fn row(strategy: &str, injected: bool, figures: &[(&str, f64)]) -> StrategyRow {
        let cost = injected.then(|| (INJECTED, "2 ms".to_owned()));
        StrategyRow {
            strategy: strategy.into(),
            variant: named([(LIVE, "100".to_owned())].into_iter().chain(cost)),
            figures: named(figures.iter().map(|(name, value)| (*name, vec![*value; ROUNDS_MIN]))),
            ..StrategyRow::default()
        }
    }

    /// The D5 of round trips with an injected cost and without, p50 of the owner's first.
    fn slow(injected: [f64; 2], plain: [f64; 2], processors: usize) -> [Option<bool>; 2] {
        let pair = |is_injected, [central, alone]: [f64; 2]| {
            let times = |p50: f64| [("p50_ms", p50), ("p99_ms", p50 * 1.5)];
            [(CENTRAL, central), (PER_CONNECTION, alone)]
                .map(|(strategy, p50)| row(strategy, is_injected, &times(p50)))
        };
        let all = [pair(true, injected), pair(false, plain)].concat();
        let rows = Rows(all.iter().collect());
        the_owner_is_slow(&rows, 16, processors).unwrap().map(|check| check.holds)
    }

    #[test]
    fn a_gain_that_is_only_injected_is_not_called_shown() {
        assert_eq!(slow([40.0, 5.0], [5.8, 7.0], 2), [Some(true), None]);
        assert_eq!(slow([40.0, 5.0], [5.8, 7.0], 16), [Some(true), Some(false)]);
        assert_eq!(slow([40.0, 5.0], [30.0, 7.0], 2), [Some(true), None], "either way");
        assert_eq!(slow([40.0, 5.0], [30.0, 7.0], 16), [Some(true); 2]);
        assert_eq!(slow([14.0, 5.0], [30.0, 7.0], 16), [Some(false), Some(true)]);
    }

    /// The best round of one beside the best of another was a gain that no round had.
    #[test]
    fn round_trips_are_compared_round_by_round() {
        let of = |strategy: &str, p50: &[f64]| StrategyRow {
            figures: named([
                ("p50_ms", p50.to_vec()),
                ("p99_ms", p50.iter().map(|ms| ms * 1.1).collect()),
            ]),
            ..row(strategy, true, &[])
        };
        let judged = |central: &[f64], alone: &[f64]| {
            let (central, alone) = (of(CENTRAL, central), of(PER_CONNECTION, alone));
            round_trips(Some(&central), Some(&alone), None).unwrap().unwrap().0
        };
        let quiet = [30.0, 60.0, 90.0, 60.0, 30.0];
        assert_eq!(judged(&quiet, &[10.0, 20.0, 30.0, 20.0, 10.0]), Some(true));
        assert_eq!(judged(&quiet, &[10.0, 30.0, 60.0, 30.0, 20.0]), Some(false));
        assert_eq!(judged(&quiet[..4], &[10.0, 20.0, 30.0, 20.0]), None, "too few");
    }

    #[test]
    fn an_owner_without_a_queue_and_a_remedy_with_messages_are_found() {
        let depth = |waiting: f64, of_others: f64, injected: bool| {
            let figures = |waiting| [("messages", waiting), ("waiting", waiting)];
            let all = [
                row(CENTRAL, injected, &figures(waiting)),
                row(LANE, injected, &figures(of_others)),
            ];
            the_owner_is_a_queue(&Rows(all.iter().collect()), 4).holds
        };
        assert_eq!((depth(3.0, 0.0, true), depth(2.0, 0.0, true)), (Some(true), Some(false)));
        assert_eq!((depth(3.0, 1.0, true), depth(3.0, 0.0, false)), (Some(false), None));
    }
}
