//! The package `sealane` beside Node's own TLS: rates by concurrency, processor time by kind of
//! thread, memory, and the bars.

use sealane_lab_model::{
    document::{NODE_COMMAND as COMMAND, Strategies, StrategyRow},
    statistics::Spread,
};

use crate::plot::{
    Bar, BarPlot, LinePlot, Point, Reading, Row, Scale, Segment, Series, Switch, Ticks, escape,
};

use super::{
    frame::{Figure, Section, Tag},
    sources::Sources,
    strategies::{Times, names, settings, side_by_side},
};

/// The section, if a run has any.
pub(crate) fn section(sources: &Sources) -> Option<Section> {
    let all = sources.runs.iter().flat_map(|source| &source.run.strategies);
    let mut body = String::new();
    for strategies in all.filter(|strategies| strategies.command == COMMAND) {
        body += &format!(
            "<h3 class=\"group\">{}</h3><div class=\"grid\">{}{}</div>{}",
            escape(&settings(strategies)),
            rates(strategies),
            threads(strategies),
            side_by_side(strategies, &["memory_kb"], &times(sources))
        );
    }
    let lead = "Each mode runs as processes of its own and answers with the same bytes under the \
        same version, suite, group and certificate, all in the same interleaved rounds. CPU is \
        the server's, by the kind of thread that took it.";
    (!body.is_empty()).then_some(Section {
        id: "node",
        short: "Node",
        title: "Node servers",
        lead: lead.into(),
        body,
    })
}

fn times(sources: &Sources) -> Vec<Times<'static>> {
    let handshake = Times { name: "handshake", variant: None };
    if sources.brief { Vec::new() } else { vec![handshake] }
}

/// A picture for each sweep: a line for each mode.
fn rates(strategies: &Strategies) -> String {
    let mut html = String::new();
    for (case, title) in SWEEPS {
        let series = series(strategies, case);
        if series.iter().all(|line| line.points.len() < 2) {
            continue;
        }
        let plot = LinePlot {
            name: title.into(),
            x: "requests under way".into(),
            y: "answers per second".into(),
            x_scale: Scale::Log,
            y_scale: Scale::Linear,
            switch: Switch::Y,
            ticks: Ticks::Measured,
            reading: Reading::Exact,
            series,
            processors: Vec::new(),
            diagonal: None,
            moments: Vec::new(),
        };
        let look = "Higher is better. Point: median of the rounds; thin line: least to most.";
        html += &Figure { title, tag: Tag::Measured, look, drawing: &plot.draw() }.html();
    }
    html
}

fn series(strategies: &Strategies, case: &str) -> Vec<Series> {
    let modes = names(strategies.rows.iter());
    let series = modes.into_iter().enumerate().map(|(color, mode)| {
        let rows = strategies.rows.iter().filter(|row| row.strategy == mode && is(row, case));
        let mut points: Vec<Point> = rows.filter_map(point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Series { label: mode, color, points, ..Series::default() }
    });
    series.filter(|line| !line.points.is_empty()).collect()
}

fn point(row: &StrategyRow) -> Option<Point> {
    let Spread { median, min, max } = spread(row, "rate")?;
    let x = row.variant.get("concurrency")?.parse().ok()?;
    Some(Point { x, y: median, range: Some([min, max]), hint: false })
}

/// A picture for each other variant: a bar for each mode, divided by kinds of threads.
fn threads(strategies: &Strategies) -> String {
    let mut html = String::new();
    let mut drawn = Vec::new();
    for first in strategies.rows.iter().filter(|row| !SWEEPS.iter().any(|(case, _)| is(row, case)))
    {
        if drawn.contains(&&first.variant) {
            continue;
        }
        drawn.push(&first.variant);
        let rows = strategies.rows.iter().filter(|row| row.variant == first.variant);
        let rows = rows.filter(|row| row.figures.contains_key("cpu_us")).map(|row| Row {
            label: row.strategy.clone(),
            bars: KINDS.map(|(figure, _)| bar(row, figure)).into(),
            ..Row::default()
        });
        let rows: Vec<Row> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        let title = title(first);
        let segments = KINDS.iter().enumerate();
        let plot = BarPlot {
            name: title.clone(),
            unit: "\u{b5}s of the server's CPU per answer".into(),
            segments: segments
                .map(|(color, (_, label))| Segment { label: (*label).into(), color })
                .collect(),
            rows,
            stacked: true,
            floor: None,
        };
        let look = "Shorter is better: what the main thread does not take is your application's.";
        html += &Figure { title: &title, tag: Tag::Measured, look, drawing: &plot.draw() }.html();
    }
    html
}

fn bar(row: &StrategyRow, figure: &str) -> Option<Bar> {
    spread(row, figure).map(|Spread { median, .. }| Bar { value: median, range: None })
}

fn title(row: &StrategyRow) -> String {
    let of = |name: &str| row.variant.get(name).map_or("", String::as_str);
    let (case, body) = (of("case"), of("body"));
    let words = match case {
        "full" => "Full handshakes, P-256",
        "full-rsa" => "Full handshakes, RSA-2048",
        "resumed" => "Resumed, P-256",
        "resumed-rsa" => "Resumed, RSA-2048",
        "keep-alive" => "Kept-alive requests",
        "h2" => "HTTP/2",
        other => other,
    };
    format!("{words}: answers of {body} bytes")
}

fn is(row: &StrategyRow, case: &str) -> bool {
    row.variant.get("case").is_some_and(|its| its == case)
}

fn spread(row: &StrategyRow, figure: &str) -> Option<Spread> {
    Spread::of(row.figures.get(figure)?)
}

/// Cases whose rows differ in concurrency alone.
const SWEEPS: [(&str, &str); 2] = [
    ("sweep", "Full handshakes by requests under way, answers of 3,069 bytes"),
    ("keep-alive-sweep", "Kept-alive requests by requests under way, answers of 3,069 bytes"),
];
const KINDS: [(&str, &str); 3] =
    [("main_us", "main threads"), ("lanes_us", "lanes"), ("other_us", "other threads")];
