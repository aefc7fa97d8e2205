//! The command `findings` on recordings made by hand: page, text and document, and the committed
//! text beside the committed document.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use sealane_lab_model::{
    document::Run,
    library::Identity,
    recording::{ByPart, Event, Lock, LockClass, PathNode, RecordedLine, Recording, SCHEMA, Step},
    scenario::{Kind, Scenario},
};

#[test]
fn a_page_a_text_and_a_document_come_of_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let recordings = folder.path().join("recordings");
    fs::create_dir(&recordings).unwrap();
    write(&recordings, "aws-lc", Kind::Full, "fork_detect_ube_lock", &["rdlock", "RAND_bytes"]);
    write(&recordings, "aws-lc", Kind::Ticket, "ube_lock", &["rdlock", "RAND_bytes"]);
    write(&recordings, "mine", Kind::Full, "<b>'|", &["add", "inner", "outer"]);
    let (page, json) = (folder.path().join("page.html"), folder.path().join("findings.json"));
    let output = run(&[
        recordings.to_str().unwrap(),
        "--output",
        page.to_str().unwrap(),
        "--json",
        json.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let text = String::from_utf8(output.stdout).unwrap();
    let (aws, mine) = (text.find("## AWS-LC (1.0)").unwrap(), text.find("## mine (1.0)").unwrap());
    assert!(aws < mine, "by name");
    for said in [
        "AWS-LC's lock of the fork generation",
        "full handshake, ECDSA P-256, server: 4 of its 4 atomic updates per handshake",
        "## AWS-LC: a random call without the two process-wide locks",
        "**Not yet explained** (`<b>'|`",
        "`add` < `inner` < `outer`",
        "sealane-lab count --stack mine --record mine.json.gz",
    ] {
        assert!(text.contains(said), "{said} is not in:\n{text}");
    }
    assert!(!text.contains("FORECAST"), "nothing was forecast:\n{text}");

    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("&lt;b&gt;&#39;|") || page.contains("&lt;b&gt;'|"), "escaped");
    assert!(!page.contains("<b>'|"), "a name is text");
    assert!(page.contains("<code>rand_bytes_core</code>"), "code in a text is set as such");
    for section in ["overview", "culprits", "changes", "again"] {
        assert!(page.contains(&format!("id=\"{section}\"")), "{section}");
    }

    let run_of_it: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(run_of_it.findings.len(), 3);
    let again = run(&[json.to_str().unwrap()]);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text, "the document says all of it");
}

#[test]
fn a_note_whose_line_is_gone_is_not_repeated_but_told() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "aws-lc", Kind::Full, "another_lock", &["rdlock", "RAND_bytes"]);
    let text = String::from_utf8(run(&[folder.path().to_str().unwrap()]).stdout).unwrap();
    assert!(text.contains("no recording of aws-lc has `fork_detect_ube_lock`"), "{text}");
    assert!(!text.contains("AWS-LC's lock of the fork generation"), "{text}");
}

#[test]
fn nothing_to_read_is_an_error_with_the_command_that_helps() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&[folder.path().to_str().unwrap()]);
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("count --record FILE"), "{error}");
}

#[test]
fn the_commands_that_make_recordings_again_can_be_asked() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "mine", Kind::Full, "x", &["add"]);
    let there = run(&[folder.path().to_str().unwrap(), "--commands"]);
    let there = String::from_utf8(there.stdout).unwrap();
    assert_eq!(there, "sealane-lab count --stack mine --record mine.json.gz\n");
}

/// Figures, servers and remedies are those of the committed ledgers; no recording is needed.
#[test]
fn servers_are_told_what_they_share_in_the_kernel_and_what_would_remove_it() {
    let folder = tempfile::tempdir().unwrap();
    let (page, json) = (folder.path().join("page.html"), folder.path().join("findings.json"));
    let ledgers = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("results/kernel.json");
    let [ledgers, page, json] = [&ledgers, &page, &json].map(|path| path.to_str().unwrap());
    let output = run(&[ledgers, "--output", page, "--json", json]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let counted: Run = serde_json::from_slice(&fs::read(ledgers).unwrap()).unwrap();
    let mut shared = 0;
    for ledger in &counted.kernel_ledgers {
        let table = ledger.rows.iter().find(|row| row.object == "file table").unwrap();
        let said = text.lines().find(|line| {
            line.starts_with(&format!("- {} (", ledger.server)) && line.contains("accept4")
        });
        if table.per_connection == 0 {
            assert_eq!(said, None, "it shares no table");
            continue;
        }
        let writes = format!("): {} of its ", table.per_connection);
        assert!(said.is_some_and(|said| said.contains(&writes)), "{}: {text}", ledger.server);
        assert!(text.contains(&format!("- What would remove it: {}\n", table.removal)), "{text}");
        shared += 1;
    }
    assert!(shared > 3 && shared < counted.kernel_ledgers.len(), "some do, some do not");
    assert!(
        text.contains("Counted 2026-11-23, Linux 6.18"),
        "of the document, not of today: {text}"
    );
    assert!(
        text.contains("\nsealane-lab count --kernel "),
        "the command that counts again: {text}"
    );
    assert!(!text.contains("Recorded"), "nothing was: {text}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("id=\"kernel\"") && page.contains("CLOSE_RANGE_UNSHARE"), "{page:.3000}");
    assert!(!page.contains("id=\"overview\""), "nothing was recorded");
    let twice = run(&[ledgers, ledgers]);
    assert_eq!(String::from_utf8(twice.stdout).unwrap(), text, "each server once");
    let again = run(&[json]);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text, "the document says all of it");
}

