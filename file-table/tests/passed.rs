//! Descriptors that a process finds passed to it: up to the first gap, once, and for itself alone.
//!
//! Without the harness of tests, which opens its own files: each case is this program again, as a
//! shell starts it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a case answers the program that started it")]

use std::env;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_getfd};
use sealane_file_table::passed;

fn main() {
    if env::var_os(CASE).is_some() {
        show();
        return;
    }
    let all = "3</dev/null 4</dev/null 5</dev/null";
    for (redirections, count, names, expected) in [
        (all, "3", "a:b:c", "a b c"),
        (all, "3", "a", "a _ _"),
        (all, "2", "a:b:c", "a b"),
        ("3</dev/null 5</dev/null", "3", "a:b:c", "a"),
        ("4</dev/null", "2", "a:b", ""),
        (all, "-1", "a", ""),
        (all, "many", "a", ""),
    ] {
        assert_eq!(case(redirections, "$$", count, names), expected, "{redirections} {count}");
    }
    assert_eq!(case(all, "1", "3", "a:b:c"), "", "it was meant for another");
}

/// The output of a process that was started so.
fn case(redirections: &str, pid: &str, count: &str, names: &str) -> String {
    let script = format!("exec {redirections}; LISTEN_PID={pid} exec \"$0\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(env::current_exe().unwrap());
    command.env(CASE, "1").env("LISTEN_FDS", count).env("LISTEN_FDNAMES", names);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn show() {
    let taken = passed();
    for (_, fd) in &taken {
        assert!(fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC), "others inherit it");
    }
    assert!(passed().is_empty(), "it is taken twice");
    let name = |(name, _): &(String, _)| if name.is_empty() { "_".into() } else { name.clone() };
    println!("{}", taken.iter().map(name).collect::<Vec<_>>().join(" "));
}

const CASE: &str = "SEALANE_PASSED_CASE";
