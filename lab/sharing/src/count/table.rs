//! The text of a count: [`write`] prints one [`CountResult`] for people.

use std::fmt::Write as _;

use sealane_lab_model::{
    document::{BySide, CountResult, LockSite, NAMELESS_MEMORY, SharedLine},
    figures::count::per_million_instructions,
    words::scenario::whole,
};

use crate::count::class::RULES;

/// One stack in one scenario.
pub(super) fn text(result: &CountResult) -> String {
    let mut out = String::new();
    let same = match (result.repeats, result.exact) {
        (0 | 1, _) => String::new(),
        (repeats, true) => format!("; {repeats} times the same"),
        (repeats, false) => format!("; {repeats} times, NOT the same"),
    };
    let _ = writeln!(out, "\n{}: {}{same}", result.stack, whole(&result.scenario));
    if let Some(failure) = &result.failure {
        let _ = writeln!(out, "  no figures: {failure}");
        return out;
    }
    let per = format!("  per {}", result.unit.as_deref().unwrap_or("handshake"));
    let _ = writeln!(out, "{per:44} {:>12} {:>12}", "server", "client");
    if let Some(instructions) = &result.instructions {
        row(&mut out, "instructions, thousands", scaled(*instructions, 1e-3), 0);
        if let Some(spread) = &result.instructions_spread {
            row(&mut out, "  apart between repeats, percent", scaled(*spread, 100.0), 3);
        }
    }
    if let Some(locks) = &result.locks {
        row(&mut out, "read locks", locks.read, 3);
        row(&mut out, "write locks", locks.write, 3);
        row(&mut out, "mutexes", locks.mutex, 3);
        let _ = writeln!(out, "  {} locks are taken by both threads", locks.shared);
    }
    if let Some(writes) = &result.shared_writes {
        row(&mut out, "shared writes", writes.total, 3);
        row(&mut out, "  the allocator's, apart", writes.allocator, 3);
        if let Some(instructions) = &result.instructions {
            let figure = |writes, of| per_million_instructions(writes, of).unwrap_or_default();
            let per_million = BySide {
                server: figure(writes.total.server, instructions.server),
                client: figure(writes.total.client, instructions.client),
            };
            row(&mut out, "shared writes per million instructions", per_million, 1);
            let _ = writeln!(out, "{RANK}");
        }
        lines(&mut out, &writes.lines);
    }
    if let Some(locks) = &result.locks {
        sites(&mut out, &locks.sites);
    }
    out
}

fn row(out: &mut String, name: &str, figures: BySide<f64>, decimals: usize) {
    let (server, client) = (number(figures.server, decimals), number(figures.client, decimals));
    let _ = writeln!(out, "  {name:42} {server:>12} {client:>12}");
}

fn lines(out: &mut String, lines: &[SharedLine]) {
    if lines.is_empty() {
        let _ = writeln!(out, "  no line is written by both threads");
        return;
    }
    let _ = writeln!(out, "  {} lines are written by both threads", lines.len());
    let _ = writeln!(out, "  {:>10} {:>10}  {:16} line", "server", "client", "class");
    for line in lines.iter().take(LINES_SHOWN) {
        let (server, client) = (number(line.writes.server, 2), number(line.writes.client, 2));
        let SharedLine { class, symbol, owner, writers, .. } = line;
        let _ = writeln!(out, "  {server:>10} {client:>10}  {class:16} {symbol} ({owner})");
        // Memory without a name is called after its first writer.
        let told = usize::from(symbol.starts_with(NAMELESS_MEMORY));
        for writer in writers.iter().take(WRITERS_SHOWN).skip(told) {
            let _ = writeln!(out, "{:41} {writer}", "");
        }
    }
    if lines.len() > LINES_SHOWN {
        let _ = writeln!(out, "  ... and {} more; --json has all", lines.len() - LINES_SHOWN);
    }
    let _ = writeln!(out, "  {RULES}");
}

fn sites(out: &mut String, sites: &[LockSite]) {
    if sites.is_empty() {
        return;
    }
    let _ = writeln!(out, "  locks and where they are taken, most first; {INVISIBLE}");
    let _ = writeln!(out, "  {:>10} {:>10}  {:6} lock", "server", "client", "kind");
    for site in sites.iter().take(SITES_SHOWN) {
        let (server, client) = (number(site.calls.server, 2), number(site.calls.client, 2));
        let _ = writeln!(out, "  {server:>10} {client:>10}  {:6} {}", site.kind, site.lock);
        let _ = writeln!(out, "{:31} {}", "", site.path.join(" < "));
    }
}

/// Without decimals where there are none.
fn number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn scaled(figures: BySide<f64>, factor: f64) -> BySide<f64> {
    BySide { server: figures.server * factor, client: figures.client * factor }
}

const INVISIBLE: &str = "locks made of atomics (Rust's own, Go's) show under shared writes only";
const LINES_SHOWN: usize = 20;
const RANK: &str = "  counts are no rank: what limits a stack is shared writes per work done";
const SITES_SHOWN: usize = 12;
const WRITERS_SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_no_decimals() {
        assert_eq!(number(2086.0, 3), "2086");
        assert_eq!(number(120.006, 3), "120.006");
        assert_eq!(number(100.0, 0), "100");
    }
}
