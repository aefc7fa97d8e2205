//! The frame of a page: its head, and the HTML of figures, tables and tags.

use std::fmt::Write;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

use crate::plot::{Drawing, escape, palette};

/// How a figure came to be; the page never leaves it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Event by event; the same on every run, unless its ends tell otherwise.
    Counted,
    /// By a clock.
    Measured,
    /// By somebody else, elsewhere.
    Published,
}

impl Tag {
    pub(crate) fn html(self) -> &'static str {
        match self {
            Self::Counted => "<span class=\"tag counted\">COUNTED</span>",
            Self::Measured => "<span class=\"tag\">MEASURED</span>",
            Self::Published => "<span class=\"tag\">PUBLISHED</span>",
        }
    }
}

/// A plot with everything around it.
pub(crate) struct Figure<'a> {
    pub(crate) title: &'a str,
    pub(crate) tag: Tag,
    /// What one is looking at, and how to read it.
    pub(crate) look: &'a str,
    pub(crate) drawing: &'a Drawing,
}

impl Figure<'_> {
    /// A `figure` that takes one place of the grid.
    pub(crate) fn html(&self) -> String {
        let Self { title, tag, look, drawing } = self;
        let (title, look, tag) = (escape(title), escape(look), tag.html());
        let mut html = format!(
            "<figure class=\"plot card\"><figcaption><h3>{title} {tag}</h3>\
             <p class=\"look\">{look}</p></figcaption>"
        );
        html += &legend(drawing);
        html += "<div class=\"canvas\">";
        // What has names inside keeps its size, and scrolls where the screen is narrow.
        let wide = if drawing.data["kind"] == "icicle" { " wide" } else { "" };
        for (at, view) in drawing.views.iter().enumerate() {
            let hidden = if at == 0 { "" } else { " hidden" };
            let _ = write!(html, "<div class=\"face{wide}\"{hidden}>{}</div>", view.svg);
        }
        html += "<div class=\"tip\" role=\"status\" hidden></div></div><div class=\"tools\">";
        if let [first, second, ..] = &drawing.views[..] {
            let (first, second) = (first.name, second.name);
            let _ = write!(
                html,
                "<button type=\"button\" data-do=\"scale\" data-names=\"{first},{second}\">\
                 {second} scale</button>"
            );
        }
        let csv = area(&drawing.csv);
        let _ = write!(
            html,
            "<button type=\"button\" data-do=\"copy\">Copy data</button><details class=\"data\">\
             <summary>Data</summary><textarea readonly rows=\"8\" spellcheck=\"false\" \
             aria-label=\"{title}: data as CSV\">\n{csv}</textarea></details></div>"
        );
        let _ = write!(
            html,
            "<script type=\"application/json\">{}</script></figure>",
            script_json(&drawing.data)
        );
        html
    }
}

/// One cell of a table.
pub(crate) enum Cell {
    /// Already HTML.
    Html(String),
    /// Set to the right, in figures of equal width.
    Number(String),
    /// Any text.
    Text(String),
}

/// A table that scrolls within itself where it is too wide. A head that begins with `#` is one of
/// numbers.
pub(crate) fn table(caption: &str, heads: &[&str], rows: &[Vec<Cell>]) -> String {
    let mut html = format!(
        "<div class=\"sheet card\"><p class=\"caption\">{0}</p>\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"{0}\"><table aria-label=\"{0}\"><thead><tr>",
        escape(caption)
    );
    for head in heads {
        let _ = match head.strip_prefix('#') {
            Some(head) => write!(html, "<th scope=\"col\" class=\"n\">{}</th>", escape(head)),
            None => write!(html, "<th scope=\"col\">{}</th>", escape(head)),
        };
    }
    html += "</tr></thead><tbody>";
    for row in rows {
        html += "<tr>";
        for (at, cell) in row.iter().enumerate() {
            let _ = match cell {
                Cell::Html(cell) => write!(html, "<td>{cell}</td>"),
                Cell::Number(text) => write!(html, "<td class=\"n\">{}</td>", escape(text)),
                Cell::Text(text) if at == 0 => {
                    write!(html, "<th scope=\"row\">{}</th>", escape(text))
                }
                Cell::Text(text) => write!(html, "<td>{}</td>", escape(text)),
            };
        }
        html += "</tr>";
    }
    html + "</tbody></table></div></div>"
}

/// A part of the page with an entry in its contents.
pub(crate) struct Section {
    /// For the link.
    pub(crate) id: &'static str,
    /// For the contents.
    pub(crate) short: &'static str,
    pub(crate) title: &'static str,
    /// One sentence or two under the title.
    pub(crate) lead: String,
    /// HTML.
    pub(crate) body: String,
}

impl Section {
    pub(crate) fn html(&self) -> String {
        let Self { id, title, lead, body, .. } = self;
        let (title, lead) = (escape(title), escape(lead));
        format!("<section id=\"{id}\"><h2>{title}</h2><p class=\"lead\">{lead}</p>{body}</section>")
    }
}

/// A whole document around `main`, which is HTML.
pub(crate) fn document(title: &str, header: &str, main: &str) -> String {
    let title = escape(title);
    let style = style();
    // A page may hold names that somebody else chose: nothing but these two may run or load.
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(&style)
    );
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n\
         {header}\n<main>\n{main}\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// The rules of plots alone, for a picture that stands by itself.
pub(crate) fn plot_style() -> String {
    themes("svg") + &palette::classes() + PLOT_STYLE
}

fn style() -> String {
    themes(":root") + &palette::classes() + PLOT_STYLE + PAGE_STYLE
}

/// The colours: those the reader's system asks for, unless the page's switch says otherwise.
fn themes(root: &str) -> String {
    let (light, dark) = (palette::properties(false), palette::properties(true));
    format!(
        "{root}{{{light}}}\n\
         @media (prefers-color-scheme:dark){{{root}:not([data-theme=light]){{{dark}}}}}\n\
         {root}[data-theme=dark]{{{dark}}}\n\
         @media print{{{root},{root}:not([data-theme=light]){{{light}}}}}\n"
    )
}

fn legend(drawing: &Drawing) -> String {
    if drawing.keys.is_empty() {
        return String::new();
    }
    let mut html = String::from("<div class=\"legend\" role=\"group\" aria-label=\"Legend\">");
    for (at, key) in drawing.keys.iter().enumerate() {
        let (class, label) = (palette::class(key.color), escape(&key.label));
        let dashes = palette::dashes(key.color);
        let _ = write!(
            html,
            "<button type=\"button\" class=\"key\" data-s=\"{at}\" aria-pressed=\"false\">\
             <span class=\"swatch {class}{dashes}\"></span>{label}</button>"
        );
    }
    html + "</div>"
}

/// Text of a `textarea`, in which quotes need no cover.
pub(crate) fn area(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// JSON that cannot end the element it stands in.
fn script_json(value: &serde_json::Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e")
}

fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

const PLOT_STYLE: &str = include_str!("plot.css");
const PAGE_STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
