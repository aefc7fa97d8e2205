//! The page "Six ways TLS stops scaling": each write-up's fault and remedy, as published and as
//! measured here.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use sealane_lab_model::{
    document::{BulkSeries, Judgement, Run, Strategies},
    error::Error,
    figures::{bulk::RATE, rounds::counting},
    number::number,
    statistics::paired_ratio,
    words,
};

use crate::plot::{Bar, BarPlot, Drawing, Row, Segment, escape};

use super::{
    Page,
    card::Card,
    frame::{Figure, Section, Tag},
    method,
    sources::{Part, Sources},
    stories::{Contrast, Published, STORIES, Story},
    strategies::{judgement, medians, settings, side_by_side},
    transfer::{self, Load},
};

/// Draws the documents of the six commands as that page, and says what all of their checks and
/// `steps` come to.
///
/// # Errors
/// A document cannot be read, or the page cannot be written.
pub fn write(
    runs: &[PathBuf],
    steps: Judgement,
    output: &Path,
) -> Result<(Page, Judgement), Error> {
    let mut sources = Sources::read(runs)?;
    sources.notes = steps.notes();
    let mut judgement = judgement(&sources);
    judgement.failed.extend(steps.failed);
    judgement.left_out.extend(steps.left_out);
    Ok((draw(&sources, &judgement, output)?, judgement))
}

/// Draws what was read, with what its checks come to.
///
/// # Errors
/// The page cannot be written.
pub(crate) fn draw(sources: &Sources, judgement: &Judgement, output: &Path) -> Result<Page, Error> {
    let sections = STORIES.iter().enumerate();
    let mut sections: Vec<Section> =
        sections.map(|(at, story)| section(sources, at, story)).collect();
    sections.push(method::section(sources, false));
    let said = format!("{judgement:#}.");
    let cards = STORIES.iter().enumerate().filter_map(|(at, story)| card(sources, at, story));
    let cards: String = cards.map(|card| card.html()).collect();
    let cards = format!("<div class=\"cards\">{cards}</div>");
    let hero = super::hero(sources, TITLE, &[SUBTITLE.to_owned(), said.clone()], &cards);
    let page = super::assemble(TITLE, &hero, &sections);
    super::save(&page, format!("{TITLE}. {said}"), output)
}

/// A panel per write-up for a picture: fault and remedy in one figure.
pub(crate) fn panels(sources: &Sources) -> Vec<(String, Drawing)> {
    let panel = |story: &Story| {
        let Shown { values, names, words, .. } = shown(sources, story)?;
        let rows = names.iter().zip(values).enumerate().map(|(color, (name, value))| Row {
            label: name.clone(),
            color: Some(color),
            bars: vec![Some(Bar { value, range: None })],
            ..Row::default()
        });
        let plot = BarPlot {
            name: story.title.to_owned(),
            unit: words.clone(),
            segments: vec![Segment { label: words, color: 0 }],
            rows: rows.collect(),
            ..BarPlot::default()
        };
        Some((story.title.to_owned(), plot.draw()))
    };
    STORIES.iter().filter_map(panel).collect()
}

/// Fault against remedy, in one figure that depends little on the number of cores.
fn card(sources: &Sources, at: usize, story: &Story) -> Option<Card> {
    let Shown { values: [fault, remedy], names: [of, to], words, tag } = shown(sources, story)?;
    Some(Card {
        label: story.title.to_owned(),
        color: at,
        figure: format!("{} \u{2192} {}", number(fault), number(remedy)),
        words: format!("{words}: {of} \u{2192} {to}"),
        tag,
        facts: Vec::new(),
        context: story.source.to_owned(),
    })
}

/// A figure of fault and remedy.
struct Shown {
    values: [f64; 2],
    names: [String; 2],
    /// What the figure counts.
    words: String,
    tag: Tag,
}

