//! One plot as a picture of its own, for a README: [`picture`].

use sealane_lab_model::{
    document::{HandshakeSeries, Servers},
    error::Error,
};

use crate::plot::{Drawing, Key, escape, palette};

use super::{frame, over_time, sources::Sources, terminators, threads, writeups};

/// What a picture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Subject {
    /// Round trips by second while a remedy is deployed, a panel for each cost of the owner's
    Deployment,
    /// The servers' CPU per operation against the floor, a panel per case
    Servers,
    /// Rate per thread against threads
    Threads,
    /// The six write-ups' faults and remedies, a panel each
    Writeups,
}

/// An SVG file that follows the reader's light or dark theme.
///
/// # Errors
/// [`Error::Unsupported`] if the runs have nothing of the kind.
pub(crate) fn picture(sources: &Sources, subject: Option<Subject>) -> Result<String, Error> {
    let subject = subject.unwrap_or_else(|| {
        if sources.servers().next().is_some() { Subject::Servers } else { Subject::Threads }
    });
    let panels = match subject {
        Subject::Deployment => {
            let runs = sources.runs.iter().flat_map(|source| &source.run.strategies);
            let plots = runs.flat_map(over_time::plots);
            Some(plots.map(|(title, plot)| (title, plot.draw())).collect())
        }
        Subject::Servers => sources.servers().next().map(|(_, servers)| panels(sources, servers)),
        Subject::Threads => {
            let groups = sources.by_scenario::<HandshakeSeries>();
            let group = groups.into_iter().next();
            group.map(|(scenario, parts)| {
                let plot = threads::rate_plot(sources, scenario, &parts);
                vec![(plot.name.clone(), plot.draw())]
            })
        }
        Subject::Writeups => Some(writeups::panels(sources)),
    };
    let panels = panels.filter(|panels: &Vec<_>| !panels.is_empty());
    panels.map(|panels| compose(&panels)).ok_or_else(|| {
        Error::Unsupported("these runs have nothing for this picture: choose another".into())
    })
}

fn panels(sources: &Sources, servers: &Servers) -> Vec<(String, Drawing)> {
    // Each load of a case beside the other; latencies are for the page.
    let costs = servers.cases.iter().filter(|case| !case.unit.contains("p99"));
    let plots = costs.filter_map(|case| {
        let plot = terminators::case_plot(sources, servers, case);
        let title = terminators::sentence_case(&case.title);
        (!plot.rows.is_empty()).then(|| (title, plot.draw()))
    });
    plots.take(PANELS_MAX).collect()
}

/// Panels in columns, each under its title.
fn compose(panels: &[(String, Drawing)]) -> String {
    let columns = if panels.len() > 1 { 2 } else { 1 };
    let mut at = [PAD, PAD];
    let (mut body, mut row_height) = (String::new(), 0.0_f64);
    for (number, (title, drawing)) in panels.iter().enumerate() {
        let Some((view, height)) = drawing.views.first().and_then(|v| Some((v, height(&v.svg)?)))
        else {
            continue;
        };
        let [x, y] = at;
        let title = escape(title);
        body += &format!("<text class=\"title\" x=\"{x}\" y=\"{}\">{title}</text>", y + 16.0);
        let (keys, keys_height) = legend(&drawing.keys, x, y + TITLE);
        body += &keys;
        let top = y + TITLE + keys_height;
        let place = format!("<svg x=\"{x}\" y=\"{top}\" width=\"{PANEL}\" height=\"{height}\"");
        body += &view.svg.replacen("<svg", &place, 1);
        row_height = row_height.max(TITLE + keys_height + height + PAD);
        let last = number + 1 == panels.len();
        at = if (number + 1) % columns == 0 || last {
            let next = [PAD, y + row_height];
            row_height = 0.0;
            next
        } else {
            [x + PANEL + PAD, y]
        };
    }
    let width = if columns == 2 { PAD * 3.0 + PANEL * 2.0 } else { PAD * 2.0 + PANEL };
    let height = at[1];
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"system-ui, sans-serif\">\n\
         <style>{}{STYLE}</style>\n<rect class=\"ground\" width=\"{width}\" height=\"{height}\" \
         rx=\"12\"/>\n{body}\n</svg>\n",
        frame::plot_style()
    )
}

/// Entries in a row, broken where the panel ends; and their height.
fn legend(keys: &[Key], left: f64, top: f64) -> (String, f64) {
    if keys.is_empty() {
        return (String::new(), 0.0);
    }
    let (mut across, mut down) = (left, top);
    let mut svg = String::new();
    for Key { label, color } in keys {
        let width = 30.0 + 7.0 * threads::real(label.chars().count());
        if across > left && across + width > left + PANEL {
            (across, down) = (left, down + KEY);
        }
        svg += &format!(
            "<g class=\"{}{}\"><rect class=\"bar\" x=\"{across}\" y=\"{}\" width=\"12\" \
             height=\"12\" rx=\"3\"/><text class=\"name\" x=\"{}\" y=\"{}\">{}</text></g>",
            palette::class(*color),
            palette::dashes(*color),
            down + 2.0,
            across + 18.0,
            down + 12.5,
            escape(label)
        );
        across += width;
    }
    (svg, down + KEY + 6.0 - top)
}

/// The height in an `svg` element's `viewBox`.
fn height(svg: &str) -> Option<f64> {
    let (_, rest) = svg.split_once("viewBox=\"")?;
    rest.split_once('"')?.0.split(' ').nth(3)?.parse().ok()
}

const PANEL: f64 = crate::plot::WIDTH;
const PAD: f64 = 20.0;
const TITLE: f64 = 28.0;
const KEY: f64 = 20.0;
/// More panels are no picture but a page.
const PANELS_MAX: usize = 6;
const STYLE: &str = ".title{font-size:15px;font-weight:650;fill:var(--ink)}\
    rect.ground{fill:var(--card)}text{font-size:12px}";
