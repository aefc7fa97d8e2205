//! How far a stack goes: forecasts of speed per thread by threads, in their bands, with what was
//! measured here and published elsewhere beside them.

use sealane_lab_model::{
    document::{Curve, Forecast, HandshakePoint, HandshakeRound, HandshakeSeries},
    figures::{
        Figure as Measured,
        handshake::{CLIENT_TIME, SERVER_TIME, Share, has_figures, kept_share, shown},
    },
    number::number,
    scenario::Scenario,
    statistics::Spread,
    verdict::share,
    words,
};

use crate::plot::{Ink, LinePlot, Point, Reading, Scale, Series, Switch, Ticks, escape};

use super::{
    frame::{Cell, Figure, Section, Tag, table},
    outlook,
    sources::{Part, Sources},
    threads::{self, real},
};

/// The section, if anything was forecast.
pub(crate) fn section(sources: &Sources) -> Option<Section> {
    let groups = sources.by_scenario::<Forecast>();
    let mut body = String::new();
    for (scenario, parts) in &groups {
        if groups.len() > 1 {
            body += &format!("<h3 class=\"group\">{}</h3>", escape(&words::whole(scenario)));
        }
        body += if parts.len() > BANDS_MAX {
            "<div class=\"grid three crowd\">"
        } else {
            "<div class=\"grid three\">"
        };
        for side in &SIDES {
            let plot = plot(sources, scenario, parts, side);
            if !plot.series.is_empty() {
                let Side { title, look, .. } = side;
                body += &Figure { title, tag: Tag::Forecast, look, drawing: &plot.draw() }.html();
            }
        }
        body += "</div>";
        body += &outlook::neighbours_list(parts);
        body += &points_table(parts);
        body += &grounds_table(parts);
    }
    let lead = match &groups[..] {
        [] => return None,
        [(scenario, _)] => format!("{}. {LEAD}", words::whole(scenario)),
        _ => LEAD.to_owned(),
    };
    Some(Section { id: "forecast", short: "Forecast", title: "How far it goes", lead, body })
}

/// One of the three curves of a forecast.
struct Side {
    title: &'static str,
    look: &'static str,
    of: fn(&Forecast) -> &Curve,
    /// The time that is compared where it was measured; both ends' rate if nobody's alone.
    time: Option<&'static Measured<HandshakeRound>>,
    /// Whether others published it.
    published: bool,
}

/// A line for each forecast, for each measured sweep of the same stack in the same scenario, and
/// signs where somebody published points.
fn plot(
    sources: &Sources,
    scenario: &Scenario,
    parts: &[Part<'_, Forecast>],
    side: &Side,
) -> LinePlot {
    let mut series = Vec::new();
    for part in parts {
        let curve = &(side.of)(part.of).points;
        // By what efficiency means; forecasts begin with more.
        let alone = Point { x: 1.0, y: 100.0, range: Some([100.0, 100.0]), hint: false };
        let alone = curve.first().filter(|first| first.threads > 1).map(|_| alone);
        let points = curve.iter().map(|point| Point {
            x: f64::from(point.threads),
            y: two_digits(100.0 * point.efficiency),
            range: Some([point.low, point.high].map(|end| two_digits(100.0 * end))),
            hint: false,
        });
        let label = format!("{}, FORECAST", part.label);
        let (color, points) = (part.color, alone.into_iter().chain(points).collect());
        series.push(Series { label, color, points, ink: Ink::Dashed, ideal: None });
        series.extend(measured(sources, scenario, part, side.time));
        if side.published {
            series.extend(published(sources, part));
        }
    }
    LinePlot {
        name: format!("{}, speed per thread by threads: {}", side.title, words::short(scenario)),
        x: "threads, one per core".into(),
        y: "% of its speed per thread".into(),
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        switch: Switch::X,
        ticks: Ticks::Round,
        reading: Reading::Exact,
        series: series.into_iter().filter(|line| !line.points.is_empty()).collect(),
        processors: Vec::new(),
        diagonal: None,
        level: Some(threads::KNEE_LEVEL),
        moments: Vec::new(),
    }
}

/// What was measured of the same stack, where each thread had a processor.
fn measured(
    sources: &Sources,
    scenario: &Scenario,
    part: &Part<'_, Forecast>,
    time: Option<&Measured<HandshakeRound>>,
) -> Vec<Series> {
    let all = sources.parts::<HandshakeSeries>().into_iter();
    let same = all.filter(|s| s.of.stack == part.of.stack && s.of.scenario == *scenario);
    let line = |series: Part<'_, HandshakeSeries>| {
        let processors = sources.runs[series.run].run.machine.processors;
        let usable = series.of.points.iter().filter(|point| has_figures(point));
        let usable: Vec<&HandshakePoint> =
            usable.filter(|point| point.threads <= processors).collect();
        let first = *usable.first().filter(|_| usable.len() > 1)?;
        let point = |point: &&HandshakePoint| {
            let (y, range, hint) = match time {
                Some(time) => {
                    let ratio = shown(first).median(time)? / shown(point).median(time)?;
                    let hint = [*point, first].into_iter().any(|point| shown(point).is_hint());
                    (100.0 * ratio, None, hint)
                }
                None => {
                    let Share { spread: Spread { median, min, max }, is_hint } =
                        kept_share(point, first)?;
                    (100.0 * median, Some([100.0 * min, 100.0 * max]), is_hint)
                }
            };
            Some(Point { x: real(point.threads), y, range, hint })
        };
        let base = against(first.threads);
        let label = format!("{}, MEASURED{base}", series.label);
        let points = usable.iter().filter_map(point).collect();
        Some(Series { label, color: part.color, points, ..Series::default() })
    };
    same.filter_map(line).collect()
}

