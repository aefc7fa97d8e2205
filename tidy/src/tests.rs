//! Each rule finds a bad sample and leaves a good one alone.

use crate::{File, Finding, Repository, check};

#[test]
fn a_clean_file_breaks_nothing() {
    assert_eq!(findings("engine/src/lib.rs", CLEAN), []);
}

#[test]
fn a_crate_root_forbids_unsafe() {
    breaks("forbid-unsafe", "engine/src/lib.rs", "//! A crate.\n");
    breaks("forbid-unsafe", "sealane/src/bin/other.rs", "//! A program.\n");
    holds("engine/src/policy.rs", "//! No root.\n");
    holds("bytering/src/lib.rs", "//! A ring.\n");
}

#[test]
fn foreign_interface_denies_unsafe() {
    breaks("forbid-unsafe", "node/src/lib.rs", "//! An addon.\n");
    holds("node/src/lib.rs", "//! An addon.\n#![deny(unsafe_code)]\n");
    breaks("forbid-unsafe", "client-c/src/lib.rs", "//! Behind a header.\n");
    holds(
        "node/src/memory.rs",
        "//! Shared.\n#![expect(unsafe_code)]\nfn f() { unsafe { g() } }\n",
    );
}

#[test]
fn javascript_keeps_the_rules_of_text() {
    holds("node/lib/ring.js", "'use strict';\n\nmodule.exports = {};\n");
    holds("node/package.json", &format!("{{ \"a\": \"{}\" }}\n", "b".repeat(100)));
    for name in ["node/lib/a.js", "node/lib/a.mjs", "node/index.d.ts"] {
        breaks_at("line-length", 2, name, &format!("'use strict';\n// {}\n", "a".repeat(98)));
        breaks("file-length", name, &"\n".repeat(801));
    }
    breaks("name", "node/lib/util.js", "'use strict';\n");
    breaks("executable", "node/build", "#!/usr/bin/env bash\n");
}

#[test]
fn unsafe_code_has_its_crates() {
    let block = "//! A module.\nfn f() { unsafe { g() } }\n";
    breaks_at("unsafe", 2, "lanes/tests/all.rs", block);
    holds("bytering/src/ring.rs", block);
    holds("lanes/src/a.rs", "//! Not unsafe.\nconst WHY: &str = \"unsafe\"; // unsafe\n");
    holds("lanes/src/a.rs", "//! A module.\n#![deny(unsafe_op_in_unsafe_fn)]\n");
}

#[test]
fn pem_has_one_reader() {
    let reads = "//! A module.\nuse rustls::pki_types::pem::PemObject as _;\n";
    breaks_at("layer", 2, "agent/src/trust.rs", reads);
    breaks_at(
        "layer",
        2,
        "engine/src/a.rs",
        "//! A.\nfn f() { CertificateDer::pem_slice_iter(t) }\n",
    );
    holds("lab/stacks/src/a.rs", reads);
    holds("agent/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests {\n    use pem::PemObject;\n}\n");
}

#[test]
fn a_file_opens_with_its_doc() {
    breaks("module-doc", "lanes/src/a.rs", "use std::io;\n");
    breaks("module-doc", "lanes/tests/a.rs", "// Not a doc.\n");
}

#[test]
fn a_doc_names_its_noun() {
    for word in ["As", "It", "Its", "Of"] {
        breaks_at("doc-noun", 1, "lanes/src/a.rs", &format!("//! {word} lanes.\n"));
        let inner =
            format!("//! A module.\nmod a {{\n    /// {word} lanes.\n    fn f() {{}}\n}}\n");
        breaks_at("doc-noun", 3, "lanes/src/a.rs", &inner);
        holds("lanes/src/a.rs", &format!("//! A lane,\n//! {word} said.\n/// Oft.\nfn f() {{}}\n"));
    }
}

