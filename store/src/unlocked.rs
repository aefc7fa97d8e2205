//! Where a store is in the memory of this process: [`unlock`] leaves its pages to the kernel.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;

use rustix::mm::munlock;

/// Lets the kernel give up pages of the file at `path` that are mapped here, whatever else of this
/// process has to stay in memory: they are a file's, which no swap gets, and keys in them are
/// sealed. Locked, all of a store that was ever read would stay.
pub(crate) fn unlock(path: &Path) {
    // Where this cannot be told, more is locked than has to be.
    let Ok(path) = path.canonicalize() else { return };
    let Ok(maps) = fs::read(OWN_MAPS) else { return };
    for line in maps.split(|byte| *byte == b'\n') {
        if let Some((start, end)) = range(line, path.as_os_str().as_bytes()) {
            // SAFETY: it changes neither what is there nor who may use it. If that is another map
            // by now, pages of that may be given up.
            #[allow(unsafe_code, reason = "a mapped file cannot be told from others otherwise")]
            let _ = unsafe { munlock(ptr::with_exposed_provenance_mut(start), end - start) };
        }
    }
}

/// Where a line of the map says that `path` is.
fn range(line: &[u8], path: &[u8]) -> Option<(usize, usize)> {
    let name = line.iter().position(|byte| *byte == b'/')?;
    if &line[name..] != path {
        return None;
    }
    let line = str::from_utf8(&line[..name]).ok()?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

const OWN_MAPS: &str = "/proc/self/maps";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_its_whole_path() {
        let line = b"7f00-7f80 r--s 00000000 fe:00 38 /var/lib/sealane/store/data.mdb";
        assert_eq!(range(line, b"/var/lib/sealane/store/data.mdb"), Some((0x7f00, 0x7f80)));
        for other in ["/store/data.mdb", "/var/lib/sealane/store/data.md", ""] {
            assert_eq!(range(line, other.as_bytes()), None, "{other}");
        }
        assert_eq!(range(b"7f00-7f80 rw-p 00000000 00:00 0 ", b""), None);
    }
}
