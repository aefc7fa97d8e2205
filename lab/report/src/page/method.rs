//! What the figures rest on: machine, versions, rounds, noise, commands, and the raw documents.

use sealane_lab_model::{
    document::{HandshakeSeries, Run, Server},
    figures::{HINT, Shown, Tally, conduct::STEAL_PERCENT_MAX},
    number::{bytes, number},
    words,
};

use crate::plot::escape;

use super::{
    frame::{self, Cell, Section, table},
    sources::Sources,
    threads::whole,
};

/// What the reader must know before any figure.
pub(crate) fn warnings(sources: &Sources) -> Vec<String> {
    let mut warnings = sources.notes.clone();
    warnings.extend(hints_warning(sources));
    warnings.extend(debug_warning(sources));
    let several = sources.runs.len() > 1;
    for (at, source) in sources.runs.iter().enumerate() {
        let Run { complete, noise, .. } = &source.run;
        let name =
            if several { format!("Run {} ({})", at + 1, source.file) } else { "This run".into() };
        if !complete {
            warnings.push(format!(
                "{name} is not complete: it was stopped before its last round. What is here is \
                 whole rounds all the same."
            ));
        }
        if noise.steal_percent > STEAL_PERCENT_MAX {
            warnings.push(format!(
                "{name}: the hypervisor took {}% of the processor time; times are worse than the \
                 stacks'.",
                number(noise.steal_percent)
            ));
        }
    }
    warnings
}

fn debug_warning(sources: &Sources) -> Option<String> {
    let debug = sources.runs.iter().any(|source| source.run.tool.profile == "debug");
    debug.then(|| {
        "The lab was a debug build: its times say nothing about any stack; its counts of the C \
         libraries hold. Build it with cargo build --release."
            .into()
    })
}

/// If the machine was so busy that some points have no quiet round.
fn hints_warning(sources: &Sources) -> Option<String> {
    let runs = || sources.runs.iter().map(|source| &source.run);
    let points = runs().flat_map(|run| &run.handshakes).flat_map(|series| &series.points);
    let handshakes = points.map(|point| Shown::of(&point.rounds).is_hint());
    let bulk = runs().flat_map(|run| &run.bulk).map(|series| Shown::of(&series.rounds).is_hint());
    let all: Vec<bool> = handshakes.chain(bulk).collect();
    let hints = all.iter().filter(|is_hint| **is_hint).count();
    (hints > 0).then(|| {
        format!(
            "In {hints} of {} points every round was disturbed (other work on this machine took \
             the processors). They are drawn hollow, marked with {HINT}, and only a hint: measure \
             again when the machine is quiet.",
            all.len()
        )
    })
}

/// The section; every page has it. With `raw`, the documents are in it.
pub(crate) fn section(sources: &Sources, raw: bool) -> Section {
    let mut body = machines(sources);
    body += &stacks(sources);
    body += &negotiated(sources);
    body += &rounds(sources);
    body += &read();
    body += &commands(sources);
    body += &documents(sources, raw);
    Section { id: "method", short: "Method", title: "Method and validity", lead: LEAD.into(), body }
}

fn machines(sources: &Sources) -> String {
    let rows = sources.runs.iter().enumerate().map(|(at, source)| {
        let Run { machine, noise, tool, started, seconds, .. } = &source.run;
        let virtualised = if machine.virtualised { ", virtual" } else { "" };
        let governor = machine.governor.as_ref().map(|g| format!(", governor {g}"));
        vec![
            Cell::Text(format!("{} {}", at + 1, source.file)),
            Cell::Text(format!("{started}, {} s", number(*seconds))),
            Cell::Text(format!(
                "{}, {}, {} per core{virtualised}{}",
                machine.processor,
                words::count(machine.processors, "processor"),
                words::count(machine.threads_per_core, "thread"),
                governor.unwrap_or_default()
            )),
            Cell::Text(format!("{}, {}", machine.kernel, bytes(whole(machine.memory_bytes)))),
            Cell::Text(format!("sealane-lab {} ({})", tool.version, tool.profile)),
            Cell::Number(format!(
                "{} \u{2192} {}",
                number(noise.load_average[0]),
                number(noise.load_average[1])
            )),
            Cell::Number(format!("{}%", number(noise.steal_percent))),
            Cell::Number(format!("{}%", number(100.0 * noise.spin_variation))),
        ]
    });
    let heads = [
        "run",
        "started, took",
        "machine",
        "kernel, memory",
        "lab",
        "#load average before \u{2192} after",
        "#steal",
        "#spin varies by",
    ];
    table("Machines and their noise", &heads, &rows.collect::<Vec<_>>())
}

