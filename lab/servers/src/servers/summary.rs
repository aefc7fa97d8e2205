//! The summary of a run that docs/performance.md has too: sealane beside the best peer, and beside
//! proxies that end no TLS.

use std::fmt::Write;

use sealane_lab_model::{
    document::{Run, Server, ServerResult, Servers},
    statistics::Spread,
};

use crate::servers::{
    case::{Case, Column},
    results::{BEST_PEER, measure},
    table::{self, SEALANE, comparison, figure, marked, ratio},
};

/// Two tables: what sealane costs beside the peer with the least median, with the ratio to the
/// cheapest peer of each round; and beside proxies that end no TLS, where bytes are what is paid.
pub(super) fn tables(run: &Run, servers: &Servers, columns: &[Column]) -> String {
    let mut text = format!(
        "| the server's own | sealane | best peer by its median | sealane / {CHEAPEST} |\n\
         |---|---|---|---|\n"
    );
    for column in columns {
        let (Some(ours), Some((name, theirs))) =
            (ours(servers, column), best_peer(servers, column))
        else {
            continue;
        };
        let [ours, theirs] = [ours, theirs].map(|result| figure(result, column));
        let ratio = ratio(run, column, SEALANE, BEST_PEER).unwrap_or_default();
        let _ = writeln!(text, "| {} | {ours} | {name} {theirs} | {ratio} |", measure(column));
    }
    text + &beside_plain(run, servers, columns)
}

/// A row per figure about bytes, a column per proxy without TLS: its median, and sealane's ratio.
fn beside_plain(run: &Run, servers: &Servers, columns: &[Column]) -> String {
    let names = servers.plain.iter().map(|proxy| format!(" {} |", proxy.name));
    let mut text = format!("\n| with TLS, and without | sealane |{}\n", names.collect::<String>());
    text += &format!("|---|---|{}\n", "---|".repeat(servers.plain.len()));
    for column in columns.iter().filter(|column| BYTES.contains(&column.case)) {
        let median = |result: &ServerResult| {
            marked(table::median(&result.figure, column.decimals), result, column)
        };
        let Some(ours) = ours(servers, column) else { continue };
        let _ = write!(text, "| {} | {} |", measure(column), median(ours));
        for proxy in &servers.plain {
            let _ = match measured(proxy, column) {
                Some(result) => {
                    let ratio = ratio(run, column, SEALANE, &proxy.name).unwrap_or_default();
                    write!(text, " {}: {ratio} |", median(result))
                }
                None => write!(text, " |"),
            };
        }
        text.push('\n');
    }
    text + &bulk(run, servers, columns)
}

/// What the table says of bulk, in a sentence, if there is some and no ratio is a hint.
fn bulk(run: &Run, servers: &Servers, columns: &[Column]) -> String {
    let columns = columns.iter().filter(|column| matches!(column.case, Case::Down | Case::Up));
    let columns: Vec<&Column> = columns.collect();
    let times = |proxy: &Server| {
        let found = columns.iter().map(|column| comparison(run, column, SEALANE, &proxy.name));
        let told = found.map(|found| {
            found.filter(|found| found.is_enough()).map(|found| format!("{:.2}", found.ratio))
        });
        let ratios: Option<Vec<String>> = told.collect();
        let ratios = ratios.filter(|ratios| !ratios.is_empty())?;
        Some(format!("{} times what {} takes", ratios.join(" and "), proxy.name))
    };
    let told: Vec<String> = servers.plain.iter().filter_map(times).collect();
    if told.is_empty() {
        return String::new();
    }
    let ways: Vec<&str> = columns.iter().map(|column| column.title.as_str()).collect();
    format!("\nWith TLS, {} take {}, without.\n", ways.join(" and "), told.join(", "))
}

fn ours<'a>(servers: &'a Servers, column: &Column) -> Option<&'a ServerResult> {
    measured(servers.servers.iter().find(|server| server.name == SEALANE)?, column)
}

/// The peer whose median is the least.
fn best_peer<'a>(servers: &'a Servers, column: &Column) -> Option<(&'a str, &'a ServerResult)> {
    let whole = servers.servers.iter().filter(|server| server.failure.is_none());
    let peers = whole.filter(|server| server.name != SEALANE);
    let results = peers.filter_map(|peer| {
        let result = measured(peer, column)?;
        Some((median(result)?, peer.name.as_str(), result))
    });
    results.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name, result)| (name, result))
}

