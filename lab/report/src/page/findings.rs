//! The page "What TLS stacks share": findings, with what people know about the lines.

mod kernel;
mod notes;
mod text;
mod told;

use std::{fmt::Write, path::Path};

use sealane_lab_model::{
    document::{HotLine, Run, Site},
    error::Error,
    number::number,
    words,
};

use crate::plot::{Bar, BarPlot, Icicle, Path as CallPath, Row, Segment, Step, escape};

use super::{
    Page,
    card::Card,
    frame::{Cell, Figure, Section, Tag, area, table},
};
use notes::Notes;
use told::{Culprit, FIGURES, LEAD, ORDER, RECIPE, Side, TITLE, Told};

/// Draws the findings of `run` into `output`, if it is given; says the same as Markdown.
///
/// # Errors
/// The page cannot be written.
pub fn tell(run: &Run, output: Option<&Path>) -> Result<String, Error> {
    let notes = Notes::own()?;
    if let Some(output) = output {
        write(run, &notes, output)?;
    }
    Ok(text::text(run, &notes))
}

/// Draws the findings of `run` into `output`.
///
/// # Errors
/// The page cannot be written.
fn write(run: &Run, notes: &Notes, output: &Path) -> Result<Page, Error> {
    let stacks = told::told(run, notes);
    let mut sections = Vec::new();
    if !stacks.is_empty() {
        sections.extend([overview(&stacks), culprits(&stacks)]);
    }
    sections.extend(outlook(&stacks));
    if !run.kernel_ledgers.is_empty() {
        sections.push(in_the_kernel(run, notes));
    }
    sections.extend(changes(run, notes));
    sections.push(again(run, &stacks));
    let page = super::assemble(TITLE, &hero(run, notes, &stacks), &sections);
    super::save(&page, format!("{TITLE}: {} stacks", stacks.len()), output)
}