#[test]
fn getters_have_no_prefix() {
    breaks_at("get-prefix", 3, "lanes/src/a.rs", "//! A module.\n\npub fn get_limit() {}\n");
    holds("lanes/src/a.rs", "//! A module.\nfn f(map: &Map) { map.get_mut(); }\n");
}

#[test]
fn no_port_is_looked_for_and_let_go() {
    let found = "TcpListener::bind((LOCAL, 0)).unwrap()";
    let one_line =
        format!("//! A module.\nfn f() -> u16 {{\n    {found}.local_addr().port()\n}}\n");
    breaks_at("free-port", 3, "engine/tests/a.rs", &one_line);
    let chain = format!("//! A module.\nlet at = {found}\n    .local_addr()\n    .unwrap();\n");
    breaks_at("free-port", 3, "lab/program/tests/a.rs", &chain);
    let kept = format!("//! A module.\nlet l = {found};\nlet at = l.local_addr().unwrap();\n");
    holds("lab/program/tests/a.rs", &kept);
}

#[test]
fn names_say_something() {
    for path in ["lanes/src/utils.rs", "lanes/src/io_util.rs", "common/a.md", "test-helpers/a.md"] {
        breaks("name", path, "//! Text.\n");
    }
    breaks_at("name", 2, "lanes/src/a.rs", "//! A module.\nmod helpers {}\n");
    holds("lanes/src/utilisation.rs", "//! A module.\n");
}

#[test]
fn scripts_and_nothing_else_can_be_executed() {
    let script = file("demo", "#!/bin/sh\n");
    assert_eq!(rules(&check(&Repository::new(vec![script.clone()]))), ["executable"]);
    assert_eq!(check(&Repository::new(vec![File { executable: true, ..script }])), []);
    let source = File { executable: true, ..file("lanes/src/a.rs", "//! A module.\n") };
    assert_eq!(rules(&check(&Repository::new(vec![source]))), ["executable"]);
}

#[test]
fn lines_end_where_their_text_ends() {
    breaks_at("whitespace", 2, "README.md", "# Title\nwords \n");
    breaks_at("whitespace", 1, "README.md", "# Title\r\n");
    breaks_at("whitespace", 2, "README.md", "# Title\nno end");
    holds("fuzz/seeds/http/get", "GET / HTTP/1.1\r\n\r\n");
}

#[test]
fn code_fits_its_columns() {
    let long = format!("//! {}\n", "a ".repeat(49));
    breaks_at("line-length", 1, "lanes/src/a.rs", &long.replace("a \n", "aaa\n"));
    holds("lanes/src/a.rs", &format!("//! {}\n", "a".repeat(96)));
    holds("lab/FINDINGS.md", &format!("{}\n", "a".repeat(200)));
    holds("lanes/src/a.rs", &format!("//! https://example.com/{}\n", "a".repeat(96)));
}

#[test]
fn pages_are_as_wide_as_code_but_for_tables() {
    for page in ["ARCHITECTURE.md", "README.md", "docs/decisions/limits.md"] {
        breaks_at("line-length", 2, page, &format!("# A page\n{}\n", "a".repeat(101)));
        holds(page, &format!("# A page\n| {} |\n", "a".repeat(101)));
    }
    holds("docs/commands.toml", &format!("# {}\n", "a".repeat(101)));
}

#[test]
fn links_lead_somewhere() {
    for link in ["other.md", "../docs", "../../README.md", "other.md#part"] {
        let text = format!("# A page\nSee [that]({link}).\n");
        breaks_at("link", 2, "README.md", &text);
    }
    holds("README.md", "[a](https://example.com) [b](#part) `[c](d)`\n```\n[e](f)\n```\n");
    let other =
        file("docs/other.md", "[up](../README.md), [beside](other.md#part), [all](../docs)\n");
    let readme = file("README.md", "[page](docs/other.md), [folder](docs/), [here](./README.md)\n");
    assert_eq!(check(&Repository::new(vec![readme, other])), []);
}

