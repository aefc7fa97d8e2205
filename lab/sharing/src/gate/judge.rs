//! Whether a budget is kept: [`judged`] puts what was [`Found`] beside the limits of an entry.

use sealane_lab_model::{
    document::{
        ALLOCATOR, BySide, GateFigure, GateResult, KernelRow, LockCounts, LockSite,
        NAMELESS_MEMORY, SharedLine, SharedWrites,
    },
    words::kernel::{by_call, sharers},
};

use crate::gate::budget::{Allowed, Entry, Figure, Limit, Subject};

/// What was counted of an entry, per unit of its work.
#[derive(Default)]
pub(super) struct Found {
    pub(super) writes: SharedWrites,
    pub(super) instructions: BySide<f64>,
    pub(super) locks: LockCounts,
    /// The row of file tables, if they have a limit.
    pub(super) table: Option<KernelRow>,
}

impl Found {
    fn of(&self, limit: &Limit) -> f64 {
        let table = || self.table.as_ref().map_or(0, |row| row.per_connection);
        let both = match limit.figure {
            Figure::Instructions => self.instructions,
            Figure::Mutexes => self.locks.mutex,
            Figure::ReadLocks => self.locks.read,
            Figure::TableWrites => BySide { server: table() as f64, client: 0.0 },
            Figure::WriteLocks => self.locks.write,
            Figure::Writes => self.writes.total,
        };
        side(both, limit.of_client)
    }
}

/// The entry's figures, and what breaks its limits in words; `file` is the budget's.
pub(super) fn judged(entry: &Entry, found: Found, file: &str) -> GateResult {
    let mut excess = Vec::new();
    for limit in &entry.limits {
        excess.extend(exceeded(entry, limit, &found, file));
        if limit.figure == Figure::Writes {
            let new = new_lines(entry, limit, &found.writes);
            excess.extend(new.map(|line| new_line(entry, limit, line)));
        }
    }
    let figures = entry.limits.iter().map(|limit| GateFigure {
        figure: limit.figure.words().to_owned(),
        side: side_word(entry, limit).map(str::to_owned),
        counted: found.of(limit),
        max: limit.max,
        tolerance_percent: limit.tolerance_percent,
    });
    GateResult {
        kept: excess.is_empty(),
        figures: figures.collect(),
        excess,
        lines: found.writes.lines,
        sites: found.locks.sites,
        table: found.table,
        ..unjudged(entry)
    }
}

/// Without figures.
pub(super) fn unjudged(entry: &Entry) -> GateResult {
    GateResult {
        name: entry.name.clone(),
        subject: entry.subject.word().to_owned(),
        unit: entry.subject.unit().to_owned(),
        program: match &entry.subject {
            Subject::Server(server) => server.command.join(" "),
            Subject::Stack(stack) => stack.stack.clone(),
            Subject::Test(test) => test.binary.clone(),
        },
        ..GateResult::default()
    }
}

/// Whether figures that are compared are the same is decided to a millionth.
pub(super) fn is_more(counted: f64, max: f64, tolerance_percent: f64) -> bool {
    counted > max * (1.0 + tolerance_percent / 100.0) + 1e-6
}

/// The name in the budget that a line goes by.
pub(super) fn allowed<'a>(entry: &'a Entry, line: &SharedLine) -> Option<&'a Allowed> {
    entry.allowed.iter().find(|known| line.symbol.contains(&known.symbol))
}

/// The lines of the side that a limit is for, without the allocator's.
pub(super) fn lines(writes: &[SharedLine], of_client: bool) -> impl Iterator<Item = &SharedLine> {
    let of_side = move |line: &&SharedLine| side(line.writes, of_client) > 0.0;
    writes.iter().filter(of_side).filter(|line| line.class != ALLOCATOR)
}

pub(super) fn side(both: BySide<f64>, of_client: bool) -> f64 {
    if of_client { both.client } else { both.server }
}