fn hero(run: &Run, notes: &Notes, stacks: &[Told<'_>]) -> String {
    let mut html = format!(
        "<div class=\"hero\" id=\"top\"><p class=\"context\">{}</p><h1>{TITLE}</h1>",
        escape(&origins(run))
    );
    if !stacks.is_empty() {
        let _ = write!(html, "<p class=\"second\">{LEAD}</p>");
    }
    let stale = notes.stale(&run.findings);
    if !stale.is_empty() {
        html += "<ul class=\"warning\" role=\"note\">";
        for stale in stale {
            let _ = write!(html, "<li>{}</li>", escape(&stale));
        }
        html += "</ul>";
    }
    let cards = stacks.iter().enumerate().filter_map(|(at, stack)| card(at, stack));
    let cards: String = cards.map(|card| card.html()).collect();
    html + "<div class=\"cards\">" + &cards + "</div></div>"
}

/// When and where everything was recorded or counted.
fn origins(run: &Run) -> String {
    let all = [told::origins(run), kernel::origins(run)].concat();
    all.join("; ")
}

/// A stack's first scenario in one figure.
fn card(color: usize, stack: &Told<'_>) -> Option<Card> {
    let first = stack.findings.first()?;
    let per_million = told::per_million(first).map_or_else(String::new, number);
    let lines = first.lines;
    let culprit = told::culprit(stack, first, Side::Server);
    Some(Card {
        label: stack.title.clone(),
        color,
        figure: number(first.updates.server),
        words: "atomic updates of shared lines by the server, per handshake".into(),
        tag: Tag::Counted,
        facts: vec![
            (per_million, "per million instructions".into()),
            (format!("{} / {}", lines.server, lines.client), "lines, server / client".into()),
            (number(first.updates.client), "by the client".into()),
        ],
        context: format!("{}; busiest: {culprit}", words::short(&first.scenario)),
    })
}

fn overview(stacks: &[Told<'_>]) -> Section {
    let rows = stacks.iter().flat_map(|stack| {
        stack.findings.iter().map(move |finding| cells(told::row(stack, finding), &told::HEADS))
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let plot = updates(stacks);
    let look = "Atomic updates of shared lines by the server, over its instructions: the more \
                work lies between two updates, the later threads get in each other's way.";
    let figure =
        Figure { title: "Updates by work", tag: Tag::Counted, look, drawing: &plot.draw() };
    Section {
        id: "overview",
        short: "Overview",
        title: "All of them",
        lead: format!("{FIGURES} {ORDER}"),
        body: table("Per handshake, server / client.", &told::HEADS, &rows)
            + "<div class=\"grid\">"
            + &figure.html()
            + "</div>",
    }
}

/// Texts under `heads`, of which those of numbers begin with `#`.
fn cells<const COUNT: usize>(row: [String; COUNT], heads: &[&str; COUNT]) -> Vec<Cell> {
    let cell = |(text, head): (String, &&str)| match head.starts_with('#') {
        true => Cell::Number(text),
        false => Cell::Text(text),
    };
    row.into_iter().zip(heads).map(cell).collect()
}

fn updates(stacks: &[Told<'_>]) -> BarPlot {
    let mut segments: Vec<Segment> = Vec::new();
    for finding in stacks.iter().flat_map(|stack| &stack.findings) {
        let label = words::short(&finding.scenario);
        if !segments.iter().any(|segment| segment.label == label) {
            segments.push(Segment { label, color: segments.len() });
        }
    }
    let row = |stack: &Told<'_>| {
        let bar = |segment: &Segment| {
            let same = |finding: &&&sealane_lab_model::document::Finding| {
                words::short(&finding.scenario) == segment.label
            };
            let value = told::per_million(stack.findings.iter().find(same)?)?;
            Some(Bar { value, range: None })
        };
        let bars = segments.iter().map(bar).collect();
        Row { label: stack.title.clone(), bars, ..Row::default() }
    };
    BarPlot {
        name: "Updates of shared lines by the server's work".into(),
        unit: "atomic updates per million instructions, server".into(),
        rows: stacks.iter().map(row).collect(),
        segments,
        ..BarPlot::default()
    }
}

fn culprits(stacks: &[Told<'_>]) -> Section {
    let mut body = String::new();
    for stack in stacks {
        let _ = write!(body, "<h3>{}</h3>", escape(&stack.title));
        if !stack.about.is_empty() {
            let _ = write!(body, "<p class=\"told\">{}</p>", escape(stack.about.trim()));
        }
        if stack.culprits.is_empty() {
            body += "<p class=\"told\">No line is updated by more than one thread.</p>";
            continue;
        }
        let rows: Vec<Vec<Cell>> = stack.culprits.iter().map(row).collect();
        body += &table("The busiest line of each side and handshake.", &HEADS, &rows);
        body += &icicle(stack);
    }
    Section {
        id: "culprits",
        short: "Culprits",
        title: "What it is, why it is written, what would remove it",
        lead: "A line is known by its variable, or by who writes it; what people know of it is \
               tied to that name, and is left out where no recording has it."
            .into(),
        body,
    }
}

fn row(culprit: &Culprit<'_>) -> Vec<Cell> {
    let Culprit { line, note, sentences } = culprit;
    let name = note.map_or("not yet explained", |note| note.culprit.as_str());
    let symbol = format!("<code>{}</code>", escape(&line.symbol));
    let said = sentences.iter().map(|said| format!("<p>{}</p>", escape(said)));
    let (taken, removal) = match note {
        None => (String::new(), String::new()),
        Some(note) => (prose(&note.taken), removal(&note.removal, &note.told_in)),
    };
    vec![
        Cell::Text(name.to_owned()),
        Cell::Html(format!("{symbol}<p>{}</p>", escape(&told::line(line)))),
        Cell::Html(said.collect()),
        Cell::Html(taken),
        Cell::Html(removal),
    ]
}

/// What would remove a thing, and where that is told.
fn removal(removal: &str, told_in: &[String]) -> String {
    match told_in.is_empty() {
        true => prose(removal),
        false => prose(&format!("{removal} ({})", told_in.join(", "))),
    }
}

/// Text in which code stands between backticks.
fn prose(text: &str) -> String {
    let part = |(at, part): (usize, &str)| match at % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    };
    text.split('`').enumerate().map(part).collect()
}

/// Who writes the line that both sides together update most.
fn icicle(stack: &Told<'_>) -> String {
    let Some(line) = stack.culprits.first().map(|culprit| culprit.line) else {
        return String::new();
    };
    if line.sites.is_empty() {
        return String::new();
    }
    let both = |site: &Site| site.writes.server + site.writes.client;
    let icicle = Icicle {
        name: format!("Call paths to {}, {}", line.symbol, stack.title),
        unit: "writes per handshake, both sides".into(),
        root: line.symbol.clone(),
        paths: line.sites.iter().map(|site| call_path(line, site, both(site))).collect(),
        total: line.sites.iter().map(both).sum(),
    };
    let title = format!("Who writes {}", line.symbol);
    let look = "The outermost function on top; a block is as wide as the writes that come through \
                it. A phone scrolls sideways.";
    Figure { title: &title, tag: Tag::Counted, look, drawing: &icicle.draw() }.html()
}

/// From the outermost function inwards.
fn call_path(line: &HotLine, site: &Site, amount: f64) -> CallPath {
    let functions = site.path.iter().rev().take(DEPTH_MAX);
    let step = |function: &String| Step { label: function.clone(), group: line.owner.clone() };
    CallPath { steps: functions.map(step).collect(), amount }
}

/// What the model makes of them, beside what was published.
fn outlook(stacks: &[Told<'_>]) -> Option<Section> {
    let mut rows = Vec::new();
    for stack in stacks {
        for told in told::outlook(stack) {
            rows.push(vec![
                Cell::Text(stack.title.clone()),
                Cell::Text(told.case),
                Cell::Text(told.forecast),
                Cell::Text(told.published),
                Cell::Text(told.without),
            ]);
        }
    }
    (!rows.is_empty()).then(|| Section {
        id: "outlook",
        short: "Forecast",
        title: "What it comes to",
        lead: told::OUTLOOK.into(),
        body: table("The server's speed per thread.", &told::OUTLOOK_HEADS, &rows),
    })
}

fn in_the_kernel(run: &Run, notes: &Notes) -> Section {
    let rows = kernel::rows(run, notes).into_iter().map(|row| cells(row, &kernel::HEADS));
    let caption = "What a connection to each server writes";
    let mut body = table(caption, &kernel::HEADS, &rows.collect::<Vec<_>>());
    for shared in kernel::shared(run, notes) {
        let note = shared.note;
        let why = note.map_or_else(String::new, |note| prose(&note.taken));
        let told_in = note.map(|note| note.told_in.as_slice()).unwrap_or_default();
        let _ = write!(
            body,
            "<h3>{}</h3><p class=\"told\"><b>Why:</b> {why}</p>\
             <p class=\"told\"><b>What would remove it:</b> {}</p>",
            escape(shared.name()),
            removal(shared.removal, told_in)
        );
        let row = |sharer: &kernel::Sharer| cells(sharer.cells(), &kernel::SHARER_HEADS);
        let rows: Vec<Vec<Cell>> = shared.sharers.iter().map(row).collect();
        let caption = format!("Who shares it: {}", shared.object);
        body += &table(&caption, &kernel::SHARER_HEADS, &rows);
    }
    let lead = kernel::LEAD.replace('`', "");
    Section { id: "kernel", short: "Kernel", title: kernel::TITLE, lead, body }
}

fn changes(run: &Run, notes: &Notes) -> Option<Section> {
    let mut body = String::new();
    for change in notes.changes_of(&run.findings) {
        let _ = write!(body, "<h3>{}</h3>", escape(&change.title));
        for part in &change.parts {
            let _ = write!(body, "<h3 class=\"group\">{}</h3>", escape(&part.head));
            for paragraph in part.text.trim().split("\n\n") {
                let _ = write!(body, "<p class=\"told\">{}</p>", prose(paragraph));
            }
            if !part.code.is_empty() {
                let _ = write!(body, "<pre class=\"told\">{}</pre>", area(part.code.trim()));
            }
        }
    }
    (!body.is_empty()).then(|| Section {
        id: "changes",
        short: "Changes",
        title: "Changes that would remove a line",
        lead: "Told so that the authors of the library could make them.".into(),
        body,
    })
}

fn again(run: &Run, stacks: &[Told<'_>]) -> Section {
    let commands = told::commands(run, stacks).join("\n") + "\n";
    Section {
        id: "again",
        short: "Again",
        title: "How to make these figures again",
        lead: RECIPE.replace('`', ""),
        body: format!("<pre class=\"told\">{}</pre>", area(&commands)),
    }
}

const HEADS: [&str; 5] = ["line", "recorded as", "how much", "why", "what would remove it"];
/// Deeper paths say no more, and are too narrow to be read.
const DEPTH_MAX: usize = 12;
