//! Ways to share one thing, side by side: pictures, all rows as a table, and the checks.

use std::{collections::BTreeMap, fmt::Write};

use sealane_lab_model::{
    document::{Figure as Column, Judgement, NODE_COMMAND, Strategies, StrategyCheck, StrategyRow},
    number::number,
    statistics::Spread,
};

use crate::plot::{Bar, BarPlot, Row, Segment, Series, escape};

use super::{
    frame::{Cell, Figure, Section, Tag, table},
    over_time,
    sources::Sources,
    spectrum::{spectrum, tail},
    terminators::sentence_case,
    threads::spread,
};

/// The section, if a run has any.
pub(crate) fn section(sources: &Sources) -> Option<Section> {
    let all = sources.runs.iter().flat_map(|source| &source.run.strategies);
    let mut body = String::new();
    // Those of `node` have a section of their own.
    for strategies in all.filter(|strategies| strategies.command != NODE_COMMAND) {
        let settings = settings(strategies);
        let _ = write!(
            body,
            "<h3 class=\"group\">{}: {}</h3>{}",
            escape(&strategies.command),
            escape(&settings),
            side_by_side(strategies, &first_figures(strategies), &first_times(strategies, sources))
        );
    }
    let lead = "One thing, shared in different ways: the fault that a write-up tells of, and what \
        replaces it, in the same rounds."
        .into();
    (!body.is_empty()).then_some(Section {
        id: "strategies",
        short: "Strategies",
        title: "Ways to share one thing",
        lead,
        body,
    })
}

/// Which distributions are drawn: their name, and what the variant of their rows must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times<'a> {
    pub(crate) name: &'a str,
    pub(crate) variant: Option<(&'a str, &'a str)>,
}

/// Pictures of the figures in `drawn` and of `times`; the table, what failed, and the checks.
pub(crate) fn side_by_side(strategies: &Strategies, drawn: &[&str], times: &[Times<'_>]) -> String {
    let mut html = String::from("<div class=\"grid\">");
    for column in strategies.figures.iter().filter(|column| drawn.contains(&&*column.name)) {
        html += &picture(strategies, column);
    }
    for times in times {
        html += &time_pictures(strategies, times);
    }
    html += &over_time::pictures(strategies);
    html += "</div>";
    html += &rows_table(strategies);
    for row in &strategies.rows {
        if let Some(failure) = &row.failure {
            let (name, failure) = (escape(&row.name()), escape(failure));
            let _ = write!(html, "<p class=\"failure\"><b>{name}</b>: no figures: {failure}</p>");
        }
    }
    html + &checks_list(&strategies.checks)
}

/// What the checks of all commands say together.
pub(crate) fn judgement(sources: &Sources) -> Judgement {
    sources.runs.iter().map(|source| source.run.judgement()).sum()
}

/// The medians of `figure` of two strategies in the last variant that has `with` and in which both
/// have it.
pub(crate) fn medians(
    strategies: &Strategies,
    [fault, remedy]: [&str; 2],
    figure: &str,
    with: Option<(&str, &str)>,
) -> Option<[f64; 2]> {
    let mut remedies =
        strategies.rows.iter().rev().filter(|row| row.strategy == remedy && has(row, with));
    remedies.find_map(|other| {
        let same = |row: &&StrategyRow| row.strategy == fault && row.variant == other.variant;
        Some([strategies.rows.iter().find(same)?.median(figure)?, other.median(figure)?])
    })
}

/// What all rows have in common, in words.
pub(crate) fn settings(strategies: &Strategies) -> String {
    let settings = strategies.settings.iter().map(|(name, value)| format!("{name} {value}"));
    settings.collect::<Vec<_>>().join(", ")
}

/// The first that was measured and the first that was counted.
fn first_figures(strategies: &Strategies) -> Vec<&str> {
    let first = |counted| strategies.figures.iter().find(|column| column.counted == counted);
    [first(false), first(true)].into_iter().flatten().map(|column| &*column.name).collect()
}

/// The first distribution that there is, where the page has room for it.
fn first_times<'a>(strategies: &'a Strategies, sources: &Sources) -> Vec<Times<'a>> {
    let mut names = strategies.rows.iter().flat_map(|row| row.times.keys());
    let first = names.next().filter(|_| !sources.brief);
    first.into_iter().map(|name| Times { name, variant: None }).collect()
}

fn has(row: &StrategyRow, with: Option<(&str, &str)>) -> bool {
    with.is_none_or(|(name, value)| row.variant.get(name).is_some_and(|other| other == value))
}

/// Bars: a group for each variant, a bar for each strategy that has the figure.
fn picture(strategies: &Strategies, column: &Column) -> String {
    let with = |row: &&StrategyRow| !row.values(&column.name).is_empty();
    let names = names(strategies.rows.iter().filter(with));
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in &strategies.rows {
        let Some(at) = names.iter().position(|name| *name == row.strategy) else { continue };
        let bar =
            row.spread(&column.name).map(|s| Bar { value: s.median, range: Some([s.min, s.max]) });
        match groups.iter_mut().find(|(variant, _)| *variant == &row.variant) {
            Some((_, bars)) => bars[at] = bar,
            None => {
                let mut bars = vec![None; names.len()];
                bars[at] = bar;
                groups.push((&row.variant, bars));
            }
        }
    }
    groups.retain(|(_, bars)| bars.iter().any(Option::is_some));
    if groups.is_empty() {
        return String::new();
    }
    let segments = names.iter().enumerate();
    let plot = BarPlot {
        name: column.title.clone(),
        unit: axis(column),
        segments: segments.map(|(color, name)| Segment { label: name.clone(), color }).collect(),
        rows: groups
            .into_iter()
            .take(GROUPS_MAX)
            .map(|(variant, bars)| Row { label: varied(variant), bars, ..Row::default() })
            .collect(),
        ..BarPlot::default()
    };
    let tag = if column.counted { Tag::Counted } else { Tag::Measured };
    let look = match column.better.as_deref() {
        Some("less") => "Shorter is better.",
        Some("more") => "Longer is better.",
        _ => "",
    };
    let title = sentence_case(&column.title);
    Figure { title: &title, tag, look, drawing: &plot.draw() }.html()
}

