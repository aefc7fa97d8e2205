//! Comparisons of pairs: ratio, interval, and the verdict in words.

use sealane_lab_model::{document::Comparison, number::number};

use crate::plot::escape;

use super::{
    frame::{Cell, Section, table},
    sources::Sources,
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
    let body = verdicts(&rows);
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
