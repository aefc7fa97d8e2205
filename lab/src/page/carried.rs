//! What bulk transfers cost and how they were checked, as a table.

use std::collections::BTreeSet;

use crate::{
    counted::Counted,
    document::{BulkRound, BulkSeries},
    number::number,
    plot::{bytes, escape},
    statistics::Spread,
};

use super::{
    frame::{Cell, table},
    sources::Part,
    threads::{real, spread, whole},
    transfer::mb_per_s,
};

/// A row per series with figures, and why others have none; empty if there is no series.
pub(crate) fn costs(parts: &[Part<'_, BulkSeries>]) -> String {
    let mut html = discarded(parts);
    let rows: Vec<Vec<Cell>> = parts.iter().filter_map(|part| row(&part.label, part.of)).collect();
    if !rows.is_empty() {
        let heads = [
            "what",
            "driver",
            "#threads",
            "#message",
            "#MB/s",
            "#CPU s per GB",
            "#of that, checks",
            "verified by",
            "#lock calls per MB",
            "#connections that changed threads",
            "#rounds: valid + discarded",
        ];
        html += &table(CAPTION, &heads, &rows);
    }
    let rows: Vec<Vec<Cell>> = parts
        .iter()
        .filter_map(|part| ends(&part.label, Counted::of(&part.of.rounds).rounds.last()?))
        .collect();
    if !rows.is_empty() {
        let heads = [
            "what",
            "#sender, CPU s per GB",
            "#receiver, CPU s per GB",
            "#wall time: sender / receiver / rest",
            "#busiest thread / mean",
        ];
        html += &table(ENDS_CAPTION, &heads, &rows);
    }
    html
}

/// Series whose every round was discarded: silence would look as if they had not been asked for.
fn discarded(parts: &[Part<'_, BulkSeries>]) -> String {
    let mut html = String::new();
    for part in parts.iter().filter(|part| !part.of.rounds.is_empty()) {
        if Counted::of(&part.of.rounds).rounds.is_empty() {
            let causes = part.of.rounds.iter().filter_map(|round| round.invalid.as_deref());
            let causes: BTreeSet<&str> = causes.collect();
            let causes: Vec<&str> = causes.into_iter().collect();
            html += &format!(
                "<p class=\"failure\"><b>{}</b>: no figures: every round is discarded ({})</p>",
                escape(&part.label),
                escape(&causes.join(", "))
            );
        }
    }
    html
}

fn row(label: &str, series: &BulkSeries) -> Option<Vec<Cell>> {
    let rate = mb_per_s(series)?;
    let Counted { rounds, is_hint } = Counted::of(&series.rounds);
    let valid = series.rounds.iter().filter(|round| round.invalid.is_none()).count();
    let hint = if is_hint { "~ " } else { "" };
    let median = |of: fn(&BulkRound) -> f64| {
        let values: Vec<f64> = rounds.iter().map(|round| of(round)).collect();
        let spread = Spread::of(&values).filter(|spread| spread.median > 0.0);
        spread.map(|spread| spread.median)
    };
    let text = |value: Option<f64>| value.map_or_else(String::new, number);
    let checks = median(|round| whole(round.check_ns) / whole(round.cpu_ns.max(1)));
    let checks = checks.map(|share| format!("{}%", number(100.0 * share)));
    Some(vec![
        Cell::Text(label.to_owned()),
        Cell::Text(series.driver.clone().unwrap_or_else(|| "lab".into())),
        Cell::Number(series.threads.to_string()),
        Cell::Number(bytes(whole(series.message_bytes))),
        Cell::Number(format!("{hint}{}", spread(rate))),
        Cell::Number(text(median(|round| whole(round.cpu_ns) / whole(round.bytes.max(1))))),
        Cell::Number(checks.unwrap_or_default()),
        Cell::Text(verified(series).into()),
        Cell::Number(text(median(|r| whole(r.lock_calls) * 1e6 / whole(r.bytes.max(1))))),
        Cell::Number(number(median(|round| whole(round.migrated)).unwrap_or(0.0))),
        Cell::Number(format!("{valid} + {}", series.rounds.len() - valid)),
    ])
}

/// Both ends in memory: CPU, shares of wall time, and how evenly threads carried.
fn ends(label: &str, round: &BulkRound) -> Option<Vec<Cell>> {
    let ends = round.ends.as_ref()?;
    let per_gb = |ns: u64| number(whole(ns) / whole(round.bytes.max(1)));
    let all = whole(ends.send_ns + ends.receive_ns + ends.other_ns).max(1.0);
    let share = |ns: u64| format!("{}%", number((100.0 * whole(ns) / all).round()));
    let carried: Vec<f64> = ends.per_thread.iter().map(|thread| whole(thread.bytes)).collect();
    let mean = carried.iter().sum::<f64>() / real(carried.len().max(1));
    let most = carried.iter().copied().fold(0.0, f64::max);
    let uneven = carried.len() > 1 && mean > 0.0;
    let shares = [ends.send_ns, ends.receive_ns, ends.other_ns].map(share).join(" / ");
    Some(vec![
        Cell::Text(label.to_owned()),
        Cell::Number(per_gb(ends.send_cpu_ns)),
        Cell::Number(per_gb(ends.receive_cpu_ns)),
        Cell::Number(shares),
        Cell::Number(if uneven { number(most / mean) } else { String::new() }),
    ])
}

/// A round with a difference is an error and has no figure, so what is here was equal.
fn verified(series: &BulkSeries) -> &str {
    match series.verify.as_deref() {
        Some("sha256") => "SHA\u{2011}256",
        Some("compare") => "bytes",
        Some(other) => other,
        None => "",
    }
}

const CAPTION: &str = "What transfers cost: medians of the valid rounds; \
    ~ every round was disturbed: a hint. All bytes that \
    arrived were compared with those sent, by themselves or by their SHA-256, inside the clock: \
    all equal, or there would be an error and no figure. 1 GB is 1,000,000,000 bytes.";
const ENDS_CAPTION: &str = "In memory: both ends and the rest (comparison, clocks) apart, and how \
    evenly the threads carried, in the last valid round";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{BulkEnds, BulkThread};

    #[test]
    fn both_ends_in_memory_are_told_apart() {
        let thread = |bytes| BulkThread { bytes, send_ns: 1, receive_ns: 1 };
        let ends_of = BulkEnds {
            send_ns: 500,
            receive_ns: 400,
            other_ns: 100,
            send_cpu_ns: 2_000,
            receive_cpu_ns: 4_000,
            per_thread: vec![thread(1_500), thread(500)],
        };
        let round = BulkRound { bytes: 2_000, ends: Some(ends_of), ..BulkRound::default() };
        let cells = ends("x", &round).unwrap();
        let said: Vec<String> = cells
            .into_iter()
            .map(|cell| match cell {
                Cell::Html(text) | Cell::Number(text) | Cell::Text(text) => text,
            })
            .collect();
        assert_eq!(said, ["x", "1", "2", "50% / 40% / 10%", "1.5"]);
        assert!(ends("x", &BulkRound::default()).is_none());
    }
}