/// What was measured, if it was offered and its load was reached.
fn measured<'a>(server: &'a Server, column: &Column) -> Option<&'a ServerResult> {
    let is_measured = |it: &&ServerResult| it.not_offered.is_none() && it.refused.is_none();
    server.cases.get(&column.name).filter(is_measured).filter(|it| !it.figure.is_empty())
}

fn median(result: &ServerResult) -> Option<f64> {
    Spread::of(&result.figure).map(|spread| spread.median)
}

/// Whom [`BEST_PEER`] is, which need not be the one with the least median.
const CHEAPEST: &str = "cheapest peer of each round";
/// Where what a byte costs shows.
const BYTES: [Case; 4] = [Case::KeepAlive3k, Case::KeepAlive100k, Case::Down, Case::Up];

#[cfg(test)]
mod tests {
    use sealane_lab_model::{
        document::{Bottleneck, Comparison, NoVerdict},
        statistics::{NOT_ENOUGH, ROUNDS_MIN},
    };

    use super::*;
    use crate::servers::case::Level;

    /// A figure that is no verdict says so here as in every other table; ratios are as compared.
    #[test]
    fn marks_and_ratios_are_those_of_the_tables() {
        let columns = Case::Down.columns(&[Level::Full]);
        let [column] = columns.as_slice() else { panic!("{columns:?}") };
        let server = |name: &str, figure: f64, by: Option<Bottleneck>| {
            let invalid = by.map(|by| NoVerdict::new(by, "x"));
            let figure = vec![figure; ROUNDS_MIN];
            let result = ServerResult { figure, invalid, ..ServerResult::default() };
            let cases = [(column.name.clone(), result)].into();
            Server { name: name.into(), cases, ..Server::default() }
        };
        let compared = |to: &str, ratio| Comparison {
            measure: measure(column),
            of: SEALANE.into(),
            to: to.into(),
            ratio,
            interval: [0.5, 2.0],
            verdict: String::new(),
        };
        let run = Run {
            comparisons: vec![compared(BEST_PEER, 0.7), compared("plain", 1.2)],
            ..Run::default()
        };
        let servers = Servers {
            servers: vec![
                server(SEALANE, 1.0, Some(Bottleneck::Hypervisor)),
                server("first", 3.0, None),
                server("second", 2.0, None),
            ],
            plain: vec![
                server("plain", 0.5, Some(Bottleneck::Hypervisor)),
                Server { name: "none".into(), ..Server::default() },
            ],
            ..Servers::default()
        };
        let text = tables(&run, &servers, &columns);
        let start = "| bulk down, full load, s CPU/GB | ";
        let rows: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(start)).collect();
        let beside_peers =
            "1.000 [1.000-1.000] * | second 2.000 [2.000-2.000] | 0.70 [0.50-2.00] |";
        assert_eq!(rows, [beside_peers, "1.000 * | 0.500 *: 1.20 [0.50-2.00] | |"]);
        let says = "With TLS, bulk down, full load take 1.20 times what plain takes, without.";
        assert_eq!(text.lines().last(), Some(says));
    }

    /// Too few rounds are marked, in figures and ratios, and no sentence rests on them.
    #[test]
    fn what_too_few_rounds_say_is_a_hint() {
        let columns = Case::Down.columns(&[Level::Full]);
        let [column] = columns.as_slice() else { panic!("{columns:?}") };
        let server = |name: &str, figure: f64| {
            let figure = vec![figure; ROUNDS_MIN - 1];
            let result = ServerResult { figure, ..ServerResult::default() };
            let cases = [(column.name.clone(), result)].into();
            Server { name: name.into(), cases, ..Server::default() }
        };
        let compared = |to: &str| Comparison {
            measure: measure(column),
            of: SEALANE.into(),
            to: to.into(),
            ratio: 0.5,
            interval: [0.4, 0.6],
            verdict: format!("{NOT_ENOUGH} of them"),
        };
        let comparisons = vec![compared(BEST_PEER), compared("plain")];
        let run = Run { comparisons, ..Run::default() };
        let servers = Servers {
            servers: vec![server(SEALANE, 1.0), server("peer", 2.0)],
            plain: vec![server("plain", 2.0)],
            ..Servers::default()
        };
        let text = tables(&run, &servers, &columns);
        let start = "| bulk down, full load, s CPU/GB | ";
        let rows: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(start)).collect();
        let beside_peers = "~1.000 [1.000-1.000] | peer ~2.000 [2.000-2.000] | ~0.50 [0.40-0.60] |";
        assert_eq!(rows, [beside_peers, "~1.000 | ~2.000: ~0.50 [0.40-0.60] |"]);
        assert!(!text.contains("With TLS, "), "{text}");
    }
}
