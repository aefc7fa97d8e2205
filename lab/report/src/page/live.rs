//! Running servers that `why` watched: what each waits for, and what that was seen from.

use sealane_lab_model::{
    document::{Live, LiveFinding, LivePath, LiveThread, Unseen},
    number::number,
    words::{self, states},
};

use crate::plot::{Icicle, Path, escape};

use super::{
    frame::{Cell, Figure, Section, Tag, table},
    lock_paths::function_step,
    sources::Sources,
};

/// The section, if a server was watched.
pub(crate) fn section(sources: &Sources) -> Option<Section> {
    let all: Vec<&Live> = servers(sources).collect();
    if all.is_empty() {
        return None;
    }
    let body = all.into_iter().map(server).collect();
    let (id, title) = ("live", "Running servers: what they wait for");
    Some(Section { id, short: "Running", title, lead: LEAD.to_owned(), body })
}

/// The first server's verdict, for a page of nothing else.
pub(crate) fn sentence(sources: &Sources) -> Option<String> {
    let live = servers(sources).next()?;
    let verdict = live.findings.first()?;
    Some(format!("{}: {}.", name(live), verdict.sentence))
}

fn servers(sources: &Sources) -> impl Iterator<Item = &Live> {
    sources.runs.iter().flat_map(|source| &source.run.live)
}

fn server(live: &Live) -> String {
    let ended = if live.ended { "; it ended meanwhile" } else { "" };
    let mut html = format!(
        "<h3 class=\"group\">{} {}</h3><p class=\"look\">{}, watched for {} s: {}, {}, {} of {} \
         processors used{ended}.</p>",
        escape(&name(live)),
        Tag::Measured.html(),
        escape(&live.executable),
        number(live.watched_seconds),
        processes(live.processes.len()),
        words::count(live.threads.len() + live.threads_left_out, "thread"),
        number(live.processors_used),
        live.processors_allowed,
    );
    html += &findings(&live.findings);
    html += &threads(live);
    if let Some(profile) = &live.profile {
        let title = format!("Where {} spends CPU time", name(live));
        let look = format!(
            "{} samples by {}, by call path: the outermost function on top. A block is as wide as \
             its share of CPU time. What the instruments cost the server is in it.",
            number(profile.samples as f64),
            profile.event
        );
        html += &icicle(&title, &look, "% of CPU time", &profile.paths);
    }
    if let Some(futex) = &live.futex {
        let title = format!("Where {} begins to wait for its own threads", name(live));
        let look = format!(
            "{} samples of waits in futex, by call path: the outermost function on top. A block is \
             as wide as its share of waits, however long they took. Those in a lock's function are \
             what to remove.",
            number(futex.samples as f64)
        );
        html += &icicle(&title, &look, "% of waits in futex", &futex.paths);
    }
    html + &calls(live) + &unseen(&live.unseen)
}

fn findings(findings: &[LiveFinding]) -> String {
    let items = findings.iter().map(|LiveFinding { sentence, rule, .. }| {
        let (sentence, rule) = (escape(sentence), escape(rule));
        format!("<li><b>{sentence}.</b> <span class=\"more\">Rule: {rule}.</span></li>")
    });
    format!("<ul class=\"remarks\">{}</ul>", items.collect::<String>())
}

fn threads(live: &Live) -> String {
    let percent = |share: f64| number((100.0 * share).round());
    let seconds = live.watched_seconds.max(f64::MIN_POSITIVE);
    let row = |thread: &LiveThread| {
        let share = |ns: u64| percent(ns as f64 / 1e9 / seconds);
        let rate = |count: u64| number((count as f64 / seconds).round());
        vec![
            Cell::Text(format!("{} ({})", thread.name, thread.tid)),
            Cell::Number(share(thread.cpu_ns)),
            Cell::Number(share(thread.run_delay_ns)),
            Cell::Number(percent(thread.lock_wait)),
            Cell::Number(rate(thread.voluntary_switches)),
            Cell::Number(rate(thread.involuntary_switches)),
            Cell::Number(thread.accepts.map_or("-".into(), |some| number(some as f64))),
            Cell::Text(states(thread)),
        ]
    };
    let rows: Vec<Vec<Cell>> = live.threads.iter().take(ROWS_MAX).map(row).collect();
    let left_out = live.threads.len() + live.threads_left_out - rows.len();
    let more = match left_out {
        0 => String::new(),
        _ => format!("; {left_out} more with less CPU time"),
    };
    let caption = format!("Threads, in percent of the time{more}");
    let heads = [
        "thread",
        "#CPU",
        "#no processor",
        "#waits for a lock",
        "#sleeps/s",
        "#taken off/s",
        "#accepted",
        "seen in",
    ];
    table(&caption, &heads, &rows)
}

fn icicle(title: &str, look: &str, unit: &str, paths: &[LivePath]) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let paths = paths.iter().map(|path| Path {
        steps: path.path.iter().rev().map(|frame| function_step(frame)).collect(),
        amount: 100.0 * path.share,
    });
    let (name, unit, root) = (title.into(), unit.into(), "all".into());
    let icicle = Icicle { name, unit, root, paths: paths.collect(), total: 100.0 };
    Figure { title, tag: Tag::Measured, look, drawing: &icicle.draw() }.html()
}

fn calls(live: &Live) -> String {
    let Some(calls) = live.calls.as_ref().filter(|calls| !calls.calls.is_empty()) else {
        return String::new();
    };
    let seconds = calls.counted_seconds.max(f64::MIN_POSITIVE);
    let rows = calls.calls.iter().take(ROWS_MAX).map(|call| {
        vec![
            Cell::Html(format!("<code>{}</code>", escape(&call.call))),
            Cell::Number(number(call.count as f64 / seconds)),
            Cell::Number(number(call.inside_ns as f64 / 1e6 / seconds)),
        ]
    });
    let caption = format!("System calls, by {}", calls.instrument);
    let heads = ["call", "#per second", "#ms inside per second"];
    table(&caption, &heads, &rows.collect::<Vec<_>>())
}

fn unseen(unseen: &[Unseen]) -> String {
    let items: String = unseen
        .iter()
        .map(|Unseen { what, why, remedy }| {
            let (what, why, remedy) = (escape(what), escape(why), escape(remedy));
            format!("<li><b>Not seen: {what}</b>: {why}. To allow it: {remedy}.</li>")
        })
        .collect();
    format!("<ul class=\"remarks\">{items}</ul>")
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".into() } else { format!("{count} processes") }
}

/// `nginx (12)`.
fn name(live: &Live) -> String {
    format!("{} ({})", live.name, live.pid)
}

const LEAD: &str = "Watched from outside while they ran. Each verdict follows from a rule that \
    stands beside it; what could not be seen is said, with what would allow it.";
const ROWS_MAX: usize = 20;