/// What is committed to be read on the web is a part of what this program says of the committed
/// documents, and every note is borne out.
#[test]
fn every_row_and_remedy_of_the_page_is_what_the_committed_documents_say() {
    let home = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let documents = ["recordings/findings.json", "results/kernel.json"];
    let documents = documents.map(|document| home.join(document));
    let output = run(&documents.each_ref().map(|document| document.to_str().unwrap()));
    let says = String::from_utf8(output.stdout).unwrap();
    let page = fs::read_to_string(home.join("FINDINGS.md")).unwrap();
    let is_held = |line: &&str| line.starts_with("| ") || line.starts_with("- What would remove");
    let held: Vec<&str> = page.lines().filter(is_held).collect();
    assert!(held.len() > 30, "{} lines are held", held.len());
    for line in held {
        assert!(says.lines().any(|said| said == line), "lab/FINDINGS.md is old: {line}");
    }
    let full = says.lines().filter(|line| line.starts_with("| ") && line.contains(PER_FULL));
    for row in full {
        assert!(page.contains(row), "lab/FINDINGS.md lacks {row}");
    }
    let stale = says.lines().find(|line| line.starts_with("- Note: no recording"));
    assert_eq!(stale, None, "a note in lab/findings.toml is not borne out");
}

/// docs/performance.md has what each stack shares in a full handshake, of the same documents.
#[test]
fn the_counts_of_the_docs_are_those_of_the_committed_documents() {
    let home = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let output = run(&[home.join("recordings/findings.json").to_str().unwrap()]);
    let says = String::from_utf8(output.stdout).unwrap();
    let rows = says.lines().filter_map(|row| row.strip_prefix("| ")?.split_once(PER_FULL));
    let counted = rows.map(|(stack, figures)| {
        let updates = figures.split(" | ").nth(1).unwrap();
        format!("| {stack} | {updates} |")
    });
    let counted: Vec<String> = counted.collect();
    assert!(counted.len() > 10, "{says}");
    let page = fs::read_to_string(home.join("../docs/performance.md")).unwrap();
    let table = page.split_once("| stack | server / client |\n|---|---:|\n").unwrap().1;
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows, counted);
}

/// Follows a stack's name in the row of its full handshake.
const PER_FULL: &str = " | TLS 1.3, full handshake, ECDSA P-256 | ";

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.arg("findings").args(arguments).output().unwrap()
}

/// One handshake whose server takes one lock twice, and whose client takes it once.
fn write(folder: &Path, stack: &str, kind: Kind, symbol: &str, path: &[&str]) {
    let updates = ByPart { server: 4.0, client: 2.0, ..ByPart::default() };
    let mut paths = vec![PathNode::default()];
    for (at, function) in (0..).zip(path.iter().rev()) {
        let caller = (at > 0).then_some(at);
        paths.push(PathNode { caller, function: (*function).into(), owner: "a.so".into() });
    }
    let inner = u32::try_from(path.len()).unwrap();
    let step = |event, place| Step { gap: 9, event, place, path: inner };
    let taken = [step(Event::ReadLock, 0), step(Event::ReadUnlock, 0)];
    let steps = [
        vec![step(Event::Enter, 3)],
        taken.to_vec(),
        taken.to_vec(),
        vec![step(Event::Enter, 0)],
        taken.to_vec(),
        vec![step(Event::Enter, 2)],
    ];
    let recording = Recording {
        schema: SCHEMA.into(),
        started: "2026-01-02T03:04:05Z".into(),
        command: [
            "/somewhere/sealane-lab",
            "count",
            "--stack",
            stack,
            "--record",
            "/x/mine.json.gz",
        ]
        .map(Into::into)
        .to_vec(),
        processor: "a processor".into(),
        stack: Identity { name: stack.into(), version: "1.0".into(), ..Identity::default() },
        scenario: Scenario { kind, ..Scenario::default() },
        operations: 1,
        instructions: ByPart { server: 1e6, client: 1e6, ..ByPart::default() },
        lines: vec![RecordedLine {
            class: "lock".into(),
            symbol: symbol.into(),
            owner: "a.so".into(),
            updates,
            ..RecordedLine::default()
        }],
        locks: vec![Lock { class: LockClass::RwLock, line: 0, ..Lock::default() }],
        paths,
        steps: steps.concat(),
        ..Recording::default()
    };
    let name = format!("{stack}-{}.json.gz", if kind == Kind::Full { "full" } else { "ticket" });
    recording.write(&folder.join(name)).unwrap();
}