#[test]
fn every_command_on_a_page_is_known_to_work() {
    let page = "# A page\n```sh\n# first\n./demo --once   # a remark\nlab \\\n  --all\n```\n";
    let found = |list: &str| {
        let files = [("README.md", page), ("docs/commands.toml", list), ("a.rs", TESTED)];
        let files = files.into_iter().chain([("c.rs", "//! Tests.\nfn it_runs() {}\n")]);
        let files = files.map(|(path, text)| file(path, text));
        let findings = check(&Repository::new(files.collect()));
        let found = findings.into_iter().filter(|finding| finding.rule == "command");
        found.map(|finding| (finding.path, finding.line)).collect::<Vec<_>>()
    };
    let (demo, lab) = ("\"./demo --once\"", "\"lab --all\"");
    let run = format!("[run]\n{demo} = \"a.rs: it_runs\"\n");
    let whole = |table: &str, proof: &str| format!("{run}[{table}]\n{lab} = \"{proof}\"\n");
    let list = |line| vec![("docs/commands.toml".to_owned(), line)];
    for (table, proof) in
        [("elsewhere", "why"), ("long", "2026-11-24: an hour"), ("run", "a.rs: both_run")]
    {
        assert_eq!(found(&whole(table, proof)), [], "{table}: {proof}");
    }
    for (table, proof) in [
        ("elsewhere", ""),
        ("long", "an hour"),
        ("long", "2026-11-24"),
        ("other", "why"),
        ("run", "a.rs"),
        ("run", "a.rs: it_run"),
        ("run", "b.rs: it_runs"),
        // It is there, but runs something else.
        ("run", "c.rs: it_runs"),
    ] {
        assert_eq!(found(&whole(table, proof)), list(4), "{table}: {proof}");
    }
    assert_eq!(found(&run), [("README.md".to_owned(), 5)]);
    let unlisted = check(&Repository::new(vec![file("README.md", page)]));
    assert_eq!(rules(&unlisted), ["command", "command"]);
    let gone = whole("elsewhere", "why") + "\"./gone\" = \"why\"\n";
    assert_eq!(found(&gone), list(5));
    assert_eq!(found(&format!("words\n{}", whole("elsewhere", "why"))), list(1));
}

#[test]
fn transcripts_are_replayed_and_have_their_day() {
    let page = "# A page\nReplayed on 2026-11-24: here.\n```console\n$ ls\n```\n";
    let found = |page: &str, list: &str| {
        let files = [("docs/a.md", page), ("docs/commands.toml", list), ("replay", "")];
        let findings = check(&Repository::new(files.map(|(path, text)| file(path, text)).to_vec()));
        let found = findings.into_iter().filter(|finding| finding.rule == "command");
        found.map(|finding| (finding.path, finding.line)).collect::<Vec<_>>()
    };
    let list = "[replayed]\n\"docs/a.md\" = \"replay\"\n";
    assert_eq!(found(page, list), []);
    assert_eq!(found(page, ""), [("docs/a.md".to_owned(), 3)]);
    let gone = list.replace("\"replay\"", "\"gone\"");
    assert_eq!(found(page, &gone), [("docs/commands.toml".to_owned(), 2)]);
    assert_eq!(found(&page.replace("2026", "once"), list), [("docs/a.md".to_owned(), 1)]);
}

#[test]
fn long_files_are_split() {
    let lines = |count: usize| format!("//! A module.\n{}", "\n".repeat(count - 1));
    assert_eq!(findings("lanes/src/a.rs", &lines(400)), []);
    let warned = findings("lanes/src/a.rs", &lines(800));
    assert_eq!((rules(&warned), warned[0].fatal), (vec!["file-length"], false));
    let failed = findings("lanes/src/a.rs", &lines(801));
    assert_eq!((rules(&failed), failed[0].fatal), (vec!["file-length"], true));
    holds("README.md", &lines(801));
}