fn shown(sources: &Sources, story: &Story) -> Option<Shown> {
    let Contrast { figure, fault, remedy, variant, words } = &story.contrast;
    if story.command == "bulk" {
        return loops_shown(sources, fault, remedy, words);
    }
    let mut all = sources.runs.iter().flat_map(|source| &source.run.strategies);
    let strategies = all.find(|strategies| strategies.command == story.command)?;
    let column = strategies.figures.iter().find(|column| column.name == *figure)?;
    let tag = if column.counted { Tag::Counted } else { Tag::Measured };
    let values = medians(strategies, [fault, remedy], figure, *variant)?;
    let names = [fault, remedy].map(|name| (*name).to_owned());
    Some(Shown { values, names, words: (*words).to_owned(), tag })
}

/// What is left of one thread's rate with the shared loop and the lock, and without both: of the
/// write-up's own library and what came after it, or of the first stack that has the lock put back.
fn loops_shown(sources: &Sources, fault: &str, remedy: &str, words: &str) -> Option<Shown> {
    let parts = sources.parts::<BulkSeries>();
    let runs = |series: &BulkSeries, loops: &str, emulate: Option<&str>| {
        series.loops.as_deref() == Some(loops) && series.emulate.as_deref() == emulate
    };
    let kept = |like: &Part<'_, BulkSeries>, stack: &str, loops: &str, emulate: Option<&str>| {
        let same = parts.iter().filter(|part| {
            part.run == like.run
                && part.of.stack == stack
                && Load::of(part.of) == Load::of(like.of)
                && runs(part.of, loops, emulate)
        });
        let rates = same.map(|part| (part.of.threads, counting(&part.of.rounds, &RATE)));
        let mut rates: Vec<(usize, Vec<Option<f64>>)> = rates.collect();
        rates.sort_by_key(|(threads, _)| *threads);
        let [(1, first), .., (threads, last)] = &rates[..] else { return None };
        Some((*threads, (100.0 * paired_ratio(last, first)?.median).round()))
    };
    let mut faulty = LOCKS.into_iter().flat_map(|lock| {
        parts.iter().filter(move |part| runs(part.of, fault, Some(lock))).map(move |it| (lock, it))
    });
    faulty.find_map(|(lock, faulty)| {
        let old = faulty.of.stack.as_str();
        let is_own = lock == OWN_LOCK;
        // The write-up put another library in its place first, then another loop.
        let heir = parts.iter().find(|part| {
            (part.of.stack != old) == is_own
                && part.run == faulty.run
                && runs(part.of, remedy, None)
        });
        let new = heir?.of.stack.as_str();
        let (threads, with) = kept(faulty, old, fault, Some(lock))?;
        let (as_many, without) = kept(faulty, new, remedy, None)?;
        let words = format!("{words} at {threads} threads");
        let (names, words) = if is_own {
            ([format!("{old}, {fault} loop, fair locks"), format!("{new}, {remedy} loops")], words)
        } else {
            let names = [format!("{fault} loop, with the lock"), format!("{remedy} loops")];
            (names, format!("{words}, {old}"))
        };
        let values = [with, without];
        (threads == as_many).then_some(Shown { values, names, words, tag: Tag::Measured })
    })
}

fn section(sources: &Sources, at: usize, story: &Story) -> Section {
    let Story { title, source, shared, remedy, published, counted, real, emulated, cores, .. } =
        story;
    let mut body = format!(
        "<p class=\"told\"><b>Shared:</b> {}</p><p class=\"told\"><b>Instead:</b> {}</p>",
        escape(shared),
        escape(remedy)
    );
    let counted = counted.as_ref().map(|counted| told_figure(counted, Tag::Counted));
    let (published, counted) =
        (told_figure(published, Tag::Published), counted.unwrap_or_default());
    let _ = write!(body, "<div class=\"grid\">{published}{counted}</div>");
    for (what, text) in [("Real software here", *real), ("Emulated here", *emulated)] {
        if !text.is_empty() {
            let _ = write!(body, "<p class=\"told\"><b>{what}:</b> {}</p>", escape(text));
        }
    }
    let measured = measured(sources, story);
    if measured.is_empty() {
        body += "<p class=\"failure\">Nothing was measured; the top of the page says why.</p>";
    }
    body += &measured;
    let _ = write!(
        body,
        "{}<p class=\"told\"><b>What few cores cannot show:</b> {}</p>{}",
        decided(sources, story),
        escape(cores),
        commands(sources, story)
    );
    Section { id: story.command, short: SHORT[at], title, lead: (*source).to_owned(), body }
}

