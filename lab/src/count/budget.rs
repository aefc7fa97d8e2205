//! The gate: [`check`] holds the shared writes of Sealane's engine to a budget, and shows in the
//! same run that an excess is found.

use std::{fs, path::Path};

use serde::Deserialize;

use crate::{
    count::{Tools, class::ALLOCATOR, show, subject::Subject},
    document::{SharedLine, SharedWrites},
    error::Error,
    scenario::{Group, Key, Kind, Scenario, Share},
    trial::fault::Fault,
};

/// The file, `lab/budget.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    /// Of the whole: the stack that is held to it.
    stack: String,
    handshake: Vec<Entry>,
}

/// One kind of handshake.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    kind: Kind,
    key: Key,
    group: Group,
    /// Writes per handshake on the server to lines that another lane writes too.
    server_writes_max: u32,
    /// The lines that may be written.
    #[serde(default)]
    line: Vec<Allowed>,
}

/// One line that is known.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    /// What its name contains.
    symbol: String,
    /// Whose it is, and why it is written.
    owner: String,
    /// What would remove it.
    removal: String,
}

/// Whether the budget in `file` is kept, and an added `Arc` clone breaks it.
///
/// # Errors
/// What stopped it; the file, if it is none.
pub(super) fn check(file: &Path, tools: &Tools) -> Result<bool, Error> {
    let text = fs::read_to_string(file).map_err(Error::file(file))?;
    let budget: Budget = toml::from_str(&text)
        .map_err(|error| Error::Check(format!("{}: {error}", file.display())))?;
    let Some(first) = budget.handshake.first() else {
        return Err(Error::Check(format!("{} has no [[handshake]]", file.display())));
    };
    show(&format!(
        "{}: writes per handshake, on the server, to lines that another lane writes\n  {:28} \
         {:>8} {:>8} {:>10}\n",
        budget.stack, "", "counted", "budget", "allocator"
    ))?;
    let mut kept = true;
    for entry in &budget.handshake {
        let counted = count(&budget.stack, entry, None, tools)?;
        kept &= report(entry, &counted)?;
    }
    Ok(trips(&budget.stack, first, tools)? && kept)
}

/// Prints one row and what is wrong with it.
fn report(entry: &Entry, counted: &SharedWrites) -> Result<bool, Error> {
    let (writes, allocator) = (counted.total.server, counted.allocator.server);
    let excess = excess(entry, counted);
    let word = if excess.is_empty() { "kept" } else { "EXCEEDED" };
    show(&format!(
        "  {:28} {writes:>8} {:>8} {allocator:>10} {word}\n",
        entry.name, entry.server_writes_max
    ))?;
    for line in server_lines(counted) {
        let (symbol, writes) = (&line.symbol, line.writes.server);
        show(&format!("    {writes} {} {symbol} ({})\n", line.class, line.owner))?;
        match allowed(entry, line) {
            Some(known) => {
                show(&format!("      {}; removed by: {}\n", known.owner, known.removal))?;
            }
            None => {
                for writer in &line.writers {
                    show(&format!("      written by {writer}\n"))?;
                }
            }
        }
    }
    for line in &excess {
        show(&format!("    {line}\n"))?;
    }
    Ok(excess.is_empty())
}

/// What breaks the budget, in words.
fn excess(entry: &Entry, counted: &SharedWrites) -> Vec<String> {
    let (writes, max) = (counted.total.server, f64::from(entry.server_writes_max));
    let mut excess = Vec::new();
    if writes > max {
        excess.push(format!("{writes} shared writes are more than the budget of {max}"));
    }
    for line in server_lines(counted).filter(|line| allowed(entry, line).is_none()) {
        excess.push(format!("no line of the budget names {} ({})", line.symbol, line.class));
    }
    excess
}

fn server_lines(counted: &SharedWrites) -> impl Iterator<Item = &SharedLine> {
    counted.lines.iter().filter(|line| line.writes.server > 0.0 && line.class != ALLOCATOR)
}

fn allowed<'a>(entry: &'a Entry, line: &SharedLine) -> Option<&'a Allowed> {
    entry.line.iter().find(|known| line.symbol.contains(&known.symbol))
}

/// Whether one clone of a global `Arc` in each handshake breaks the budget of `entry`.
fn trips(stack: &str, entry: &Entry, tools: &Tools) -> Result<bool, Error> {
    let counted = count(stack, entry, Some(Fault::ArcClone), tools)?;
    let found = !excess(entry, &counted).is_empty();
    let word = if found { "exceeds the budget, as it must" } else { "was NOT FOUND" };
    let writes = counted.total.server;
    show(&format!("  {}, and one clone of a global Arc: {writes}, {word}\n", entry.name))?;
    for line in server_lines(&counted).filter(|line| allowed(entry, line).is_none()) {
        let writer = line.writers.first();
        show(&format!("    {} by {}\n", line.class, writer.map_or("?", String::as_str)))?;
    }
    Ok(found)
}

fn count(
    stack: &str,
    entry: &Entry,
    fault: Option<Fault>,
    tools: &Tools,
) -> Result<SharedWrites, Error> {
    let scenario = Scenario {
        kind: entry.kind,
        key: entry.key,
        group: entry.group,
        // What the terminator's lanes have in common: an immutable generation.
        share: Share::Context,
        ..Scenario::default()
    };
    tools.progress.step(entry.name.clone());
    Ok(Subject::new(stack, scenario, fault)?.lines(tools)?.writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::BySide;

    fn counted(symbol: &str, class: &str, writes: f64) -> SharedWrites {
        let line = SharedLine {
            class: class.into(),
            symbol: symbol.into(),
            writes: BySide { server: writes, client: 0.0 },
            ..SharedLine::default()
        };
        let total = if class == ALLOCATOR { BySide::default() } else { line.writes };
        SharedWrites { total, lines: vec![line], ..SharedWrites::default() }
    }

    #[test]
    fn an_excess_and_a_line_without_a_name_are_found() {
        let text = include_str!("../../budget.toml");
        let budget: Budget = toml::from_str(text).expect("the budget of this repository");
        let of = |name: &str| {
            let entry = budget.handshake.iter().find(|entry| entry.name == name);
            entry.unwrap_or_else(|| panic!("no entry {name}"))
        };
        let (ecdsa, rsa) = (of("ECDSA P-256"), of("RSA-2048"));
        assert_eq!(ecdsa.server_writes_max, 0);
        assert_eq!(excess(ecdsa, &SharedWrites::default()), [""; 0]);
        assert_eq!(excess(ecdsa, &counted("an Arc", "reference-count", 2.0)).len(), 2);
        assert_eq!(excess(ecdsa, &counted("main_arena", ALLOCATOR, 2.0)), [""; 0]);
        assert_eq!(excess(rsa, &counted("fork_detect_ube_lock, x", "lock", 10.0)), [""; 0]);
        assert_eq!(excess(rsa, &counted("fork_detect_ube_lock, x", "lock", 11.0)).len(), 1);
        assert_eq!(excess(rsa, &counted("another", "lock", 1.0)).len(), 1);
    }
}
