//! Rate per thread and speed-up by number of threads; what a stack keeps of its speed.

use sealane_lab_model::{
    document::{HandshakePoint, HandshakeSeries},
    figures::{
        Tally,
        handshake::{
            COSTS, RATE, Share, first, has_figures, kept_share, rate_of_all, shown, speed_up,
        },
    },
    number::number,
    scenario::Scenario,
    statistics::Spread,
    words,
};

use crate::plot::{Diagonal, LinePlot, Point, Reading, Scale, Series, Switch, Ticks, escape};

use super::{
    frame::{Cell, Figure, Section, Tag, table},
    sources::{Part, Sources},
    waiting,
};

/// The section, if anything was measured.
pub(crate) fn section(sources: &Sources) -> Option<Section> {
    let mut body = String::new();
    let groups = sources.by_scenario::<HandshakeSeries>();
    for (scenario, parts) in &groups {
        if groups.len() > 1 {
            body += &format!("<h3 class=\"group\">{}</h3>", escape(&words::whole(scenario)));
        }
        if parts.iter().any(|part| first(part.of).is_some()) {
            body += "<div class=\"grid\">";
            body += &figure(&rate_plot(sources, scenario, parts), RATE_TITLE, RATE_LOOK);
            if parts.iter().any(|part| part.of.points.len() > 1) {
                body += &figure(&speed_up_plot(sources, scenario, parts), UP_TITLE, UP_LOOK);
            }
            body += "</div>";
            body += &rate_table(sources, parts);
            body += &waiting::sentences(sources, parts);
        }
        for part in parts {
            if let Some(failure) = &part.of.failure {
                let (label, failure) = (escape(&part.label), escape(failure));
                body += &format!("<p class=\"failure\"><b>{label}</b>: no figures: {failure}</p>");
            }
            body += &unusable(part);
        }
    }
    let lead = match &groups[..] {
        [] => return None,
        [(scenario, _)] => format!("{}. {LEAD}", words::whole(scenario)),
        _ => LEAD.to_owned(),
    };
    Some(Section { id: "threads", short: "Threads", title: "Handshakes by threads", lead, body })
}