fn stacks(sources: &Sources) -> String {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut seen: Vec<[&str; 4]> = Vec::new();
    for source in &sources.runs {
        for stack in &source.run.stacks {
            let this =
                [&stack.name, &stack.version, &stack.sha256, &stack.build].map(String::as_str);
            if seen.contains(&this) {
                continue;
            }
            seen.push(this);
            rows.push(vec![
                Cell::Text(stack.name.clone()),
                Cell::Text(stack.version.clone()),
                Cell::Html(format!("<code>{}</code>", escape(&stack.path))),
                Cell::Html(format!("<code class=\"long\">{}</code>", escape(&stack.sha256))),
                Cell::Html(format!("<code class=\"long\">{}</code>", escape(&stack.build))),
            ]);
        }
        let servers = source.run.servers.iter();
        for server in servers.flat_map(|servers| servers.servers.iter().chain(&servers.plain)) {
            rows.push(vec![
                Cell::Text(server.name.clone()),
                Cell::Text(server_version(server)),
                Cell::Html(format!(
                    "<code class=\"long\">{}</code>",
                    escape(&server.command.join(" "))
                )),
                Cell::Text(String::new()),
                Cell::Text(String::new()),
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["name", "version", "file or command", "SHA-256", "build"];
    table("What was measured", &heads, &rows)
}

fn negotiated(sources: &Sources) -> String {
    let parts = sources.parts::<HandshakeSeries>();
    let rows = parts.iter().map(|part| {
        let said = part.of.negotiated.as_ref();
        vec![
            Cell::Text(part.label.clone()),
            Cell::Text(words::whole(&part.of.scenario)),
            Cell::Text(said.map_or_else(|| "nothing".into(), words::negotiated)),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["stack", "asked for", "read back from both ends"];
    table("What was negotiated", &heads, &rows)
}

fn server_version(server: &Server) -> String {
    match &server.failure {
        Some(_) => "not measured".into(),
        None => format!("{}; {}", server.version, server.tls_library),
    }
}

/// How many rounds count, and why the others do not.
fn rounds(sources: &Sources) -> String {
    let mut tally = Tally::default();
    for Run { handshakes, bulk, .. } in sources.runs.iter().map(|source| &source.run) {
        let points = handshakes.iter().flat_map(|series| &series.points);
        points.for_each(|point| tally.add(&point.rounds));
        bulk.iter().for_each(|series| tally.add(&series.rounds));
    }
    if tally.all() == 0 {
        return String::new();
    }
    let tally = escape(&tally.to_string());
    format!(
        "<p><b>Rounds that count: {tally}.</b> The others are in the raw document; where no round \
         of a point counts, those that were disturbed are shown as a hint.</p>"
    )
}

fn commands(sources: &Sources) -> String {
    let lines: String = sources
        .runs
        .iter()
        .map(|source| escape(&words::shell(&source.run.command)) + "\n")
        .collect();
    format!("<h3>To repeat it</h3><pre tabindex=\"0\"><code>{lines}</code></pre>")
}

fn documents(sources: &Sources, raw: bool) -> String {
    if !raw {
        return String::from(
            "<p>The raw documents would make this page too large to send: ask for the files.</p>",
        );
    }
    let mut html = String::from("<h3>Raw documents</h3>");
    for (at, source) in sources.runs.iter().enumerate() {
        let name = escape(&format!("Run {}: {}", at + 1, source.file));
        // As text, so that it needs no script and keeps its form when copied.
        let json = frame::area(&without_histograms(&source.run));
        html += &format!(
            "<div class=\"raw plot\"><details class=\"data\"><summary>{name}</summary>\
             <button type=\"button\" data-do=\"copy\">Copy</button>\
             <textarea readonly rows=\"14\" spellcheck=\"false\" aria-label=\"{name}\">\n{json}\
             </textarea></details></div>"
        );
    }
    html + "<p class=\"look\">HdrHistograms in their binary form are left out here; the files \
            have them.</p>"
}

/// The document as JSON, with the binary form of histograms emptied.
fn without_histograms(run: &Run) -> String {
    let mut run = run.clone();
    for times in run.handshakes.iter_mut().filter_map(|series| series.times.as_mut()) {
        times.server.hdr.clear();
        times.client.hdr.clear();
    }
    let servers = run.servers.iter_mut();
    for server in servers.flat_map(|all| all.servers.iter_mut().chain(&mut all.plain)) {
        for result in server.cases.values_mut() {
            for times in [&mut result.latency, &mut result.service].into_iter().flatten() {
                times.hdr.clear();
            }
        }
    }
    serde_json::to_string(&run).unwrap_or_else(|error| error.to_string())
}

fn read() -> String {
    format!("<h3>How to read it</h3><ul class=\"remarks\"><li>{READ_TAGS}</li>{READ}")
}

const LEAD: &str = "All stacks get the same certificates, group, suite and number of tickets; what \
    was negotiated is read back from both ends. Rounds are interleaved, so that a slow minute hits \
    everyone.";
const READ_TAGS: &str = "<b>MEASURED</b> is by a clock on this machine. <b>COUNTED</b> is event by \
    event, and the same on any machine of this kind; where brackets follow, it also depends on how \
    threads met.";
const READ: &str = "<li>Figures are medians of the rounds that count; \
    brackets and bands go from the least to the \
    most. A verdict rests on the \
    rounds' ratios and their 95% bootstrap interval; if that holds 1, no \
    difference is shown.</li>\
    <li>No solid line goes past what was measured. More threads than processors take turns: that \
    region is shaded, and its fall is nobody's fault.</li>\
    <li>In memory, both ends share each thread: a rate there is not what a server reaches over \
    sockets.</li></ul>";