/// What others published of it.
fn published(sources: &Sources, part: &Part<'_, Forecast>) -> Vec<Series> {
    let validations = sources.runs.iter().filter_map(|source| source.run.validation.as_ref());
    let curves = validations.flat_map(|validation| &validation.curves).filter(|curve| {
        curve.stack == part.of.stack && curve.scenario.as_ref() == Some(&part.of.scenario)
    });
    let line = |curve: &sealane_lab_model::document::ValidatedCurve| {
        let points = curve.points.iter().map(|point| Point {
            x: f64::from(point.threads),
            y: 100.0 * point.published,
            ..Point::default()
        });
        let against = against(
            curve.points.first().map_or(1, |point| usize::try_from(point.threads).unwrap_or(0)),
        );
        let label = format!("{}, PUBLISHED{against}", curve.name);
        Series { label, color: part.color, points: points.collect(), ink: Ink::Signs, ideal: None }
    };
    curves.map(line).collect()
}

/// The threads whose speed is 100%, unless it is one alone.
fn against(threads: usize) -> String {
    match threads {
        0 | 1 => String::new(),
        more => format!(" against {more} threads"),
    }
}

/// A row for each side of each stack, a column for each number of threads.
fn points_table(parts: &[Part<'_, Forecast>]) -> String {
    let points = parts.iter().flat_map(|part| &part.of.server.points);
    let mut threads: Vec<u32> = points.map(|point| point.threads).filter(|n| *n > 1).collect();
    threads.sort_unstable();
    threads.dedup();
    let said = parts.iter().filter(|part| !part.of.server.points.is_empty());
    let rows = said.flat_map(|part| {
        SIDES.iter().map(|side| {
            let curve = (side.of)(part.of);
            let kept = |threads: &u32| {
                let point = curve.points.iter().find(|point| point.threads == *threads);
                Cell::Number(point.map_or_else(String::new, share))
            };
            let mut row = vec![Cell::Text(part.label.clone()), Cell::Text(side.title.into())];
            row.push(Cell::Number(words::knee(curve.knee)));
            row.extend(threads.iter().map(kept));
            row
        })
    });
    let columns: Vec<String> = threads.iter().map(|threads| format!("#{threads}")).collect();
    let mut heads = vec!["stack", "FORECAST of", "#knee"];
    heads.extend(columns.iter().map(String::as_str));
    table(POINTS_CAPTION, &heads, &rows.collect::<Vec<_>>())
}

/// What every forecast rests on.
fn grounds_table(parts: &[Part<'_, Forecast>]) -> String {
    let rows = parts.iter().map(|part| {
        let Forecast { version, profile, base, .. } = part.of;
        let us = |ns: f64| Cell::Number(number(ns / 1e3));
        vec![
            Cell::Text(part.label.clone()),
            Cell::Text(version.clone()),
            Cell::Number(number(profile.transfer_ns)),
            Cell::Text(format!("{}: {}", profile.name, profile.source)),
            us(base.server_ns),
            us(base.client_ns),
            us(base.untimed_ns),
            Cell::Text(base.source.clone()),
        ]
    });
    let heads = [
        "stack",
        "version",
        "#ns to move a line",
        "whose figure that is",
        "#server \u{b5}s",
        "#client \u{b5}s",
        "#untimed \u{b5}s",
        "whose figures these are",
    ];
    table(GROUNDS_CAPTION, &heads, &rows.collect::<Vec<_>>())
}

/// A forecast has no third digit.
fn two_digits(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or(value)
}

const SIDES: [Side; 3] = [
    Side {
        title: "Server",
        look: "What share of its speed each thread's server keeps as more cores do the same. \
            Dashes: forecast from counts; the band is as wide as such forecasts are wrong, twice \
            and half. A line with signs: measured here, and no further than it was measured. \
            Open signs: published by others.",
        of: |forecast| &forecast.server,
        time: Some(&SERVER_TIME),
        published: true,
    },
    Side {
        title: "Client",
        look: "The same of the client, which shares each thread with its server. Who comes first \
            to a taken line waits there: a client that falls early keeps load away from the \
            server, whose curve alone then looks better than it is.",
        of: |forecast| &forecast.client,
        time: Some(&CLIENT_TIME),
        published: false,
    },
    Side {
        title: "Whole loop",
        look: "Both ends, with making and dropping their connections: what a thread gets done in \
            all.",
        of: |forecast| &forecast.whole,
        time: None,
        published: false,
    },
];
/// More bands in one plot cannot be told apart: they are faint until one is chosen.
const BANDS_MAX: usize = 4;
const LEAD: &str = "Forecasts are made from counts by playing one thread's shared reads and writes \
    with many threads; nobody has measured them. Read the band, not its middle: two stacks whose \
    bands overlap show no difference. Above 70% the model is too coarse for a figure, and a knee \
    below 14 threads is only called few cores.";
const POINTS_CAPTION: &str = "Speed per thread kept, by threads: about so much, and in brackets \
    the band of the forecast; above 70% there is no figure to give";
const GROUNDS_CAPTION: &str = "What each forecast rests on: the time to move a contended line from \
    core to core, and the time per operation of one thread alone";
