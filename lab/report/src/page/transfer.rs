//! Bulk transfer.

use std::collections::BTreeSet;

use sealane_lab_model::{
    document::BulkSeries,
    figures::{Shown, bulk::RATE},
    number::bytes,
    scenario::Scenario,
    statistics::Spread,
    words,
};

use crate::plot::{
    Bar, BarPlot, LinePlot, Point, Reading, Row, Scale, Segment, Series, Switch, Ticks, escape,
};

use super::{
    carried,
    frame::{Figure, Section, Tag},
    sources::{Part, Sources},
    strategies::checks_list,
    threads::{real, whole},
};

/// Bulk transfer, if measured.
pub(crate) fn bulk_section(sources: &Sources) -> Option<Section> {
    let parts = sources.parts::<BulkSeries>();
    let mut body = String::new();
    let mut seen = Vec::new();
    for part in &parts {
        let load = Load::of(part.of);
        if seen.contains(&load) {
            continue;
        }
        let same: Vec<_> = parts.iter().filter(|other| Load::of(other.of) == load).collect();
        body += &load.figure(&same, sources);
        seen.push(load);
    }
    for part in &parts {
        if let Some(failure) = &part.of.failure {
            let (label, failure) = (escape(&part.label), escape(failure));
            body += &format!("<p class=\"failure\"><b>{label}</b>: no figures: {failure}</p>");
        }
    }
    let lead = "Plaintext that arrived and was compared with what was sent. 1 MB is 1,000,000 \
        bytes."
        .into();
    let checks = sources.runs.iter().map(|source| checks_list(&source.run.checks));
    let (costs, checks) = (carried::costs(&parts), checks.collect::<String>());
    let body = format!("<div class=\"grid\">{body}</div>{costs}{checks}");
    (!parts.is_empty()).then_some(Section {
        id: "bulk",
        short: "Bulk",
        title: "Bulk transfer",
        lead,
        body,
    })
}

/// What series must have in common to stand in one plot.
#[derive(PartialEq)]
pub(crate) struct Load<'a> {
    scenario: &'a Scenario,
    connections: usize,
    messages: u64,
    message_bytes: u64,
}

impl<'a> Load<'a> {
    pub(crate) fn of(series: &'a BulkSeries) -> Self {
        Self {
            scenario: &series.scenario,
            connections: series.connections,
            messages: series.messages,
            message_bytes: series.message_bytes,
        }
    }

    fn figure(&self, parts: &[&Part<'_, BulkSeries>], sources: &Sources) -> String {
        let threads: BTreeSet<usize> = parts.iter().map(|part| part.of.threads).collect();
        if parts.iter().all(|part| Shown::of(&part.of.rounds).is_empty()) {
            return String::new();
        }
        let title = format!(
            "{} per message, {}, over loopback sockets",
            bytes(whole(self.message_bytes)),
            words::count(self.connections, "connection")
        );
        let look = format!(
            "Megabytes of plaintext per second, all threads together, {} messages on each \
             connection; {}. {}",
            self.messages,
            words::whole(self.scenario),
            if threads.len() > 1 { LINES_LOOK } else { BARS_LOOK }
        );
        let drawing = if threads.len() > 1 {
            series(parts, sources).draw()
        } else {
            bars(parts, threads.first().copied().unwrap_or(1)).draw()
        };
        let tag = Tag::Measured;
        Figure { title: &title, tag, look: &look, drawing: &drawing }.html()
    }
}

fn series(parts: &[&Part<'_, BulkSeries>], sources: &Sources) -> LinePlot {
    by_threads(parts.iter().map(|part| (part.label.clone(), part.color, *part)), sources)
}

/// A line for each label; a series is one point of it.
fn by_threads<'a>(
    labelled: impl Iterator<Item = (String, usize, &'a Part<'a, BulkSeries>)>,
    sources: &Sources,
) -> LinePlot {
    let mut series: Vec<Series> = Vec::new();
    let mut processors: Vec<f64> = Vec::new();
    for (label, color, part) in labelled {
        processors.push(real(sources.runs[part.run].run.machine.processors));
        let shown = Shown::of(&part.of.rounds);
        let Some(Spread { median, min, max }) = shown.spread(&RATE) else { continue };
        let (x, hint) = (real(part.of.threads), shown.is_hint());
        let point = Point { x, y: median, range: Some([min, max]), hint };
        match series.iter_mut().find(|line| line.label == label) {
            Some(line) => line.points.push(point),
            None => series.push(Series { label, color, points: vec![point], ..Series::default() }),
        }
    }
    for line in &mut series {
        line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    processors.sort_by(f64::total_cmp);
    processors.dedup();
    LinePlot {
        name: "Megabytes per second by threads".into(),
        x: "threads".into(),
        y: "MB/s of plaintext, all threads".into(),
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        switch: Switch::Y,
        ticks: Ticks::Measured,
        reading: Reading::Exact,
        series,
        processors,
        diagonal: None,
        moments: Vec::new(),
    }
}

fn bars(parts: &[&Part<'_, BulkSeries>], threads: usize) -> BarPlot {
    let rows = parts.iter().map(|part| {
        let shown = Shown::of(&part.of.rounds);
        let bar = shown.spread(&RATE);
        let bar = bar.map(|s| Bar { value: s.median, range: Some([s.min, s.max]) });
        let (label, color) = (part.label.clone(), Some(part.color));
        Row { label, remark: shown.mark().into(), color, bars: vec![bar], ..Row::default() }
    });
    BarPlot {
        name: "Megabytes per second".into(),
        unit: format!("MB/s of plaintext, {}", words::count(threads, "thread")),
        segments: vec![Segment { label: "MB/s".into(), color: 0 }],
        rows: rows.collect(),
        ..BarPlot::default()
    }
}

const LINES_LOOK: &str = "Rising is good; a line that turns down loses more to sharing than the \
    next thread brings. Line: median of the rounds; band: least to most.";
const BARS_LOOK: &str = "Bar: median of the rounds; thin line: least to most.";
