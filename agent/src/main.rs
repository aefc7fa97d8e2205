//! The command `sealane-agent`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use sealane_agent::{args::Arguments, run};
use sealane_operator::call_this_program;

fn main() -> ExitCode {
    call_this_program("sealane-agent");
    run::run(Arguments::from_process())
}