fn measured(sources: &Sources, story: &Story) -> String {
    let mut html = String::new();
    for source in &sources.runs {
        for strategies in &source.run.strategies {
            if shows(story, &strategies.command) {
                let _ = write!(
                    html,
                    "<h3 class=\"group\">On this machine: <code>{}</code>, {}</h3>{}",
                    escape(&strategies.command),
                    escape(&settings(strategies)),
                    side_by_side(strategies, story.drawn, story.times)
                );
            }
        }
    }
    if story.command == "bulk"
        && let Some(section) = transfer::bulk_section(sources)
    {
        html += "<h3 class=\"group\">On this machine: <code>bulk</code></h3>";
        html += &section.body;
    }
    html
}

/// What is decided here of the story, and what is not, with the reason.
fn decided(sources: &Sources, story: &Story) -> String {
    let runs = || sources.runs.iter().map(|source| &source.run);
    let of_bulk = runs().filter(|_| story.command == "bulk").map(Run::bulk_judgement);
    let strategies = runs().flat_map(|run| &run.strategies);
    let of_story = strategies.filter(|strategies| shows(story, &strategies.command));
    let judgement: Judgement = of_bulk.chain(of_story.map(Strategies::judgement)).sum();
    let told = match judgement == Judgement::default() {
        true => "nothing: no check was made".to_owned(),
        false => escape(&format!("{judgement:#}")),
    };
    format!("<p class=\"told\"><b>Decided here:</b> {told}.</p>")
}

/// The ring and the count of references belong to the same write-up as what they serve.
fn shows(story: &Story, command: &str) -> bool {
    story.command == command
        || story.command == "offload" && ["ring", "references"].contains(&command)
}

fn told_figure(told: &Published, tag: Tag) -> String {
    let Published { title, unit, look, bars } = told;
    let rows = bars.iter().enumerate().map(|(at, (label, value))| Row {
        label: (*label).to_owned(),
        color: Some(at),
        bars: vec![Some(Bar { value: *value, range: None })],
        ..Row::default()
    });
    let plot = BarPlot {
        name: (*title).to_owned(),
        unit: (*unit).to_owned(),
        segments: vec![Segment { label: (*unit).to_owned(), color: 0 }],
        rows: rows.collect(),
        ..BarPlot::default()
    };
    Figure { title, tag, look, drawing: &plot.draw() }.html()
}

/// The commands that repeat what the section shows.
fn commands(sources: &Sources, story: &Story) -> String {
    let of_story = |run: &&Run| {
        let bulk = story.command == "bulk" && !run.bulk.is_empty();
        bulk || run.strategies.iter().any(|strategies| shows(story, &strategies.command))
    };
    let mut html = String::new();
    for run in sources.runs.iter().map(|source| &source.run).filter(of_story) {
        // What the page itself added: the lab's own path, and the document that it read.
        let rest = run.command.iter().skip(1).take_while(|word| *word != "--json").cloned();
        let line: Vec<String> = std::iter::once("sealane-lab".to_owned()).chain(rest).collect();
        let _ = write!(html, "<pre><code>{}</code></pre>", escape(&words::shell(&line)));
    }
    if html.is_empty() { html } else { format!("<p class=\"told\"><b>Repeat it:</b></p>{html}") }
}

const TITLE: &str = "Six ways TLS stops scaling";
const SUBTITLE: &str = "Six write-ups from fourteen years, each of one thing that all threads had \
    to go through. Fault and remedy, side by side on this machine.";
/// The write-up's library itself, whose locks are handed to whoever waits longest.
const OWN_LOCK: &str = "fair-locks";
/// What has the fault of the loops: that, or its lock put back into another library.
const LOCKS: [&str; 2] = [OWN_LOCK, "error-lock"];
/// For the line of links, in the order of the stories.
const SHORT: [&str; 6] =
    ["Queues", "Loops", "Certificates", "Contexts", "Ticket keys", "File table"];
