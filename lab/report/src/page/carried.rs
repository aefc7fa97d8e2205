//! What bulk transfers cost and how they were checked, as a table.

use sealane_lab_model::{
    document::{BulkRound, BulkSeries},
    figures::{
        Figure, Shown, Tally,
        bulk::{CHECK, CPU, LOCK_CALLS, MIGRATED, RATE},
    },
    number::{bytes, number},
};

use crate::plot::escape;

use super::{
    frame::{Cell, table},
    sources::Part,
    threads::{spread, whole},
};

/// A row per series with figures, and why others have none; empty if there is no series.
pub(crate) fn costs(parts: &[Part<'_, BulkSeries>]) -> String {
    let titles = |figures: &[Figure<BulkRound>]| -> Vec<String> {
        figures.iter().map(|figure| format!("#{}", figure.title())).collect()
    };
    let mut html = unusable(parts);
    let rows: Vec<Vec<Cell>> = parts.iter().filter_map(|part| row(&part.label, part.of)).collect();
    if !rows.is_empty() {
        let (rate, costs) = (format!("#{}", RATE.title()), titles(&COSTS));
        let mut heads = vec!["what", "driver", "#threads", "#message", "verified by", &rate];
        heads.extend(costs.iter().map(String::as_str));
        heads.push("rounds that count");
        html += &table(CAPTION, &heads, &rows);
    }
    html
}

/// Series of which no round can be shown: silence would look as if they had not been asked for.
fn unusable(parts: &[Part<'_, BulkSeries>]) -> String {
    let mut html = String::new();
    for part in parts.iter().filter(|part| !part.of.rounds.is_empty()) {
        if Shown::of(&part.of.rounds).is_empty() {
            let tally = Tally::of(&part.of.rounds).to_string();
            html += &format!(
                "<p class=\"failure\"><b>{}</b>: no figures: no round can be used: {}</p>",
                escape(&part.label),
                escape(&tally)
            );
        }
    }
    html
}

fn row(label: &str, series: &BulkSeries) -> Option<Vec<Cell>> {
    let shown = Shown::of(&series.rounds);
    let rate = shown.spread(&RATE)?;
    let mut row = vec![
        Cell::Text(label.to_owned()),
        Cell::Text(series.driver.clone().unwrap_or_else(|| "lab".into())),
        Cell::Number(series.threads.to_string()),
        Cell::Number(bytes(whole(series.message_bytes))),
        Cell::Text(verified(series).into()),
        Cell::Number(format!("{}{}", shown.mark(), spread(rate))),
    ];
    row.extend(medians(&shown, &COSTS));
    row.push(Cell::Text(Tally::of(&series.rounds).to_string()));
    Some(row)
}

fn medians(shown: &Shown<'_, BulkRound>, figures: &[Figure<BulkRound>]) -> Vec<Cell> {
    let median = |figure| Cell::Number(shown.median(figure).map_or_else(String::new, number));
    figures.iter().map(median).collect()
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

const COSTS: [Figure<BulkRound>; 4] = [CPU, CHECK, LOCK_CALLS, MIGRATED];
const CAPTION: &str = "What transfers cost: medians of the rounds that count; \
    ~ every round was disturbed: a hint. All bytes that \
    arrived were compared with those sent, by themselves or by their SHA-256, inside the clock: \
    all equal, or there would be an error and no figure. 1 GB is 1,000,000,000 bytes.";
