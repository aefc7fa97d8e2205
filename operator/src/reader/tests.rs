//! What each reader makes of a value, and what it says if it is wrong.

use std::path::Path;
use std::time::Duration;

use super::Table;
use super::document::MISTAKES_MAX;
use crate::mistake::Mistakes;

fn read<T>(
    file: &Path,
    text: &str,
    walk: impl FnOnce(&mut Table<'_>) -> Option<T>,
) -> Result<T, Mistakes> {
    let (value, mistakes) = super::read(file, text, walk);
    value.filter(|_| mistakes.is_empty()).ok_or(Mistakes(mistakes))
}

type Walk = fn(&mut Table<'_>) -> Option<String>;

/// Each case: how a file is read, the file, and what comes out: the value, or what is said.
fn check(cases: &[(Walk, &str, &str)]) {
    for (walk, text, expected) in cases {
        let outcome = match read(Path::new("f.toml"), text, walk) {
            Ok(value) => value,
            Err(mistakes) => mistakes.to_string(),
        };
        assert_eq!(outcome, *expected, "{text:?}");
    }
}

#[test]
fn numbers_and_booleans() {
    let count: Walk = |t| t.count("k", 1..=8).map(|n| n.to_string());
    let boolean: Walk = |t| t.boolean("k").map(|b| b.to_string());
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
    let duration: Walk = |t| {
        let range = Duration::from_secs(1)..=Duration::from_secs(60);
        t.duration("k", range).map(|d| format!("{d:?}"))
    };
    let size: Walk = |t| t.size_bytes("k", 1024..=4096).map(|n| n.to_string());
    let path: Walk = |t| t.value("k")?.path().map(|p| p.display().to_string());
    let choice: Walk =
        |t| t.value("k")?.choice(&[("auto", 1), ("aws-lc", 2)]).map(|n| n.to_string());
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
    let table: Walk = |t| t.table("k", |t| t.count("n", 0..=9)).map(|n| n.to_string());
    let set: Walk = |t| t.value("k")?.set(3, |v| v.count(0..=9)).map(|v| format!("{v:?}"));
    let required: Walk = |t| t.required("k", "k = 1")?.count(1..=8).map(|n| n.to_string());
    check(&[
        (table, "[k]\nn = 3", "3"),
        (table, "k.n = 3", "3"),
        (
            table,
            "[k]\nn = 3\nm = 1",
            "f.toml:3:1: k.m: is not a known key; remove it; known here: n",
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
            "f.toml:1:1: unrelated: is not a known key; remove it; known here: k",
        ),
        (required, "ke = 1\nk = 1", "f.toml:1:1: ke: is not a known key; remove it; known here: k"),
    ]);
}

#[test]
fn relative_paths_start_at_the_file() {
    let read = |text| read(Path::new("/etc/sealane/f.toml"), text, |t| t.value("k")?.path());
    assert_eq!(read("k = \"a/b\"").unwrap(), Path::new("/etc/sealane/a/b"));
    assert_eq!(read("k = \"/a/b\"").unwrap(), Path::new("/a/b"));
}

/// Columns are characters, not bytes.
#[test]
fn positions_after_wide_characters() {
    let mistakes = read(Path::new("f"), "# é\na = { \"é\" = 1, b = 2 }", |t| {
        t.table("a", |t| t.boolean("b"))
    })
    .unwrap_err();
    assert_eq!(
        mistakes.to_string(),
        "f:2:7: a.é: is not a known key; remove it; known here: b\n\
         f:2:20: a.b: expected true or false, found a number; write it without quotes"
    );
}

/// A broken line is reported once, and nothing that only follows from it.
#[test]
fn syntax_errors_hide_what_follows_from_them() {
    let text = "a = \nb b = 3\nc = 99\nc = 3\n[d\n";
    let mistakes = read(Path::new("f"), text, |t| {
        let _ = (t.required("a", ""), t.required("b", ""), t.count("c", 0..=9));
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
    let keys: String = (0..MISTAKES_MAX + 20).map(|n| format!("key{n} = 1\n")).collect();
    let text = format!("known = 1\n{keys}");
    let mistakes = read(Path::new("f"), &text, |t| t.value("known").map(drop)).unwrap_err();
    assert_eq!(mistakes.0.len(), MISTAKES_MAX + 1);
    let last = mistakes.0.last().unwrap().to_string();
    assert_eq!(last, "f: 20 more mistakes are not shown; correct these first");
}

/// The error for a key of the file below a table has its right place; many keys are not listed.
#[test]
fn misplaced_and_foreign_keys() {
    const KEYS: [&str; 10] = ["a1", "b1", "c1", "d1", "e1", "f1", "g1", "h1", "back_tls", "a1"];
    let read = |text: &str| {
        let mistakes = super::read(Path::new("f"), text, |t| {
            t.table("web", |t| {
                let _ = KEYS.map(|key| t.value(key));
                Some(())
            });
            t.count("lanes", 0..=9)
        });
        mistakes.1.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        read("[web]\nlanes = 2"),
        ["f:2:1: web.lanes: is a key of the file, not of this table; move it above the first \
          [table]"]
    );
    assert_eq!(
        read("[web]\ntls = 2"),
        ["f:2:1: web.tls: is not a known key; did you mean \"back_tls\"?"]
    );
    let unlike = "f:2:1: web.zzzzz: is not a known key; remove it; all keys: /usr/share/doc/";
    assert!(read("[web]\nzzzzz = 2")[0].starts_with(unlike));
    let twice = |t: &mut Table<'_>| {
        let _ = ["a1", "a1", "b1"].map(|key| t.value(key));
        Some(())
    };
    let mistakes = super::read(Path::new("f"), "a1 = 1\nzzzzz = 2", twice).1;
    let expected = "f:2:1: zzzzz: is not a known key; remove it; known here: a1, b1";
    assert_eq!(mistakes[0].to_string(), expected);
}

/// A file without a known key may be any file, also one with secrets.
#[test]
fn keys_of_another_file_are_not_quoted() {
    let told = |text: &str| {
        let mistakes = read(Path::new("f"), text, |t| t.table("web", |_| Some(()))).unwrap_err();
        mistakes.to_string()
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
        let mistakes = read(Path::new("f"), text, |t| {
            t.table("web", |t| t.value("port").map(|_| ()));
            Some(())
        });
        mistakes.unwrap_err().to_string()
    };
    for text in ["[[listener]\naddress = 1\n", "[web]\nport = 1\n[[listener]\naddress = 1\n"] {
        let told = told(text);
        assert!(told.lines().count() == 1 && told.contains("write KEY = VALUE"), "{told}");
    }
}

/// A key that is nearly a known one names that one.
#[test]
fn misspelt_keys() {
    for (written, meant) in [
        ("idle_timeot", "idle_timeout"),
        ("idle-timeout", "idle_timeout"),
        ("IdleTimeout", "idle_timeout"),
        ("alnp", "alpn"),
    ] {
        let text = format!("{written} = 1");
        let mistakes = read(Path::new("f"), &text, |t| {
            let _ = (t.value("alpn"), t.value("idle_timeout"));
            Some(())
        });
        let expected = format!("f:1:1: {written}: is not a known key; did you mean {meant:?}?");
        assert_eq!(mistakes.unwrap_err().to_string(), expected);
    }
}
