//! What one handshake shares and does: shared writes by cause, locks, instructions.

use sealane_lab_model::{
    document::{ALLOCATOR, BySide, CountResult, LockCounts, SharedLine, SharedWrites},
    number::number,
    words,
};

use crate::plot::{Bar, BarPlot, Row, Segment, escape};

use super::{
    frame::{Cell, Figure, Section, Tag, table},
    lock_paths,
    sources::{Part, Sources},
};

/// The section, if anything was counted.
pub(crate) fn section(sources: &Sources) -> Option<Section> {
    let groups = sources.by_scenario::<CountResult>();
    let mut body = String::new();
    for (scenario, parts) in &groups {
        if groups.len() > 1 {
            body += &format!("<h3 class=\"group\">{}</h3>", escape(&words::whole(scenario)));
        }
        body += "<div class=\"grid\">";
        for (plot, title, look) in [
            (writes_plot(parts), "Shared writes by cause", WRITES_LOOK),
            (locks_plot(parts), "Locks taken", LOCKS_LOOK),
            (instructions_plot(parts), "Instructions", INSTRUCTIONS_LOOK),
        ] {
            if !plot.rows.is_empty() {
                let figure = Figure { title, tag: Tag::Counted, look, drawing: &plot.draw() };
                body += &figure.html();
            }
        }
        body += "</div>";
        body += &lines_table(parts);
        body += &lock_paths::figures(parts);
        body += &sites_table(parts);
        body += &remarks(parts);
    }
    let lead = match &groups[..] {
        [] => return None,
        [(scenario, _)] => format!("{}. {LEAD}", words::whole(scenario)),
        _ => LEAD.to_owned(),
    };
    Some(Section { id: "sharing", short: "Sharing", title: "Why: what threads share", lead, body })
}

