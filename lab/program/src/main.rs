//! The program `sealane-lab`.
#![forbid(unsafe_code)]

mod cli;
mod quick;
mod steps;
mod why;
mod writeups;

fn main() -> std::process::ExitCode {
    cli::run()
}
