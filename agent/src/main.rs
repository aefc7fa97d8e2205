//! The command `sealane-agent`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use sealane_agent::{args::Arguments, run};
use sealane_kernel_random::WipingAllocator;
use sealane_operator::log;

/// Private keys that are pushed pass through buffers of several libraries.
#[global_allocator]
static ALLOCATOR: WipingAllocator = WipingAllocator::SYSTEM;

fn main() -> ExitCode {
    log::start("sealane-agent");
    run::run(Arguments::from_process())
}
