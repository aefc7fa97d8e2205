//! The summary of a run that docs/performance.md has too: sealane beside the best peer, and beside
//! proxies that end no TLS.

use std::fmt::Write;

use sealane_lab_model::{
    document::{Comparison, Run, ServerResult, Servers},
    statistics::Spread,
};

use crate::servers::{
    case::{Case, Column},
    results::{BEST_PEER, measure},
    table::{SEALANE, spread},
};

/// Two tables: what sealane costs beside the peer with the least median, with the ratio to the
/// cheapest peer of each round; and beside proxies that end no TLS, where bytes are what is paid.
pub(super) fn tables(run: &Run, servers: &Servers, columns: &[Column]) -> String {
    let mut text = String::from(
        "| the server's own | sealane | best peer | sealane / best peer |\n|---|---|---|---|\n",
    );
    for column in columns {
        let (Some(ours), Some((name, theirs))) =
            (ours(servers, column), best_peer(servers, column))
        else {
            continue;
        };
        let shown = |figures: &[f64]| spread(figures, column.decimals);
        let (measure, ratio) = (measure(column), ratio(run, column, BEST_PEER));
        let (ours, theirs) = (shown(ours), shown(theirs));
        let _ = writeln!(text, "| {measure} | {ours} | {name} {theirs} | {ratio} |");
    }
    text + &beside_plain(run, servers, columns)
}

/// A row per figure about bytes, a column per proxy without TLS: its median, and sealane's ratio.
fn beside_plain(run: &Run, servers: &Servers, columns: &[Column]) -> String {
    let names = servers.plain.iter().map(|proxy| format!(" {} |", proxy.name));
    let mut text = format!("\n| with TLS, and without | sealane |{}\n", names.collect::<String>());
    text += &format!("|---|---|{}\n", "---|".repeat(servers.plain.len()));
    for column in columns.iter().filter(|column| BYTES.contains(&column.case)) {
        let Some(ours) = ours(servers, column) else { continue };
        let median = |figures: &[f64]| {
            Spread::of(figures)
                .map_or_else(String::new, |it| format!("{:.*}", column.decimals, it.median))
        };
        let _ = write!(text, "| {} | {} |", measure(column), median(ours));
        for proxy in &servers.plain {
            let figures = proxy.cases.get(&column.name).and_then(figures).map(median);
            let _ = match figures {
                Some(median) => write!(text, " {median}: {} |", ratio(run, column, &proxy.name)),
                None => write!(text, " |"),
            };
        }
        text.push('\n');
    }
    text
}

/// The ratio of sealane's figures to those of `to`, as it was compared.
fn ratio(run: &Run, column: &Column, to: &str) -> String {
    let measure = measure(column);
    let is_it = |it: &&Comparison| it.measure == measure && it.of == SEALANE && it.to == to;
    run.comparisons.iter().find(is_it).map_or_else(String::new, |found| {
        let [low, high] = found.interval;
        format!("{:.2} [{low:.2}-{high:.2}]", found.ratio)
    })
}

fn ours<'a>(servers: &'a Servers, column: &Column) -> Option<&'a [f64]> {
    let sealane = servers.servers.iter().find(|server| server.name == SEALANE)?;
    figures(sealane.cases.get(&column.name)?)
}

/// The peer whose median is the least.
fn best_peer<'a>(servers: &'a Servers, column: &Column) -> Option<(&'a str, &'a [f64])> {
    let whole = servers.servers.iter().filter(|server| server.failure.is_none());
    let peers = whole.filter(|server| server.name != SEALANE);
    let figures = peers.filter_map(|peer| {
        let figures = figures(peer.cases.get(&column.name)?)?;
        Some((Spread::of(figures)?.median, peer.name.as_str(), figures))
    });
    figures.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name, figures)| (name, figures))
}

/// What was measured, if it was offered and its load was reached.
fn figures(result: &ServerResult) -> Option<&[f64]> {
    let is_measured = result.not_offered.is_none() && result.refused.is_none();
    (is_measured && !result.figure.is_empty()).then_some(&result.figure)
}

/// Where what a byte costs shows.
const BYTES: [Case; 4] = [Case::KeepAlive3k, Case::KeepAlive100k, Case::Down, Case::Up];
