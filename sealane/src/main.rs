//! The command `sealane`.
#![forbid(unsafe_code)]

use std::io;

use sealane_command_line::args::Arguments;
use sealane_command_line::commands;
use sealane_command_line::exit::Exit;
use sealane_config::Config;
use sealane_control::file_tables::FileTables;
use sealane_control::{ConfigSource, Control, ServeError};
use sealane_operator::log;
use sealane_relay::Relay;
use tracing::error;

fn main() -> Exit {
    log::start("sealane");
    match commands::run(Arguments::from_process().command, start_control) {
        Ok(exit) => exit,
        // The reader of our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
        Err(error) => {
            error!("{error}");
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
