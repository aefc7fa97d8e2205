//! The file of a gate: [`Budget`], read from TOML with all its mistakes told at once.

use std::{fs, path::Path};

use sealane_lab_model::scenario::{Kind, Scenario, Version};
use toml::de::DeTable;

use crate::{
    count::{BULK_UNIT, Connections, Counted, Load, ProxyHeader, Server},
    gate::reader::{Mistakes, Table},
};

/// What must not be exceeded.
pub(super) struct Budget {
    pub(super) entries: Vec<Entry>,
}

/// One stack, server or test, and its limits.
pub(super) struct Entry {
    pub(super) name: String,
    /// Where it stands in the file.
    pub(super) line: usize,
    pub(super) subject: Subject,
    pub(super) limits: Vec<Limit>,
    /// The shared lines that may be written; if there are none, any may.
    pub(super) allowed: Vec<Allowed>,
}

/// What is counted.
pub(super) enum Subject {
    Server(Server),
    Stack(Stack),
    Test(Test),
}

impl Subject {
    /// The side's word in the file.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Server(_) => "server",
            Self::Stack(_) => "stack",
            Self::Test(_) => "test",
        }
    }

    /// What its figures are divided by.
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Self::Server(server) => server.each.load.unit().0,
            Self::Stack(stack) if stack.is_bulk => BULK_UNIT,
            Self::Stack(_) => "handshake",
            Self::Test(_) => "operation",
        }
    }
}

/// A TLS stack, in memory.
pub(super) struct Stack {
    /// A name of `stacks`, or a path.
    pub(super) stack: String,
    pub(super) scenario: Scenario,
    /// Whether a MiB is counted, not a handshake.
    pub(super) is_bulk: bool,
    /// Handshakes, or MiB, per thread in a memory trace.
    pub(super) handshakes: u64,
    /// Whether a fault is committed afterwards, which must exceed the limits.
    pub(super) prove: bool,
}

/// A program that does as many operations as it is told.
pub(super) struct Test {
    /// The binary's path, where `*` in the file's name stands for anything: the newest.
    pub(super) binary: String,
    pub(super) arguments: Vec<String>,
    /// In the shortest run; the others do twice and three times as many.
    pub(super) operations: u64,
}

/// One figure and the most that it may be.
#[derive(Clone)]
pub(super) struct Limit {
    pub(super) figure: Figure,
    /// Whether a stack's side is the client's.
    pub(super) of_client: bool,
    pub(super) max: f64,
    /// By how many percent more may be counted.
    pub(super) tolerance_percent: f64,
}

/// What can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Instructions,
    Mutexes,
    ReadLocks,
    /// Calls that write a file table which several threads share, by the kernel's word.
    TableWrites,
    WriteLocks,
    Writes,
}

impl Figure {
    /// In a table.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Mutexes => "mutexes",
            Self::ReadLocks => "read locks",
            Self::TableWrites => "writes of a shared file table",
            Self::WriteLocks => "write locks",
            Self::Writes => "shared writes",
        }
    }

    pub(super) fn is_lock(self) -> bool {
        matches!(self, Self::Mutexes | Self::ReadLocks | Self::WriteLocks)
    }
}

/// One shared line that is known.
pub(super) struct Allowed {
    /// What its name contains.
    pub(super) symbol: String,
    /// Whose it is, and why it is written.
    pub(super) owner: String,
    /// What would remove it.
    pub(super) removal: String,
}

