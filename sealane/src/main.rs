//! The command `sealane`.
#![forbid(unsafe_code)]

use std::io;

use sealane::args::Arguments;
use sealane::commands;
use sealane::control::say;
use sealane::exit::Exit;

fn main() -> Exit {
    match commands::run(Arguments::from_process().command) {
        Ok(exit) => exit,
        // Whoever reads our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
        Err(error) => {
            say(&error.to_string());
            Exit::Failed
        }
    }
}
