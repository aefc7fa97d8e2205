//! The first screen: one sentence, and a card per stack or server with the number people quote.

use sealane_lab_model::{
    document::{BulkSeries, CountResult, HandshakeSeries, Server},
    figures::{
        Shown, bulk,
        handshake::{CLIENT_TIME, Kept, RATE, SERVER_TIME, first, kept, kept_by_threads, shown},
        servers::{Subject, times_the_floor},
    },
    number::number,
    statistics::Spread,
    words,
};

use super::{
    card::Card,
    frame::Tag,
    live, peers,
    sources::{Part, Sources},
    strategies::judgement,
};

/// What the page says first, most important first; at least one sentence.
pub(crate) fn sentences(sources: &Sources) -> Vec<String> {
    let measured = [rates_sentence(sources), servers_sentence(sources)].into_iter().flatten();
    let counted = counts_sentence(sources).into_iter();
    let said: Vec<String> = measured.chain(counted).collect();
    if !said.is_empty() {
        return said;
    }
    let nothing = || "Nothing was measured: see what failed below.".into();
    let only = bulk_sentence(sources)
        .or_else(|| strategies_sentence(sources))
        .or_else(|| live::sentence(sources));
    vec![only.unwrap_or_else(nothing)]
}

/// What was put side by side, and what the checks say, where nothing else was measured.
fn strategies_sentence(sources: &Sources) -> Option<String> {
    let all = sources.runs.iter().flat_map(|source| &source.run.strategies);
    let measured = all.filter(|found| found.rows.iter().any(|row| row.failure.is_none()));
    let commands: Vec<&str> = measured.map(|strategies| &*strategies.command).collect();
    let said = || format!("{}: {:#}.", commands.join(", "), judgement(sources));
    (!commands.is_empty()).then(said)
}

/// The fastest transfer, where nothing else was measured.
fn bulk_sentence(sources: &Sources) -> Option<String> {
    let parts = sources.parts::<BulkSeries>();
    let rates = parts
        .iter()
        .filter_map(|part| Some((Shown::of(&part.of.rounds).median(&bulk::RATE)?, part)));
    let (rate, part) = rates.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let (rate, label) = (number(rate), &part.label);
    let threads = words::count(part.of.threads, "thread");
    let connections = words::count(part.of.connections, "connection");
    Some(format!("Up to {rate} MB/s: {label}, {threads}, {connections}."))
}

/// A card per stack, and one per server.
pub(crate) fn cards(sources: &Sources) -> String {
    let mut cards: Vec<Card> = Vec::new();
    let handshakes = sources.by_scenario::<HandshakeSeries>();
    if let Some((scenario, parts)) = handshakes.first() {
        let context = words::short(scenario);
        for part in parts {
            cards.extend(rate_card(sources, part, &context));
        }
    }
    if let Some((scenario, parts)) = sources.by_scenario::<CountResult>().first() {
        for part in parts {
            add_counts(&mut cards, part, &words::short(scenario));
        }
    }
    let servers = sources.servers().next();
    let servers = servers.map(|(_, servers)| peers::cards(sources, servers)).unwrap_or_default();
    let mut html = String::new();
    for (name, cards) in [("Stacks, in memory", cards), ("Servers, over sockets", servers)] {
        if !cards.is_empty() {
            let cards: String = cards.iter().take(CARDS_MAX).map(Card::html).collect();
            html += &format!("<h2 class=\"row\">{name}</h2><div class=\"cards\">{cards}</div>");
        }
    }
    html
}

fn rate_card(sources: &Sources, part: &Part<'_, HandshakeSeries>, context: &str) -> Option<Card> {
    let first = first(part.of)?;
    let figures = shown(first);
    let rate = number(figures.median(&RATE)?);
    let alone = words::count(first.threads, "thread");
    let mut facts = Vec::new();
    let (figure, words) = match kept(part.of, sources.runs[part.run].run.machine.processors) {
        Some(Kept { threads, share, is_hint }) => {
            facts.push((format!("{rate} /s"), "rate per thread".to_owned()));
            let words = words::count(threads, "thread");
            let hint = if is_hint { " (disturbed: a hint)" } else { "" };
            let words = format!("of its speed per thread kept at {words}{hint}");
            let about = if hint.is_empty() { "" } else { "~" };
            (format!("{about}{}%", number((100.0 * share.median).round())), words)
        }
        None => (rate, format!("handshakes per second and thread, on {alone}")),
    };
    for figure in [SERVER_TIME, CLIENT_TIME] {
        let time = figures.median(&figure);
        facts.extend(time.map(|us| (format!("{} \u{b5}s", number(us)), figure.name.to_owned())));
    }
    let (label, color) = (part.label.clone(), part.color);
    let context = format!("{context}. On {alone}:");
    Some(Card { label, color, figure, words, tag: Tag::Measured, facts, context })
}

