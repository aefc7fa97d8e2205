//! Regular files, opened for reading so that nothing at a path holds up a process:
//! [`open_regular`], and [`read_text`] for files of text.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Opens a regular file for reading, also through links, and returns at once. Without this, to open
/// a named pipe waits for a process at its other end, and a device may have no end.
///
/// # Errors
/// The system's, or it is no regular file: [`NotRegular`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    let opened = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path);
    let file = opened.map_err(|error| match fs::metadata(path) {
        // The system has no word for this: no such device or address.
        Ok(facts) if facts.file_type().is_socket() => io::Error::other(NotRegular("a socket")),
        _ => error,
    })?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    Err(io::Error::other(NotRegular(match kind {
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a named pipe",
        _ => "a device",
    })))
}

/// The kind of a file at a path that is no regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is {0}, not a file")]
pub struct NotRegular(&'static str);

impl NotRegular {
    /// Whether an error of [`open_regular`] is this one.
    pub fn is_cause_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<Self>)
    }
}

/// Reads a file of text in UTF-8, at most `bytes_max` bytes of it. A byte order mark is skipped, as
/// in PEM files: editors on Windows write one.
///
/// # Errors
/// It cannot be read, is too large, or is no text in UTF-8.
pub fn read_text(path: &Path, bytes_max: usize) -> Result<String, TextError> {
    let mut text = Vec::new();
    open_regular(path)?.take(bytes_max as u64 + 1).read_to_end(&mut text)?;
    if text.len() > bytes_max {
        return Err(TextError::TooLarge(bytes_max));
    }
    if text.starts_with(MARK) {
        text.drain(..MARK.len());
    }
    String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        TextError::of_bytes(error.as_bytes(), at)
    })
}

/// The reason why a file of text cannot be used. No error quotes it: the path may be that of
/// another file.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// Some other encoding, or no text.
    #[error("is not UTF-8 at byte {0}; save it as UTF-8")]
    NotUtf8(usize),
    /// More bytes than it may have.
    #[error("is larger than {0} bytes")]
    TooLarge(usize),
    /// A failed read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The encoding that editors on Windows call Unicode.
    #[error("is UTF-16; save it as UTF-8")]
    Utf16,
}

impl TextError {
    /// The error of a text that is not UTF-8 from byte `at` on.
    pub fn of_bytes(bytes: &[u8], at: usize) -> Self {
        match bytes {
            [0xfe, 0xff, ..] | [0xff, 0xfe, ..] => Self::Utf16,
            _ => Self::NotUtf8(at),
        }
    }
}

/// The byte order mark of UTF-8.
pub const MARK: &[u8] = b"\xef\xbb\xbf";
/// Linux has this value on all processors that Sealane runs on (asm-generic).
const O_NONBLOCK: i32 = 0o4000;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    #[test]
    fn open_regular_refuses_other_kinds_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        symlink(at("pipe"), at("link-to-pipe")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert!(open_regular(&at("file")).is_ok() && open_regular(&at("link")).is_ok());
        for (path, expected) in [
            (at("pipe"), "it is a named pipe, not a file"),
            (at("link-to-pipe"), "it is a named pipe, not a file"),
            (at("socket"), "it is a socket, not a file"),
            (folder.path().to_owned(), "it is a directory, not a file"),
            ("/dev/zero".into(), "it is a device, not a file"),
        ] {
            assert_eq!(open_regular(&path).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn text_has_a_limit_and_no_mark() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let read = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            read_text(&path, 8).map_err(|error| error.to_string())
        };
        assert_eq!(read(b"\xef\xbb\xbfab").unwrap(), "ab");
        assert_eq!(read(b"12345678").unwrap(), "12345678");
        assert_eq!(read(b"123456789").unwrap_err(), "is larger than 8 bytes");
        assert_eq!(read(b"ab\xff").unwrap_err(), "is not UTF-8 at byte 2; save it as UTF-8");
        for utf16 in [b"\xff\xfea\0", b"\xfe\xff\0a"] {
            assert_eq!(read(utf16).unwrap_err(), "is UTF-16; save it as UTF-8");
        }
    }
}
