//! Comparisons of pairs: ratio, interval, and the verdict in words.

use crate::{
    document::Comparison,
    plot::{Interval, IntervalPlot, escape, number},
    statistics::NOT_ENOUGH,
};

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
    for measure in measures {
        let rows = rows.iter().filter(|(_, c)| c.measure == measure);
        let rows = rows.map(|(run, comparison)| Interval {
            label: format!("{} / {}{run}", comparison.of, comparison.to),
            color: sources.row_color(&comparison.of),
            ratio: comparison.ratio,
            interval: comparison.interval,
        });
        let unit = format!("ratio of {measure}");
        let plot = IntervalPlot { name: unit.clone(), unit, rows: rows.collect() };
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
        let open = *low <= 1.0 && *high >= 1.0 || verdict.starts_with(NOT_ENOUGH);
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
