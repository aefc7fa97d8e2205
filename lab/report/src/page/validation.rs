//! Published curves beside forecasts made from counts: how far to trust the others.

use std::collections::BTreeMap;

use sealane_lab_model::{
    document::{Score, ValidatedCurve, Validation},
    number::number,
    words,
};

use crate::plot::{Ink, LinePlot, Point, Reading, Scale, Series, Switch, Ticks, escape};

use super::{
    frame::{Cell, Figure, Section, Tag, table},
    outlook::{self, is_far, is_miss},
    sources::Sources,
    threads,
};

/// The section, if any run validated.
pub(crate) fn section(sources: &Sources) -> Option<Section> {
    let mut body = String::new();
    for validation in sources.runs.iter().filter_map(|source| source.run.validation.as_ref()) {
        body += "<div class=\"grid\">";
        for (recorded, curves) in groups(validation) {
            let drawing = &plot(recorded, &curves).draw();
            if !drawing.keys.is_empty() {
                body += &Figure { title: recorded, tag: Tag::Forecast, look: LOOK, drawing }.html();
            }
        }
        body += "</div>";
        body += &errors_table(&validation.curves, TABLE_CAPTION);
        body += &score(&validation.score);
        body += &revisions(&validation.revisions);
        body += &held_out(validation);
        let profile = &validation.profile;
        body += &format!(
            "<p class=\"told\">Time to move a line from core to core: {} ns ({}: {}).</p>",
            number(profile.transfer_ns),
            escape(&profile.name),
            escape(&profile.source)
        );
    }
    let lead = outlook::validations(sources);
    let lead = format!("{}{LEAD}", lead.map(|said| said + " ").unwrap_or_default());
    let section = Section {
        id: "validation",
        short: "Validation",
        title: "Forecast beside published",
        lead,
        body,
    };
    (!section.body.is_empty()).then_some(section)
}

/// Curves of what was recorded together, in the order of their first one.
fn groups(validation: &Validation) -> Vec<(&str, Vec<&ValidatedCurve>)> {
    let mut order: Vec<&str> = Vec::new();
    let mut by_stack: BTreeMap<&str, Vec<&ValidatedCurve>> = BTreeMap::new();
    for curve in validation.curves.iter().filter(|curve| curve.failure.is_none()) {
        let name = curve.recorded.as_str();
        if !order.contains(&name) {
            order.push(name);
        }
        by_stack.entry(name).or_default().push(curve);
    }
    order.into_iter().filter_map(|name| Some((name, by_stack.remove(name)?))).collect()
}

/// The forecast's dashes with the band that it is held against, and the published signs.
fn plot(recorded: &str, curves: &[&ValidatedCurve]) -> LinePlot {
    let series = curves.iter().enumerate().flat_map(|(color, curve)| {
        let forecast = curve.points.iter().map(|point| Point {
            x: f64::from(point.threads),
            y: 100.0 * point.forecast,
            range: Some([50.0 * point.forecast, (200.0 * point.forecast).min(100.0)]),
            hint: false,
        });
        let published = curve.points.iter().map(|point| Point {
            x: f64::from(point.threads),
            y: 100.0 * point.published,
            range: None,
            hint: is_far(point.forecast, point.published),
        });
        let fitted = if curve.fitted { " (fitted on)" } else { "" };
        let line = |label: String, points: Vec<Point>, ink: Ink| Series {
            label,
            color,
            points,
            ink,
            ideal: None,
        };
        [
            line(format!("{}, FORECAST{fitted}", curve.name), forecast.collect(), Ink::Dashed),
            line(format!("{}, PUBLISHED", curve.name), published.collect(), Ink::Signs),
        ]
    });
    LinePlot {
        name: format!("Published and forecast: {recorded}"),
        x: "threads, one per core".into(),
        y: "% of its speed per thread".into(),
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        switch: Switch::Y,
        ticks: Ticks::Round,
        reading: Reading::Exact,
        series: series.filter(|line| !line.points.is_empty()).collect(),
        processors: Vec::new(),
        diagonal: None,
        level: Some(threads::KNEE_LEVEL),
        moments: Vec::new(),
    }
}

