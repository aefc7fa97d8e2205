//! What each reader makes of a value, and what it says if it is wrong.

use std::path::Path;
use std::time::Duration;

use super::Table;
use super::document::MISTAKES_MAX;
use crate::key::{
    Bool, Bytes, Choice, Count, FileKeys, Group, Key, PathKind, Set, Span, TableKind,
};
use crate::mistake::Mistakes;

/// A file with the keys of `top`.
const fn keys(top: &'static Group) -> FileKeys {
    FileKeys { top, page: "docs/test.md" }
}

/// Files with one key, of any kind.
static ONE: FileKeys = keys(&Group::new("", "", &[&COUNT]));
static COUNT: Key<Count> = Key::new("k", Count(1..=8), "");
static FLAG: Key<Bool> = Key::new("k", Bool, "");
static SPAN: Key<Span> = Key::new("k", Span(Duration::from_secs(1)..=Duration::from_secs(60)), "");
static SIZE: Key<Bytes> = Key::new("k", Bytes(1024..=4096), "");
static PATH: Key<PathKind> = Key::new("k", PathKind, "");
static CHOICE: Key<Choice<usize>> = Key::new("k", Choice(&[("auto", 1), ("aws-lc", 2)]), "");
static SET: Key<Set<Count>> = Key::new("k", Set(Count(0..=9), 3), "");
static TABLE: Key<TableKind> = Key::new("k", TableKind(&Group::new("k", "", &[&NUMBER])), "");
static NUMBER: Key<Count> = Key::new("n", Count(0..=9), "");

/// Files with the table `web`, and one key above it.
static SITE: FileKeys = keys(&Group::new("", "", &[&LANES, &WEB]));
static LANES: Key<Count> = Key::new("lanes", Count(0..=9), "");
static WEB: Key<TableKind> = Key::new("web", TableKind(&Group::new("web", "", &[&PORT])), "");
static PORT: Key<Count> = Key::new("port", Count(0..=9), "");