fn exceeded(entry: &Entry, limit: &Limit, found: &Found, file: &str) -> Option<String> {
    let counted = found.of(limit);
    if !is_more(counted, limit.max, limit.tolerance_percent) {
        return None;
    }
    let (words, unit) = (limit.figure.words(), entry.subject.unit());
    let side = side_word(entry, limit).map(|side| format!(" of the {side}")).unwrap_or_default();
    let tolerance = match limit.tolerance_percent {
        0.0 => String::new(),
        percent => format!(" and {percent} percent"),
    };
    let mut text = format!(
        "{counted} {words}{side} per {unit} are more than the budget of {}{tolerance} \
         ({file}:{}, {:?})",
        limit.max, entry.line, entry.name
    );
    for site in sites(limit, &found.locks.sites).take(SITES_TOLD) {
        let calls = self::side(site.calls, limit.of_client);
        // A lock without a name is called after who takes it.
        let of = if site.lock.starts_with(NAMELESS_LOCK) { "" } else { "of " };
        text += &format!("\n  {calls} {} {of}{}", limit.figure.words(), site.lock);
        if !site.path.is_empty() {
            text += &format!("\n    taken in {}", site.path.join("\n      called by "));
        }
    }
    if let (Figure::TableWrites, Some(row)) = (limit.figure, &found.table) {
        let (by_call, sharers) = (by_call(row), sharers(row));
        text += &format!("\n  {by_call}\n  of a table that is shared by {sharers}");
        text += &format!("\n  removed by {}", row.removal);
    }
    Some(text)
}

/// Where locks of the limit's kind are taken, if it is for locks.
fn sites<'a>(limit: &Limit, sites: &'a [LockSite]) -> impl Iterator<Item = &'a LockSite> {
    let (figure, of_client) = (limit.figure, limit.of_client);
    let kinds = match figure {
        Figure::Mutexes => &["mutex", "spin"][..],
        Figure::ReadLocks => &["read"],
        Figure::WriteLocks => &["write"],
        Figure::Instructions | Figure::TableWrites | Figure::Writes => &[],
    };
    sites
        .iter()
        .filter(move |site| kinds.contains(&site.kind.as_str()))
        .filter(move |site| side(site.calls, of_client) > 0.0)
}

/// Lines without a name in the budget, where it names any or allows none.
fn new_lines<'a>(
    entry: &'a Entry,
    limit: &Limit,
    writes: &'a SharedWrites,
) -> impl Iterator<Item = &'a SharedLine> {
    let names_lines = names_lines(entry, limit);
    let all = lines(&writes.lines, limit.of_client);
    all.filter(move |line| names_lines && allowed(entry, line).is_none())
}

/// Whether a line without a name is too many, however few its writes.
pub(super) fn names_lines(entry: &Entry, limit: &Limit) -> bool {
    limit.max == 0.0 || !entry.allowed.is_empty()
}

fn new_line(entry: &Entry, limit: &Limit, line: &SharedLine) -> String {
    let (word, unit) = (entry.subject.word(), entry.subject.unit());
    let writes = side(line.writes, limit.of_client);
    let SharedLine { class, symbol, owner, .. } = line;
    let mut text = format!(
        "a new line, which no [[{word}.line]] names: {symbol}\n  class {class}, in {owner}, \
         {writes} writes per {unit}"
    );
    // Memory without a name is called after its first writer.
    let told = usize::from(symbol.starts_with(NAMELESS_MEMORY));
    for writer in line.writers.iter().skip(told) {
        text += &format!("\n  written by {writer}");
    }
    text
}

fn side_word(entry: &Entry, limit: &Limit) -> Option<&'static str> {
    matches!(entry.subject, Subject::Stack(_)).then_some(match limit.of_client {
        true => "client",
        false => "server",
    })
}

const NAMELESS_LOCK: &str = "taken by ";
const SITES_TOLD: usize = 4;

#[cfg(test)]
mod tests {
    use sealane_lab_model::document::KernelCall;

    use super::*;
    use crate::gate::budget::Budget;

    fn entry(limits: &str) -> Entry {
        let text = format!(
            "[[stack]]\nname = \"a\"\nstack = \"openssl\"\nserver_writes_max = 10\n{limits}\n"
        );
        let mut budget = Budget::parse("b.toml", &text).unwrap_or_else(|told| panic!("{told}"));
        budget.entries.remove(0)
    }

    fn writes(symbol: &str, class: &str, writes: f64) -> Found {
        let line = SharedLine {
            class: class.into(),
            symbol: symbol.into(),
            owner: "program".into(),
            writes: BySide { server: writes, client: 0.0 },
            writers: vec!["clone in serve at src/serve.rs:7 (program)".into()],
        };
        let total = if class == ALLOCATOR { BySide::default() } else { line.writes };
        let writes = SharedWrites { total, lines: vec![line], ..SharedWrites::default() };
        Found { writes, ..Found::default() }
    }

