//! A document's file, which may be packed: [`text`] of it, and the [`bytes`] that it gets.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};

use crate::error::Error;

/// Reads a document's JSON, unpacked if it is packed with gzip.
///
/// # Errors
/// It cannot be read, is no text, or has more than 64 MiB.
pub fn text(path: &Path) -> Result<String, Error> {
    let mut file = BufReader::new(File::open(path).map_err(Error::file(path))?);
    let is_packed = file.fill_buf().map_err(Error::file(path))?.starts_with(&GZIP);
    // Packed files may be joined: all members are read (RFC 1952, 2.2).
    let json: Box<dyn Read> =
        if is_packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut text = String::new();
    let read = json.take(BYTES_MAX + 1).read_to_string(&mut text);
    if read.map_err(Error::file(path))? as u64 > BYTES_MAX {
        let reason = format!("it has more than {BYTES_MAX} bytes: it is no run's document");
        return Err(Error::Document { file: path.display().to_string(), reason });
    }
    Ok(text)
}

/// What is to stand at `path` for `json`: packed with gzip where the name ends in `.gz`, or what
/// stands there is packed, as a run that goes on found it.
///
/// # Errors
/// It cannot be packed.
pub fn bytes(path: &Path, json: Vec<u8>) -> Result<Vec<u8>, Error> {
    let mut begins = [0; GZIP.len()];
    let is_packed = File::open(path).and_then(|mut file| file.read_exact(&mut begins)).is_ok()
        && begins == GZIP;
    if !is_packed && path.extension().is_none_or(|ending| ending != "gz") {
        return Ok(json);
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&json).and_then(|()| packed.finish()).map_err(Error::file(path))
}

/// How a file that is packed begins (RFC 1952, 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Most bytes of a document's JSON, more than any run writes; a wrong file must not fill memory.
const BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_packed_stays_packed_and_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, named] = ["run.json", "run.json.gz"].map(|name| folder.path().join(name));
        assert_eq!(bytes(&plain, b"{}".into()).unwrap(), b"{}");
        let parts = ["{", "}"].map(|part| bytes(&named, part.into()).unwrap());
        fs::write(&plain, parts.concat()).unwrap();
        assert_eq!(text(&plain).unwrap(), "{}");
        assert!(bytes(&plain, b"{}".into()).unwrap().starts_with(&GZIP));
    }
}
