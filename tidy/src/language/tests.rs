//! Tests of the patterns with samples, and of the file of budgets.

use crate::{File, Finding, Language, Repository};

use super::{LANGUAGE_FILE, patterns};

#[test]
fn words_of_the_dialect_are_counted() {
    for (pattern, text) in [
        ("what", "What is served is logged."),
        ("what", "It keeps whatever is served."),
        ("said", "The backend is told."),
        ("said", "It says so."),
        ("who", "Whoever connects waits."),
        ("who", "A client whose name is known."),
        ("nobody", "Nobody's name."),
        ("idiom", "The file stands there."),
        ("idiom", "A key of its\nown."),
        ("idiom", "A key of\n/// their own."),
        ("idiom", "All but for one, anew."),
        ("idiom", "Seconds for so many bytes beside it."),
    ] {
        let comment = text.replace('\n', "\n/// ").replace("/// /// ", "/// ");
        let counts = rust(&format!("/// The end. {comment}\nfn f() {{}}\n"));
        assert!(counts.starts_with(pattern), "{text}: {counts}");
    }
    assert_eq!(rust("// Anew, beside, but for one. // told\n"), "said = 1, idiom = 3");
    assert_eq!(rust("/* Told. */ fn f() {} // Anew.\n"), "said = 1, idiom = 1");
}

#[test]
fn plain_words_are_free() {
    for text in [
        "Rejects a client that connects during a restart.",
        "Besides, so much for many a butler of its owner; somewhat essay, whole, standstill.",
        "`what` and [the page](said/who/nobody.md), `so\n/// many` and https://example.com/what/who",
        "An example:\n/// ```\n/// // what whoever said\n/// ```\n/// The end.",
    ] {
        assert_eq!(rust(&format!("/// {text}\nfn f() {{}}\n")), "", "{text}");
    }
    assert_eq!(rust("const TEXT: &str = \"// what whoever said\";\n"), "");
}

#[test]
fn doc_comment_begins_with_noun_or_verb() {
    assert_eq!(rust("//! How it ends.\n\n/// Which one.\nfn f() {}\n"), "question = 2");
    assert_eq!(rust("/** When it ends. */\nfn f() {}\n"), "question = 1");
    assert_eq!(rust("/// Whether it ended,\n/// which it may.\n// Why.\nfn f() {}\n"), "");
}

#[test]
fn type_name_has_a_noun() {
    for name in ["Given", "Refused", "LookedUp", "NotStored", "UnderWay", "There", "Waiting"] {
        assert!(patterns::has_no_noun(name), "{name}");
        assert_eq!(rust(&format!("pub(crate) struct {name};\n")), "type_name = 1");
    }
    for name in ["ConfigRevision", "KeptSockets", "QuotaReached", "Setting", "Seed", "T"] {
        assert_eq!(rust(&format!("pub enum {name} {{}}\n")), "", "{name}");
    }
    assert_eq!(rust("fn given() -> Given { Given }\n// struct Given;\n"), "");
}

#[test]
fn test_name_is_short() {
    let test = |letters: usize| format!("#[test]\nfn {}() {{}}\n", "a".repeat(letters));
    assert_eq!(rust(&test(46)), "test_name = 1");
    assert_eq!(rust(&test(45)), "");
    let median = |text: &str| counts("lanes/src/a.rs", "all crates", text);
    assert_eq!(median(&test(46)), "test_median = 46");
    assert_eq!(median(&test(32)), "");
    assert_eq!(median(&format!("{}{}{}", test(46), test(31), test(32))), "");
    assert_eq!(rust(&test(46).replace("#[test]", "#[inline]")), "");
}

#[test]
fn sentence_is_short() {
    let words = |count: usize| vec!["word"; count].join(" ");
    assert_eq!(page(&format!("{}.\n", words(26))), "sentence = 1, sentence_average = 26");
    assert_eq!(page(&format!("{}.\n", words(25))), "sentence_average = 25");
    assert_eq!(page(&format!("{}.\n", words(24))), "");
    assert_eq!(page(&format!("Short. {}.\n", words(26))), "sentence = 1");
    let apart = words(20);
    for text in [
        format!("{apart}\n\n{apart}\n"),
        format!("- {apart}\n- {apart}\n1. {apart}\n"),
        format!("# {apart}\n{apart}\n"),
        format!("| {apart} | {apart} |\n"),
        format!("{apart} (*{apart}.*) {apart}\n").replacen("word (", "word. (", 1),
        format!("```\n{apart} {apart}\n```\n"),
        format!("`{apart}` {apart} [a](<{apart}>)\n"),
    ] {
        assert_eq!(page(&text), "", "{text}");
    }
}

