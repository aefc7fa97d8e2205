//! Declared keys: how they are read, and the texts that are written from them.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::reader;

static KEYS: FileKeys = FileKeys { top: &TOP, page: "docs/test.md" };
static TOP: Group = Group::new("", "Keys of the file.", &[&COUNT, &MODE, &WAITS, &ALL]);
static WAITS_GROUP: Group = Group::new("waits", "Times.", &[&LONGEST, &NONE]);
static COUNT: Key<Or<Count>> = Key::new("count", Or(Count(1..=8), 2), "How many.");
static MODE: Key<Choice<bool>> =
    Key::new("mode", Choice(&[("off", false), ("on", true)]), "The mode.").examples(&["\"on\""]);
static TWO: Key<Count> = Key::new("k", Count(1..=8), "One of two.").examples(&["1", "2"]);
static TWO_TOP: Group = Group::new("", "Keys.", &[&TWO]);
static ALL: Key<TableKind> = Key::new("all", TableKind(&ALL_GROUP), "");
static ALL_GROUP: Group = Group::new("all", "All.", &[&COUNT]).restart();
static WAITS: Key<TableKind> = Key::new("waits", TableKind(&WAITS_GROUP), "");
static LONGEST: Key<Or<Span>> = Key::new(
    "longest",
    Or(Span(Duration::ZERO..=Duration::from_mins(1)), Duration::from_secs(2)),
    "The longest wait.",
)
.restart();
static NONE: Key<Or<Either<Word, Span>>> = Key::new(
    "none",
    Or(Either(Word("off"), Span(Duration::ZERO..=Duration::from_mins(1))), None),
    "A wait that can be off.",
);

/// What is read from a file, and the mistakes in it.
fn read(text: &str) -> (usize, Option<bool>, Duration, Option<Duration>, Vec<String>) {
    let (read, mistakes) = reader::read(Path::new("f"), text, &KEYS, |top| {
        let waits = top.subtable(&WAITS, |table| Some((table.get(&LONGEST), table.get(&NONE))));
        let (longest, none) = waits.unwrap_or_else(|| (LONGEST.default(), NONE.default()));
        Some((top.get(&COUNT), top.read(&MODE), longest, none))
    });
    let (count, mode, longest, none) = read.unwrap();
    (count, mode, longest, none, mistakes.iter().map(ToString::to_string).collect())
}

#[test]
fn declared_keys_are_read_with_bounds_and_defaults() {
    let s = Duration::from_secs;
    assert_eq!(read(""), (2, None, s(2), None, vec![]));
    let text = "count = 3\nmode = \"on\"\n[waits]\nlongest = \"1s\"\nnone = \"5s\"";
    assert_eq!(read(text), (3, Some(true), s(1), Some(s(5)), vec![]));
    let (count, .., mistakes) = read("count = 9\n[waits]\nlongest = \"2m\"");
    assert_eq!(count, 2);
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    assert!(mistakes[0].contains("count: 9 is out of range; choose 1 to 8"), "{mistakes:?}");
}

#[test]
fn unknown_key_names_the_closest_and_its_section() {
    let remedy = |text: &str| {
        let (.., mistakes) = read(text);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        mistakes[0].split_once("known key; ").unwrap().1.to_owned()
    };
    let longest = "did you mean \"longest\"? see docs/test.md#waits.longest";
    assert_eq!(remedy("[waits]\nlongst = 1"), longest);
    let count = "did you mean \"count\"? see docs/test.md#count";
    assert_eq!(remedy("cuont = 1\nmode = \"on\""), count);
    let all = "remove it; known here: longest, none (docs/test.md#waits)";
    assert_eq!(remedy("[waits]\nzzzzzz = 1"), all);
}

#[test]
fn page_has_type_default_and_change() {
    let page = page(&TOP);
    for expected in [
        "keys need a restart. A reload is enough for all other keys.\n\n\
         - [waits.longest](#waits.longest)\n- all keys of [all](#all)\n",
        "- [[waits]](#waits)\n",
        "<a id=\"waits.longest\"></a>\n\n### longest\n\nThe longest wait.\n\n\
         - Type: duration from \"0s\" to \"1m\"\n- Default: `\"2s\"`\n\
         - A change takes effect at the next start\n\n```toml\nlongest = \"2s\"\n```\n",
        "Tables: [waits](#waits), [all](#all).",
        "<a id=\"all.count\"></a>\n\n### count\n\nHow many.\n\n- Type: number from 1 to 8\n\
         - Default: `2`\n- A change takes effect at the next start\n",
    ] {
        assert!(page.contains(expected), "{expected}\n{page}");
    }
}

#[test]
fn example_comments_out_values_that_are_no_default() {
    assert_eq!(in_example(&COUNT, false), "# How many. Number from 1 to 8.\ncount = 2\n");
    let mode = "# The mode. \"off\" or \"on\".\n";
    assert_eq!(in_example(&MODE, false), format!("{mode}# mode = \"on\"\n"));
    assert_eq!(in_example(&MODE, true), format!("{mode}mode = \"on\"\n"));
    let both = "# One of two. Number from 1 to 8.\n# k = 1\n# or:\n#   k = 2\n";
    assert_eq!(in_example(&TWO, false), both);
    assert!(page(&TWO_TOP).contains("```toml\nk = 1\n# or:\nk = 2\n```\n"));
}

#[test]
fn schema_of_a_group_has_its_keys_alone() {
    let schema = KEYS.schema("Test");
    assert_eq!(schema["properties"]["count"]["maximum"], 8);
    assert_eq!(schema["properties"]["count"]["default"], 2);
    assert!(schema["properties"]["mode"].get("default").is_none());
    assert_eq!(schema["properties"]["mode"]["enum"], json!(["off", "on"]));
    let waits = &schema["properties"]["waits"];
    assert_eq!(waits["additionalProperties"], false);
    assert_eq!(waits["properties"]["none"]["anyOf"][0]["const"], "off");
    assert_eq!(waits["properties"]["none"]["default"], "off");
    assert_eq!(waits["properties"]["longest"]["default"], "2s");
}

#[test]
fn files_that_differ_name_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.md");
    std::fs::write(&file, "a\nb\n").unwrap();
    assert_eq!(write_or_compare(&file, "a\nb\n"), Ok(()));
    let differs = write_or_compare(&file, "a\nc\n").unwrap_err();
    assert!(differs.contains("page.md differs from the keys in line 2; write it"), "{differs}");
}

#[test]
fn links_and_texts_of_keys_are_checked() {
    static LINKED: Key<Bool> = Key::new("linked", Bool, "No sentence").see(&["nothing"]);
    static GROUP: Group = Group::new("", "Keys.", &[&LINKED, &LINKED]);
    assert_eq!(broken_links(&TOP), Vec::<String>::new());
    assert_eq!(broken_links(&GROUP), ["linked twice", "linked: nothing", "linked: nothing"]);
    assert_eq!(incomplete_keys(&TOP), Vec::<String>::new());
    assert_eq!(incomplete_keys(&GROUP), ["linked", "linked"]);
}

#[test]
fn long_lines_are_wrapped() {
    let text = "word ".repeat(30);
    let lines = wrapped(&text, "# ", "# ");
    assert!(lines.lines().all(|line| line.len() <= 100 && line.starts_with("# word")), "{lines}");
}
