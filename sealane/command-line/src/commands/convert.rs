//! `sealane convert`: another program's configuration as one of Sealane, on standard output.

use std::io::{self, Write};

use sealane_convert::convert;
use tracing::{error, warn};

use crate::args::ConvertArguments;
use crate::exit::Exit;

/// Converts a file, and prints on standard error how many of its lines have a comment.
///
/// # Errors
/// The writer's.
pub fn run(arguments: &ConvertArguments, out: &mut dyn Write) -> io::Result<Exit> {
    let converted = match convert(arguments.dialect, &arguments.file) {
        Ok(converted) => converted,
        Err(mistakes) => {
            error!("{mistakes}");
            return Ok(Exit::Invalid);
        }
    };
    out.write_all(converted.toml.as_bytes())?;
    let file = arguments.file.display();
    let text = match (converted.left_out, converted.noted) {
        (0, 0) => return Ok(Exit::Ok),
        (0, 1) => format!("{file}: 1 comment has a note; clients and backends see no difference"),
        (0, notes) => {
            format!("{file}: {notes} comments have notes; clients and backends see no difference")
        }
        (1, _) => format!("{file}: 1 line was not carried over: see its comment"),
        (lines, _) => {
            format!("{file}: {lines} lines were not carried over: see their comments")
        }
    };
    warn!("{text}");
    Ok(if converted.left_out == 0 { Exit::Noted } else { Exit::Partly })
}
