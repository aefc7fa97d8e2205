//! What findings say, for the page and for the text alike: [`Told`], a stack's part.

use std::{collections::BTreeMap, ptr};

use sealane_lab_model::{
    document::{Amount, BySide, Finding, HotLine, KNEE, Run, ValidatedCurve},
    figures::count::per_million_instructions,
    number::number,
    recording::{NAMELESS_MEMORY, TAKEN_BY},
    verdict::fallen,
    words,
};

use super::{
    kernel,
    notes::{Note, Notes},
};

/// One stack: its findings, and what is known of the lines in them.
pub(crate) struct Told<'a> {
    /// The stack's name on the command line.
    pub(crate) name: &'a str,
    /// The stack's name, as its authors call it, with the recorded version.
    pub(crate) title: String,
    /// May be empty.
    pub(crate) about: &'a str,
    /// By handshake.
    pub(crate) findings: Vec<&'a Finding>,
    /// The busiest line of each side and handshake and those that people know, each line once.
    pub(crate) culprits: Vec<Culprit<'a>>,
    /// Published curves of the stack.
    pub(crate) published: Vec<&'a ValidatedCurve>,
    notes: &'a Notes,
}

/// A line to tell of.
pub(crate) struct Culprit<'a> {
    /// How much each side updates it.
    pub(crate) sentences: Vec<String>,
    pub(crate) line: &'a HotLine,
    pub(crate) note: Option<&'a Note>,
}

/// All stacks, by name: a raw count is no rank.
pub(crate) fn told<'a>(run: &'a Run, notes: &'a Notes) -> Vec<Told<'a>> {
    let mut names: Vec<&str> = run.findings.iter().map(|finding| finding.stack.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| stack(run, notes, name)).collect()
}

fn stack<'a>(run: &'a Run, notes: &'a Notes, name: &'a str) -> Told<'a> {
    let mut findings: Vec<&Finding> = run.findings.iter().filter(|it| it.stack == name).collect();
    findings.sort_by(|a, b| a.scenario.cmp(&b.scenario));
    let known = notes.stack(name);
    let title = known.map_or(name, |stack| stack.title.as_str());
    let mut versions: Vec<&str> = findings.iter().map(|it| it.version.as_str()).collect();
    versions.dedup();
    let of_it = |curve: &&ValidatedCurve| curve.stack == name;
    Told {
        name,
        title: titled(title, &versions.join(", ")),
        about: known.map_or("", |stack| stack.about.as_str()),
        culprits: culprits(name, &findings, notes),
        findings,
        published: run.validation.iter().flat_map(|it| &it.curves).filter(of_it).collect(),
        notes,
    }
}

/// A library that has no version calls itself by its name.
fn titled(title: &str, version: &str) -> String {
    if version.is_empty() || version == title {
        return title.to_owned();
    }
    format!("{title} ({version})")
}

/// The busiest line of each side, and every other one that people know.
fn culprits<'a>(stack: &str, findings: &[&'a Finding], notes: &'a Notes) -> Vec<Culprit<'a>> {
    let mut culprits: Vec<Culprit<'a>> = Vec::new();
    for finding in findings {
        let busiest = [Side::Server, Side::Client].map(|side| busiest(finding, side));
        let mut of_culprit: BTreeMap<usize, Vec<&HotLine>> = BTreeMap::new();
        for line in &finding.hottest {
            let note = notes.about(stack, line);
            let is_busiest = busiest.iter().flatten().any(|busiest| ptr::eq(*busiest, line));
            if note.is_none() && !is_busiest {
                continue;
            }
            // Of two recordings of one stack, lines are the same if their names and writers are.
            let same = |known: &Culprit<'_>| match (known.note, note) {
                (Some(known), Some(note)) => ptr::eq(known, note),
                (None, None) => is_same(known.line, line),
                _ => false,
            };
            let at = culprits.iter().position(same).unwrap_or_else(|| {
                culprits.push(Culprit { sentences: Vec::new(), line, note });
                culprits.len() - 1
            });
            of_culprit.entry(at).or_default().push(line);
        }
        for (at, lines) in of_culprit {
            let sides = [Side::Server, Side::Client].into_iter();
            culprits[at].sentences.extend(sides.filter_map(|side| sentence(finding, side, &lines)));
        }
    }
    culprits
}

