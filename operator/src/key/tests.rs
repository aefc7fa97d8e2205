//! Declared keys: how they are read, and the texts that are written from them.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::reader::read_group;

static TOP: Group = Group::new("", "Keys of the file.", &[&COUNT, &MODE, &WAITS]);
static WAITS_GROUP: Group = Group::new("waits", "Times.", &[&LONGEST, &NONE]);
static COUNT: Key<Or<Count>> = Key::new("count", Or(Count(1..=8), 2), "How many.");
static MODE: Key<Choice<bool>> =
    Key::new("mode", Choice(&[("off", false), ("on", true)]), "The mode.").examples(&["\"on\""]);
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
    let (read, mistakes) = read_group(Path::new("f"), text, &TOP, |top| {
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
    let longest = "did you mean \"longest\"? see docs/configuration.md#waits.longest";
    assert_eq!(remedy("[waits]\nlongst = 1"), longest);
    let count = "did you mean \"count\"? see docs/configuration.md#count";
    assert_eq!(remedy("cuont = 1\nmode = \"on\""), count);
    let all = "remove it; known here: longest, none (docs/configuration.md#waits)";
    assert_eq!(remedy("[waits]\nzzzzzz = 1"), all);
}

#[test]
fn page_has_type_default_and_change() {
    let page = page(&TOP);
    for expected in [
        "- [[waits]](#waits)\n",
        "<a id=\"waits.longest\"></a>\n\n### longest\n\nThe longest wait.\n\n\
         - Type: duration from \"0s\" to \"1m\"\n- Default: `\"2s\"`\n\
         - A change takes effect at the next start\n\n```toml\nlongest = \"2s\"\n```\n",
        "Tables: [waits](#waits).",
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
}

#[test]
fn schema_of_a_group_has_its_keys_alone() {
    let schema = schema(&TOP, "Test");
    assert_eq!(schema["properties"]["count"]["maximum"], 8);
    assert_eq!(schema["properties"]["mode"]["enum"], json!(["off", "on"]));
    let waits = &schema["properties"]["waits"];
    assert_eq!(waits["additionalProperties"], false);
    assert_eq!(waits["properties"]["none"]["anyOf"][0]["const"], "off");
}

#[test]
fn long_lines_are_wrapped() {
    let text = "word ".repeat(30);
    let lines = wrapped(&text, "# ", "# ");
    assert!(lines.lines().all(|line| line.len() <= 100 && line.starts_with("# word")), "{lines}");
}
