//! `sealane certificates import -`: certificates from standard input, as they come.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use crate::harness::certificates::KeyKind;
use crate::harness::process::Process;
use crate::harness::site::{Site, error_text};
use crate::harness::{tools, wait_for};

impl Site {
    fn pem(&self, name: &str) -> String {
        self.authority.leaf(KeyKind::P256, &[name])
    }

    fn streamed(&self, text: &str) -> Value {
        let mut command = self.command(&["import", "--json", "-"]);
        serde_json::from_str(&tools::output_with_input(&mut command, text.as_bytes())).unwrap()
    }

    /// What is said of a stream that is refused.
    fn refused(&self, text: &str) -> String {
        let output = tools::run_with_input(&mut self.command(&["import", "-"]), text.as_bytes());
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        error_text(&output)
    }

    fn listed(&self) -> usize {
        self.run(&["list"]).lines().count()
    }
}

/// The certificate, and the key, of a text with both.
fn parts(pem: &str) -> (&str, &str) {
    pem.split_at(pem.find("-----BEGIN PRIVATE").unwrap())
}

#[test]
fn a_stream_is_imported_in_either_order_and_the_later_of_two_is_served() {
    let site = Site::start();
    let (a, b) = (site.pem("a.test"), site.pem("b.test"));
    let imported = site.streamed(&[a.as_str(), &b].concat());
    assert_eq!((imported["added"].as_u64(), imported["unchanged"].as_u64()), (Some(2), Some(0)));
    site.served("a.test").unwrap();
    site.served("b.test").unwrap();

    let (first, second) = (site.pem("c.test"), site.pem("c.test"));
    let turned = [&first, &second].map(|pem| {
        let (chain, key) = parts(pem);
        [key, chain].concat()
    });
    let imported = site.streamed(&turned.concat());
    assert_eq!(imported["store"]["certificates"], 4, "{imported}");
    let served = site.served("c.test").unwrap();
    // The last of what is there already: imported again, it changes nothing.
    assert_eq!(site.streamed(&second)["unchanged"], 1);
    assert_eq!(site.served("c.test").unwrap(), served);
    site.streamed(&first);
    assert_ne!(site.served("c.test").unwrap(), served);
}

#[test]
fn a_stream_with_a_mistake_says_where_and_what_was_imported() {
    let site = Site::new();
    let (a, b) = (site.pem("a.test"), site.pem("b.test"));
    let line = a.lines().count() + 1;
    let mixed = [parts(&b).0, parts(&a).1].concat();
    let said = site.refused(&[a.as_str(), &mixed].concat());
    let expected = format!("standard input, line {line}: this private key does not belong");
    assert!(said.contains("nothing was imported") && said.contains(&expected), "{said}");
    // The end is missing, as when whoever writes it is ended.
    let said = site.refused(&[a.as_str(), &b[..b.len() - 10]].concat());
    assert!(said.contains("nothing was imported"), "{said}");
    assert!(site.refused("").contains("nothing in it"), "an empty stream");
    assert!(site.refused("hello\n").contains("line 1"), "no PEM");
    let other = tools::run(&mut site.command(&["import", "-", "import.pem"]));
    assert!(error_text(&other).contains("name no files too"), "{}", error_text(&other));
    assert_eq!(site.listed(), 1);
}

#[test]
fn a_store_is_made_when_there_is_something_to_put_into_it() {
    let site = Site::new();
    std::fs::remove_dir_all(site.path().join("store")).unwrap();
    std::fs::remove_file(site.key_file()).unwrap();
    let a = site.pem("a.test");
    for (stream, why) in [
        ("", "nothing in it"),
        ("hello\n", "line 1"),
        (&a[..a.len() / 2], "standard input:1: "),
        (parts(&a).0, "standard input, line 1"),
    ] {
        let mut command = site.command(&["import", "--create", "-"]);
        let output = tools::run_with_input(&mut command, stream.as_bytes());
        let said = error_text(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("nothing was imported") && said.contains(why), "{said}");
        assert!(!site.path().join("store").exists() && !site.key_file().exists(), "{why}");
    }
    tools::output_with_input(&mut site.command(&["import", "--create", "-"]), a.as_bytes());
    assert_eq!(site.listed(), 1);
}

/// What is written in one transaction, as `import` has it.
const BATCH: usize = 1_000;

#[test]
fn a_stream_is_in_the_store_before_it_ends_and_whole_when_its_reader_is_killed() {
    let site = Site::start();
    let many: Vec<String> = (0..BATCH).map(|n| site.pem(&format!("n{n}.test"))).collect();
    let last = site.pem("last.test");
    let mut command = site.command(&["import", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let importer = Process::new(child);
    input.write_all(many.concat().as_bytes()).unwrap();
    input.write_all(&last.as_bytes()[..last.len() / 2]).unwrap();
    wait_for("the first transaction", || (site.listed() == BATCH + 1).then_some(()));
    site.served("n999.test").unwrap();
    drop(importer);
    drop(input);
    let verified: Value = serde_json::from_str(&site.run(&["verify", "--json"])).unwrap();
    assert_eq!(verified["store"]["certificates"], BATCH + 1);
    assert_eq!(verified["problems"].as_array().unwrap().len(), 0);
    // The same again goes on from there, and a mistake behind a thousand leaves those.
    let said = site.refused(&[&many.concat(), &last[..last.len() / 2]].concat());
    assert!(said.contains("1000 certificates before these were imported"), "{said}");
    assert_eq!(site.streamed(&[&many.concat(), last.as_str()].concat())["unchanged"], BATCH);
    site.served("last.test").unwrap();
}