/// Onto the card of the same stack, or as one of its own.
fn add_counts(cards: &mut Vec<Card>, part: &Part<'_, CountResult>, context: &str) {
    let mut facts = Vec::new();
    if let Some(writes) = &part.of.shared_writes {
        let what = "shared writes, server (COUNTED)";
        facts.push((number(writes.total.server), what.to_owned()));
    }
    if let Some(locks) = &part.of.locks {
        let all = locks.read.server + locks.write.server + locks.mutex.server;
        facts.push((number(all), "pthread locks, server (COUNTED)".to_owned()));
    }
    let name = part.label.split(" (run ").next().unwrap_or(&part.label);
    let same = |card: &&mut Card| card.label == part.label || card.label == name;
    if let Some(card) = cards.iter_mut().find(same) {
        card.facts.extend(facts);
    } else if !facts.is_empty() {
        let (figure, what) = facts.remove(0);
        let words = format!("{} per handshake", what.trim_end_matches(" (COUNTED)"));
        let (label, color, context) = (part.label.clone(), part.color, context.to_owned());
        cards.push(Card { label, color, figure, words, tag: Tag::Counted, facts, context });
    }
}

fn rates_sentence(sources: &Sources) -> Option<String> {
    let groups = sources.by_scenario::<HandshakeSeries>();
    let (_, parts) = groups.first()?;
    let mut points = parts.iter().flat_map(|part| &part.of.points);
    if points.any(|point| shown(point).is_hint()) {
        return Some("The machine was too busy for a verdict on rates: measure again.".into());
    }
    let mut kept = kept_by_all(sources, parts);
    if kept.iter().any(|(_, kept)| kept.is_hint) {
        return Some("No round counts of all threads that are compared: measure again.".into());
    }
    kept.sort_by(|a, b| b.1.share.median.total_cmp(&a.1.share.median));
    let percent = |kept: Kept| format!("{}%", number((100.0 * kept.share.median).round()));
    match &kept[..] {
        [] => fastest_sentence(parts),
        [(label, one)] => Some(format!(
            "{label} keeps {} of its speed per thread at {}.",
            percent(*one),
            words::count(one.threads, "thread")
        )),
        [(best, most), .., (worst, least)] => {
            let threads = words::count(most.threads, "thread");
            // Their rounds overlap: whoever looks better may be worse next time.
            if least.share.max >= most.share.min {
                let (low, high) = (percent(*least), percent(*most));
                return Some(format!(
                    "At {threads}, all {} stacks keep {low} to {high} of their speed per thread: \
                     no difference shown.",
                    kept.len()
                ));
            }
            let (high, low) = (percent(*most), percent(*least));
            Some(format!(
                "At {threads}, {best} keeps {high} of its speed per thread, {worst} {low}."
            ))
        }
    }
}

/// What each stack keeps at the most threads that all have which were measured with several.
fn kept_by_all<'a>(
    sources: &Sources,
    parts: &'a [Part<'_, HandshakeSeries>],
) -> Vec<(&'a str, Kept)> {
    let each = parts.iter().map(|part| {
        let processors = sources.runs[part.run].run.machine.processors;
        (part.label.as_str(), kept_by_threads(part.of, processors))
    });
    let each: Vec<(&str, Vec<Kept>)> = each.filter(|(_, kept)| !kept.is_empty()).collect();
    let at = |kept: &[Kept], threads| kept.iter().find(|it| it.threads == threads).copied();
    let of_first = each.first().map_or(&[][..], |(_, kept)| kept.as_slice());
    let most = of_first
        .iter()
        .map(|it| it.threads)
        .rfind(|threads| each.iter().all(|(_, kept)| at(kept, *threads).is_some()));
    let Some(most) = most else { return Vec::new() };
    each.iter().filter_map(|(label, kept)| Some((*label, at(kept, most)?))).collect()
}

fn fastest_sentence(parts: &[Part<'_, HandshakeSeries>]) -> Option<String> {
    let rate = |part: &Part<'_, HandshakeSeries>| {
        let first = first(part.of)?;
        Some((part.label.clone(), first.threads, shown(first).median(&RATE)?))
    };
    let (label, threads, rate) =
        parts.iter().filter_map(rate).max_by(|a, b| a.2.total_cmp(&b.2))?;
    let (rate, threads) = (number(rate), words::count(threads, "thread"));
    Some(format!("{label} does {rate} handshakes per second and thread, on {threads}."))
}