#[test]
fn nothing_is_left_unfinished() {
    for mark in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
        breaks_at("unfinished", 2, "lanes/src/a.rs", &format!("//! A module.\n// {mark}: later\n"));
    }
    holds("testdata/a.pem", concat!("-----BEGIN X-----\nab/XX", "X/+\n"));
}

#[test]
fn no_registry_is_named() {
    breaks_at("registry-host", 1, "README.md", concat!("See crates", ".io for it.\n"));
    holds("Cargo.lock", concat!("source = \"registry+https://crates", ".io-index\"\n"));
}

#[test]
fn no_path_of_one_machine_is_named() {
    for path in [concat!("/ro", "ot"), concat!("/wo", "rk"), concat!("/tmp", "/wt")] {
        breaks_at("machine-path", 1, "README.md", &format!("cd {path}/sealane\n"));
        breaks_at("machine-path", 1, "README.md", &format!("cd \"{path}\"\n"));
    }
    holds("README.md", concat!("tickets/ro", "ot.rs /wo", "rkers target/wo", "rk\n"));
}

#[test]
fn dependencies_point_down() {
    let manifest = |table, name| format!("[package]\n\n[{table}]\n{name}.workspace = true\n");
    breaks_at("layer", 4, "engine/Cargo.toml", &manifest("dependencies", "sealane-lanes"));
    breaks_at("layer", 4, "lanes/Cargo.toml", &manifest("dev-dependencies", "sealane"));
    breaks_at("layer", 4, "engine/Cargo.toml", &manifest("dependencies", "bytering"));
    let table = "[package]\n[target.'cfg(unix)'.dependencies.sealane-lanes]\npath = \"x\"\n";
    breaks_at("layer", 2, "engine/Cargo.toml", table);
    breaks("layer", "unheard-of/Cargo.toml", "[package]\n");
    breaks("layer", "lab/unheard-of/Cargo.toml", "[package]\n");
    breaks_at("layer", 4, "lab/model/Cargo.toml", &manifest("dependencies", "sealane-lab-harness"));
    breaks_at(
        "layer",
        4,
        "lab/report/Cargo.toml",
        &manifest("dependencies", "sealane-lab-harness"),
    );
    holds("lab/report/Cargo.toml", &manifest("dependencies", "sealane-lab-model"));
    holds("lanes/Cargo.toml", &manifest("dependencies", "sealane-engine"));
    holds("node/Cargo.toml", &manifest("dependencies", "sealane-certificate-files"));
    breaks_at("layer", 4, "node/Cargo.toml", &manifest("dependencies", "sealane"));
    breaks_at("layer", 4, "certificate-files/Cargo.toml", &manifest("dependencies", "sealane"));
    holds("Cargo.toml", "[workspace.dependencies]\nsealane-engine = { path = \"engine\" }\n");
}

#[test]
fn the_engine_has_no_socket_no_clock_and_no_lock() {
    for code in [
        "use std::net::TcpStream;",
        "use std::{collections::HashMap, fs::{self, File}};",
        "pub use std::{net as wire};",
        "fn f() -> Instant { Instant::now() }",
        "fn f(now: std::time::SystemTime) {}",
        "struct S { keys: Mutex<Vec<u8>> }",
        "struct S { keys: std::sync::RwLock<Vec<u8>> }",
        "fn f() { println!(\"hello\"); }",
    ] {
        breaks_at("layer", 2, "engine/src/a.rs", &format!("//! A module.\n{code}\n"));
    }
    breaks_at("layer", 2, "engine/src/a.rs", "//! A module.\nuse std::{\n    io,\n    fs,\n};\n");
    holds("engine/src/a.rs", "//! Mutex, said.\nuse core::net::IpAddr; // RwLock\n");
    holds("sealane/src/a.rs", "//! A module.\nuse std::{fs, sync::Mutex};\n");
}

