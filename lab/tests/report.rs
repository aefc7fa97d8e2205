//! The command `report` as people run it: what the page says, and what a real browser makes of it.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "report/sample.rs"]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures are made up"
)]
mod sample;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The document of the sample; made anew with `SEALANE_BLESS=1`.
#[test]
fn the_sample_document_is_what_its_builder_makes() {
    let json = serde_json::to_string(&sample::run()).unwrap() + "\n";
    same_as_file("sample.json", &json);
}

fn same_as_file(name: &str, is: &str) {
    let path = testdata(name);
    if env::var_os("SEALANE_BLESS").is_some() {
        fs::write(&path, is).unwrap();
    }
    let was = fs::read_to_string(&path).unwrap_or_default();
    if was != is {
        let differs = was.lines().zip(is.lines()).position(|(a, b)| a != b);
        let line = differs.unwrap_or_else(|| was.lines().count().min(is.lines().count()));
        panic!(
            "{name} differs from line {}:\n  was {:.200?}\n  is  {:.200?}\n\
             If that is intended: SEALANE_BLESS=1 cargo test -p sealane-lab --test report",
            line + 1,
            was.lines().nth(line),
            is.lines().nth(line)
        );
    }
}

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn report(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealane-lab")).arg("report").args(arguments).output().unwrap()
}
