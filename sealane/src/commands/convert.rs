//! `sealane convert`: another program's configuration as one of Sealane, on standard output.

use std::io::{self, Write};

use crate::args::ConvertArguments;
use crate::convert::convert;
use crate::exit::Exit;
use crate::operator::{Priority, say_at};

/// Converts a file, and says on standard error how much of it was left out.
///
/// # Errors
/// The writer's.
pub fn run(arguments: &ConvertArguments, out: &mut dyn Write) -> io::Result<Exit> {
    let converted = match convert(arguments.dialect, &arguments.file) {
        Ok(converted) => converted,
        Err(mistakes) => {
            say_at(Priority::Error, &mistakes.to_string());
            return Ok(Exit::Invalid);
        }
    };
    out.write_all(converted.toml.as_bytes())?;
    if converted.left_out == 0 {
        return Ok(Exit::Ok);
    }
    let lines = match converted.left_out {
        1 => "1 line was not carried over".to_owned(),
        lines => format!("{lines} lines were not carried over"),
    };
    let told = "a comment says of each why, and what to do instead";
    say_at(Priority::Warning, &format!("{}: {lines}; {told}", arguments.file.display()));
    Ok(Exit::Partly)
}
