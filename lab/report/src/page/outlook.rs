//! What forecasts come to: a verdict for each stack, a sentence for each pair of neighbours, and
//! what the page says first.

use std::fmt::Write as _;

use sealane_lab_model::{
    document::{Forecast, ForecastComparison, LineCost, ValidatedCurve, VerdictKind},
    scenario::Scenario,
    verdict::{self, TWICE, fallen, off, share},
    words,
};

use crate::plot::{escape, palette};

use super::{
    frame::Tag,
    sources::{Part, Sources},
};

/// A card for each stack: what it comes to, what is forecast, and what was measured.
pub(crate) fn cards(sources: &Sources) -> String {
    let groups = sources.by_scenario::<Forecast>();
    let several = groups.len() > 1;
    let mut html = String::new();
    for (scenario, parts) in groups.iter().take(SCENARIOS_MAX) {
        let context = if several { format!(": {}", words::short(scenario)) } else { String::new() };
        let cards: String = parts.iter().take(CARDS_MAX).map(card).collect();
        let _ = write!(
            html,
            "<h2 class=\"row\">Verdicts{}</h2><div class=\"cards judged\">{cards}</div>",
            escape(&context)
        );
    }
    html
}

/// What the page says first of its forecasts.
pub(crate) fn sentences(sources: &Sources) -> Vec<String> {
    let groups = sources.by_scenario::<Forecast>();
    let Some((scenario, parts)) = groups.first() else { return Vec::new() };
    let mut said = Vec::new();
    match &parts[..] {
        [one] => said.extend(alone(one, scenario)),
        several => {
            let pairs: Vec<String> = neighbours(several).iter().map(short).collect();
            let pairs = match &pairs[..] {
                [] => "not enough to say which stack keeps more.".into(),
                pairs => pairs.join(" "),
            };
            said.push(format!("FORECAST from counts, {}: {pairs}", words::short(scenario)));
        }
    }
    said
}

/// What there is to say of each pair, with the counts behind it.
pub(crate) fn neighbours_list(parts: &[Part<'_, Forecast>]) -> String {
    let mut items = String::new();
    for ForecastComparison { verdict, .. } in neighbours(parts) {
        items += "<li>";
        for (tag, said) in [(Tag::Forecast, &verdict.forecast), (Tag::Measured, &verdict.measured)]
        {
            if !said.is_empty() {
                let _ = write!(items, "{} {} ", tag.html(), escape(untagged(said)));
            }
        }
        items += "</li>";
    }
    if items.is_empty() { items } else { format!("<ul class=\"remarks\">{items}</ul>") }
}

/// How well forecasts and published curves agree, in a sentence.
pub(crate) fn validations(sources: &Sources) -> Option<String> {
    let validations = sources.runs.iter().filter_map(|source| source.run.validation.as_ref());
    let curves = validations.flat_map(|validation| &validation.curves);
    let unfitted: Vec<&ValidatedCurve> =
        curves.filter(|curve| !curve.fitted && !curve.points.is_empty()).collect();
    let missed: Vec<&str> =
        unfitted.iter().filter(|curve| is_miss(curve)).map(|curve| &*curve.name).collect();
    let all = unfitted.len();
    let misses = match &missed[..] {
        [] => "none is missed".to_owned(),
        names => format!("missed: {}", names.join(", ")),
    };
    let keeps_all = |curve: &&&ValidatedCurve| {
        curve.points.last().is_some_and(|point| !is_far(1.0, point.published))
    };
    (all > 0).then(|| {
        format!(
            "{} of {all} published curves that nothing was fitted on are forecast within twice \
             and half at their most threads, {} if every thread is said to keep all; {misses}.",
            all - missed.len(),
            unfitted.iter().filter(keeps_all).count()
        )
    })
}

/// Whether the forecast at the most threads is off by more than two either way.
pub(crate) fn is_miss(curve: &ValidatedCurve) -> bool {
    curve.points.last().is_some_and(|point| is_far(point.forecast, point.published))
}

/// Off by more than two either way.
pub(crate) fn is_far(forecast: f64, published: f64) -> bool {
    off((forecast, published)) > TWICE
}

fn card(part: &Part<'_, Forecast>) -> String {
    let Forecast { version, verdict, server, .. } = part.of;
    let (kind, class) = match verdict.kind {
        VerdictKind::Differs => ("Differs", "open"),
        VerdictKind::NoDifferenceShown => ("No difference shown", "open"),
        VerdictKind::NoKneeFound => ("No knee found", "fine"),
        VerdictKind::NotEnoughToSay => ("Not enough to say", "open"),
        VerdictKind::Stops => ("Stops scaling", "stops"),
    };
    let last = server.points.last().filter(|_| verdict.kind != VerdictKind::NotEnoughToSay);
    let figure = last.map_or_else(String::new, |last| {
        let share = share(last);
        let (figure, band) = match share.split_once(" (") {
            Some((about, band)) => (format!("about {about}"), format!(" <small>({band}</small>")),
            None => (share, String::new()),
        };
        format!(
            "<p class=\"big long\">{figure}{band}</p><p class=\"of\">of its speed per thread kept \
             by the server at {} threads {}</p>",
            last.threads,
            Tag::Forecast.html()
        )
    });
    let mut html = format!(
        "<article class=\"card stack\"><h3><span class=\"swatch {}\"></span>{}</h3>\
         <p class=\"context\">{}</p><p class=\"kind {class}\">{kind}</p>{figure}",
        palette::class(part.color),
        escape(&part.label),
        escape(version),
    );
    for (tag, class, said) in [
        (Tag::Forecast, "says ahead", verdict.forecast.as_str()),
        (Tag::Measured, "says", verdict.measured.as_str()),
    ] {
        let said = untagged(said);
        let said = if said.is_empty() { "nothing can be said" } else { said };
        let _ = write!(html, "<p class=\"{class}\">{} {}</p>", tag.html(), escape(said));
    }
    html + &facts(part.of) + "</article>"
}

/// The sides and the first line, in figures.
fn facts(forecast: &Forecast) -> String {
    let Forecast { server, client, whole, lines, .. } = forecast;
    let mut facts: Vec<(String, String)> = Vec::new();
    let Some(last) = server.points.last() else { return String::new() };
    for (name, curve) in [("server", server), ("client", client), ("whole loop", whole)] {
        facts.extend(curve.points.last().map(|last| (name.to_owned(), share(last))));
    }
    facts.push(("server's knee".into(), words::knee(server.knee)));
    if let Some(LineCost { symbol, share_of_waiting, .. }) = lines.first() {
        let value = format!("{} of the waiting", words::percent(*share_of_waiting));
        facts.push((symbol.clone(), value));
    }
    let facts: String = facts
        .iter()
        .map(|(what, value)| {
            format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(what), escape(value))
        })
        .collect();
    format!(
        "<p class=\"context sides\">Kept at {} threads {}</p><dl>{facts}</dl>",
        last.threads,
        Tag::Forecast.html()
    )
}