/// One variant, and a bar for each strategy.
type Group<'a> = (&'a BTreeMap<String, String>, Vec<Option<Bar>>);

/// Medians and slowest ones as bars and, if they can be told apart, the distributions as lines.
fn time_pictures(strategies: &Strategies, Times { name, variant }: &Times<'_>) -> String {
    let title = name.replace('_', " ");
    let rows = || strategies.rows.iter().filter(|row| has(row, *variant));
    let with = || rows().filter_map(|row| Some((row, row.times.get(*name)?)));
    if with().next().is_none() {
        return String::new();
    }
    let rows = with().take(GROUPS_MAX).map(|(row, times)| {
        let at = |wanted: f64| {
            let point = times.percentiles.iter().find(|[percentile, _]| *percentile >= wanted);
            point.map(|[_, ns]| Bar { value: ns / 1e3, range: None })
        };
        Row { label: row.name(), bars: vec![at(50.0), at(99.0)], ..Row::default() }
    });
    let segment = |(color, label): (usize, &str)| Segment { label: label.into(), color };
    let bars = BarPlot {
        name: format!("Median and 99th percentile: {title}"),
        unit: "\u{b5}s".into(),
        segments: ["median", "99% take at most"].into_iter().enumerate().map(segment).collect(),
        rows: rows.collect(),
        ..BarPlot::default()
    };
    let tag = Tag::Measured;
    let of = sentence_case(&title);
    let html = Figure { title: &of, tag, look: TIMES_LOOK, drawing: &bars.draw() }.html();
    if with().count() > LINES_MAX {
        return html;
    }
    let names = names(strategies.rows.iter());
    let lines = with().map(|(row, times)| Series {
        label: row.name(),
        color: names.iter().position(|name| *name == row.strategy).unwrap_or_default(),
        points: tail(times),
        ..Series::default()
    });
    let lines = lines.filter(|line| !line.points.is_empty()).collect();
    let spectrum = spectrum(&format!("\u{b5}s, {title}"), lines);
    let all = format!("{of}: percentiles");
    html + &Figure { title: &all, tag, look: SPECTRUM_LOOK, drawing: &spectrum.draw() }.html()
}

fn rows_table(strategies: &Strategies) -> String {
    let heads = strategies.figures.iter().map(|column| format!("#{}", head(column)));
    let heads: Vec<String> = std::iter::once("strategy".to_owned()).chain(heads).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let rows = strategies.rows.iter().filter(|row| row.failure.is_none()).map(|row| {
        let cell = |column: &Column| {
            Cell::Number(match row.spread(&column.name) {
                None => "\u{2013}".into(),
                Some(Spread { median, min, max }) if min.total_cmp(&max).is_eq() => number(median),
                Some(found) => spread(found),
            })
        };
        let name = std::iter::once(Cell::Text(row.name()));
        name.chain(strategies.figures.iter().map(cell)).collect()
    });
    let caption = format!("{}: {}", strategies.command, settings(strategies));
    table(&caption, &heads, &rows.collect::<Vec<_>>())
}

pub(crate) fn checks_list(checks: &[StrategyCheck]) -> String {
    let mut html = String::new();
    for StrategyCheck { id, claim, holds, shown } in checks {
        let (class, word) = match holds {
            None => ("tag", "NOT DECIDED HERE"),
            Some(false) => ("tag failed", "FAILS"),
            Some(true) => ("tag counted", "HOLDS"),
        };
        let (id, claim, shown) = (escape(id), escape(claim), escape(shown));
        let _ = write!(
            html,
            "<li><b>{id}</b> <span class=\"{class}\">{word}</span> {claim}: <span \
             class=\"shown\">{shown}</span></li>"
        );
    }
    if html.is_empty() { html } else { format!("<ul class=\"checks\">{html}</ul>") }
}

/// Strategies in the order of their first appearance.
pub(crate) fn names<'a>(rows: impl Iterator<Item = &'a StrategyRow>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        if !names.contains(&row.strategy) {
            names.push(row.strategy.clone());
        }
    }
    names
}

pub(crate) fn varied(variant: &BTreeMap<String, String>) -> String {
    let words = variant.iter().map(|(name, value)| format!("{name} {value}"));
    words.collect::<Vec<_>>().join(", ")
}

fn axis(column: &Column) -> String {
    if column.unit.is_empty() { column.title.clone() } else { unit(column).to_owned() }
}

fn head(column: &Column) -> String {
    match unit(column) {
        "" => column.title.clone(),
        unit => format!("{} ({unit})", column.title),
    }
}

fn unit(column: &Column) -> &str {
    if column.unit == "us" { "\u{b5}s" } else { &column.unit }
}

/// More bars in one picture cannot be told apart.
const GROUPS_MAX: usize = 12;
const LINES_MAX: usize = 6;
const TIMES_LOOK: &str = "Half of all took at most the first bar's time, 99 of 100 at most the \
    second's. Shorter is better.";
const SPECTRUM_LOOK: &str = "The same times, spread out towards the slowest: at 99% stands what \
    one in a hundred exceeds.";
