//! The text of a gate: [`text`] prints one entry for people.

use std::fmt::Write as _;

use sealane_lab_model::document::{ALLOCATOR, GateResult, NAMELESS_MEMORY, SharedLine};

use crate::gate::{
    budget::{Entry, Figure, Limit, Subject},
    judge::{allowed, is_more, lines, names_lines, side},
};

/// One entry and how it went.
pub(super) fn text(entry: &Entry, result: &GateResult) -> String {
    let mut out = String::new();
    let GateResult { name, subject, program, unit, .. } = result;
    let _ = writeln!(out, "\n{name}: {subject} {program}");
    if let Some(failure) = &result.failure {
        let _ = writeln!(out, "  NOT COUNTED: {}", indented(failure, 4));
        return out;
    }
    let per = format!("per {unit}");
    let _ = writeln!(out, "  {per:28} {:>12} {:>12}", "counted", "budget");
    for figure in &result.figures {
        let side = figure.side.as_ref().map_or(String::new(), |side| format!(", {side}"));
        let word = match is_more(figure.counted, figure.max, figure.tolerance_percent) {
            true => "EXCEEDED",
            false => "kept",
        };
        let tolerance = match figure.tolerance_percent {
            0.0 => String::new(),
            percent => format!(" (and {percent} percent)"),
        };
        let name = format!("{}{side}", figure.figure);
        let (counted, max) = (rounded(figure.counted), figure.max);
        let _ = writeln!(out, "  {name:28} {counted:>12} {max:>12} {word}{tolerance}");
    }
    for limit in entry.limits.iter().filter(|limit| limit.figure == Figure::Writes) {
        for line in lines(&result.lines, limit.of_client) {
            known(&mut out, entry, line, limit);
        }
    }
    for known in entry
        .allowed
        .iter()
        .filter(|known| !result.lines.iter().any(|line| line.symbol.contains(&known.symbol)))
    {
        let symbol = &known.symbol;
        let _ =
            writeln!(out, "  the budget names {symbol}, which nobody writes any more: remove it");
    }
    for excess in &result.excess {
        let _ = writeln!(out, "  EXCEEDED: {}", indented(excess, 4));
    }
    for note in notes(entry, result) {
        let _ = writeln!(out, "  note: {note}");
    }
    out
}

/// A line that may be written; one that may not is an excess.
fn known(out: &mut String, entry: &Entry, line: &SharedLine, limit: &Limit) {
    let known = allowed(entry, line);
    if known.is_none() && names_lines(entry, limit) {
        return;
    }
    let writes = side(line.writes, limit.of_client);
    let SharedLine { class, symbol, owner, .. } = line;
    let _ = writeln!(out, "    {writes} {class} {symbol} ({owner})");
    if let Some(known) = known {
        let _ = writeln!(out, "      {}; removed by: {}", known.owner, known.removal);
        return;
    }
    let told = usize::from(symbol.starts_with(NAMELESS_MEMORY));
    for writer in line.writers.iter().skip(told).take(WRITERS_SHOWN) {
        let _ = writeln!(out, "      written by {writer}");
    }
}

/// What the reader should know of the figures.
fn notes(entry: &Entry, result: &GateResult) -> Vec<&'static str> {
    let mut notes = Vec::new();
    let has_locks = entry.limits.iter().any(|limit| limit.figure.is_lock());
    match &entry.subject {
        Subject::Stack(_) if has_locks => notes.push(STACK_LOCKS),
        Subject::Server(_) | Subject::Test(_) if has_locks => notes.push(PROGRAM_LOCKS),
        _ => {}
    }
    if matches!(entry.subject, Subject::Server(_)) {
        notes.push(SERVER);
    }
    let writers = || result.lines.iter().flat_map(|line| &line.writers);
    if matches!(entry.subject, Subject::Test(_)) {
        if writers().any(|writer| writer.trim_start_matches('<').starts_with(ATOMICS)) {
            notes.push(NOT_OPTIMISED);
        } else if result.lines.iter().any(|line| line.class != ALLOCATOR && has_no_place(line)) {
            notes.push(NO_LINES);
        }
    }
    notes
}

fn has_no_place(line: &SharedLine) -> bool {
    !line.writers.iter().any(|writer| writer.contains(" at "))
}

/// Every line but the first moved in.
fn indented(text: &str, by: usize) -> String {
    text.replace('\n', &format!("\n{}", " ".repeat(by)))
}

fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

/// Where they are functions of their own.
const ATOMICS: &str = "core::sync::atomic";
const NOT_OPTIMISED: &str = "\
the program was built without optimisation, where an atomic is a function of its own and nobody
    can tell who calls it: build with optimisation (a profile that inherits release)";
const NO_LINES: &str = "\
the program tells no file and line: build it with debug = \"line-tables-only\"";
const PROGRAM_LOCKS: &str = "\
seen are locks of the C library, and Rust's own if the line table tells them and two threads
    take them; other locks made of atomics inside a binary are not seen, only their writes";
const SERVER: &str = "\
what the kernel shares is not visible, but for writes of file tables where these have a limit";
const STACK_LOCKS: &str =
    "locks inside the binary, made of atomics (Rust's own, Go's), are not seen, only their writes";
const WRITERS_SHOWN: usize = 3;
