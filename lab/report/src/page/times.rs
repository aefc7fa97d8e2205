//! Time per handshake: distributions and percentile spectra.

use sealane_lab_model::{
    document::{HandshakeSeries, Histogram},
    words,
};

use crate::plot::{LinePlot, Point, Reading, Scale, Series, Switch, Ticks, escape};

use super::{
    frame::{Figure, Section, Tag},
    sources::{Part, Sources},
    threads::whole,
};

/// The section, if any series has times.
pub(crate) fn section(sources: &Sources) -> Option<Section> {
    let mut body = String::new();
    let mut drawn = 0;
    for (scenario, parts) in sources.by_scenario::<HandshakeSeries>() {
        if sources.brief && drawn == BRIEF_SCENARIOS {
            body += "<p class=\"look\">Other scenarios' times are left out to keep the page small: \
                     draw their runs alone.</p>";
            break;
        }
        let parts: Vec<_> = parts.iter().filter(|part| part.of.times.is_some()).collect();
        let threads = parts.iter().filter_map(|part| part.of.times.as_ref()).map(|t| t.threads);
        let Some(threads) = threads.max() else { continue };
        let (title, count) = (words::short(scenario), words::count(threads, "thread"));
        body +=
            &format!("<h3 class=\"group\">{}, at {count}</h3><div class=\"grid\">", escape(&title));
        for (end, other) in [("server", "client"), ("client", "server")] {
            let series = |draw: fn(&Histogram) -> Vec<Point>| -> Vec<Series> {
                parts.iter().filter_map(|part| line(part, end, draw)).collect()
            };
            let look = format!(
                "The share of handshakes that spent at most so long in the {end}'s end (wall \
                 time; the {other} is not in it). Further left is faster; steep is steady."
            );
            body += &figure(&distribution(end, series(steps)), "distribution", end, &look);
            let look = format!(
                "The same times in the {end}, spread out towards the slowest: at 99% stands what \
                 one handshake in a hundred exceeds. Flat is steady; each line ends where it has \
                 no more handshakes to show. It is time per handshake in a closed loop, not what \
                 a user waits."
            );
            body += &figure(
                &spectrum(&format!("\u{b5}s per handshake, {end}"), series(tail)),
                "percentiles",
                end,
                &look,
            );
        }
        body += "</div>";
        drawn += 1;
    }
    let lead = "Wall time inside each end's library per handshake, at the most threads measured, \
        all rounds that count merged as HdrHistograms.";
    let section = Section {
        id: "times",
        short: "Times",
        title: "Time per handshake",
        lead: lead.into(),
        body,
    };
    (!section.body.is_empty()).then_some(section)
}

/// A percentile spectrum of anything that takes microseconds.
pub(crate) fn spectrum(of: &str, series: Vec<Series>) -> LinePlot {
    LinePlot {
        name: format!("Percentiles: {of}"),
        x: "share of operations that took less".into(),
        y: of.to_owned(),
        x_scale: Scale::Log,
        y_scale: Scale::Log,
        switch: Switch::Y,
        ticks: Ticks::Percentiles,
        reading: Reading::Nearest,
        series,
        processors: Vec::new(),
        diagonal: None,
        level: None,
        moments: Vec::new(),
    }
}

/// The points of a spectrum: `1 / (1 - p)` against microseconds, as far as values reach.
pub(crate) fn tail(histogram: &Histogram) -> Vec<Point> {
    let most = whole(histogram.count).max(1.0);
    let inside = histogram.percentiles.iter().filter(|[percentile, _]| *percentile < 100.0);
    inside
        .map(|[percentile, ns]| Point {
            x: 100.0 / (100.0 - percentile),
            y: ns / 1e3,
            range: None,
            hint: false,
        })
        .filter(|point| point.x <= most && point.y > 0.0)
        .collect()
}

fn distribution(end: &str, series: Vec<Series>) -> LinePlot {
    LinePlot {
        name: format!("Distribution of time per handshake in the {end}"),
        x: format!("\u{b5}s per handshake in the {end}"),
        y: "% of handshakes that took at most so long".into(),
        y_scale: Scale::Linear,
        switch: Switch::X,
        ticks: Ticks::Round,
        reading: Reading::Step,
        ..spectrum(end, series)
    }
}

fn steps(histogram: &Histogram) -> Vec<Point> {
    let points = histogram.percentiles.iter();
    // The slowest of all is often so far out that it hides the rest: the spectrum shows it.
    let shown = points.filter(|[percentile, ns]| *percentile <= SHOWN_PERCENT && *ns > 0.0);
    shown
        .map(|[percentile, ns]| Point { x: ns / 1e3, y: *percentile, range: None, hint: false })
        .collect()
}

fn line(
    part: &Part<'_, HandshakeSeries>,
    end: &str,
    points: fn(&Histogram) -> Vec<Point>,
) -> Option<Series> {
    let times = part.of.times.as_ref()?;
    let points = points(if end == "server" { &times.server } else { &times.client });
    let line = Series { label: part.label.clone(), color: part.color, points, ..Series::default() };
    (!line.points.is_empty()).then_some(line)
}

fn figure(plot: &LinePlot, what: &str, end: &str, look: &str) -> String {
    let title = format!("Time in the {end}: {what}");
    Figure { title: &title, tag: Tag::Measured, look, drawing: &plot.draw() }.html()
}

/// Scenarios on a page that would be too large with all of them.
const BRIEF_SCENARIOS: usize = 1;
const SHOWN_PERCENT: f64 = 99.95;