/// By side.
fn writes_plot(parts: &[Part<'_, CountResult>]) -> BarPlot {
    let mut rows: Vec<Row> = Vec::new();
    for part in parts {
        if let Some(writes) = &part.of.shared_writes {
            rows.extend(SIDES.map(|(side, of)| {
                let bars = CLASSES.map(|(class, _)| class_writes(writes, class, of));
                writes_row(format!("{}, {side}", part.label), bars)
            }));
        }
    }
    plot("Writes to shared cache lines", "writes per handshake", &CLASSES, &rows, true)
}

/// The allocator's writes vary with chance, and are not the library's: out of the sum.
fn writes_row(label: String, values: [f64; CLASSES.len()]) -> Row {
    let [library @ .., allocator] = values;
    let total = number(library.iter().sum());
    let sum = match allocator {
        0.0 => total,
        _ => format!("{total} + {}", number(allocator)),
    };
    let bars = values.map(|value| Some(Bar { value, range: None })).to_vec();
    Row { label, bars, sum: Some(sum), ..Row::default() }
}

/// Writes of one class; what the list of lines leaves out is `other`.
fn class_writes(writes: &SharedWrites, class: &str, of: fn(&BySide<f64>) -> f64) -> f64 {
    let sum = |keep: &dyn Fn(&str) -> bool| -> f64 {
        let lines = writes.lines.iter().filter(|line| keep(&line.class));
        lines.map(|line| of(&line.writes)).sum()
    };
    match class {
        ALLOCATOR => of(&writes.allocator),
        OTHER => {
            let named = |class: &str| CLASSES[..NAMED].iter().any(|(name, _)| *name == class);
            let rest = of(&writes.total) - sum(&named);
            // Sums of fractions leave crumbs.
            if rest > CRUMB { rest } else { 0.0 }
        }
        _ => sum(&|other| other == class),
    }
}

fn locks_plot(parts: &[Part<'_, CountResult>]) -> BarPlot {
    let rows = parts.iter().filter_map(|part| Some((part, part.of.locks.as_ref()?)));
    let rows = rows.flat_map(|(part, locks)| {
        SIDES.map(|(side, of)| {
            let bars = [&locks.read, &locks.write, &locks.mutex];
            let bars = bars.map(|by| Some(Bar { value: of(by), range: None })).to_vec();
            Row { label: format!("{}, {side}", part.label), bars, ..Row::default() }
        })
    });
    plot(
        "Lock acquisitions",
        "acquisitions per handshake",
        &LOCK_KINDS,
        &rows.collect::<Vec<_>>(),
        true,
    )
}

fn instructions_plot(parts: &[Part<'_, CountResult>]) -> BarPlot {
    let rows = parts.iter().filter_map(|part| Some((part, part.of.instructions?)));
    let rows = rows.map(|(part, BySide { server, client })| {
        let bars = [server, client].map(|n| Some(Bar { value: n / 1e6, range: None }));
        Row { label: part.label.clone(), bars: bars.to_vec(), ..Row::default() }
    });
    let segments = [("server", 0), ("client", 1)];
    let unit = "million instructions per handshake";
    plot("Instructions", unit, &segments, &rows.collect::<Vec<_>>(), false)
}

fn plot(
    name: &str,
    unit: &str,
    segments: &[(&str, usize)],
    rows: &[Row],
    stacked: bool,
) -> BarPlot {
    let used = |at: usize| {
        let value = |row: &Row| row.bars.get(at).copied().flatten().map_or(0.0, |bar| bar.value);
        rows.iter().any(|row| value(row) > 0.0)
    };
    // What is 0 everywhere would fill the legend; one always stays, or there would be no bars.
    let kept: Vec<usize> = (0..segments.len()).filter(|at| *at == 0 || used(*at)).collect();
    let pick = |row: &Row| Row {
        bars: kept.iter().map(|at| row.bars.get(*at).copied().flatten()).collect(),
        ..row.clone()
    };
    let segment = |at: &usize| {
        let (label, color) = segments[*at];
        Segment { label: label.into(), color }
    };
    BarPlot {
        name: format!("{name} per handshake"),
        unit: unit.into(),
        segments: kept.iter().map(segment).collect(),
        rows: rows.iter().map(pick).collect(),
        stacked,
        floor: None,
    }
}

/// The lines that are written most.
fn lines_table(parts: &[Part<'_, CountResult>]) -> String {
    let mut rows = Vec::new();
    let mut left_out = 0;
    for part in parts {
        let Some(writes) = &part.of.shared_writes else { continue };
        let sum = |line: &SharedLine| line.writes.server + line.writes.client;
        let mut lines: Vec<&SharedLine> = writes.lines.iter().collect();
        lines.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
        let all = |by: BySide<f64>| by.server + by.client;
        let total = all(writes.total) + all(writes.allocator);
        left_out += lines.len().saturating_sub(LINES_SHOWN);
        for line in lines.into_iter().take(LINES_SHOWN) {
            let share = if total > 0.0 { 100.0 * sum(line) / total } else { 0.0 };
            rows.push(vec![
                Cell::Text(part.label.clone()),
                Cell::Html(format!("<code>{}</code>", escape(&line.symbol))),
                Cell::Text(words::spaced(&line.class.replace('-', " "))),
                Cell::Text(line.owner.clone()),
                Cell::Number(number(line.writes.server)),
                Cell::Number(number(line.writes.client)),
                Cell::Number(format!("{}%", number(share))),
                Cell::Html(path("writers", &line.writers)),
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads =
        ["stack", "line", "class", "owner", "#server", "#client", "#share of all", "who writes"];
    let more = match left_out {
        0 => String::new(),
        _ => format!(" The raw document has {left_out} more."),
    };
    let caption =
        format!("Cache lines that more than one thread writes: writes per handshake.{more}");
    table(&caption, &heads, &rows)
}

fn sites_table(parts: &[Part<'_, CountResult>]) -> String {
    let mut rows = Vec::new();
    for part in parts {
        let Some(LockCounts { sites, .. }) = &part.of.locks else { continue };
        for site in sites.iter().take(LINES_SHOWN) {
            rows.push(vec![
                Cell::Text(part.label.clone()),
                Cell::Html(format!("<code>{}</code>", escape(&site.lock))),
                Cell::Text(site.kind.clone()),
                Cell::Number(number(site.calls.server)),
                Cell::Number(number(site.calls.client)),
                Cell::Html(path("call path", &site.path)),
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["stack", "lock", "kind", "#server", "#client", "taken in"];
    table("Busiest locks: acquisitions per handshake, by call path", &heads, &rows)
}

/// The first function, and the others behind it for who wants them.
pub(crate) fn path(what: &str, functions: &[String]) -> String {
    let codes: Vec<String> =
        functions.iter().map(|name| format!("<code>{}</code>", escape(name))).collect();
    match &codes[..] {
        [] => String::new(),
        [one] => one.clone(),
        [first, rest @ ..] => format!(
            "<details class=\"path\"><summary>{first} <span class=\"more\">{what}: +{}</span>\
             </summary>{}</details>",
            rest.len(),
            rest.join("<br>")
        ),
    }
}

/// Whether each count repeats, and why others are missing.
fn remarks(parts: &[Part<'_, CountResult>]) -> String {
    let remark = |part: &Part<'_, CountResult>| {
        let (label, count) = (escape(&part.label), part.of);
        match &count.failure {
            Some(failure) => format!(
                "<li class=\"failure\"><b>{label}</b>: not counted: {}</li>",
                escape(failure)
            ),
            None if count.exact => {
                format!(
                    "<li><b>{label}</b>: counted {} times, the same integers.</li>",
                    count.repeats
                )
            }
            None if count.repeats > 1 => {
                format!(
                    "<li><b>{label}</b>: counted {} times, with differences.</li>",
                    count.repeats
                )
            }
            None => format!("<li><b>{label}</b>: counted once.</li>"),
        }
    };
    let items: String = parts.iter().map(remark).collect();
    format!("<ul class=\"remarks\">{items}</ul>")
}

/// A side and how its figure is taken.
pub(crate) type Side = (&'static str, fn(&BySide<f64>) -> f64);

pub(crate) const SIDES: [Side; 2] = [("server", |by| by.server), ("client", |by| by.client)];
const CLASSES: [(&str, usize); 5] =
    [("lock", 1), ("reference-count", 0), ("global", 4), (OTHER, 6), (ALLOCATOR, 3)];
/// The number of those that lines are named by.
const NAMED: usize = 3;
const OTHER: &str = "other";
const LOCK_KINDS: [(&str, usize); 3] = [("read", 0), ("write", 1), ("mutex", 2)];
const CRUMB: f64 = 0.05;
const LINES_SHOWN: usize = 12;
const LEAD: &str = "These are counts, not times: they are the same on a busy laptop and on a quiet \
    server. A count is no rank; it says where threads can meet, and what to remove. What it costs \
    depends on how much work lies between two writes.";
const WRITES_LOOK: &str = "How often one handshake writes to a cache line that another thread \
    writes too. Each such write can wait for the line to come from another core. 0 means that \
    threads cannot slow each other down through memory. The allocator's \
    share (after the +) varies with chance.";
const LOCKS_LOOK: &str = "How often one handshake takes a lock through the C library, whether or \
    not it had to wait. Locks that spin inline, as most in Rust and Go, are not seen here: they \
    are among the shared writes.";
const INSTRUCTIONS_LOOK: &str = "How many instructions each end executes for one handshake, as the \
    slope between two lengths of run, so that start-up is not in it. Fewer is not always faster: \
    vector instructions do more each, and the counting processor is an emulated one.";
