//! Rate per thread and speed-up by number of threads; what a stack keeps of its speed.

use crate::{
    counted::Counted,
    document::{HandshakePoint, HandshakeRound, HandshakeSeries, KNEE},
    number::number,
    plot::{Diagonal, Ink, Level, Line, LinePlot, Point, Reading, Scale, Switch, Ticks, escape},
    scenario::Scenario,
    statistics::Spread,
    words,
};

use super::{
    frame::{Cell, Figure, Section, Tag, table},
    sources::{Part, Sources},
    waiting,
};

/// How much of its speed per thread a stack keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// At so many threads, the most that have a processor each.
    pub(crate) threads: usize,
    /// Of the rounds' ratios to the fewest threads.
    pub(crate) share: Spread,
}

/// The section, if anything was measured.
pub(crate) fn section(sources: &Sources) -> Option<Section> {
    let mut body = String::new();
    let groups = sources.by_scenario::<HandshakeSeries>();
    for (scenario, parts) in &groups {
        if groups.len() > 1 {
            body += &format!("<h3 class=\"group\">{}</h3>", escape(&words::whole(scenario)));
        }
        if parts.iter().any(|part| part.of.points.iter().any(|p| !rates(p).is_empty())) {
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
    let lines = parts.iter().map(|part| {
        let points: Vec<Point> = part.of.points.iter().filter_map(rate_point).collect();
        let ideal = points.first().map(|point| point.y).filter(|_| points.len() > 1);
        Line { label: part.label.clone(), color: part.color, points, ideal, ink: Ink::Solid }
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
        lines: lines.filter(|line| !line.points.is_empty()).collect(),
        processors: processors(sources, parts),
        diagonal: None,
        level: None,
    }
}

fn speed_up_plot(
    sources: &Sources,
    scenario: &Scenario,
    parts: &[Part<'_, HandshakeSeries>],
) -> LinePlot {
    let base = parts.iter().filter_map(|p| p.of.points.first()).map(|p| p.threads).min();
    let lines = parts.iter().map(|part| {
        let first = part.of.points.iter().find(|point| !rates(point).is_empty());
        let points = part.of.points.iter().filter_map(|point| {
            let Spread { median, min, max } = kept_share(point, first?)?;
            let times = real(point.threads) / real(first?.threads.max(1));
            let range = Some([min * times, max * times]);
            let (x, hint) = (real(point.threads), is_hint(point));
            Some(Point { x, y: median * times, range, hint })
        });
        let points = points.collect();
        Line { label: part.label.clone(), color: part.color, points, ..Line::default() }
    });
    let processors = processors(sources, parts);
    let bend = processors.iter().copied().fold(1.0, f64::max);
    LinePlot {
        name: format!("Speed-up by threads: {}", words::short(scenario)),
        y: format!("times the rate of {}", words::count(base.unwrap_or(1), "thread")),
        switch: Switch::Neither,
        lines: lines.filter(|line: &Line| !line.points.is_empty()).collect(),
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
        let first = part.of.points.iter().find(|point| !rates(point).is_empty());
        for point in &part.of.points {
            let Some(rate) = Spread::of(&rates(point)) else { continue };
            let kept = first.and_then(|first| kept_share(point, first));
            let cpu = Spread::of(&cpu_us(point));
            let invalid = point.rounds.iter().filter(|round| round.invalid.is_some()).count();
            let over = if point.threads > machine.processors { " *" } else { "" };
            let hint = if is_hint(point) { "~ " } else { "" };
            let share = |kept: Spread| format!("{}%", number(100.0 * kept.median));
            rows.push(vec![
                Cell::Text(part.label.clone()),
                Cell::Number(format!("{}{over}", point.threads)),
                Cell::Number(format!("{hint}{}", spread(rate))),
                Cell::Number(number(rate.median * real(point.threads))),
                Cell::Number(kept.map_or_else(String::new, share)),
                Cell::Number(cpu.map_or_else(String::new, spread)),
                Cell::Number(time_us(point, End::Server).map_or_else(String::new, number)),
                Cell::Number(time_us(point, End::Client).map_or_else(String::new, number)),
                Cell::Number(format!("{} + {invalid}", point.rounds.len() - invalid)),
            ]);
        }
    }
    let heads = [
        "stack",
        "#threads",
        "#handshakes/s per thread",
        "#handshakes/s, all threads",
        "#kept of speed per thread",
        "#CPU \u{b5}s per handshake",
        "#median wall \u{b5}s in the server",
        "#median wall \u{b5}s in the client",
        "#rounds: valid + discarded",
    ];
    table(TABLE_CAPTION, &heads, &rows)
}

/// What `series` keeps of its speed while each thread has a processor.
pub(crate) fn kept(series: &HandshakeSeries, processors: usize) -> Option<Kept> {
    let usable = || series.points.iter().filter(|point| !rates(point).is_empty());
    let first = usable().next()?;
    let last = usable().rfind(|point| point.threads <= processors.max(1))?;
    if first.threads == last.threads {
        return None;
    }
    let share = kept_share(last, first)?;
    Some(Kept { threads: last.threads, share })
}

/// Rates per thread of the rounds that count, per second.
pub(crate) fn rates(point: &HandshakePoint) -> Vec<f64> {
    let rate = |round: &HandshakeRound| {
        let done: u64 = round.per_thread.iter().sum();
        let threads = real(point.threads.max(1));
        whole(done) / (whole(round.window_ns) / 1e9) / threads
    };
    counted(point).map(rate).collect()
}

/// One of the two ends of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Who has the certificate.
    Server,
    /// Who asks.
    Client,
}

/// Wall microseconds per handshake at one end, median of the rounds that count. In a round it is
/// the median too, where the round has it: a sum also tells who ran when a thread was preempted.
pub(crate) fn time_us(point: &HandshakePoint, end: End) -> Option<f64> {
    let of_round = |round: &HandshakeRound| {
        let (median_ns, sum_ns) = match end {
            End::Server => (round.median_ns[0], round.server_ns),
            End::Client => (round.median_ns[1], round.client_ns),
        };
        if median_ns > 0 { whole(median_ns) / 1e3 } else { whole(sum_ns) / 1e3 / done(round) }
    };
    let values: Vec<f64> = counted(point).map(of_round).collect();
    Spread::of(&values).map(|spread| spread.median)
}

/// The middle, and in brackets the ends.
pub(crate) fn spread(Spread { median, min, max }: Spread) -> String {
    format!("{} [{}\u{2013}{}]", number(median), number(min), number(max))
}

/// Neighbours in time are compared: the first valid round with the first, and so on.
pub(crate) fn kept_share(point: &HandshakePoint, first: &HandshakePoint) -> Option<Spread> {
    let (of, to) = (rates(point), rates(first));
    if of.len() == to.len() {
        return Spread::of_ratios(&of, &to);
    }
    let (of, to) = (Spread::of(&of)?, Spread::of(&to)?);
    let ratio = |of: f64| of / to.median;
    Some(Spread { median: ratio(of.median), min: ratio(of.min), max: ratio(of.max) })
}

fn rate_point(point: &HandshakePoint) -> Option<Point> {
    let Spread { median, min, max } = Spread::of(&rates(point))?;
    let (x, hint) = (real(point.threads), is_hint(point));
    Some(Point { x, y: median, range: Some([min, max]), hint })
}

fn cpu_us(point: &HandshakePoint) -> Vec<f64> {
    let rounds = counted(point).filter(|round| round.cpu_ns > 0 && done(round) > 0.0);
    rounds.map(|round| whole(round.cpu_ns) / 1e3 / done(round)).collect()
}

/// The rounds that figures are made of.
fn counted(point: &HandshakePoint) -> impl Iterator<Item = &HandshakeRound> {
    Counted::of(&point.rounds).rounds.into_iter()
}

/// Whether a point has only rounds that others' work on the machine disturbed.
pub(crate) fn is_hint(point: &HandshakePoint) -> bool {
    Counted::of(&point.rounds).is_hint
}

fn done(round: &HandshakeRound) -> f64 {
    whole(round.per_thread.iter().sum())
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

/// For plots of percent.
pub(crate) const KNEE_LEVEL: Level =
    Level { value: 100.0 * KNEE, label: "70%: the knee", top: 100.0 };
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
const TABLE_CAPTION: &str = "Handshakes by threads: median [least\u{2013}most] of valid rounds; \
    * more threads than processors; ~ every round was disturbed: a hint";