impl Budget {
    /// # Errors
    /// Everything that is wrong with it, one mistake per line.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let file = path.display().to_string();
        let text = match fs::metadata(path) {
            Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
                return Err(format!("{file}: more than {FILE_BYTES_MAX} bytes are no budget"));
            }
            _ => fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?,
        };
        Self::parse(&file, &text)
    }

    pub(super) fn parse(file: &str, text: &str) -> Result<Self, String> {
        let mistakes = Mistakes::of(file, text);
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let offset = error.span().map_or(text.len(), |span| span.start);
            mistakes.note(offset, format!("no TOML: {}", error.message()));
        }
        // What else is wrong then may only seem so.
        if let Some(told) = mistakes.told() {
            return Err(told);
        }
        let mut table = Table::new("the file", 0, root.get_ref(), &mistakes);
        let mut entries = Vec::new();
        for (field, read) in [
            ("stack", stack as fn(&mut Table<'_>) -> Subject),
            ("server", server as fn(&mut Table<'_>) -> Subject),
            ("test", test as fn(&mut Table<'_>) -> Subject),
        ] {
            let tables = table.tables(field);
            entries.extend(tables.into_iter().map(|table| entry(table, field, read)));
        }
        entries.sort_by_key(|entry: &Entry| entry.line);
        if entries.is_empty() {
            table.note("nothing is limited: give at least one [[stack]], [[server]] or [[test]]");
        }
        table.end();
        for (at, entry) in entries.iter().enumerate() {
            if let Some(first) = entries[..at].iter().find(|other| other.name == entry.name) {
                let what = format!("the name {:?} is taken by line {}", entry.name, first.line);
                mistakes.note(line_start(text, entry.line), what);
            }
        }
        match mistakes.told() {
            Some(told) => Err(told),
            None => Ok(Self { entries }),
        }
    }
}

fn line_start(text: &str, line: usize) -> usize {
    text.split_inclusive('\n').take(line - 1).map(str::len).sum()
}

fn entry(mut table: Table<'_>, field: &str, read: fn(&mut Table<'_>) -> Subject) -> Entry {
    let name = table.text("name");
    if !name.is_empty() {
        table.rename(format!("[[{field}]] {name:?}"));
    }
    let mut subject = read(&mut table);
    if let Subject::Server(server) = &mut subject {
        server.name.clone_from(&name);
    }
    let limits = limits(&mut table, &subject);
    let allowed = table.tables("line").into_iter().map(allowed).collect();
    let line = table.line();
    table.end();
    Entry { name, line, subject, limits, allowed }
}

fn allowed(mut table: Table<'_>) -> Allowed {
    let allowed = Allowed {
        symbol: table.text("symbol"),
        owner: table.text("owner"),
        removal: table.text("removal"),
    };
    table.end();
    allowed
}

fn limits(table: &mut Table<'_>, subject: &Subject) -> Vec<Limit> {
    let has_sides = matches!(subject, Subject::Stack(_));
    let tolerance = table.figure(TOLERANCE);
    let mut limits = Vec::new();
    for (of_client, fields) in
        if has_sides { &[(false, SERVER), (true, CLIENT)][..] } else { &[(false, ONE_SIDE)] }
    {
        for (figure, field) in FIGURES.into_iter().zip(fields) {
            if let Some(max) = table.figure(field) {
                let tolerance_percent = match figure {
                    Figure::Instructions => tolerance.unwrap_or(TOLERANCE_PERCENT),
                    _ => 0.0,
                };
                limits.push(Limit { figure, of_client: *of_client, max, tolerance_percent });
            }
        }
    }
    // Of others, the lab is half of what would be counted.
    if let Subject::Server(_) = subject
        && let Some(max) = table.figure(TABLE_WRITES)
    {
        let figure = Figure::TableWrites;
        limits.push(Limit { figure, of_client: false, max, tolerance_percent: 0.0 });
    }
    if limits.is_empty() {
        table.note(&format!(
            "no limit is given; {} would be one",
            if has_sides { SERVER[0] } else { ONE_SIDE[0] }
        ));
    }
    if tolerance.is_some() && !limits.iter().any(|limit| limit.figure == Figure::Instructions) {
        table.note_at(TOLERANCE, "is for instructions, which have no limit here");
    }
    limits
}

fn stack(table: &mut Table<'_>) -> Subject {
    let stack = table.text("stack");
    let (scenario, is_bulk) = scenario(table);
    if let Err(error) = scenario.exists() {
        table.note(&error.to_string());
    }
    Subject::Stack(Stack {
        stack,
        scenario,
        is_bulk,
        handshakes: table.count("handshakes", 1..=50, HANDSHAKES),
        prove: table.is_set("prove"),
    })
}

fn server(table: &mut Table<'_>) -> Subject {
    let command = table.texts("command");
    if command.first().is_none_or(String::is_empty) {
        table.note_at("command", "is missing: the program and its arguments, a list of texts");
    }
    let prepare = table.texts("prepare");
    let files = table.texts_by_name("files");
    if files.keys().any(|name| name.contains('/') || name.starts_with('.')) {
        table.note_at("files", "has names of files without a folder");
    }
    let scenario = Scenario {
        kind: table.choice("kind", Kind::Full),
        version: table.choice("version", Version::Tls13),
        key: table.choice("key", Scenario::default().key),
        group: table.choice("group", Scenario::default().group),
        client_certificate: table.is_set("client_certificate"),
        ..Scenario::default()
    };
    if scenario.version != Version::Tls13 || scenario.kind == Kind::SessionId {
        table.note("the client that loads servers does TLS 1.3, full or with tickets");
    }
    let names = table.count("names", 1..=NAMES_MAX, 0);
    if names > 0 && scenario.kind == Kind::Ticket {
        table.note_at("names", "is for full handshakes: a ticket is of one name");
    }
    if names > 0 && scenario.key != Scenario::default().key {
        table.note_at("names", "have certificates with P-256 keys");
    }
    Subject::Server(Server {
        name: String::new(),
        command,
        files,
        prepare,
        names,
        scenario,
        connections: table.count("connections", 2..=1_000, CONNECTIONS),
        each: Connections {
            load: table.choice("load", Load::Handshake),
            proxy_header: table.choice("proxy_header", ProxyHeader::Off),
            at_once: table.count("at_once", 1..=16, AT_ONCE),
        },
    })
}

fn test(table: &mut Table<'_>) -> Subject {
    let binary = table.text("binary");
    if binary.rsplit_once('/').is_some_and(|(folder, _)| folder.contains('*')) {
        table.note_at("binary", "may have `*` in the file's name only, not in its folders");
    }
    Subject::Test(Test {
        binary,
        arguments: table.texts("arguments"),
        operations: table.count("operations", 1..=100_000_000, OPERATIONS),
    })
}

/// What the file does not say is as in `count`; and whether bytes are counted.
fn scenario(table: &mut Table<'_>) -> (Scenario, bool) {
    let (usual, kind) = (Scenario::default(), table.choice("kind", Counted::Full));
    let scenario = Scenario {
        kind: kind.of_handshake(),
        version: table.choice("version", usual.version),
        cipher: table.choice("cipher", usual.cipher),
        group: table.choice("group", usual.group),
        key: table.choice("key", usual.key),
        client_certificate: table.is_set("client_certificate"),
        chain: u8::try_from(table.count("chain", 1..=3, usual.chain.into())).unwrap_or(usual.chain),
        tickets: u8::try_from(table.count("tickets", 0..=8, usual.tickets.into()))
            .unwrap_or(usual.tickets),
        share: table.choice("share", usual.share),
    };
    (scenario, kind == Counted::Bulk)
}

const AT_ONCE: u64 = 2;
const CONNECTIONS: u64 = 8;
const FIGURES: [Figure; 5] =
    [Figure::Writes, Figure::ReadLocks, Figure::WriteLocks, Figure::Mutexes, Figure::Instructions];
const CLIENT: [&str; 5] = [
    "client_writes_max",
    "client_read_locks_max",
    "client_write_locks_max",
    "client_mutexes_max",
    "client_instructions_max",
];
const FILE_BYTES_MAX: u64 = 1 << 20;
const HANDSHAKES: u64 = 2;
const NAMES_MAX: u64 = 1_000;
const ONE_SIDE: [&str; 5] =
    ["writes_max", "read_locks_max", "write_locks_max", "mutexes_max", "instructions_max"];
const OPERATIONS: u64 = 1_000;
const SERVER: [&str; 5] = [
    "server_writes_max",
    "server_read_locks_max",
    "server_write_locks_max",
    "server_mutexes_max",
    "server_instructions_max",
];
const TABLE_WRITES: &str = "shared_table_writes_max";
const TOLERANCE: &str = "instructions_tolerance_percent";
/// Random bytes decide how long some computations are.
const TOLERANCE_PERCENT: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mistakes_are_told_at_once_with_their_lines() {
        let text = r#"
stacks = "sealane"
[[stack]]
name = "a"
stack = "openssl"
kind = "fast"
server_writes_max = -1

[[stack.line]]
symbol = "x"
removed = "never"

[[test]]
name = "a"
binary = 7
writes = 0

[[server]]
command = []
connections = 1
instructions_tolerance_percent = 2
kind = "ticket"
names = 2
writes_max = 0
files = { "a/b" = "c" }
"#;
        let told = Budget::parse("b.toml", text).err().expect("mistakes");
        let expected = "\
b.toml:2: the file: stacks is no field; fields: stack, server, test
b.toml:3: [[stack]] \"a\": no limit is given; server_writes_max would be one
b.toml:6: [[stack]] \"a\": kind is one of \"bulk\", \"full\", \"session-id\", \"ticket\"
b.toml:7: [[stack]] \"a\": server_writes_max is a number from 0 on
b.toml:9: [[line]] number 1: owner is missing
b.toml:9: [[line]] number 1: removal is missing
b.toml:11: [[line]] number 1: removed is no field; fields: symbol, owner, removal
b.toml:13: [[test]] \"a\": no limit is given; writes_max would be one
b.toml:13: the name \"a\" is taken by line 3
b.toml:15: [[test]] \"a\": binary is a text that is not empty
b.toml:16: [[test]] \"a\": writes is no field; fields: name, binary, arguments, operations, \
instructions_tolerance_percent, writes_max, read_locks_max, write_locks_max, mutexes_max, \
instructions_max, line
b.toml:18: [[server]] number 1: name is missing
b.toml:19: [[server]] number 1: command is missing: the program and its arguments, a list of texts
b.toml:20: [[server]] number 1: connections is a whole number from 2 to 1000
b.toml:21: [[server]] number 1: instructions_tolerance_percent is for instructions, which have no \
limit here
b.toml:23: [[server]] number 1: names is for full handshakes: a ticket is of one name
b.toml:25: [[server]] number 1: files has names of files without a folder";
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_no_toml_or_limits_nothing_is_refused() {
        let told = |text| Budget::parse("b.toml", text).err().expect("a mistake");
        assert!(told("[[stack]]\nname = \n").starts_with("b.toml:2: no TOML: "));
        assert_eq!(
            told(""),
            "b.toml:1: the file: nothing is limited: give at least one [[stack]], [[server]] or \
             [[test]]"
        );
    }

    #[test]
    fn the_example_of_a_site_is_a_budget() {
        let text = include_str!("../../../examples/gate-a-site/gate.toml");
        let budget = Budget::parse("gate.toml", text).unwrap_or_else(|told| panic!("{told}"));
        assert!(matches!(&budget.entries[0].subject, Subject::Server(server)
            if server.files.contains_key("nginx.conf")));
    }

    #[test]
    fn the_budgets_of_this_repository_are_some() {
        let text = include_str!("../../../budget-serve.toml");
        let budget = Budget::parse("serve.toml", text).unwrap_or_else(|told| panic!("{told}"));
        let shows = |entry: &Entry| {
            matches!(&entry.subject, Subject::Server(server) if server.scenario.client_certificate
                && server.each.proxy_header == ProxyHeader::V2)
        };
        assert_eq!(budget.entries.iter().filter(|entry| shows(entry)).count(), 2);
        for load in [Load::Bulk, Load::Request] {
            let with_tls = |entry: &Entry| match &entry.subject {
                Subject::Server(server) if server.each.load == load => {
                    Some(server.files.values().any(|file| file.contains("{backend_tls}")))
                }
                _ => None,
            };
            let backends: Vec<bool> = budget.entries.iter().filter_map(with_tls).collect();
            assert_eq!(backends, [false, true], "{load:?}, to a plain and to a TLS backend");
        }
        let of_bytes = |entry: &&Entry| match &entry.subject {
            Subject::Stack(stack) => stack.is_bulk && stack.prove,
            _ => false,
        };
        let of_bytes: Vec<&Entry> = budget.entries.iter().filter(of_bytes).collect();
        assert_eq!(of_bytes.len(), 1, "a MiB in memory, and that it can be exceeded");
        assert_eq!(of_bytes[0].subject.unit(), "MiB");
        let is_none = |limit: &Limit| limit.figure == Figure::Writes && limit.max <= 0.0;
        let all = budget.entries.iter().all(|entry| entry.limits.iter().any(is_none));
        assert!(all, "each holds shared writes to none");
        let text = include_str!("../../../budget.toml");
        let budget = Budget::parse("lab/budget.toml", text).unwrap_or_else(|told| panic!("{told}"));
        let names: Vec<_> = budget.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert!(names.contains(&"ECDSA P-256"), "{names:?}");
        let has_store = |entry: &Entry| match &entry.subject {
            Subject::Server(server) => server.files.values().any(|file| file.contains("store:")),
            Subject::Stack(_) | Subject::Test(_) => false,
        };
        let with_store: Vec<&Entry> = budget.entries.iter().filter(|it| has_store(it)).collect();
        assert!(with_store.iter().any(|entry| entry.limits.iter().any(is_none)), "of a store too");
        let proofs = budget
            .entries
            .iter()
            .filter(|entry| matches!(&entry.subject, Subject::Stack(stack) if stack.prove));
        assert_eq!(proofs.count(), 1);
    }
}
