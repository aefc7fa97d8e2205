//! Bulk transfer and memory of connections.

use std::collections::BTreeSet;

use sealane_lab_model::{
    document::{BulkSeries, MemoryResult},
    figures::{
        Shown,
        bulk::RATE,
        memory::{STATES, State},
    },
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
    matrix,
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
    let matrix = matrix::figures(sources);
    let checks = sources.runs.iter().map(|source| checks_list(&source.run.checks));
    let (costs, checks) = (carried::costs(&parts), checks.collect::<String>());
    let body = format!("<div class=\"grid\">{matrix}{body}</div>{costs}{checks}");
    (!parts.is_empty()).then_some(Section {
        id: "bulk",
        short: "Bulk",
        title: "Bulk transfer",
        lead,
        body,
    })
}

/// Memory, if measured.
pub(crate) fn memory_section(sources: &Sources) -> Option<Section> {
    let mut body = String::new();
    for (scenario, parts) in sources.by_scenario::<MemoryResult>() {
        let mut figures = String::new();
        for side in ["server", "client", ""] {
            let measured = |state: &&State| parts.iter().any(|p| state.bytes(p.of).is_some());
            let states = STATES.iter().filter(|state| state.end == side).filter(measured);
            let states: Vec<&State> = states.collect();
            if !states.is_empty() {
                figures += &memory_figure(side, &states, &parts);
            }
        }
        for part in &parts {
            if let Some(failure) = &part.of.failure {
                let (label, failure) = (escape(&part.label), escape(failure));
                figures += &format!("<p class=\"failure\"><b>{label}</b>: {failure}</p>");
            }
        }
        let whole = escape(&words::whole(scenario));
        body += &format!("<h3 class=\"group\">{whole}</h3><div class=\"grid\">{figures}</div>");
    }
    let lead = "Growth of the process for each connection held at once.".into();
    let section =
        Section { id: "memory", short: "Memory", title: "Memory per connection", lead, body };
    (!section.body.is_empty()).then_some(section)
}

/// What series must have in common to stand in one plot.
#[derive(PartialEq)]
pub(crate) struct Load<'a> {
    scenario: &'a Scenario,
    connections: usize,
    messages: u64,
    message_bytes: u64,
    in_memory: bool,
}

impl<'a> Load<'a> {
    pub(crate) fn of(series: &'a BulkSeries) -> Self {
        Self {
            scenario: &series.scenario,
            connections: series.connections,
            messages: series.messages,
            message_bytes: series.message_bytes,
            in_memory: series.runtime == "memory",
        }
    }

    fn figure(&self, parts: &[&Part<'_, BulkSeries>], sources: &Sources) -> String {
        let threads: BTreeSet<usize> = parts.iter().map(|part| part.of.threads).collect();
        if parts.iter().all(|part| Shown::of(&part.of.rounds).is_empty()) {
            return String::new();
        }
        let through = if self.in_memory { "in memory" } else { "over loopback sockets" };
        let title = format!(
            "{} per message, {}, {through}",
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
pub(crate) fn by_threads<'a>(
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
        level: None,
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

fn memory_figure(side: &str, states: &[&State], parts: &[Part<'_, MemoryResult>]) -> String {
    let segments = states.iter().enumerate();
    let segments = segments.map(|(color, state)| Segment { label: state.name.into(), color });
    let rows = parts.iter().filter(|part| !part.of.bytes.is_empty()).map(|part| {
        let value = |state: &&State| {
            state.bytes(part.of).map(|bytes| Bar { value: bytes / 1024.0, range: None })
        };
        let label = part.label.clone();
        Row { label, bars: states.iter().map(value).collect(), ..Row::default() }
    });
    let connections = parts.iter().map(|part| part.of.connections).max().unwrap_or(0);
    let plot = BarPlot {
        name: format!("Memory per connection, {side}"),
        unit: "KiB per connection".into(),
        segments: segments.collect(),
        rows: rows.collect(),
        ..BarPlot::default()
    };
    if side.is_empty() {
        let (title, drawing) = ("When both ends are gone", &plot.draw());
        return Figure { title, tag: Tag::Measured, look: GONE, drawing }.html();
    }
    let title = format!("In the {side}");
    let look = format!(
        "What each open connection adds to the {side}'s memory while {connections} are held; \
         1 KiB is 1,024 bytes. Shorter is better."
    );
    Figure { title: &title, tag: Tag::Measured, look: &look, drawing: &plot.draw() }.html()
}

const GONE: &str = "What the process still holds for each connection that it had. 0 means that \
    all of it was given back, or is used again.";
const LINES_LOOK: &str = "Rising is good; a line that turns down loses more to sharing than the \
    next thread brings. Line: median of the rounds; band: least to most.";
const BARS_LOOK: &str = "Bar: median of the rounds; thin line: least to most.";
