//! A document's file, which may be packed: [`text`].

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use flate2::read::GzDecoder;

use crate::error::Error;

/// Reads a document's JSON, unpacked if it is packed with gzip.
///
/// # Errors
/// It cannot be read, is no text, or has more than 64 MiB.
pub fn text(path: &Path) -> Result<String, Error> {
    let mut file = BufReader::new(File::open(path).map_err(Error::file(path))?);
    let is_packed = file.fill_buf().map_err(Error::file(path))?.starts_with(GZIP);
    let json: Box<dyn Read> =
        if is_packed { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    let mut text = String::new();
    let read = json.take(BYTES_MAX + 1).read_to_string(&mut text);
    if read.map_err(Error::file(path))? as u64 > BYTES_MAX {
        let reason = format!("it has more than {BYTES_MAX} bytes: it is no run's document");
        return Err(Error::Document { file: path.display().to_string(), reason });
    }
    Ok(text)
}

/// How a file that is packed begins (RFC 1952, 2.3.1).
const GZIP: &[u8] = &[0x1f, 0x8b];
/// Most bytes of a document's JSON, more than any run writes; a wrong file must not fill memory.
const BYTES_MAX: u64 = 64 << 20;
