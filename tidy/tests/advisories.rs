//! What `./check --only deny` says where advisories cannot be fetched. The real script, with a
//! `cargo-deny` that finds everything clean and has no network.
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn in_ci_it_is_an_error_not_to_have_looked_unless_a_dated_record_stands_in() {
    let copy = Copy::new();
    let (status, said) = copy.check(&[("FETCHES", "yes"), ("CI", "true")]);
    assert_eq!(status, Some(0), "{said}");
    let record: Vec<_> = said.lines().filter(|line| is_of_record(line)).collect();
    assert_eq!(record.len(), 3, "{said}");
    let (no_network, in_ci) = ([("FETCHES", "no")], [("FETCHES", "no"), ("CI", "true")]);

    let unrecorded = "of other packages than Cargo.lock";
    copy.refused(&in_ci, unrecorded);
    let (status, said) = copy.check(&no_network);
    assert!(status == Some(0) && said.contains("advisories: SKIPPED"), "{said}");

    copy.write(".ci/dependencies.checked", &(record.join("\n") + "\n"));
    let (status, said) = copy.check(&in_ci);
    assert!(status == Some(0) && said.contains("none for these packages"), "{said}");

    let old = [record[0], record[1], "database 2020-01-01\n"].join("\n");
    copy.write(".ci/dependencies.checked", &old);
    copy.refused(&in_ci, "a database of 2020-01-01, which is too old");

    copy.write(".ci/dependencies.checked", &(record.join("\n") + "\n"));
    let lock = fs::read_to_string(copy.folder.join("Cargo.lock")).unwrap();
    copy.write("Cargo.lock", &lock.replacen("checksum = \"", "checksum = \"0", 1));
    copy.refused(&in_ci, unrecorded);
}

/// What the stage needs of the repository, in a folder that is removed with this.
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

    /// By another process: whatever another thread of this one starts meanwhile holds for a moment
    /// what is open for writing here, and the kernel runs no file that is.
    fn make_program(&self, file: &str) {
        let (path, text) = (self.folder.join(file), self.folder.join("text"));
        fs::rename(&path, &text).unwrap();
        let installed = Command::new("install").args(["-m", "755"]).args([&text, &path]).status();
        assert!(installed.unwrap().success());
    }

    /// How it ended, and all that it said.
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

    fn refused(&self, environment: &[(&str, &str)], reason: &str) {
        let (status, said) = self.check(environment);
        assert!(status == Some(1) && said.contains(reason), "{said}");
        assert!(said.contains("check: 0 passed, 1 failed"), "{said}");
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
