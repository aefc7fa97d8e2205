//! The output of `./check --only deny` if advisories cannot be fetched. The real script, with a
//! `cargo-deny` that finds everything clean and has no network.
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn ci_without_advisories_needs_a_recent_record() {
    let copy = Copy::new();
    let (status, output) = copy.check(&[("FETCHES", "yes"), ("CI", "true")]);
    assert_eq!(status, Some(0), "{output}");
    let record: Vec<_> = output.lines().filter(|line| is_of_record(line)).collect();
    assert_eq!(record.len(), 3, "{output}");
    let (no_network, in_ci) = ([("FETCHES", "no")], [("FETCHES", "no"), ("CI", "true")]);

    let unrecorded = "of other packages than Cargo.lock";
    copy.assert_rejected(&in_ci, unrecorded);
    let (status, output) = copy.check(&no_network);
    assert!(status == Some(0) && output.contains("advisories: SKIPPED"), "{output}");

    copy.write(".ci/dependencies.checked", &(record.join("\n") + "\n"));
    let (status, output) = copy.check(&in_ci);
    assert!(status == Some(0) && output.contains("none for these packages"), "{output}");

    let old = [record[0], record[1], "database 2020-01-01\n"].join("\n");
    copy.write(".ci/dependencies.checked", &old);
    copy.assert_rejected(&in_ci, "a database of 2020-01-01, which is too old");

    copy.write(".ci/dependencies.checked", &(record.join("\n") + "\n"));
    let lock = fs::read_to_string(copy.folder.join("Cargo.lock")).unwrap();
    copy.write("Cargo.lock", &lock.replacen("checksum = \"", "checksum = \"0", 1));
    copy.assert_rejected(&in_ci, unrecorded);
}

/// The files that the stage needs, in a folder that is removed with this.
struct Copy {
    folder: PathBuf,
}

impl Copy {
    fn new() -> Self {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let name = format!("sealane-tidy-{}", std::process::id());
        let copy = Self { folder: std::env::temp_dir().join(name) };
        for file in [
            "Cargo.lock",
            "Cargo.toml",
            "check",
            "deny.toml",
            "lab/Cargo.lock",
            "lab/Cargo.toml",
            "lab/check",
            "lab/model/Cargo.toml",
            "rust-toolchain.toml",
            "tidy/Cargo.toml",
        ] {
            copy.write(file, &fs::read_to_string(home.join(file)).unwrap());
        }
        let script = fs::read_to_string(home.join("check")).unwrap();
        let version = script.split_once("CARGO_DENY_VERSION=").unwrap().1.lines().next().unwrap();
        let tool = format!("cache/sealane/cargo-deny-{version}/bin/cargo-deny");
        copy.write(&tool, "#!/bin/sh\n[ \"$*\" != '--locked fetch db' ] || [ $FETCHES = yes ]\n");
        for program in ["check", &tool] {
            copy.make_program(program);
        }
        copy
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Another process writes the file: a child that another thread starts holds our open files for
    /// a moment, and the kernel runs no file that is open for writing.
    fn make_program(&self, file: &str) {
        let (path, text) = (self.folder.join(file), self.folder.join("text"));
        fs::rename(&path, &text).unwrap();
        let installed = Command::new("install").args(["-m", "755"]).args([&text, &path]).status();
        assert!(installed.unwrap().success());
    }

    /// The exit code and all output.
    fn check(&self, environment: &[(&str, &str)]) -> (Option<i32>, String) {
        let output = Command::new(self.folder.join("check"))
            .args(["--only", "deny"])
            .env_remove("CI")
            .env("XDG_CACHE_HOME", self.folder.join("cache"))
            .envs(environment.iter().copied())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    fn assert_rejected(&self, environment: &[(&str, &str)], reason: &str) {
        let (status, output) = self.check(environment);
        assert!(status == Some(1) && output.contains(reason), "{output}");
        assert!(output.contains("check: 0 passed, 1 failed"), "{output}");
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn is_of_record(line: &str) -> bool {
    ["judged ", "packages ", "database "].iter().any(|word| line.starts_with(word))
}
