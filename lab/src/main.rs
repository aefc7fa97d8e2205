//! The program `sealane-lab`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    sealane_lab::cli::run()
}