fn errors_table(curves: &[ValidatedCurve], caption: &str) -> String {
    let mut threads: Vec<u32> =
        curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.threads)).collect();
    threads.sort_unstable();
    threads.dedup();
    let columns: Vec<String> = threads.iter().map(|threads| format!("#{threads}")).collect();
    let mut heads = vec!["published curve", "recorded", "verdict"];
    heads.extend(["#error at the most", "#knee, FORECAST / PUBLISHED"]);
    heads.extend(columns.iter().map(String::as_str));
    heads.push("source");
    let rows = curves.iter().map(|curve| {
        let error = curve.points.last().map(|point| point.forecast / point.published);
        let error = error.map_or_else(String::new, |error| format!("\u{d7}{error:.2}"));
        let [forecast, published] = curve.knee.map(words::knee);
        let published_of = match curve.version.as_str() {
            "" => curve.name.clone(),
            version => format!("{} ({version})", curve.name),
        };
        let mut row = vec![
            Cell::Text(published_of),
            Cell::Text(curve.recorded.clone()),
            Cell::Html(verdict(curve)),
            Cell::Number(error),
            Cell::Number(format!("{forecast} / {published}")),
        ];
        row.extend(threads.iter().map(|threads| {
            let point = curve.points.iter().find(|point| point.threads == *threads);
            let empty = || Cell::Number(String::new());
            point.map_or_else(empty, |point| pair(point.forecast, point.published))
        }));
        row.push(Cell::Html(format!("<span class=\"source\">{}</span>", escape(&curve.source))));
        row
    });
    table(caption, &heads, &rows.collect::<Vec<_>>())
}

/// How well all of them agree, in figures.
fn score(score: &Score) -> String {
    let Score { within_twice, within_twice_min, points: [all, near], .. } = score;
    if *all == 0 {
        return String::new();
    }
    let bar = match score.passed {
        Some(true) => format!("The bar, {within_twice_min}, is reached"),
        Some(false) => format!("The bar is {within_twice_min}: it is not reached"),
        None => format!("The bar is {within_twice_min}; some recordings are missing"),
    };
    format!(
        "<p class=\"told\">{bar} by {within_twice} of {} unfitted curves; that every thread keeps \
         all is within twice of {} of them. Of their {all} points, {near} are forecast within \
         twice and half; the median is off by \u{d7}{:.2}, nine in ten by no more than \
         \u{d7}{:.2}. Rank correlation at the most threads: {:.2}.</p>",
        score.unfitted,
        score.baseline[0],
        score.median_factor,
        score.p90_factor,
        score.rank_correlation
    )
}

/// What was changed while looking at the curves above.
fn revisions(revisions: &[String]) -> String {
    if revisions.is_empty() {
        return String::new();
    }
    let items = revisions.iter().map(|revision| format!("<li>{}</li>", escape(revision)));
    format!(
        "<p class=\"told\">The model was revised {} times while looking at these curves:</p>\
         <ol class=\"told\">{}</ol>",
        revisions.len(),
        items.collect::<String>()
    )
}

/// Curves that it was never revised against, apart from the others.
fn held_out(validation: &Validation) -> String {
    let Validation { held_out, held_out_score: score, .. } = validation;
    if held_out.is_empty() {
        return String::new();
    }
    let [all, near] = score.points;
    let [keeps_curves, keeps_points] = score.baseline;
    errors_table(held_out, HELD_OUT_CAPTION)
        + &format!(
            "<p class=\"told\">Held out, so that the model was never revised against them: {} of \
             {} curves are forecast within twice and half at their most threads, {near} of {all} \
             points. That every thread keeps all is within twice of {keeps_curves} curves and \
             {keeps_points} points.</p>",
            score.within_twice, score.unfitted
        )
}

/// Both figures; what is far off is marked.
fn pair(forecast: f64, published: f64) -> Cell {
    let text = format!("{} / {}", words::percent(forecast), words::percent(published));
    match is_far(forecast, published) {
        true => Cell::Html(format!("<span class=\"missed\">{}</span>", escape(&text))),
        false => Cell::Number(text),
    }
}

fn verdict(curve: &ValidatedCurve) -> String {
    match curve {
        ValidatedCurve { failure: Some(reason), .. } => {
            format!("<span class=\"verdict open\">no forecast: {}</span>", escape(reason))
        }
        _ if curve.points.is_empty() => "<span class=\"verdict open\">no forecast</span>".into(),
        _ if curve.fitted => "<span class=\"verdict open\">fitted on it</span>".into(),
        _ if is_miss(curve) => "<span class=\"verdict missed\">miss</span>".into(),
        _ => "<span class=\"verdict\">within \u{d7}2</span>".into(),
    }
}

const LEAD: &str = "The points were measured and published by others, on other machines; the \
    forecasts are this program's, from counts taken here, with one figure for the machine. The \
    server alone, against the fewest threads published.";
const LOOK: &str = "Dashes: forecast from counts, with twice and half of it as a band. Open signs: \
    published. A sign in a ring lies outside the band: a miss.";
const HELD_OUT_CAPTION: &str = "Curves that are held out: FORECAST / PUBLISHED, by threads; not \
    in the figures above";
const TABLE_CAPTION: &str = "Speed per thread kept, by threads: FORECAST / PUBLISHED; marked where \
    they differ by more than twice";
