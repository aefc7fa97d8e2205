//! What forecasts come to: a verdict for each stack, a sentence for each pair of neighbours, and
//! what the page says first.

use std::fmt::Write as _;

use crate::{
    document::{CurvePoint, Forecast, LineCost, ValidatedCurve, VerdictKind},
    plot::{escape, palette},
    scenario::Scenario,
};

use super::{
    frame::Tag,
    sources::{Part, Sources},
    words,
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
            let pairs = neighbours(several);
            said.push(match &pairs[..] {
                [] => format!(
                    "FORECAST from counts, {}: not enough to say which stack keeps more.",
                    words::short(scenario)
                ),
                pairs => {
                    format!("FORECAST from counts, {}: {}", words::short(scenario), pairs.join(" "))
                }
            });
        }
    }
    said
}

/// The pairs' sentences as a list, if there are any.
pub(crate) fn neighbours_list(parts: &[Part<'_, Forecast>]) -> String {
    let items: String = neighbours(parts)
        .iter()
        .map(|said| format!("<li>{} {}</li>", Tag::Forecast.html(), escape(said)))
        .collect();
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
    (all > 0).then(|| {
        format!(
            "{} of {all} published curves that nothing was fitted on are forecast within twice \
             and half at their most threads; {misses}.",
            all - missed.len()
        )
    })
}

/// Whether the forecast at the most threads is off by more than two either way.
pub(crate) fn is_miss(curve: &ValidatedCurve) -> bool {
    curve.points.last().is_some_and(|point| is_far(point.forecast, point.published))
}

/// Off by more than two either way.
pub(crate) fn is_far(forecast: f64, published: f64) -> bool {
    let ratio = forecast / published.max(f64::MIN_POSITIVE);
    !(0.5 - ROUNDED..=2.0 + ROUNDED).contains(&ratio)
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
    let figure = last.map_or_else(String::new, |last| match words::fallen(server) {
        Some(point) => format!(
            "<p class=\"big long\">about {} <small>{}</small></p><p class=\"of\">of its speed per \
             thread kept by the server at {} threads {}</p>",
            words::percent(point.efficiency),
            words::band(point),
            last.threads,
            Tag::Forecast.html()
        ),
        None => format!(
            "<p class=\"big long\">above {}</p><p class=\"of\">of its speed per thread kept by the \
             server up to {} threads {}</p>",
            words::percent(words::KNEE),
            last.threads,
            Tag::Forecast.html()
        ),
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
    for (name, curve) in [("server", server), ("client", client), ("whole loop", whole)] {
        if let Some(last) = curve.points.last() {
            let value = words::fallen(curve).map_or_else(|| "no knee found".into(), words::about);
            facts.push((format!("{name} at {} threads (FORECAST)", last.threads), value));
        }
    }
    if !server.points.is_empty() {
        facts.push(("server's knee (FORECAST)".into(), words::knee(server.knee)));
    }
    if let Some(LineCost { symbol, share_of_waiting, .. }) = lines.first() {
        let value = format!("{} of the waiting", words::percent(*share_of_waiting));
        facts.push((format!("{symbol} (FORECAST)"), value));
    }
    let facts: String = facts
        .iter()
        .map(|(what, value)| {
            format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(what), escape(value))
        })
        .collect();
    format!("<dl>{facts}</dl>")
}

fn alone(part: &Part<'_, Forecast>, scenario: &Scenario) -> Option<String> {
    let (label, context) = (&part.label, words::short(scenario));
    let keeps = words::keeps(&part.of.server)?;
    let line = part.of.lines.first().filter(|_| words::fallen(&part.of.server).is_some());
    let line = line.map_or_else(String::new, |line| {
        let share = words::percent(line.share_of_waiting);
        format!(" {share} of all waiting is for {}.", line.symbol)
    });
    Some(format!("FORECAST from counts: {label}'s server {keeps} ({context}).{line}"))
}

/// A sentence for each pair of stacks next to each other, by what their servers keep at the most
/// threads that both were asked for.
fn neighbours(parts: &[Part<'_, Forecast>]) -> Vec<String> {
    let mut ranked: Vec<&Part<'_, Forecast>> =
        parts.iter().filter(|part| !part.of.server.points.is_empty()).collect();
    let last = |part: &Part<'_, Forecast>| {
        part.of.server.points.last().map_or(0.0, |point| point.efficiency)
    };
    ranked.sort_by(|a, b| last(b).total_cmp(&last(a)));
    let pairs = ranked.windows(2).filter_map(|pair| {
        let [more, less] = pair else { return None };
        let at = |part: &Part<'_, Forecast>, threads: u32| {
            part.of.server.points.iter().copied().find(|point| point.threads == threads)
        };
        let common = more.of.server.points.iter().rev().find(|p| at(less, p.threads).is_some())?;
        Some(pair_sentence((&more.label, *common), (&less.label, at(less, common.threads)?)))
    });
    pairs.take(PAIRS_MAX).collect()
}

fn pair_sentence((more, high): (&str, CurvePoint), (less, low): (&str, CurvePoint)) -> String {
    let threads = words::count(usize::try_from(high.threads).unwrap_or(usize::MAX), "thread");
    let figure = |point: CurvePoint| match point.efficiency >= words::KNEE {
        true => format!("more than {}", words::percent(words::KNEE)),
        false => words::about(point),
    };
    if low.high >= high.low {
        return format!("{more} and {less}: no difference shown at {threads}.");
    }
    format!(
        "At {threads}, {more} keeps {} of its per-thread speed, {less} {}.",
        figure(high),
        figure(low)
    )
}

/// Without the word that begins it, which stands there as a tag.
fn untagged(said: &str) -> &str {
    let rest = ["FORECAST", "MEASURED"].into_iter().find_map(|tag| said.strip_prefix(tag));
    rest.unwrap_or(said).trim_start_matches([':', ',', ' '])
}

const CARDS_MAX: usize = 16;
const SCENARIOS_MAX: usize = 4;
const PAIRS_MAX: usize = 15;
/// Published figures have two digits.
const ROUNDED: f64 = 0.005;