    const KNOWN: &str = "[[stack.line]]\nsymbol = \"ube\"\nowner = \"it\"\nremoval = \"no\"";

    #[test]
    fn an_excess_and_a_line_without_a_name_are_found() {
        let excess = |limits: &str, found| judged(&entry(limits), found, "b.toml").excess;
        assert_eq!(excess("", Found::default()), [""; 0]);
        assert_eq!(excess("", writes("an Arc", "reference-count", 10.0)), [""; 0]);
        assert_eq!(excess(KNOWN, writes("fork_ube_lock, x", "lock", 10.0)), [""; 0]);
        assert_eq!(excess(KNOWN, writes("main_arena", ALLOCATOR, 99.0)), [""; 0]);
        assert_eq!(
            excess(KNOWN, writes("fork_ube_lock, x", "lock", 11.0)),
            ["11 shared writes of the server per handshake are more than the budget of 10 \
              (b.toml:1, \"a\")"]
        );
        assert_eq!(
            excess(KNOWN, writes("an Arc", "reference-count", 1.0)),
            ["a new line, which no [[stack.line]] names: an Arc\n  class reference-count, in \
              program, 1 writes per handshake\n  written by clone in serve at src/serve.rs:7 \
              (program)"]
        );
    }

    #[test]
    fn the_client_s_side_has_limits_of_its_own() {
        let found = writes("an Arc", "reference-count", 1.0);
        assert!(judged(&entry("client_writes_max = 0"), found, "b.toml").kept);
        let mut found = writes("an Arc", "reference-count", 1.0);
        found.writes.total = BySide { server: 0.0, client: 1.0 };
        found.writes.lines[0].writes = found.writes.total;
        assert_eq!(judged(&entry("client_writes_max = 0"), found, "b.toml").excess.len(), 2);
    }

    #[test]
    fn instructions_may_be_more_by_their_tolerance() {
        let limits = "server_instructions_max = 1000\ninstructions_tolerance_percent = 10";
        let kept = |server| {
            let instructions = BySide { server, client: 0.0 };
            judged(&entry(limits), Found { instructions, ..Found::default() }, "b.toml").kept
        };
        assert!(kept(1_100.0) && !kept(1_101.0));
    }

    #[test]
    fn a_shared_table_is_told_with_what_writes_it() {
        let text = "[[server]]\nname = \"a\"\ncommand = [\"x\"]\nshared_table_writes_max = 0\n";
        let mut budget = Budget::parse("b.toml", text).unwrap_or_else(|told| panic!("{told}"));
        let entry = budget.entries.remove(0);
        let close = KernelCall { call: "close".into(), per_connection: 2, lengths: [4, 8, 12] };
        let row = |per_connection, calls| KernelRow {
            threads: 5,
            writers: 2,
            shared: 1,
            per_connection,
            calls,
            exact: true,
            removal: "a table each".into(),
            ..KernelRow::default()
        };
        let judged = |row| judged(&entry, Found { table: Some(row), ..Found::default() }, "b.toml");
        assert!(judged(row(0, Vec::new())).kept);
        let told = judged(row(2, vec![close]));
        assert_eq!(
            told.excess,
            ["2 writes of a shared file table per connection are more than the budget of 0 \
              (b.toml:1, \"a\")\n  close 2\n  of a table that is shared by 5 threads, 2 write\n  \
              removed by a table each"]
        );
        assert_eq!(told.table.map(|row| row.per_connection), Some(2));
    }

    #[test]
    fn a_lock_too_many_is_told_with_where_it_is_taken() {
        let mutex = BySide { server: 1.0, client: 0.0 };
        let site = LockSite {
            lock: "cache (program)".into(),
            kind: "mutex".into(),
            calls: mutex,
            path: vec!["lookup (program)".into(), "serve (program)".into()],
        };
        let locks = LockCounts { mutex, sites: vec![site], ..LockCounts::default() };
        let found = Found { locks, ..Found::default() };
        assert_eq!(
            judged(&entry("server_mutexes_max = 0"), found, "b.toml").excess,
            ["1 mutexes of the server per handshake are more than the budget of 0 (b.toml:1, \
              \"a\")\n  1 mutexes of cache (program)\n    taken in lookup (program)\n      called \
              by serve (program)"]
        );
    }
}