#[test]
fn a_page_starts_nothing() {
    let code = "//! A module.\nuse std::process::Command;\n";
    breaks_at("layer", 2, "lab/report/src/page.rs", code);
    breaks_at("layer", 2, "lab/model/src/document.rs", code);
    holds("lab/harness/src/child.rs", code);
}

#[test]
fn only_the_engine_verifies_certificates() {
    for code in [
        "use rustls::server::WebPkiClientVerifier;",
        "use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};",
        "fn f() { builder.with_root_certificates(roots); }",
    ] {
        let code = format!("//! A module.\n{code}\n");
        for folder in ["agent", "client-c", "node", "sealane"] {
            breaks_at("layer", 2, &format!("{folder}/src/a.rs"), &code);
        }
        for path in ["engine/src/a.rs", "lab/stacks/src/a.rs", "agent/tests/a.rs"] {
            holds(path, &code);
        }
    }
}

#[test]
fn a_lane_does_not_wait() {
    for code in ["use std::sync::Mutex;", "fn f() { std::thread::sleep(t); }", "use std::{fs};"] {
        breaks_at("layer", 2, "lanes/src/a.rs", &format!("//! A module.\n{code}\n"));
    }
    holds("lanes/src/a.rs", "//! A module.\nuse std::net::SocketAddr;\n");
}

#[test]
fn tests_may_do_what_the_engine_may_not() {
    let inner = "//! A module.\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nfn f() {}\n";
    holds("engine/src/a.rs", inner);
    let after = inner.replace("fn f() {}", "use std::fs;");
    breaks_at("layer", 6, "engine/src/a.rs", &after);
    let module = file("engine/src/a/proofs.rs", "//! A module.\nuse std::fs;\n");
    let parent = file("engine/src/a.rs", "//! A module.\n#[cfg(test)]\nmod proofs;\n");
    assert_eq!(rules(&check(&Repository::new(vec![module.clone()]))), ["layer"]);
    assert_eq!(check(&Repository::new(vec![parent, module])), []);
}

#[test]
fn literals_and_comments_are_no_code() {
    for text in [
        "fn f<'a>(s: &'a str) -> char { '\"' } // unsafe\n",
        "const S: &str = r#\"a \" unsafe\"#; /* /* nested */ unsafe */\n",
        "const S: &[u8] = b\"\\\" unsafe\"; const C: char = '\\'';\n",
        "const S: &[u8] = br\"\\\"; // unsafe\n",
        "fn r#type() {} // unsafe\n",
    ] {
        holds("lanes/src/a.rs", &format!("//! A module.\n{text}"));
        let then_unsafe = format!("//! A module.\n{text}unsafe {{}}\n");
        breaks_at("unsafe", 3, "lanes/src/a.rs", &then_unsafe);
    }
}

#[test]
fn a_finding_reads_like_a_compiler_error() {
    let findings = findings("README.md", "a \n");
    assert_eq!(
        findings[0].to_string(),
        "README.md:1: error: ends in white space: cut it [whitespace]"
    );
}

fn breaks(rule: &str, path: &str, text: &str) {
    assert_eq!(rules(&findings(path, text)), [rule], "{path}: {text}");
}

fn breaks_at(rule: &str, line: usize, path: &str, text: &str) {
    let findings = findings(path, text);
    let found: Vec<_> = findings.iter().map(|finding| (finding.rule, finding.line)).collect();
    assert_eq!(found, [(rule, line)], "{path}: {text}");
}

fn holds(path: &str, text: &str) {
    assert_eq!(findings(path, text), [], "{path}: {text}");
}

fn findings(path: &str, text: &str) -> Vec<Finding> {
    check(&Repository::new(vec![file(path, text)]))
}

fn rules(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.rule).collect()
}

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned(), executable: false }
}

const CLEAN: &str = "//! A crate.\n#![forbid(unsafe_code)]\n\nuse std::collections::HashMap;\n";

/// A file with two tests.
const TESTED: &str = "//! Tests of --once and --all.\nfn it_runs() {}\nfn both_run() {}\n";