fn alone(part: &Part<'_, Forecast>, scenario: &Scenario) -> Option<String> {
    let (label, context) = (&part.label, words::short(scenario));
    let keeps = words::keeps(&part.of.server)?;
    let line = part.of.lines.first().filter(|_| fallen(&part.of.server).is_some());
    let line = line.map_or_else(String::new, |line| {
        let share = words::percent(line.share_of_waiting);
        format!(" {share} of all waiting is for {}.", line.symbol)
    });
    Some(format!("FORECAST from counts: {label}'s server {keeps} ({context}).{line}"))
}

/// Each pair of stacks next to each other, by what their servers keep at the most threads.
fn neighbours(parts: &[Part<'_, Forecast>]) -> Vec<ForecastComparison> {
    let mut ranked: Vec<Forecast> = parts
        .iter()
        .filter(|part| !part.of.server.points.is_empty())
        .map(|part| Forecast { stack: part.label.clone(), ..part.of.clone() })
        .collect();
    let last =
        |forecast: &Forecast| forecast.server.points.last().map_or(0.0, |last| last.efficiency);
    ranked.sort_by(|a, b| last(b).total_cmp(&last(a)));
    let pairs = ranked.windows(2).filter_map(|pair| match pair {
        [more, less] => Some(verdict::between(more, less)),
        _ => None,
    });
    pairs.take(PAIRS_MAX).collect()
}

/// In short, for the top of the page.
fn short(ForecastComparison { of, to, threads, verdict }: &ForecastComparison) -> String {
    match verdict.kind {
        VerdictKind::Differs => {
            format!("{of} keeps more of its per-thread speed than {to} at {threads} threads.")
        }
        VerdictKind::NoDifferenceShown => {
            format!("{of} and {to}: no difference shown at {threads} threads.")
        }
        _ => format!("{of} and {to}: not enough to say."),
    }
}

/// Without the word that begins it, which stands there as a tag.
fn untagged(said: &str) -> &str {
    match said.split_once(": ") {
        Some((tag, rest)) if tag.starts_with("FORECAST") || tag.starts_with("MEASURED") => rest,
        _ => said,
    }
}

const CARDS_MAX: usize = 16;
const SCENARIOS_MAX: usize = 4;
const PAIRS_MAX: usize = 15;
