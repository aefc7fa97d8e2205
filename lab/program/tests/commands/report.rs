//! The command `report` as people run it: what the page says, and what a real browser makes of it.

mod browser;
mod docs;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use sealane_lab_model::document::Run;
use tempfile::TempDir;

/// Every word of the page, without its pictures: they are compared as pictures below.
#[test]
fn the_page_says_what_it_said() {
    let page = page_of(&[document("sample")]);
    same_as_file("sample.txt", &words(&page));
}

/// Every word of the page of the six write-ups.
#[test]
fn the_page_of_the_writeups_says_what_it_said() {
    let page = page_of_writeups(&document("writeups"));
    for story in ["offload", "bulk", "certificates", "contexts", "tickets", "tables"] {
        let section = page.split_once(&format!("<section id=\"{story}\"")).unwrap().1;
        let section = section.split_once("</section>").unwrap().0;
        let wanted = ["Published: ", "Instead:", "Real software here:", "Decided here:"];
        for told in wanted.into_iter().chain(["What few cores cannot show:"]) {
            assert!(section.contains(told), "{story} does not say: {told}");
        }
    }
    // In the sample, one of each command.
    assert!(
        page.contains("6 hold, 7 fail (X2: 3 of 1,000 differ; X2: ")
            && page.contains("6 not decided here (X3: 8 processors cannot show it; X3: "),
        "{page:.2000}"
    );
    same_as_file("writeups.txt", &words(&page));
}

/// Every word of the section on Node's servers, and that it has all of its pictures.
#[test]
fn the_page_of_node_says_what_it_said() {
    let page = page_of(&[document("node")]);
    let text = words(&page);
    for title in [
        "Full handshakes by requests under way, answers of 3,069 bytes",
        "Kept-alive requests by requests under way, answers of 3,069 bytes",
        "Full handshakes, P-256: answers of 11 bytes",
        "Kept-alive requests: answers of 100000 bytes",
        "Memory of a connection",
        "Handshake: percentiles",
    ] {
        assert!(text.contains(title), "{title} is missing");
    }
    assert!(!page.contains("Ways to share one thing"), "it stands there twice");
    same_as_file("node.txt", &text);
}

/// Every word of a page about a server that ran.
#[test]
fn the_page_of_a_running_server_says_what_it_said() {
    let page = page_of(&[document("live")]);
    assert_eq!(page.matches("<figure class=\"plot card\"").count(), 2, "two icicles");
    assert!(!page.contains("<server>"), "a name is no markup");
    same_as_file("live.txt", &words(&page));
}

#[test]
fn a_run_of_strategies_alone_says_what_its_checks_say() {
    let mut run = Run { bulk: vec![], ..document("writeups") };
    run.strategies.retain(|strategies| strategies.command == "tickets");
    let text = words(&page_of(&[run]));
    assert!(text.contains("tickets: 1 holds, 2 fail (lane, threads 64: "), "{text:.2000}");
    assert!(text.contains("; X2: 3 of 1,000 differ), 1 not decided here"), "{text:.2000}");
    assert!(!text.contains("Nothing was measured"), "{text:.2000}");
}

/// A step that failed leaves its section, which says so, and no card.
#[test]
fn a_writeup_without_figures_says_so() {
    let mut run = document("writeups");
    run.strategies.retain(|strategies| strategies.command != "tickets");
    let page = page_of_writeups(&run);
    assert_eq!(page.matches("Nothing was measured").count(), 1);
    assert_eq!(page.matches("<article class=\"card stack\"").count(), 5);
}

/// Where there are more processors, the commands have other numbers of threads.
#[test]
fn every_writeup_has_its_card_on_a_machine_of_any_size() {
    let mut run = document("writeups");
    for row in run.strategies.iter_mut().flat_map(|strategies| &mut strategies.rows) {
        for threads in row.variant.get_mut("threads").into_iter().filter(|it| *it == "2") {
            "16".clone_into(threads);
        }
    }
    let page = page_of_writeups(&run);
    assert_eq!(page.matches("<article class=\"card stack\"").count(), 6);
}

