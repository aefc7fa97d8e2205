//! Findings as Markdown, to be read where no page is: [`text`].

use std::fmt::Write as _;

use sealane_lab_model::{
    document::{Finding, Run},
    number::number,
    words::scenario::short,
};

use super::{
    kernel,
    notes::Notes,
    told::{self, Culprit, FIGURES, LEAD, ORDER, Told},
};

/// All of it. The same document gives the same bytes.
pub(crate) fn text(run: &Run, notes: &Notes) -> String {
    let stacks = told::told(run, notes);
    let mut out = format!("# {TITLE}\n\n");
    if !stacks.is_empty() {
        recorded(&mut out, run, notes, &stacks);
    }
    if !run.kernel_ledgers.is_empty() {
        in_the_kernel(&mut out, run, notes);
    }
    for change in notes.changes_of(&run.findings) {
        let _ = writeln!(out, "## {}\n", change.title);
        for part in &change.parts {
            let _ = writeln!(out, "### {}\n\n{}\n", part.head, part.text.trim());
            if !part.code.is_empty() {
                let _ = writeln!(out, "```c\n{}\n```\n", part.code.trim());
            }
        }
    }
    recipe(&mut out, run, &stacks);
    // One newline at the end, as in every text file.
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// What recordings say.
fn recorded(out: &mut String, run: &Run, notes: &Notes, stacks: &[Told<'_>]) {
    let _ = writeln!(out, "{LEAD}\n\n{FIGURES} {ORDER}\n");
    let _ = writeln!(out, "Recorded {}.\n", told::origins(run).join("; "));
    let stale = notes.stale(&run.findings);
    for stale in &stale {
        let _ = writeln!(out, "- Note: {stale}.");
    }
    if !stale.is_empty() {
        out.push('\n');
    }
    let rows = stacks.iter().flat_map(|stack| {
        stack.findings.iter().map(move |finding| told::row(stack, finding).to_vec())
    });
    table(out, &told::HEADS, rows);
    for stack in stacks {
        one(out, stack);
    }
    outlook(out, stacks);
}

/// What ledgers of servers say.
fn in_the_kernel(out: &mut String, run: &Run, notes: &Notes) {
    let _ = writeln!(out, "## {}\n\n{}\n", kernel::TITLE, kernel::LEAD);
    let _ = writeln!(out, "Counted {}.\n", kernel::origins(run).join("; "));
    table(out, &kernel::HEADS, kernel::rows(run, notes).into_iter().map(Vec::from));
    for shared in kernel::shared(run, notes) {
        let _ = writeln!(out, "**{}** (`{}`, in the kernel)\n", shared.name(), shared.object);
        for sharer in &shared.sharers {
            let _ = writeln!(out, "- {}", sharer.sentence());
        }
        if let Some(note) = shared.note {
            let _ = writeln!(out, "- Why: {}", note.taken);
        }
        let _ = writeln!(out, "- What would remove it: {}", shared.removal);
        let told_in = shared.note.map(|note| note.told_in.as_slice()).unwrap_or_default();
        discussed(out, told_in);
        out.push('\n');
    }
}

/// A head that begins with `#` is one of numbers.
fn table(out: &mut String, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let names: Vec<&str> = heads.iter().map(|head| head.trim_start_matches('#')).collect();
    let _ = writeln!(out, "| {} |", names.join(" | "));
    let rule = |head: &&str| if head.starts_with('#') { "---:" } else { "---" };
    let rules: Vec<&str> = heads.iter().map(rule).collect();
    let _ = writeln!(out, "| {} |", rules.join(" | "));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| escape(cell)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
}

fn discussed(out: &mut String, told_in: &[String]) {
    if !told_in.is_empty() {
        let _ = writeln!(out, "- Discussed in: {}", told_in.join(", "));
    }
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
        .map(|cause| format!("{} {}", told::class(&cause.of), told::pair(cause.by)));
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
        writeln!(out, "**{title}** (`{}`; {})\n", culprit.line.symbol, told::line(culprit.line));
    for sentence in &culprit.sentences {
        let _ = writeln!(out, "- {sentence}");
    }
    if let Some(note) = culprit.note {
        let _ = writeln!(out, "- Why: {}", note.taken);
        let _ = writeln!(out, "- What would remove it: {}", note.removal);
        discussed(out, &note.told_in);
    }
    for site in culprit.line.sites.iter().take(SITES_SHOWN) {
        let _ =
            writeln!(out, "- {} writes by `{}`", told::pair(site.writes), site.path.join("` < `"));
    }
    out.push('\n');
}

fn outlook(out: &mut String, stacks: &[Told<'_>]) {
    let cases = stacks.iter().flat_map(|stack| {
        told::outlook(stack).into_iter().map(|told| {
            let cells = [&stack.title, &told.case, &told.forecast, &told.published, &told.without];
            format!("| {} |\n", cells.map(|cell| escape(cell)).join(" | "))
        })
    });
    let cases: String = cases.collect();
    if !cases.is_empty() {
        let (heads, rules) = (told::OUTLOOK_HEADS.join(" | "), ["---"; 5].join(" | "));
        let lead = told::OUTLOOK;
        let _ = writeln!(out, "## What it comes to\n\n{lead}\n\n| {heads} |\n| {rules} |\n{cases}");
    }
}

fn recipe(out: &mut String, run: &Run, stacks: &[Told<'_>]) {
    let _ = writeln!(out, "## How to make these figures again\n\n{}\n\n```", told::RECIPE);
    let _ = writeln!(out, "{}\n```\n", told::commands(run, stacks).join("\n"));
    if stacks.is_empty() {
        return;
    }
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

/// The text of a table's cell.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

const TITLE: &str = told::TITLE;
const SHA256_SHOWN: usize = 16;
const SITES_SHOWN: usize = 3;