fn servers_sentence(sources: &Sources) -> Option<String> {
    let (_, servers) = sources.servers().next()?;
    let case = servers.cases.iter().find(|case| Subject::of(case) != Subject::Storm)?;
    let mut figures: Vec<(&Server, Spread)> = Vec::new();
    for server in &servers.servers {
        let figure = server.cases.get(&case.name).and_then(|result| Spread::of(&result.figure));
        figures.extend(figure.map(|figure| (server, figure)));
    }
    figures.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let unit = words::unit(&case.unit);
    let (first, least) = figures.first()?;
    let (title, name) = (&case.title, &first.name);
    let mut said = format!("Over sockets, {title}: {name} takes {} {unit}", number(least.median));
    let ratio = first.cases.get(&case.name);
    let ratio = ratio.and_then(|result| times_the_floor(servers, case, &result.figure));
    if let Some(ratio) = ratio {
        said += &format!(", {}\u{d7} the floor", number(ratio.median));
    }
    if let Some((next, spread)) = figures.get(1) {
        let same = if spread.min <= least.max { ", whose rounds overlap" } else { "" };
        said += &format!("; next is {} with {}{same}", next.name, number(spread.median));
    }
    Some(format!("{said}{}.", peers::reservation(first, case)))
}

fn counts_sentence(sources: &Sources) -> Option<String> {
    let groups = sources.by_scenario::<CountResult>();
    let (_, parts) = groups.first()?;
    let mut counts: Vec<(&str, f64)> = parts
        .iter()
        .filter_map(|part| {
            Some((part.label.as_str(), part.of.shared_writes.as_ref()?.total.server))
        })
        .collect();
    counts.sort_by(|a, b| a.1.total_cmp(&b.1));
    let times = |n: f64| if n < 0.5 { "never".to_owned() } else { format!("{} times", number(n)) };
    match &counts[..] {
        [] => None,
        [(label, n)] => Some(format!(
            "Per handshake, {label}'s server writes {} to memory that other threads write.",
            times(*n)
        )),
        [(least, few), .., (most, many)] => Some(format!(
            "Per handshake, {most}'s server writes {} to memory that other threads write; \
             {least}'s {}. Counts are no rank: what limits a stack is shared writes per work done.",
            times(*many),
            times(*few)
        )),
    }
}

/// More cannot be taken in at a glance.
const CARDS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use sealane_lab_model::{
        document::{HandshakePoint, HandshakeRound, Machine, Run},
        scenario::Scenario,
    };

    use super::*;
    use crate::page::sources::Source;

    /// The sentence about stacks whose threads do so many handshakes per second, by their number.
    fn said(stacks: &[(&str, &[(usize, u64)])]) -> String {
        let point = |(threads, rate): &(usize, u64)| {
            let (window_ns, per_thread) = (1_000_000_000, vec![*rate; *threads]);
            let round = HandshakeRound { window_ns, per_thread, ..HandshakeRound::default() };
            HandshakePoint { threads: *threads, pinned: Vec::new(), rounds: vec![round] }
        };
        let series = stacks.iter().map(|(stack, points)| HandshakeSeries {
            stack: (*stack).to_owned(),
            scenario: Scenario::default(),
            negotiated: None,
            points: points.iter().map(point).collect(),
            times: None,
            failure: None,
        });
        let machine = Machine { processors: 8, ..Machine::default() };
        let run = Run { machine, handshakes: series.collect(), ..Run::default() };
        rates_sentence(&Sources::new(vec![Source { file: "run.json".into(), run }])).unwrap()
    }

    #[test]
    fn stacks_are_compared_at_threads_that_all_have() {
        let long: &[(usize, u64)] = &[(1, 100), (4, 90), (8, 20)];
        let short: &[(usize, u64)] = &[(1, 100), (4, 50)];
        let told = said(&[("one", long), ("other", short)]);
        assert_eq!(told, "At 4 threads, one keeps 90% of its speed per thread, other 50%.");
        let told = said(&[("one", &[(1, 100), (8, 90)]), ("other", short)]);
        assert!(told.contains("handshakes per second and thread"), "{told}");
        let alone = said(&[("one", long), ("other", &[(1, 100)])]);
        assert!(alone.contains("keeps 20% of its speed per thread at 8 threads"), "{alone}");
    }
}
