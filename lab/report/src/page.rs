//! The command `report`: runs as one HTML file that needs nothing else, or one plot as a picture.

mod card;
mod carried;
mod frame;
mod headline;
mod live;
mod lock_paths;
mod method;
mod node;
mod over_time;
mod peers;
mod picture;
mod service;
mod sharing;
mod sources;
mod spectrum;
pub mod stories;
mod strategies;
mod terminators;
pub(crate) mod threads;
pub(crate) mod transfer;
mod verdicts;
mod waiting;
pub mod writeups;

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use sealane_lab_model::{document::Judgement, error::Error, words};

use crate::plot::escape;

pub use picture::Subject;
use sources::Sources;

/// The arguments of `report`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// What measuring commands wrote with --json; several are merged into one page
    #[arg(required = true, value_name = "RUN.json", num_args = 1..=RUNS_MAX)]
    runs: Vec<PathBuf>,
    /// The page to write
    #[arg(short, long, value_name = "FILE.html", required_unless_present = "picture")]
    output: Option<PathBuf>,
    /// Draws the page of `writeups` from the documents that it kept
    #[arg(long, requires = "output")]
    writeups: bool,
    /// Writes the headline plot alone, as SVG for a README
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
    /// What the picture shows [default: servers if measured, else threads]
    #[arg(long, value_name = "SUBJECT", requires = "picture")]
    of: Option<Subject>,
}

/// `true` if all went well.
///
/// # Errors
/// [`Error::Document`] if a run cannot be read; [`Error::Io`] if a file cannot be written.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let mut sources = Sources::read(&arguments.runs)?;
    if let Some(path) = &arguments.picture {
        let svg = picture::picture(&sources, arguments.of)?;
        fs::write(path, svg).map_err(Error::file(path))?;
    }
    let Some(path) = &arguments.output else { return Ok(true) };
    let page = match arguments.writeups {
        true => writeups::draw(&sources, &strategies::judgement(&sources), path)?,
        false => draw(&mut sources, path)?,
    };
    let said =
        writeln!(io::stdout(), "{}\n{}: {} bytes", page.headline, path.display(), page.bytes);
    said.map_err(Error::io("standard output"))?;
    Ok(true)
}

/// A page that was written.
pub struct Page {
    /// What it says first.
    pub headline: String,
    bytes: usize,
}

/// Draws the documents `runs` into `output`; `notes` stand at its head.
///
/// # Errors
/// As [`run`].
pub fn write(runs: &[PathBuf], notes: Vec<String>, output: &Path) -> Result<Page, Error> {
    let mut sources = Sources::read(runs)?;
    sources.notes = notes;
    draw(&mut sources, output)
}

/// What the checks of `run` come to, which can be drawn.
///
/// # Errors
/// Why it cannot.
pub fn judged(run: &Path) -> Result<Judgement, Error> {
    Sources::read(&[run]).map(|sources| strategies::judgement(&sources))
}

fn draw(sources: &mut Sources, output: &Path) -> Result<Page, Error> {
    let page = page(sources);
    save(&page, headline::sentences(sources).join(" "), output)
}

/// Writes a finished page, and says so if it has become too large to be sent.
fn save(page: &str, headline: String, output: &Path) -> Result<Page, Error> {
    fs::write(output, page).map_err(Error::file(output))?;
    let bytes = page.len();
    if bytes > PAGE_BYTES_MAX {
        let _ = writeln!(
            io::stderr(),
            "sealane-lab: {} has more than {PAGE_BYTES_MAX} bytes: give fewer runs for a page \
             that can be sent",
            output.display()
        );
    }
    Ok(Page { headline, bytes })
}

/// The page as HTML; if it would be too large, first the raw documents are left out, then plots of
/// times.
fn page(sources: &mut Sources) -> String {
    let mut page = render(sources, true);
    if page.len() > PAGE_BYTES_MAX {
        page = render(sources, false);
    }
    if page.len() > PAGE_BYTES_MAX {
        sources.brief = true;
        page = render(sources, false);
    }
    page
}

fn render(sources: &Sources, raw: bool) -> String {
    let sections = [
        threads::section(sources),
        terminators::section(sources),
        node::section(sources),
        live::section(sources),
        verdicts::section(sources),
        sharing::section(sources),
        strategies::section(sources),
        transfer::bulk_section(sources),
        Some(method::section(sources, raw)),
    ];
    let sections: Vec<frame::Section> = sections.into_iter().flatten().collect();
    let mut said = headline::sentences(sources).into_iter();
    let title = said.next().unwrap_or_default();
    let hero = hero(sources, &title, &said.collect::<Vec<_>>(), &headline::cards(sources));
    assemble("sealane-lab report", &hero, &sections)
}

/// The first screen and the sections behind it, with a line of links.
fn assemble(title: &str, hero: &str, sections: &[frame::Section]) -> String {
    let mut links = String::new();
    for section in sections {
        let _ = write!(links, "<a href=\"#{}\">{}</a>", section.id, section.short);
    }
    let header = format!(
        "<header class=\"bar-top\"><a class=\"brand\" href=\"#top\">sealane-lab</a>\
         <nav aria-label=\"Contents\">{links}</nav>\
         <button type=\"button\" class=\"theme\" data-do=\"theme\" \
         aria-label=\"Light or dark\">\u{25d0}</button></header>"
    );
    let sections: String = sections.iter().map(frame::Section::html).collect();
    frame::document(title, &header, &format!("{hero}{sections}"))
}

/// The first screen: where it was measured, what it says, what to beware of, and cards.
fn hero(sources: &Sources, title: &str, sentences: &[String], cards: &str) -> String {
    let mut places: Vec<String> = Vec::new();
    for source in &sources.runs {
        let machine = &source.run.machine;
        let date = source.run.started.split('T').next().unwrap_or("");
        let count = words::count(machine.processors, "processor");
        let place = format!("{}, {count}, {date}", machine.processor);
        // Some documents have no date.
        if !date.is_empty() && !places.contains(&place) {
            places.push(place);
        }
    }
    let mut html = format!(
        "<div class=\"hero\" id=\"top\"><p class=\"context\">{}</p><h1>{}</h1>",
        escape(&places.join("; ")),
        escape(title)
    );
    for sentence in sentences {
        let _ = write!(html, "<p class=\"second\">{}</p>", escape(sentence));
    }
    let warnings = method::warnings(sources);
    if !warnings.is_empty() {
        html += "<ul class=\"warning\" role=\"note\">";
        for warning in warnings {
            let _ = write!(html, "<li>{}</li>", escape(&warning));
        }
        html += "</ul>";
    }
    html + cards + "</div>"
}

/// What a mail server and a phone take without complaint.
const PAGE_BYTES_MAX: usize = 500_000;
const RUNS_MAX: usize = 64;
