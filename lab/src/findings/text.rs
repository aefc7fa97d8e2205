//! Findings as Markdown, to be read where no page is: [`text`].

use std::fmt::Write as _;

use super::{
    notes::Notes,
    words::{self, Culprit, FIGURES, ORDER, Told},
};
use crate::{
    document::{Finding, Run},
    page::words::short,
    plot::number,
};

/// All of it. The same document gives the same bytes.
pub(crate) fn text(run: &Run, notes: &Notes) -> String {
    let stacks = words::told(run, notes);
    let mut out = format!("# {TITLE}\n\n{}\n\n{FIGURES} {ORDER}\n\n", words::LEAD);
    let _ = writeln!(out, "Recorded {}.\n", words::origins(run).join("; "));
    let stale = notes.stale(&run.findings);
    for stale in &stale {
        let _ = writeln!(out, "- Note: {stale}.");
    }
    if !stale.is_empty() {
        out.push('\n');
    }
    overview(&mut out, &stacks);
    for stack in &stacks {
        one(&mut out, stack);
    }
    outlook(&mut out, &stacks);
    for change in notes.changes_of(&run.findings) {
        let _ = writeln!(out, "## {}\n", change.title);
        for part in &change.parts {
            let _ = writeln!(out, "### {}\n\n{}\n", part.head, part.text.trim());
            if !part.code.is_empty() {
                let _ = writeln!(out, "```c\n{}\n```\n", part.code.trim());
            }
        }
    }
    recipe(&mut out, &stacks);
    // One newline at the end, as in every text file.
    out.truncate(out.trim_end().len());
    out + "\n"
}

fn overview(out: &mut String, stacks: &[Told<'_>]) {
    let _ =
        writeln!(out, "| {} |", words::HEADS.map(|head| head.trim_start_matches('#')).join(" | "));
    let rules = words::HEADS.map(|head| if head.starts_with('#') { "---:" } else { "---" });
    let _ = writeln!(out, "| {} |", rules.join(" | "));
    for stack in stacks {
        for finding in &stack.findings {
            let row = words::row(stack, finding).map(|cell| escape(&cell));
            let _ = writeln!(out, "| {} |", row.join(" | "));
        }
    }
    out.push('\n');
}

fn one(out: &mut String, stack: &Told<'_>) {
    let _ = writeln!(out, "## {}\n", stack.title);
    if !stack.about.is_empty() {
        let _ = writeln!(out, "{}\n", stack.about.trim());
    }
    for finding in &stack.findings {
        causes(out, finding);
    }
    out.push('\n');
    for culprit in &stack.culprits {
        line(out, culprit);
    }
}

fn causes(out: &mut String, finding: &Finding) {
    let amounts = finding
        .causes
        .iter()
        .map(|cause| format!("{} {}", words::class(&cause.of), words::pair(cause.by)));
    let amounts: Vec<String> = amounts.collect();
    let said = match amounts.is_empty() {
        true => "no line is written by both threads".to_owned(),
        false => format!("writes by cause: {}", amounts.join("; ")),
    };
    let _ = writeln!(out, "- {}: {said}", short(&finding.scenario));
}

fn line(out: &mut String, culprit: &Culprit<'_>) {
    let title = culprit.note.map_or("Not yet explained", |note| note.culprit.as_str());
    let _ =
        writeln!(out, "**{title}** (`{}`; {})\n", culprit.line.symbol, words::line(culprit.line));
    for sentence in &culprit.sentences {
        let _ = writeln!(out, "- {sentence}");
    }
    if let Some(note) = culprit.note {
        let _ = writeln!(out, "- Why: {}", note.taken);
        let _ = writeln!(out, "- What would remove it: {}", note.removal);
        if !note.told_in.is_empty() {
            let _ = writeln!(out, "- Discussed in: {}", note.told_in.join(", "));
        }
    }
    for site in culprit.line.sites.iter().take(SITES_SHOWN) {
        let _ =
            writeln!(out, "- {} writes by `{}`", words::pair(site.writes), site.path.join("` < `"));
    }
    out.push('\n');
}

fn outlook(out: &mut String, stacks: &[Told<'_>]) {
    let cases = stacks.iter().flat_map(|stack| {
        words::outlook(stack).into_iter().map(|told| {
            let cells = [&stack.title, &told.case, &told.forecast, &told.published, &told.without];
            format!("| {} |\n", cells.map(|cell| escape(cell)).join(" | "))
        })
    });
    let cases: String = cases.collect();
    if !cases.is_empty() {
        let (heads, rules) = (words::OUTLOOK_HEADS.join(" | "), ["---"; 5].join(" | "));
        let lead = words::OUTLOOK;
        let _ = writeln!(out, "## What it comes to\n\n{lead}\n\n| {heads} |\n| {rules} |\n{cases}");
    }
}

fn recipe(out: &mut String, stacks: &[Told<'_>]) {
    let _ = writeln!(out, "## How to make these figures again\n\n{}\n\n```", words::RECIPE);
    for stack in stacks {
        for finding in &stack.findings {
            let _ = writeln!(out, "{}", words::command(finding));
        }
    }
    let _ = writeln!(out, "```\n");
    let _ = writeln!(out, "| stack | version | library's SHA-256 | millions of instructions |");
    let _ = writeln!(out, "| --- | --- | --- | ---: |");
    for stack in stacks {
        for finding in &stack.findings {
            let sha256 = finding.recorded.sha256.get(..SHA256_SHOWN).unwrap_or_default();
            let [server, client] = [finding.instructions.server, finding.instructions.client]
                .map(|instructions| number(instructions / 1e6));
            let _ = writeln!(
                out,
                "| {} | {} | `{sha256}` | {server} / {client} |",
                stack.name,
                escape(&finding.version)
            );
        }
    }
}

/// As a cell of a table.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

const TITLE: &str = words::TITLE;
const SHA256_SHOWN: usize = 16;
const SITES_SHOWN: usize = 3;