#[test]
fn javascript_has_comments() {
    let counts = |text: &str| counts("node/lib/a.js", "node/lib", text);
    assert_eq!(counts("// What.\nf('what'); // Told.\n"), "what = 1, said = 1");
    assert_eq!(
        counts("/**\n * What is sent.\n * @param {what} told\n */\n"),
        "what = 1, question = 1"
    );
    assert_eq!(counts("const what = 'https://what';\n"), "");
}

#[test]
fn crates_in_crates_have_their_own_rows() {
    let files = [
        ("sealane/Cargo.toml", "[package]\n"),
        ("sealane/config/Cargo.toml", "[package]\n"),
        ("sealane/src/lib.rs", "// What.\n"),
        ("sealane/config/src/lib.rs", "// Told.\n"),
        ("other/a.rs", "// Who.\n"),
    ];
    let text = Language::of(&repository(&files)).budgets(None);
    let rows: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        rows,
        [
            "\"other\" = { who = 1 }",
            "\"sealane\" = { what = 1 }",
            "\"sealane/config\" = { said = 1 }"
        ]
    );
}

#[test]
fn count_above_its_budget_is_an_error() {
    let found = findings("One.\nWhat, what?\n", "\"a.md\" = { what = 1 }\n");
    let [first, second] = &found[..] else { panic!("{found:?}") };
    assert_eq!((first.path.as_str(), first.line, first.fatal), ("a.md", 2, true));
    assert_eq!(first, second);
    let replacement = "`what`: name the thing: \"the certificates that are served\"; ";
    let counts = "a.md has what 2, the budget is 1";
    assert_eq!(first.message, format!("{replacement}{counts}"));
    assert_eq!(findings("Anew.\n", "")[0].message.split(';').next(), Some("`anew`: again"));
}

#[test]
fn count_below_its_budget_is_an_error() {
    for budgets in
        ["\"a.md\" = { what = 2 }\n", "\"a.md\" = { what = 1 }\n\"b.md\" = { who = 1 }\n"]
    {
        let found = findings("What?\n", budgets);
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert!(finding.path == LANGUAGE_FILE && finding.fatal, "{finding}");
        assert!(finding.message.contains("lower the budget: run SEALANE_BLESS=1"), "{finding}");
    }
    assert_eq!(findings("What?\n", "\"a.md\" = { what = 1 }\n"), []);
}

#[test]
fn budgets_have_one_form() {
    for line in ["<<<<<<< ours", "\"a.md\" = { when = 1 }", "\"b.md\" = { who = many }"] {
        let found = findings("Words.\n", &format!("# Head.\n{line}\n"));
        assert!(found.len() == 1 && found[0].line == 2, "{line}: {found:?}");
    }
    let twice = "\"a.md\" = { who = 1 }\n".repeat(2);
    assert_eq!(findings("Who?\n", &twice).len(), 1);
}

#[test]
fn budgets_only_fall() {
    let renewed = |before: &str, files: &[(&str, &str)]| {
        let text = Language::of(&repository(files)).budgets(Some(before));
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("; ")
    };
    let before = "\"a.md\" = { what = 2 }\n";
    assert_eq!(renewed(before, &[("a.md", "What?\n")]), "\"a.md\" = { what = 1 }");
    assert_eq!(renewed(before, &[("a.md", "What? What? What?\n")]), "\"a.md\" = { what = 2 }");
    let moved = [("a.md", "What?\n"), ("b.md", "What?\n")];
    assert_eq!(renewed(before, &moved), "\"a.md\" = { what = 1 }; \"b.md\" = { what = 1 }");
    let conflict = format!("<<<<<<< ours\n{before}");
    assert_eq!(renewed(&conflict, &[("a.md", "Who?\n")]), "\"a.md\" = { who = 1 }");
    let long = "word ".repeat(30);
    assert_eq!(renewed("", &[("a.md", &long)]), "", "no new page has long sentences");
}

/// The counts of a Rust file.
fn rust(text: &str) -> String {
    counts("lanes/src/a.rs", "lanes", text)
}

fn page(text: &str) -> String {
    counts("a.md", "a.md", text)
}

fn counts(path: &str, row: &str, text: &str) -> String {
    let budgets = Language::of(&repository(&[(path, text)])).budgets(None);
    let front = format!("\"{row}\" = {{ ");
    let counts = budgets.lines().find_map(|line| line.strip_prefix(&front));
    counts.and_then(|counts| counts.strip_suffix(" }")).unwrap_or("").to_owned()
}

/// The findings in a page `a.md` with these budgets.
fn findings(page: &str, budgets: &str) -> Vec<Finding> {
    let repository = repository(&[("a.md", page), (LANGUAGE_FILE, budgets)]);
    let mut findings = Vec::new();
    Language::of(&repository).check(&repository, &mut findings);
    findings
}

fn repository(files: &[(&str, &str)]) -> Repository {
    let file = |(path, text): &(&str, &str)| File {
        path: (*path).to_owned(),
        text: (*text).to_owned(),
        executable: false,
    };
    Repository::new(files.iter().map(file).collect())
}
