//! The program `sealane-lab`.
#![forbid(unsafe_code)]

mod cli;
mod quick;
mod steps;
mod why;
mod writeups;

use rustix::process::{getpid, set_child_subreaper};

fn main() -> std::process::ExitCode {
    // What a child that dies has started comes to this process, which ends it.
    let _ = set_child_subreaper(Some(getpid()));
    cli::run()
}
