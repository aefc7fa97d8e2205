//! The command `sealane`.
#![forbid(unsafe_code)]

use std::io;

use sealane::args::Arguments;
use sealane::commands;
use sealane::config::Config;
use sealane::control::{ConfigSource, Control, ServeError};
use sealane::exit::Exit;
use sealane::file_tables::FileTables;
use sealane::operator::{Priority, say_at};
use sealane::relay::Relay;

fn main() -> Exit {
    match commands::run(Arguments::from_process().command, start_control) {
        Ok(exit) => exit,
        // The reader of our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
        Err(error) => {
            say_at(Priority::Error, &error.to_string());
            Exit::Failed
        }
    }
}

/// Starts a terminator whose lanes relay to backends.
fn start_control(
    source: ConfigSource,
    config: Config,
    tables: FileTables,
) -> Result<Control, ServeError> {
    Control::start(source, config, tables, Relay::new)
}
