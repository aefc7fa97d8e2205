//! `sealane config`: what there is to know about configurations.

use std::io::{self, Write};

use crate::args::ConfigCommand;
use crate::exit::Exit;

/// Prints what is asked for.
///
/// # Errors
/// The writer's.
pub(super) fn run(command: &ConfigCommand, out: &mut dyn Write) -> io::Result<Exit> {
    match command {
        ConfigCommand::Schema => {
            let schema = serde_json::to_string_pretty(&sealane_config::schema())?;
            writeln!(out, "{schema}")?;
        }
    }
    Ok(Exit::Ok)
}
