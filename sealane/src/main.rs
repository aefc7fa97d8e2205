//! The command `sealane`.
#![forbid(unsafe_code)]

use std::io;

use sealane::args::Arguments;
use sealane::commands;
use sealane::exit::Exit;
use sealane::operator::{Priority, say_at};

fn main() -> Exit {
    match commands::run(Arguments::from_process().command) {
        Ok(exit) => exit,
        // Whoever reads our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
        Err(error) => {
            say_at(Priority::Error, &error.to_string());
            Exit::Failed
        }
    }
}
