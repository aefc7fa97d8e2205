//! The matrix of bulk transfer: MB/s by threads, a line for each kind of loop and number of
//! connections, a plot for each driver.

use std::collections::BTreeSet;

use sealane_lab_model::{document::BulkSeries, number::bytes, scenario::Scenario, words};

use crate::plot::{LinePlot, palette::COLORS};

use super::{
    frame::{Figure, Tag},
    sources::{Part, Sources},
    threads::whole,
    transfer,
};

/// Titles and plots of the drivers that carried several numbers of connections by several of
/// threads.
pub(crate) fn plots(sources: &Sources) -> Vec<(String, LinePlot)> {
    let parts = sources.parts::<BulkSeries>();
    let mut drivers: Vec<Driver<'_>> = Vec::new();
    for driver in parts.iter().filter_map(Driver::of) {
        if !drivers.contains(&driver) {
            drivers.push(driver);
        }
    }
    let plots = drivers.iter().filter_map(|driver| {
        let parts = parts.iter().filter(|part| Driver::of(part).as_ref() == Some(driver));
        let plot = driver.plot(&parts.collect::<Vec<_>>(), sources)?;
        Some((driver.title(sources), plot))
    });
    plots.collect()
}

/// The same for the page.
pub(crate) fn figures(sources: &Sources) -> String {
    let figures = plots(sources).into_iter().map(|(title, plot)| {
        Figure { title: &title, tag: Tag::Measured, look: LOOK, drawing: &plot.draw() }.html()
    });
    figures.collect()
}

/// What the series of one plot have in common.
#[derive(PartialEq)]
struct Driver<'a> {
    run: usize,
    stack: &'a str,
    /// Without the kind of loop, which some names tell too.
    runtime: &'a str,
    emulate: Option<&'a str>,
    scenario: &'a Scenario,
    messages: u64,
    message_bytes: u64,
}

impl<'a> Driver<'a> {
    /// None of a series that does not name its loops.
    fn of(part: &Part<'a, BulkSeries>) -> Option<Self> {
        let series = part.of;
        series.loops.as_ref()?;
        Some(Self {
            run: part.run,
            stack: &series.stack,
            runtime: series.runtime.strip_suffix("-per-core").unwrap_or(&series.runtime),
            emulate: series.emulate.as_deref(),
            scenario: &series.scenario,
            messages: series.messages,
            message_bytes: series.message_bytes,
        })
    }

    fn title(&self, sources: &Sources) -> String {
        let Self { stack, runtime, messages, .. } = self;
        let mut title = format!("{stack} on {runtime}");
        if let Some(emulate) = self.emulate {
            title += &format!(" with {emulate}");
        }
        let size = bytes(whole(self.message_bytes));
        title += &format!(", {messages} x {size} per connection");
        if sources.runs.len() > 1 {
            title += &format!(" (run {})", self.run + 1);
        }
        title
    }

    /// Connections have a colour each; of the two kinds of loop, the shared one has dashes.
    fn plot(&self, parts: &[&'a Part<'a, BulkSeries>], sources: &Sources) -> Option<LinePlot> {
        let connections: BTreeSet<usize> = parts.iter().map(|part| part.of.connections).collect();
        let threads: BTreeSet<usize> = parts.iter().map(|part| part.of.threads).collect();
        if connections.len() < 2 || threads.len() < 2 {
            return None;
        }
        let labelled = parts.iter().filter_map(|part| {
            let series = part.of;
            let place = connections.iter().position(|count| *count == series.connections)?;
            let loops = series.loops.as_deref()?;
            let color = place % COLORS.len() + if loops == SHARED { COLORS.len() } else { 0 };
            let connections = words::count(series.connections, "connection");
            Some((format!("{loops}, {connections}"), color, *part))
        });
        let mut plot = transfer::by_threads(labelled, sources);
        // As many bands over each other would hide the lines.
        for point in plot.series.iter_mut().flat_map(|line| &mut line.points) {
            point.range = None;
        }
        (!plot.series.is_empty()).then_some(plot)
    }
}

const LOOK: &str = "Megabytes of plaintext per second, all threads together. A colour is a number \
    of connections; dashed: one loop that all threads work on; solid: a loop for each thread. \
    Line: median of the rounds; the table below tells least and most.";
const SHARED: &str = "shared";