fn is_same(a: &HotLine, b: &HotLine) -> bool {
    let writer = |line: &HotLine| line.sites.first().map(|site| site.path.first().cloned());
    (&a.symbol, &a.owner, writer(a)) == (&b.symbol, &b.owner, writer(b))
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) fn of(self, by: BySide<f64>) -> f64 {
        match self {
            Self::Client => by.client,
            Self::Server => by.server,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// The line that a side updates most; none if it updates none.
pub(crate) fn busiest(finding: &Finding, side: Side) -> Option<&HotLine> {
    let lines = finding.hottest.iter().filter(|line| side.of(line.updates) > 0.0);
    // Of two alike the first, which is that of both sides together.
    lines.reduce(
        |best, line| if side.of(line.updates) > side.of(best.updates) { line } else { best },
    )
}

/// What `lines`, which are one culprit's, are to a side; `None` if it updates none of them.
fn sentence(finding: &Finding, side: Side, lines: &[&HotLine]) -> Option<String> {
    let parts: Vec<f64> = lines.iter().map(|line| side.of(line.updates)).collect();
    let parts: Vec<String> = parts.into_iter().filter(|part| *part > 0.0).map(number).collect();
    let several = match parts.len() {
        0 => return None,
        1 => String::new(),
        lines => format!(", in {lines} cache lines"),
    };
    Some(format!(
        "{}, {}: {} of its {} atomic updates per handshake{several}",
        words::short(&finding.scenario),
        side.word(),
        parts.join(" + "),
        number(side.of(finding.updates)),
    ))
}

/// A line's class, and where it lies.
pub(crate) fn line(line: &HotLine) -> String {
    let place = match is_on_heap(line) {
        true => "on the heap, written by",
        false => "a variable of",
    };
    format!("{}, {place} {}", class(&line.class), line.owner)
}

fn is_on_heap(line: &HotLine) -> bool {
    [NAMELESS_MEMORY, TAKEN_BY].iter().any(|start| line.symbol.starts_with(start))
}

/// Acquisitions of one kind.
pub(crate) fn locks(finding: &Finding, kind: &str) -> BySide<f64> {
    let found = finding.locks.iter().find(|amount: &&Amount| amount.of == kind);
    found.map_or_else(BySide::default, |amount| amount.by)
}

/// The heads of the table of everything; `#` marks numbers.
pub(crate) const HEADS: [&str; 8] = [
    "stack",
    "handshake",
    "#lines",
    "#atomic updates",
    "#server's, per million instructions",
    "#read locks",
    "#write locks, mutexes",
    "server's busiest line",
];

/// A row of it.
pub(crate) fn row(stack: &Told<'_>, finding: &Finding) -> [String; 8] {
    let lines = finding.lines;
    let mutexes = locks(finding, "mutex");
    let mutexes = if both(mutexes) > 0.0 { pair(mutexes) } else { "none".to_owned() };
    [
        stack.title.clone(),
        words::short(&finding.scenario),
        format!("{} / {}", lines.server, lines.client),
        pair(finding.updates),
        per_million(finding).map(number).unwrap_or_default(),
        pair(locks(finding, "read")),
        format!("{}, {mutexes}", pair(locks(finding, "write"))),
        culprit(stack, finding, Side::Server),
    ]
}

/// The line that a side updates most, by the name that people have for it, else by its symbol.
pub(crate) fn culprit(stack: &Told<'_>, finding: &Finding, side: Side) -> String {
    let Some(line) = busiest(finding, side) else { return "none".into() };
    let note = stack.notes.about(stack.name, line);
    let name = note.map_or(line.symbol.as_str(), |note| note.culprit.as_str());
    let [part, all] = [line.updates, finding.updates].map(|by| number(side.of(by)));
    format!("{name}: {part} of {all}")
}

/// What the model makes of one case of a stack.
pub(crate) struct Outlook {
    /// The handshake, or a published curve's name.
    pub(crate) case: String,
    pub(crate) forecast: String,
    pub(crate) published: String,
    /// Without the line that threads wait for most.
    pub(crate) without: String,
}

/// The outlook of all cases that were forecast.
pub(crate) fn outlook(stack: &Told<'_>) -> Vec<Outlook> {
    let recorded = stack.findings.iter().filter_map(|finding| {
        let forecast = finding.forecast.as_ref()?;
        let keeps = words::keeps(&forecast.server)?;
        let profile = &forecast.profile;
        let without = forecast.lines.first().map_or_else(String::new, |line| {
            // The last 30% are beyond the model.
            let kept = match line.without < KNEE {
                true => format!("about {}, ", words::percent(line.without)),
                false => String::new(),
            };
            let name = told_as(stack, finding, &line.symbol);
            format!("without {name}: {kept}knee: {}", words::knee(line.knee_without))
        });
        let server = &forecast.server;
        let knee = fallen(server).map(|_| format!("; knee: {}", words::knee(server.knee)));
        Some(Outlook {
            case: format!("{}, on {}", words::short(&finding.scenario), profile.name),
            forecast: keeps + &knee.unwrap_or_default(),
            published: NOT_PUBLISHED.into(),
            without,
        })
    });
    let published = stack.published.iter().filter_map(|curve| {
        let last = curve.points.last()?;
        let at = |share: f64| format!("{} at {} threads", words::percent(share), last.threads);
        let [forecast, published] = curve.knee.map(words::knee);
        Some(Outlook {
            case: curve.name.clone(),
            forecast: format!("{}; knee: {forecast}", at(last.forecast)),
            published: format!("{}; knee: {published}", at(last.published)),
            without: String::new(),
        })
    });
    recorded.chain(published).collect()
}

/// The line with that symbol, by the name that people have for it.
fn told_as<'a>(stack: &Told<'a>, finding: &Finding, symbol: &str) -> String {
    let symbol = words::without_folders(symbol);
    let line = finding.hottest.iter().find(|line| line.symbol == symbol);
    let note = line.and_then(|line| stack.notes.about(stack.name, line));
    let Some(note) = note else { return symbol };
    let about = finding.hottest.iter().filter_map(|line| stack.notes.about(stack.name, line));
    match about.filter(|other| ptr::eq(*other, note)).count() {
        0 | 1 => note.culprit.clone(),
        lines => format!("one of {lines} lines of {}", note.culprit),
    }
}

/// A class of line in words.
pub(crate) fn class(class: &str) -> String {
    class.replace('-', " ")
}

fn both(by: BySide<f64>) -> f64 {
    by.server + by.client
}

/// A server's updates by the work that they come with, which is what scaling depends on.
pub(crate) fn per_million(finding: &Finding) -> Option<f64> {
    per_million_instructions(finding.updates.server, finding.instructions.server)
}

/// `server / client`.
pub(crate) fn pair(by: BySide<f64>) -> String {
    format!("{} / {}", number(by.server), number(by.client))
}

/// The command line that makes a recording again, as one types it.
pub(crate) fn command(finding: &Finding) -> String {
    finding.recorded.command.join(" ")
}

/// The command lines that make all figures again.
pub(crate) fn commands(run: &Run, stacks: &[Told<'_>]) -> Vec<String> {
    let recordings = stacks.iter().flat_map(|stack| &stack.findings);
    let recordings = recordings.map(|finding| command(finding));
    recordings.chain(kernel::commands(run)).collect()
}

/// When, where and with what the recordings were made, each once.
pub(crate) fn origins(run: &Run) -> Vec<String> {
    let mut origins: Vec<String> = Vec::new();
    for finding in &run.findings {
        let date = finding.recorded.started.split('T').next().unwrap_or_default();
        let origin = format!("{date}, {}", finding.recorded.processor);
        if !origins.contains(&origin) {
            origins.push(origin);
        }
    }
    origins.sort_unstable();
    origins
}

/// The page's title.
pub(crate) const TITLE: &str = "What TLS stacks share";
/// Under it.
pub(crate) const LEAD: &str = "Threads that do TLS side by side wait for each other where they \
    write the same cache line: a lock, a reference count, a global. These are those lines, counted \
    in one handshake of each stack, with who writes them, why, and what would remove them.";
/// Before the commands.
pub(crate) const RECIPE: &str = "Every recording is made by one command, which takes a minute or \
    two under valgrind; `sealane-lab findings --commands` prints them, into the folder where they \
    run. Stacks that are not on the machine are built by `sealane-lab stacks build`. \
    What servers share in the kernel is counted under strace, of all servers by one command.";
/// Over the table of forecasts.
pub(crate) const OUTLOOK: &str = "FORECAST from counts, a band that is right within a factor of \
    two; the published figures were MEASURED by others, on another machine. Where two bands \
    overlap, no difference is shown.";
/// The heads of that table.
pub(crate) const OUTLOOK_HEADS: [&str; 5] =
    ["stack", "case", "FORECAST", "PUBLISHED", "FORECAST without its busiest line"];
const NOT_PUBLISHED: &str = "not published";
/// Under every table of counts.
pub(crate) const ORDER: &str = "In the order of names. A count is no rank: what it costs depends \
    on the work between two updates, so compare updates per million instructions, and forecasts \
    only where their bands are apart.";
/// What the figures are.
pub(crate) const FIGURES: &str = "Two threads, one after the other, under a memory trace; every \
    write to a cache line that both write is counted, with making and dropping the connection, \
    without the allocator's. Figures are server / client, per handshake. A lock that is taken and \
    given back is two updates. Paths begin with the innermost function.";