/// Documents of before have no loads, and open loops of one work.
#[test]
fn a_document_without_loads_still_has_its_latency_by_load() {
    let mut run = document("sample");
    assert!(words(&page_of(&[run.clone()])).contains("Latency by load: full\n"));
    let servers = run.servers.as_mut().unwrap();
    servers.plain.clear();
    for (name, old) in [("full-half", "open-50%"), ("full-80%", "open-80%")] {
        let case = servers.cases.iter_mut().find(|case| case.name == name).unwrap();
        case.name = old.into();
        for server in &mut servers.servers {
            let result = server.cases.remove(name);
            server.cases.extend(result.map(|result| (old.to_owned(), result)));
        }
    }
    let mut json = serde_json::to_value(&run).unwrap();
    for case in json["servers"]["cases"].as_array_mut().unwrap() {
        case.as_object_mut().unwrap().remove("load");
    }
    let text = words(&page_of(&[serde_json::from_value(json).unwrap()]));
    assert!(text.contains("Latency by load\n"), "{text:.3000}");
}

#[test]
fn the_pictures_look_as_they_did() {
    let folder = tempfile::tempdir().unwrap();
    for subject in ["servers", "threads", "writeups"] {
        let from = if subject == "writeups" { subject } else { "sample" };
        let run = path_of(&format!("{from}.json"));
        let svg = folder.path().join("picture.svg");
        let output = report(&[&run, "--picture".as_ref(), &svg, "--of".as_ref(), subject.as_ref()]);
        assert!(output.status.success(), "{output:?}");
        let svg = fs::read_to_string(svg).unwrap();
        assert!(svg.contains("prefers-color-scheme:dark"), "{subject} has no dark theme");
        assert_eq!(svg.matches("http").count(), 1, "{subject} loads something");
        same_as_file(&format!("{subject}.svg"), &svg);
    }
}

/// Each picture in lab/pictures is drawn from `NAME.json.gz`, or all of `NAME/`, in lab/results.
#[test]
fn the_committed_pictures_are_drawn_from_the_committed_documents() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = folder.path().join("drawn.svg");
    let pictures: Vec<PathBuf> = files_in(&home().join("pictures"));
    assert!(pictures.len() > 1, "{pictures:?}");
    for picture in pictures {
        let subject = picture.file_stem().unwrap();
        let documents = committed(subject.to_str().unwrap());
        let mut arguments: Vec<&Path> = documents.iter().map(PathBuf::as_path).collect();
        arguments.extend(["--picture".as_ref(), drawn.as_path(), "--of".as_ref()]);
        arguments.push(subject.as_ref());
        let output = report(&arguments);
        assert!(output.status.success(), "{output:?}");
        assert!(
            fs::read(&drawn).unwrap() == fs::read(&picture).unwrap(),
            "lab/pictures/{subject:?}.svg is old: sealane-lab report {documents:?} \
             --picture {picture:?} --of {subject:?}"
        );
    }
}

