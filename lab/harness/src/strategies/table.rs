//! Strategies as text: a row each, failures and checks below.

use std::fmt::Write;

use sealane_lab_model::{
    document::{Figure, Judgement, Strategies, StrategyCheck, StrategyRow},
    number::number,
    statistics::Spread,
};

/// The whole table.
pub(super) fn table(strategies: &Strategies) -> String {
    let Strategies { command, settings, figures, rows, checks } = strategies;
    let settings: Vec<String> =
        settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let mut text = format!("{command}: {}\n", settings.join(", "));
    let heads = std::iter::once(String::from("strategy")).chain(figures.iter().map(head));
    let mut lines: Vec<Vec<String>> = vec![heads.collect()];
    for row in rows.iter().filter(|row| row.failure.is_none()) {
        let cells = figures.iter().map(|figure| cell(figure, row));
        lines.push(std::iter::once(row.name()).chain(cells).collect());
    }
    align(&lines, &mut text);
    for row in rows {
        if let Some(failure) = &row.failure {
            let _ = writeln!(text, "{}: NO FIGURES: {failure}", row.name());
        }
    }
    text + &told(checks, &strategies.judgement())
}

/// A line for each check, and what everything comes to.
pub fn told(checks: &[StrategyCheck], judgement: &Judgement) -> String {
    let mut text = String::new();
    for StrategyCheck { id, claim, holds, shown } in checks {
        let word = match holds {
            None => "not decided here",
            Some(false) => "FAILS",
            Some(true) => "holds",
        };
        let _ = writeln!(text, "{id} {word}: {claim}: {shown}");
    }
    if !checks.is_empty() {
        let _ = writeln!(text, "{judgement}");
    }
    text
}

fn head(figure: &Figure) -> String {
    if figure.unit.is_empty() {
        figure.title.clone()
    } else {
        format!("{} ({})", figure.title, figure.unit)
    }
}

/// A median with the ends, or what all rounds agree on.
fn cell(figure: &Figure, row: &StrategyRow) -> String {
    match row.spread(&figure.name) {
        None => "-".into(),
        Some(Spread { median, min, max }) if min.total_cmp(&max).is_eq() => number(median),
        Some(Spread { median, min, max }) => {
            format!("{} [{}-{}]", number(median), number(min), number(max))
        }
    }
}

/// The first column to the left, the others to the right.
fn align(lines: &[Vec<String>], text: &mut String) {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    for line in lines {
        let mut row = String::new();
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = match at {
                0 => write!(row, "{cell:<width$}"),
                _ => write!(row, "  {cell:>width$}"),
            };
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
}
