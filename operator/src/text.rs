//! The text of a settings file: [`read_text`].

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::mistake::Problem;

/// Reads a settings file. Why it cannot be read may be known better by `refused`.
///
/// # Errors
/// It cannot be read, is too large, or is no text.
pub fn read_text(
    file: &Path,
    refused: impl FnOnce(&io::Error) -> Option<Problem>,
) -> Result<String, Problem> {
    let unreadable =
        |error: &io::Error| Problem::new(format!("cannot be read: {error}"), READ_REMEDY);
    let mut text = Vec::new();
    let limit = SETTINGS_BYTES_MAX as u64 + 1;
    File::open(file)
        .and_then(|f| f.take(limit).read_to_end(&mut text))
        .map_err(|error| refused(&error).unwrap_or_else(|| unreadable(&error)))?;
    if text.len() > SETTINGS_BYTES_MAX {
        let what = format!("is larger than {SETTINGS_BYTES_MAX} bytes");
        let remedy = "name a configuration, and in it directories rather than single files";
        return Err(Problem::new(what, remedy));
    }
    String::from_utf8(text).map_err(|error| {
        let what = format!("is not UTF-8 at byte {}", error.utf8_error().valid_up_to());
        Problem::new(what, "save it as UTF-8")
    })
}

/// Bytes of a settings file.
pub const SETTINGS_BYTES_MAX: usize = 8 << 20;

const READ_REMEDY: &str = "name a TOML file that this user may read";
