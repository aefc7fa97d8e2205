//! The text of a settings file: [`read_text`].

use std::io;
use std::path::Path;

use sealane_certificate_files::{self as files, TextError};

use crate::mistake::Problem;

/// Reads a settings file. Why it cannot be read may be known better by `refused`.
///
/// # Errors
/// It cannot be read, is too large, or is no text.
pub fn read_text(
    file: &Path,
    refused: impl FnOnce(&io::Error) -> Option<Problem>,
) -> Result<String, Problem> {
    files::read_text(file, SETTINGS_BYTES_MAX).map_err(|error| match &error {
        TextError::Unreadable(source) => {
            refused(source).unwrap_or_else(|| Problem::new(error.to_string(), READ_REMEDY))
        }
        TextError::TooLarge(_) => {
            let remedy = "name a configuration, and in it directories rather than single files";
            Problem::new(error.to_string(), remedy)
        }
        TextError::NotUtf8(at) => {
            Problem::new(format!("is not UTF-8 at byte {at}"), "save it as UTF-8")
        }
        TextError::Utf16 => Problem::new("is UTF-16", "save it as UTF-8"),
    })
}

/// Bytes of a settings file.
pub const SETTINGS_BYTES_MAX: usize = 8 << 20;

const READ_REMEDY: &str = "name a TOML file that this user may read";

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn settings_are_a_regular_file_of_bounded_size() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = |path: &Path| read_text(path, |_| None).unwrap_err().to_string();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        assert!(refusal(&pipe).contains("cannot be read: it is a named pipe, not a file; name"));
        let large = folder.path().join("large");
        File::create(&large).unwrap().set_len(1 << 40).unwrap();
        assert!(refusal(&large).contains("is larger than 8388608 bytes; name"));
        assert!(refusal(Path::new("/dev/zero")).contains("it is a device, not a file"));
    }
}
