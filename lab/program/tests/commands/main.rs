//! The commands of the lab as people run them, as a process: one file each.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and some are read by a person"
)]

use std::{env, fs, path::Path, process::Command};

mod built;
mod bulk;
mod certificates;
mod connect;
mod contexts;
mod count;
mod figures;
mod gate;
mod handshake;
mod kernel;
mod limits;
mod node;
mod offload;
mod quick;
mod references;
mod report;
mod ring;
mod schema;
mod servers;
mod stacks;
mod tables;
mod tickets;
mod why;

/// The lab, to be run with valgrind: `./check` names what `lab/build-for-counting` has built of the
/// same code, because that takes half the time.
fn with_valgrind() -> Command {
    let own = || env!("CARGO_BIN_EXE_sealane-lab").into();
    Command::new(env::var_os("SEALANE_LAB_WITH_VALGRIND").unwrap_or_else(own))
}

/// Makes a program of `script`, for a shell; by another process, because whatever another thread of
/// this one starts meanwhile holds for a moment what is open for writing here, and the kernel runs
/// no file that is.
fn write_program(path: &Path, script: &str) {
    let source = path.with_extension("text");
    fs::write(&source, format!("#!/bin/sh\n{script}\n")).expect("a new file");
    let installed = Command::new("install").args(["-m", "755"]).args([&*source, path]).status();
    assert!(installed.expect("coreutils are here").success());
}