/// The headline plot of a scenario.
pub(crate) fn rate_plot(
    sources: &Sources,
    scenario: &Scenario,
    parts: &[Part<'_, HandshakeSeries>],
) -> LinePlot {
    let series = parts.iter().map(|part| {
        let points: Vec<Point> = part.of.points.iter().filter_map(rate_point).collect();
        let ideal = points.first().map(|point| point.y).filter(|_| points.len() > 1);
        Series { label: part.label.clone(), color: part.color, points, ideal }
    });
    LinePlot {
        name: format!("Rate per thread: {}", words::short(scenario)),
        x: "threads".into(),
        y: "handshakes per second and thread".into(),
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        switch: Switch::Y,
        ticks: Ticks::Measured,
        reading: Reading::Exact,
        series: series.filter(|line| !line.points.is_empty()).collect(),
        processors: processors(sources, parts),
        diagonal: None,
        moments: Vec::new(),
    }
}

fn speed_up_plot(
    sources: &Sources,
    scenario: &Scenario,
    parts: &[Part<'_, HandshakeSeries>],
) -> LinePlot {
    let base = parts.iter().filter_map(|p| p.of.points.first()).map(|p| p.threads).min();
    let series = parts.iter().map(|part| {
        let first = first(part.of);
        let points = part.of.points.iter().filter_map(|point| {
            let Share { spread: Spread { median, min, max }, is_hint } = speed_up(point, first?)?;
            let x = real(point.threads);
            Some(Point { x, y: median, range: Some([min, max]), hint: is_hint })
        });
        let points = points.collect();
        Series { label: part.label.clone(), color: part.color, points, ..Series::default() }
    });
    let processors = processors(sources, parts);
    let bend = processors.iter().copied().fold(1.0, f64::max);
    LinePlot {
        name: format!("Speed-up by threads: {}", words::short(scenario)),
        y: format!("times the rate of {}", words::count(base.unwrap_or(1), "thread")),
        switch: Switch::Neither,
        series: series.filter(|line: &Series| !line.points.is_empty()).collect(),
        diagonal: Some(Diagonal { base: real(base.unwrap_or(1)), bend }),
        processors,
        ..rate_plot(sources, scenario, &[])
    }
}

fn figure(plot: &LinePlot, title: &str, look: &str) -> String {
    Figure { title, tag: Tag::Measured, look, drawing: &plot.draw() }.html()
}

fn rate_table(sources: &Sources, parts: &[Part<'_, HandshakeSeries>]) -> String {
    let mut rows = Vec::new();
    for part in parts {
        let machine = &sources.runs[part.run].run.machine;
        let first = first(part.of);
        for point in &part.of.points {
            let shown = shown(point);
            let Some(rate) = shown.spread(&RATE) else { continue };
            let kept = first.and_then(|first| kept_share(point, first));
            let over = if point.threads > machine.processors { " *" } else { "" };
            let share =
                |kept: Share| format!("{}{}%", kept.mark(), number(100.0 * kept.spread.median));
            let mut row = vec![
                Cell::Text(part.label.clone()),
                Cell::Number(format!("{}{over}", point.threads)),
                Cell::Number(format!("{}{}", shown.mark(), spread(rate))),
                Cell::Number(rate_of_all(point).map_or_else(String::new, number)),
                Cell::Number(kept.map_or_else(String::new, share)),
            ];
            let costs = COSTS.iter().map(|figure| shown.median(figure));
            row.extend(costs.map(|cost| Cell::Number(cost.map_or_else(String::new, number))));
            row.push(Cell::Text(Tally::of(&point.rounds).to_string()));
            rows.push(row);
        }
    }
    let costs: Vec<String> =
        [RATE].iter().chain(&COSTS).map(|figure| format!("#{}", figure.title())).collect();
    let mut heads =
        vec!["stack", "#threads", &costs[0], "#handshakes/s, all threads", "#kept of its speed"];
    heads.extend(costs[1..].iter().map(String::as_str));
    heads.push("rounds that count");
    table(TABLE_CAPTION, &heads, &rows)
}

/// Points of which no round can be shown: silence would look as if they had not been asked for.
fn unusable(part: &Part<'_, HandshakeSeries>) -> String {
    let points = part.of.points.iter().filter(|point| !point.rounds.is_empty());
    let mut html = String::new();
    for point in points.filter(|point| !has_figures(point)) {
        let (label, threads) = (escape(&part.label), words::count(point.threads, "thread"));
        let tally = escape(&Tally::of(&point.rounds).to_string());
        html += &format!(
            "<p class=\"failure\"><b>{label}</b>, {threads}: no figures: no round can be used: \
             {tally}</p>"
        );
    }
    html
}

/// The middle, and in brackets the ends.
pub(crate) fn spread(Spread { median, min, max }: Spread) -> String {
    format!("{} [{}\u{2013}{}]", number(median), number(min), number(max))
}

fn rate_point(point: &HandshakePoint) -> Option<Point> {
    let shown = shown(point);
    let Spread { median, min, max } = shown.spread(&RATE)?;
    let (x, hint) = (real(point.threads), shown.is_hint());
    Some(Point { x, y: median, range: Some([min, max]), hint })
}

/// Where the machines of these parts end, each once.
fn processors(sources: &Sources, parts: &[Part<'_, HandshakeSeries>]) -> Vec<f64> {
    let mut counts: Vec<usize> =
        parts.iter().map(|part| sources.runs[part.run].run.machine.processors).collect();
    counts.sort_unstable();
    counts.dedup();
    counts.into_iter().filter(|count| *count > 0).map(real).collect()
}

/// A count for a plot; those here are small.
pub(crate) fn real(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// A 64-bit count for a plot: past 2^53 it is rounded, which no picture shows.
#[expect(clippy::cast_precision_loss, reason = "a picture shows six digits")]
pub(crate) fn whole(count: u64) -> f64 {
    count as f64
}

const LEAD: &str = "Each thread makes handshakes with both ends in memory; all work in the same \
    fixed window. Nothing is drawn past the last measured number of threads.";
const RATE_TITLE: &str = "Rate per thread";
const RATE_LOOK: &str = "How many handshakes each thread does per second (both ends) as more \
    threads work. Flat is perfect: the dashed line is what a stack would keep if its threads had \
    nothing in common. A falling line is time lost to what they share. Line: median of the \
    rounds; band: least to most. Shaded: more threads than processors, where every stack falls.";
const UP_TITLE: &str = "Speed-up";
const UP_LOOK: &str = "All threads together, as a multiple of the fewest threads. The dashed line \
    is the ideal: twice the threads, twice the rate, until the processors end. Line: median of \
    the rounds' ratios; band: least to most.";
const TABLE_CAPTION: &str = "Handshakes by threads: median [least\u{2013}most] of the rounds that \
    count; * more threads than processors; ~ every round was disturbed, or none counts of both: a \
    hint";
