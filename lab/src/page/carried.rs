//! What bulk transfers cost and how they were checked, as a table.

use crate::{
    document::{BulkRound, BulkSeries},
    plot::{bytes, number},
    statistics::Spread,
};

use super::{
    frame::{Cell, table},
    sources::Part,
    threads::{real, spread, whole},
    transfer::mb_per_s,
};

/// A row per series with figures; empty if there is none.
pub(crate) fn costs(parts: &[Part<'_, BulkSeries>]) -> String {
    let rows: Vec<Vec<Cell>> = parts.iter().filter_map(|part| row(&part.label, part.of)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = [
        "what",
        "driver",
        "#threads",
        "#message",
        "#MB/s",
        "#CPU s per GB",
        "#of that, checks",
        "#CPU s per GB: sender / receiver",
        "#wall time: sender / receiver / rest",
        "#busiest thread / mean",
        "every byte verified",
        "#connections that changed threads",
        "#rounds: valid + discarded",
    ];
    table(CAPTION, &heads, &rows)
}

fn row(label: &str, series: &BulkSeries) -> Option<Vec<Cell>> {
    let rate = mb_per_s(series)?;
    let valid: Vec<&BulkRound> = counted(series).collect();
    let discarded = series.rounds.len() - valid.len();
    let median = |of: &dyn Fn(&BulkRound) -> Option<f64>| -> Option<f64> {
        let values: Vec<f64> = valid.iter().filter_map(|round| of(round)).collect();
        Spread::of(&values).map(|spread| spread.median)
    };
    let per_gb = |ns: u64, round: &BulkRound| whole(ns) / whole(round.bytes.max(1));
    let text = |value: Option<f64>| value.map_or_else(String::new, number);
    let share = |value: Option<f64>| {
        value
            .filter(|share| *share > 0.0)
            .map_or_else(String::new, |share| format!("{}%", number(100.0 * share)))
    };
    let cpu = median(&|round| (round.cpu_ns > 0).then(|| per_gb(round.cpu_ns, round)));
    let checks =
        median(&|round| (round.cpu_ns > 0).then(|| whole(round.check_ns) / whole(round.cpu_ns)));
    let lock_calls = median(&|round| {
        (round.lock_calls > 0).then(|| whole(round.lock_calls) * 1e6 / whole(round.bytes.max(1)))
    });
    let (ends_cpu, ends_wall, uneven) = ends(&valid);
    let mut what = label.to_owned();
    if let Some(calls) = lock_calls {
        what += &format!(" ({} lock calls per MB)", number(calls));
    }
    let migrated = median(&|round| Some(whole(round.migrated)));
    Some(vec![
        Cell::Text(what),
        Cell::Text(series.driver.clone().unwrap_or_else(|| "the lab".into())),
        Cell::Number(series.threads.to_string()),
        Cell::Number(bytes(whole(series.message_bytes))),
        Cell::Number(spread(rate)),
        Cell::Number(text(cpu)),
        Cell::Number(share(checks)),
        Cell::Number(ends_cpu),
        Cell::Number(ends_wall),
        Cell::Number(uneven),
        Cell::Text(verified(series)),
        Cell::Number(text(migrated)),
        Cell::Number(format!("{} + {discarded}", valid.len())),
    ])
}

/// Of both ends in memory: CPU, shares of wall time, and how evenly threads carried.
fn ends(rounds: &[&BulkRound]) -> (String, String, String) {
    let Some((round, ends)) = rounds.iter().rev().find_map(|r| Some((r, r.ends.as_ref()?))) else {
        return Default::default();
    };
    let per_gb = |ns: u64| number(whole(ns) / whole(round.bytes.max(1)));
    let all = whole(ends.send_ns + ends.receive_ns + ends.other_ns).max(1.0);
    let share = |ns: u64| format!("{}%", number((100.0 * whole(ns) / all).round()));
    let carried: Vec<f64> = ends.per_thread.iter().map(|thread| whole(thread.bytes)).collect();
    let mean = carried.iter().sum::<f64>() / real(carried.len().max(1));
    let most = carried.iter().copied().fold(0.0, f64::max);
    let uneven = carried.len() > 1 && mean > 0.0;
    (
        format!("{} / {}", per_gb(ends.send_cpu_ns), per_gb(ends.receive_cpu_ns)),
        format!("{} / {} / {}", share(ends.send_ns), share(ends.receive_ns), share(ends.other_ns)),
        if uneven { number(most / mean) } else { String::new() },
    )
}

/// A round with a difference is an error and has no figure, so what is here was equal.
fn verified(series: &BulkSeries) -> String {
    match series.verify.as_deref() {
        Some("sha256") => "yes: bytes and SHA-256 equal at both ends".into(),
        Some("compare") => "yes: byte by byte".into(),
        Some(other) => format!("yes: {other}"),
        None => "not told".into(),
    }
}

fn counted(series: &BulkSeries) -> impl Iterator<Item = &BulkRound> {
    series.rounds.iter().filter(|round| round.invalid.is_none() && round.wall_ns > 0)
}

const CAPTION: &str = "What transfers cost: medians of the valid rounds; sender, receiver and \
    threads apart are of the last one, in memory. 1 GB is 1,000,000,000 bytes.";

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
        let said = ends(&[&round]);
        assert_eq!(said, ("1 / 2".into(), "50% / 40% / 10%".into(), "1.5".into()));
        assert_eq!(ends(&[&BulkRound::default()]), Default::default());
    }
}