fn read<T>(
    file: &Path,
    text: &str,
    keys: &FileKeys,
    walk: impl FnOnce(&Table<'_>) -> Option<T>,
) -> Result<T, Mistakes> {
    let (value, mistakes) = super::read(file, text, keys, walk);
    value.filter(|_| mistakes.is_empty()).ok_or(Mistakes(mistakes))
}

type Walk = fn(&Table<'_>) -> Option<String>;

/// Each case: how a file is read, the file, and what comes out: the value, or what is said.
fn check(cases: &[(Walk, &str, &str)]) {
    for (walk, text, expected) in cases {
        let outcome = match read(Path::new("f.toml"), text, &ONE, walk) {
            Ok(value) => value,
            Err(mistakes) => mistakes.to_string(),
        };
        assert_eq!(outcome, *expected, "{text:?}");
    }
}

#[test]
fn numbers_and_booleans() {
    let count: Walk = |t| t.read(&COUNT).map(|n| n.to_string());
    let boolean: Walk = |t| t.read(&FLAG).map(|b| b.to_string());
    check(&[
        (count, "k = 8", "8"),
        (count, "k = 0x8", "8"),
        (count, "k = 9", "f.toml:1:5: k: 9 is out of range; choose 1 to 8"),
        (count, "k = -1", "f.toml:1:5: k: -1 is out of range; choose 1 to 8"),
        (count, "k = 1_000", "f.toml:1:5: k: 1_000 is out of range; choose 1 to 8"),
        (
            count,
            "k = \"8\"",
            "f.toml:1:5: k: expected a whole number, found a string; write digits only, without \
             quotes",
        ),
        (
            count,
            "k = 1.5",
            "f.toml:1:5: k: expected a whole number, found a fraction; write digits only, without \
             quotes",
        ),
        (boolean, "k = true", "true"),
        (
            boolean,
            "k = \"yes\"",
            "f.toml:1:5: k: expected true or false, found a string; write it without quotes",
        ),
    ]);
}

#[test]
fn text_in_quotes() {
    let duration: Walk = |t| t.read(&SPAN).map(|d| format!("{d:?}"));
    let size: Walk = |t| t.read(&SIZE).map(|n| n.to_string());
    let path: Walk = |t| t.read(&PATH).map(|p| p.display().to_string());
    let choice: Walk = |t| t.read(&CHOICE).map(|n| n.to_string());
    check(&[
        (duration, "k = \"2s\"", "2s"),
        (duration, "k = \"2m\"", "f.toml:1:5: k: \"2m\" is out of range; choose \"1s\" to \"1m\""),
        (
            duration,
            "k = 10",
            "f.toml:1:5: k: expected a string, found a number; write it in quotes with a unit, \
             such as \"10s\"",
        ),
        (size, "k = \"2KiB\"", "2048"),
        (size, "k = \"1B\"", "f.toml:1:5: k: \"1B\" is out of range; choose \"1KiB\" to \"4KiB\""),
        (path, "k = \"/a\"", "/a"),
        (path, "k = \"a\"", "a"),
        (path, "k = \"\"", "f.toml:1:5: k: the path is empty; write a path or remove the key"),
        (choice, "k = \"aws-lc\"", "2"),
        (
            choice,
            "k = \"AWS_LC\"",
            "f.toml:1:5: k: \"AWS_LC\" is not a choice; choose \"auto\" or \"aws-lc\"",
        ),
    ]);
}

#[test]
fn tables_and_lists() {
    let table: Walk = |t| t.subtable(&TABLE, |t| t.read(&NUMBER)).map(|n| n.to_string());
    let set: Walk = |t| t.read(&SET).map(|v| format!("{v:?}"));
    let required: Walk =
        |t| t.required(&COUNT, "k = 1").and_then(|k| COUNT.read(&k)).map(|n| n.to_string());
    check(&[
        (table, "[k]\nn = 3", "3"),
        (table, "k.n = 3", "3"),
        (
            table,
            "[k]\nn = 3\nm = 1",
            "f.toml:3:1: k.m: is not a known key; remove it; known here: n (docs/test.md#k)",
        ),
        (
            table,
            "k = 1",
            "f.toml:1:5: k: expected a table, found a number; write [k] above its keys",
        ),
        (
            table,
            "[[k]]\nn = 1",
            "f.toml:1:1: k: expected one table, found a list; write [k] in single brackets, once",
        ),
        (set, "k = [3, 1]", "[3, 1]"),
        (set, "k = [1,\n 1]", "f.toml:2:2: k[1]: 1 is written twice; remove one of the two"),
        (set, "k = []", "f.toml:1:5: k: the list is empty; write at least one or remove the key"),
        (set, "k = [1, 2, 3, 4]", "f.toml:1:5: k: the list has 4 elements; write at most 3"),
        (
            set,
            "k = 1",
            "f.toml:1:5: k: expected a list, found a number; write it in brackets: [...]",
        ),
        (required, "", "f.toml:1:1: k: is missing; add k = 1"),
        (
            required,
            "unrelated = 1\nk = 1",
            "f.toml:1:1: unrelated: is not a known key; remove it; known here: k \
             (docs/test.md#top)",
        ),
        (
            required,
            "ke = 1\nk = 1",
            "f.toml:1:1: ke: is not a known key; remove it; known here: k (docs/test.md#top)",
        ),
    ]);
}

#[test]
fn relative_paths_start_at_the_file() {
    let read = |text| read(Path::new("/etc/sealane/f.toml"), text, &ONE, |t| t.read(&PATH));
    assert_eq!(read("k = \"a/b\"").unwrap(), Path::new("/etc/sealane/a/b"));
    assert_eq!(read("k = \"/a/b\"").unwrap(), Path::new("/a/b"));
}

/// Columns are characters, not bytes.
#[test]
fn positions_after_wide_characters() {
    let text = "# é\nweb = { \"é\" = 1, port = true }";
    let walk = |t: &Table<'_>| t.subtable(&WEB, |t| t.read(&PORT));
    let mistakes = read(Path::new("f"), text, &SITE, walk).unwrap_err();
    assert_eq!(
        mistakes.to_string(),
        "f:2:9: web.é: is not a known key; remove it; known here: port (docs/test.md#web)\n\
         f:2:25: web.port: expected a whole number, found true or false; write digits only, \
         without quotes"
    );
}

/// A broken line is reported once, and nothing that only follows from it.
#[test]
fn syntax_errors_hide_what_follows_from_them() {
    static A: Key<Bool> = Key::new("a", Bool, "");
    static B: Key<Bool> = Key::new("b", Bool, "");
    static C: Key<Count> = Key::new("c", Count(0..=9), "");
    static THREE: FileKeys = keys(&Group::new("", "", &[&A, &B, &C]));
    let text = "a = \nb b = 3\nc = 99\nc = 3\n[d\n";
    let mistakes = read(Path::new("f"), text, &THREE, |t| {
        let _ = (t.required(&A, ""), t.required(&B, ""), t.read(&C));
        Some(())
    })
    .unwrap_err();
    let places: Vec<_> =
        mistakes.0.iter().map(|m| m.place.as_ref().unwrap().line.unwrap()).collect();
    assert_eq!(places, [1, 2, 3, 4, 5], "{mistakes}");
    assert!(
        mistakes.to_string().contains("f:4:1: duplicate key; keep one of the two"),
        "{mistakes}"
    );
}

#[test]
fn mistakes_are_bounded() {
    let unknown: String = (0..MISTAKES_MAX + 20).map(|n| format!("key{n} = 1\n")).collect();
    let text = format!("k = 1\n{unknown}");
    let mistakes = read(Path::new("f"), &text, &ONE, |t| t.read(&COUNT)).unwrap_err();
    assert_eq!(mistakes.0.len(), MISTAKES_MAX + 1);
    let last = mistakes.0.last().unwrap().to_string();
    assert_eq!(last, "f: 20 more mistakes are not shown; correct these first");
}

/// The error for a key of the file below a table has its right place; many keys are not listed.
#[test]
fn misplaced_and_foreign_keys() {
    const fn flag(name: &'static str) -> Key<Bool> {
        Key::new(name, Bool, "")
    }
    static KEYS: [Key<Bool>; 9] = [
        flag("a1"),
        flag("b1"),
        flag("c1"),
        flag("d1"),
        flag("e1"),
        flag("f1"),
        flag("g1"),
        flag("h1"),
        flag("back_tls"),
    ];
    static MANY: Group = Group::new(
        "web",
        "",
        &[&KEYS[0], &KEYS[1], &KEYS[2], &KEYS[3], &KEYS[4], &KEYS[5], &KEYS[6], &KEYS[7], &KEYS[8]],
    );
    static TABLE: Key<TableKind> = Key::new("web", TableKind(&MANY), "");
    static FILE: FileKeys = keys(&Group::new("", "", &[&LANES, &TABLE]));
    let read = |text: &str| {
        let walk = |t: &Table<'_>| t.subtable(&TABLE, |_| Some(()));
        let mistakes = super::read(Path::new("f"), text, &FILE, walk).1;
        mistakes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        read("[web]\nlanes = 2"),
        ["f:2:1: web.lanes: is a key of the file, not of this table; move it above the first \
          [table]"]
    );
    assert_eq!(
        read("[web]\ntls = 2"),
        ["f:2:1: web.tls: is not a known key; did you mean \"back_tls\"? see \
          docs/test.md#web.back_tls"]
    );
    assert_eq!(
        read("[web]\nzzzzz = 2"),
        ["f:2:1: web.zzzzz: is not a known key; remove it; all keys: docs/test.md#web"]
    );
}

/// A file without a known key may be any file, also one with secrets.
#[test]
fn keys_of_another_file_are_not_quoted() {
    let told = |text: &str| {
        let walk = |t: &Table<'_>| t.subtable(&WEB, |_| Some(()));
        read(Path::new("f"), text, &SITE, walk).unwrap_err().to_string()
    };
    let foreign = "f:1:1: has no key of a configuration; name a configuration; all keys: \
                   /usr/share/doc/sealane/examples";
    assert_eq!(told("SECRET = 1\n[SECRET2]\na = 1\n"), foreign);
    assert_eq!(told("\"SECRET\" = \"SECRET\""), foreign);
    assert!(told("SECRET = 1\nb c\n").lines().count() == 2);
    assert!(told("other = 1\n[wbe]").contains("f:1:1: other: is not a known key"));
    assert!(told("other = 1\n[web]").contains("f:1:1: other: is not a known key"));
    for text in
        ["SECRET\n", "SECRET SECRET\n", "SECRET=SECRET\nSECRET==\n", "[SECRET\n", "{SECRET: 1}"]
    {
        assert!(!told(text).contains("SECRET"), "{}", told(text));
    }
}

/// The parser takes keys below a broken header for those of the table above it.
#[test]
fn keys_below_a_broken_header() {
    let told = |text: &str| {
        let walk = |t: &Table<'_>| t.subtable(&WEB, |t| t.read(&PORT)).or(Some(0));
        read(Path::new("f"), text, &SITE, walk).unwrap_err().to_string()
    };
    for text in ["[[listener]\naddress = 1\n", "[web]\nport = 1\n[[listener]\naddress = 1\n"] {
        let told = told(text);
        assert!(told.lines().count() == 1 && told.contains("write KEY = VALUE"), "{told}");
    }
}

/// A key that is nearly a known one names that one.
#[test]
fn misspelt_keys() {
    static ALPN: Key<Bool> = Key::new("alpn", Bool, "");
    static IDLE: Key<Bool> = Key::new("idle_timeout", Bool, "");
    static TWO: FileKeys = keys(&Group::new("", "", &[&ALPN, &IDLE]));
    for (written, meant) in [
        ("idle_timeot", "idle_timeout"),
        ("idle-timeout", "idle_timeout"),
        ("IdleTimeout", "idle_timeout"),
        ("alnp", "alpn"),
    ] {
        let text = format!("{written} = 1");
        let mistakes = read(Path::new("f"), &text, &TWO, |_| Some(())).unwrap_err();
        let known = format!("did you mean {meant:?}? see docs/test.md#{meant}");
        assert_eq!(mistakes.to_string(), format!("f:1:1: {written}: is not a known key; {known}"));
    }
}
