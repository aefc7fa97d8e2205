//! Comparisons of pairs: ratio, interval, and the verdict in words.

use sealane_lab_model::{document::Comparison, number::number};

use crate::plot::{Interval, IntervalPlot, escape};

use super::{
    frame::{Cell, Figure, Section, Tag, table},
    sources::Sources,
    terminators::sentence_case,
};

/// The section, if anything was compared.
pub(crate) fn section(sources: &Sources) -> Option<Section> {
    let several = sources.runs.iter().filter(|s| !s.run.comparisons.is_empty()).count() > 1;
    let mut rows: Vec<(String, &Comparison)> = Vec::new();
    for (at, source) in sources.runs.iter().enumerate() {
        let run = if several { format!(" (run {})", at + 1) } else { String::new() };
        rows.extend(source.run.comparisons.iter().map(|c| (run.clone(), c)));
    }
    if rows.is_empty() {
        return None;
    }
    let mut measures: Vec<&str> = rows.iter().map(|(_, c)| c.measure.as_str()).collect();
    let mut seen = Vec::new();
    measures.retain(|measure| {
        let new = !seen.contains(measure);
        seen.push(*measure);
        new
    });
    let mut body = String::from("<div class=\"grid\">");
    // The table says the same.
    let drawn = if sources.brief { 0 } else { measures.len() };
    for measure in measures.into_iter().take(drawn) {
        // What too few rounds say looks like a result in a picture: the table alone has it.
        let shown = |c: &Comparison| c.measure == measure && c.is_enough();
        let rows = rows.iter().filter(|(_, comparison)| shown(comparison));
        let rows = rows.map(|(run, comparison)| Interval {
            label: format!("{} / {}{run}", comparison.of, comparison.to),
            color: sources.row_color(&comparison.of),
            ratio: comparison.ratio,
            interval: comparison.interval,
        });
        // A measure that names a whole scenario is wider than the plot; the title has it.
        let (name, unit) = (format!("ratio of {measure}"), "ratio".to_owned());
        let plot = IntervalPlot { name, unit, rows: rows.collect() };
        if plot.rows.is_empty() {
            continue;
        }
        let tag = Tag::Measured;
        let title = &sentence_case(measure);
        body += &Figure { title, tag, look: LOOK, drawing: &plot.draw() }.html();
    }
    body += "</div>";
    body += &verdicts(&rows);
    let lead = "Pairs from the same rounds, neighbours in time: what disturbed the machine for a \
        while falls out of their ratio.";
    Some(Section {
        id: "comparisons",
        short: "Comparisons",
        title: "Comparisons",
        lead: lead.into(),
        body,
    })
}

fn verdicts(rows: &[(String, &Comparison)]) -> String {
    let rows = rows.iter().map(|(run, comparison)| {
        let Comparison { measure, of, to, ratio, interval: [low, high], verdict } = comparison;
        let open = *low <= 1.0 && *high >= 1.0 || !comparison.is_enough();
        let class = if open { "verdict open" } else { "verdict" };
        vec![
            Cell::Text(format!("{of} / {to}{run}")),
            Cell::Text(measure.clone()),
            Cell::Number(format!("{} [{}\u{2013}{}]", number(*ratio), number(*low), number(*high))),
            Cell::Html(format!("<span class=\"{class}\">{}</span>", escape(verdict))),
        ]
    });
    let heads = ["pair", "measure", "#ratio [95% interval]", "verdict"];
    table(
        "Median of the rounds' ratios, with its 95% bootstrap interval",
        &heads,
        &rows.collect::<Vec<_>>(),
    )
}

const LOOK: &str = "The first one's figure divided by the second's. Dot: median of the rounds' \
    ratios; line: 95% interval. Where the line crosses \u{d7}1, no difference is shown. Where the \
    verdict says \"not enough\", it goes from the least to the most ratio, and is a hint.";