/// The documents of `name` in lab/results.
fn committed(name: &str) -> Vec<PathBuf> {
    let results = home().join("results");
    let one = results.join(format!("{name}.json.gz"));
    if one.exists() { vec![one] } else { files_in(&results.join(name)) }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_page_loads_nothing_and_is_small() {
    let page = page_of(&[document("sample")]);
    assert!(page.len() < 500_000, "{} bytes", page.len());
    assert!(page.contains("Raw documents"), "the raw document fits in");
    for loads in ["http:", "https:", "src=", "url(", "@import", "<link", "<iframe", "<object"] {
        assert!(!page.contains(loads), "the page has {loads:?}");
    }
    for href in page.split("href=\"").skip(1) {
        assert!(href.starts_with('#'), "a link leads outside: {href:.40}");
    }
    assert_eq!(page, page_of(&[document("sample")]), "the same input gives the same bytes");
}

#[test]
fn several_runs_are_one_page_that_names_them() {
    // As large as two runs may be together.
    let first = || Run { kernel_ledgers: vec![], strategies: vec![], ..document("sample") };
    let page = page_of(&[first(), Run { complete: false, ..first() }]);
    assert!(page.len() < 500_000, "{} bytes", page.len());
    assert!(page.contains("openssl@3.0 (run 1)") && page.contains("openssl@3.0 (run 2)"));
    assert!(page.contains("Run 2 (1.json) is not complete"), "{page:.3000}");
    assert!(page.contains("raw documents would make this page too large"));
}

#[test]
fn a_run_without_results_still_says_what_it_was() {
    let empty = Run { handshakes: vec![], bulk: vec![], ..document("sample") };
    let empty = Run { comparisons: vec![], kernel_ledgers: vec![], ..empty };
    let page = page_of(&[Run { counts: vec![], servers: None, strategies: vec![], ..empty }]);
    assert!(page.contains("Nothing was measured"));
    assert!(page.contains("Method and validity") && !page.contains("<figure"));
}

#[test]
fn what_cannot_be_read_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run.json");
    let page = folder.path().join("page.html");
    for (text, expected) in [
        ("{\"schema\": \"sealane-lab/1\",\n \"started\": }", "run.json: line 2, column 13: "),
        ("{\"schema\": \"sealane-lab/7\"}", "schema is \"sealane-lab/7\""),
        ("[]", "run.json: line 1, column "),
    ] {
        fs::write(&run, text).unwrap();
        let output = report(&[&run, "-o".as_ref(), &page]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}: {said}");
        assert!(said.contains(expected), "{text}: {said}");
        assert!(!page.exists(), "{text}");
    }
}

/// A document as the lab writes them, with something of everything that its page may show; its
/// figures are made up.
fn document(name: &str) -> Run {
    serde_json::from_str(&fs::read_to_string(path_of(&format!("{name}.json"))).unwrap()).unwrap()
}

/// The rows' labels of what `words` keeps, one per line of text.
fn words(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        text.push('\n');
        let skipped = ["style", "script", "textarea", "svg"];
        let name = skipped.into_iter().find(|name| tag.starts_with(name));
        let end = name.map_or(">".to_owned(), |name| format!("</{name}>"));
        rest = tag.split_once(&end).map_or("", |(_, after)| after);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.fold(String::new(), |text, line| text + line + "\n")
}

pub(crate) fn page_of(runs: &[Run]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let names = (0..runs.len()).map(|at| format!("{at}.json"));
    let runs: Vec<PathBuf> =
        names.zip(runs).map(|(name, run)| written(&folder, &name, run)).collect();
    written_page(&runs, &[])
}

fn page_of_writeups(run: &Run) -> String {
    let folder = tempfile::tempdir().unwrap();
    written_page(&[written(&folder, "run.json", run)], &["--writeups"])
}

/// The page of the documents at these paths.
fn written_page(runs: &[PathBuf], options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let mut arguments: Vec<&Path> = runs.iter().map(PathBuf::as_path).collect();
    arguments.extend(options.iter().map(Path::new));
    arguments.extend([Path::new("-o"), &page]);
    let output = report(&arguments);
    assert!(output.status.success(), "{output:?}");
    fs::read_to_string(page).unwrap()
}

fn written(folder: &TempDir, name: &str, run: &Run) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, serde_json::to_string(run).unwrap()).unwrap();
    path
}

fn report(arguments: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealane-lab")).arg("report").args(arguments).output().unwrap()
}

fn path_of(name: &str) -> PathBuf {
    home().join("testdata").join(name)
}

fn same_as_file(name: &str, is: &str) {
    let path = path_of(name);
    if env::var_os("SEALANE_BLESS").is_some() {
        fs::write(&path, is).unwrap();
    }
    let was = fs::read_to_string(&path).unwrap_or_default();
    if was != is {
        let differs = was.lines().zip(is.lines()).position(|(a, b)| a != b);
        let line = differs.unwrap_or_else(|| was.lines().count().min(is.lines().count()));
        panic!(
            "{name} differs from line {}:\n  was {:.200?}\n  is  {:.200?}\n\
             If that is intended: \
             SEALANE_BLESS=1 cargo test --manifest-path lab/Cargo.toml -p sealane-lab \
             --test commands report::",
            line + 1,
            was.lines().nth(line),
            is.lines().nth(line)
        );
    }
}
