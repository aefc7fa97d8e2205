//! What each shared line costs a stack: the lines that threads wait for, and what each would bring
//! if it were not there.

use sealane_lab_model::{
    document::{CurvePoint, Forecast, LineCost},
    number::number,
    verdict::share,
    words,
};

use crate::plot::{Icicle, Path, Step, escape};

use super::{
    frame::{Cell, Figure, Tag, table},
    lock_paths::function_step,
    sharing::path,
    sources::Part,
};

/// A table for each stack with a forecast, and who waits where.
pub(crate) fn tables(parts: &[Part<'_, Forecast>]) -> String {
    parts.iter().map(|part| lines_table(part) + &waits(part)).collect()
}

fn lines_table(part: &Part<'_, Forecast>) -> String {
    let Forecast { server, lines, .. } = part.of;
    let Some(last) = server.points.last() else { return String::new() };
    let (label, threads) = (&part.label, last.threads);
    if lines.is_empty() {
        return format!(
            "<p class=\"told\">{} <b>{}</b>: no line was found that threads wait for.</p>",
            Tag::Forecast.html(),
            escape(label)
        );
    }
    let rows = lines.iter().take(LINES_SHOWN).map(|line| {
        let [server, client, setup] = line.writes.map(|n| Cell::Number(number(n)));
        vec![
            Cell::Html(format!(
                "<code>{}</code><p class=\"context\">{}</p>",
                escape(&line.symbol),
                escape(&line.owner)
            )),
            Cell::Text(class(line)),
            server,
            client,
            setup,
            Cell::Number(words::percent(line.share_of_waiting)),
            Cell::Number(without(line)),
            Cell::Number(words::knee(line.knee_without)),
            Cell::Html(path("call path", &line.path)),
        ]
    });
    let of_waiting = format!("#share of the waiting at {threads} threads (FORECAST)");
    let without = format!("#without it, kept at {threads} threads (FORECAST)");
    let heads = [
        "line, its owner",
        "class",
        "#server's writes (COUNTED)",
        "#client's",
        "#setup's",
        &of_waiting,
        &without,
        "#knee without it (FORECAST)",
        "who writes it",
    ];
    let kept = share(last);
    let caption = format!(
        "{label}: lines that threads wait for, with writes per handshake, and what the server \
         would keep if a line were each thread's own. As it is: {kept} at {threads} threads; \
         knee: {}",
        words::knee(server.knee)
    );
    table(&caption, &heads, &rows.collect::<Vec<_>>())
}

/// What the line is for, and how its lock waits.
fn class(line: &LineCost) -> String {
    let class = line.class.replace('-', " ");
    line.lock.as_ref().map_or(class.clone(), |lock| format!("{class}, {lock}"))
}

/// What the server keeps without the line.
fn without(line: &LineCost) -> String {
    let [low, high] = line.without_band;
    share(&CurvePoint { threads: 0, efficiency: line.without, low, high })
}

/// All waiting by call path, where paths are known.
fn waits(part: &Part<'_, Forecast>) -> String {
    let lines = part.of.lines.iter().filter(|line| !line.path.is_empty());
    let paths =
        lines.map(|line| Path { steps: steps(line), amount: 100.0 * line.share_of_waiting });
    let label = &part.label;
    let icicle = Icicle {
        name: format!("Call paths to waiting: {label}"),
        unit: "% of all waiting".into(),
        root: label.clone(),
        paths: paths.collect(),
        total: 100.0,
    };
    if icicle.paths.is_empty() {
        return String::new();
    }
    let title = format!("Where {label}'s threads would wait");
    Figure { title: &title, tag: Tag::Forecast, look: WAITS_LOOK, drawing: &icicle.draw() }.html()
}

/// From the outermost function to the line.
fn steps(line: &LineCost) -> Vec<Step> {
    let functions = line.path.iter().rev().map(|function| function_step(function));
    let group = line.class.replace('-', " ");
    let end = Step { label: line.symbol.clone(), group };
    functions.chain([end]).collect()
}

const LINES_SHOWN: usize = 12;
const WAITS_LOOK: &str = "All waiting that is forecast at the most threads, by the busiest call \
    path to each line: \
    the outermost function on top, the line at the bottom. A block is as wide as \
    its share of the waiting, so a wide block is what to change first. Point at one for its \
    figures; a phone scrolls sideways.";
