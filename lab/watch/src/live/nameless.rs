//! Functions of files without symbols: [`Nameless`] calls them after the place where they begin.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::Path,
};

use object::{Object, ObjectSegment};

use crate::unwinding::{self, Functions};

/// Keeps the tables of the files that it was asked about.
#[derive(Debug, Default)]
pub(super) struct Nameless {
    files: HashMap<String, Known>,
    replaced: BTreeSet<String>,
}

/// What is known of one file.
#[derive(Debug, Default)]
struct Known {
    /// Offset in the file, length, address.
    segments: Vec<[u64; 3]>,
    functions: Functions,
}

impl Nameless {
    /// A name for the function around `offset` of the file at `path`.
    pub(super) fn name(&mut self, path: &str, offset: u64) -> String {
        if self.files.len() >= FILES_MAX && !self.files.contains_key(path) {
            return UNKNOWN.into();
        }
        let file = self.files.entry(path.to_owned()).or_insert_with(|| Known::of(Path::new(path)));
        file.around(offset).map_or_else(|| UNKNOWN.into(), unwinding::name)
    }

    /// A name for any function of the file that was at `path` when the program began.
    pub(super) fn replaced(&mut self, path: &str) -> String {
        if MEMORY.iter().any(|start| path.starts_with(start)) {
            return UNKNOWN.into();
        }
        if self.replaced.len() < FILES_MAX {
            self.replaced.insert(path.to_owned());
        }
        REPLACED.into()
    }

    /// The paths of such files.
    pub(super) fn all_replaced(&self) -> Vec<&str> {
        self.replaced.iter().map(String::as_str).collect()
    }
}

impl Known {
    /// What is known of the file; nothing, if it cannot be read.
    fn of(path: &Path) -> Self {
        let small = fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() <= BYTES_MAX);
        let bytes = if small { fs::read(path).unwrap_or_default() } else { Vec::new() };
        let Ok(file) = object::File::parse(&*bytes) else { return Self::default() };
        let segments = file.segments().map(|segment| {
            let (offset, length) = segment.file_range();
            [offset, length, segment.address()]
        });
        Self { segments: segments.collect(), functions: Functions::of(&file) }
    }

    /// The address at which the function around a place in the file begins.
    fn around(&self, offset: u64) -> Option<u64> {
        let [from, _, address] = self
            .segments
            .iter()
            .find(|[from, length, _]| offset >= *from && offset - from < *length)?;
        self.functions.around(offset - from + address)
    }
}

const BYTES_MAX: u64 = 256 * 1024 * 1024;
const FILES_MAX: usize = 32;
/// What is called deleted and never was a file.
const MEMORY: [&str; 3] = ["/memfd:", "/dev/zero", "/SYSV"];
const REPLACED: &str = "function of a replaced file";
const UNKNOWN: &str = "function without a name";

#[cfg(test)]
mod tests {
    use object::ObjectSymbol;

    use super::*;

    /// This test's own program has symbols: its tables must begin its functions where they do.
    #[test]
    fn a_function_begins_where_its_symbol_does() {
        let path = std::env::current_exe().unwrap();
        let bytes = fs::read(&path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let symbol = file
            .symbols()
            .find(|symbol| {
                symbol.size() > 16
                    && symbol.name().is_ok_and(|name| name.contains("numbers_and_names"))
            })
            .unwrap();
        let address = symbol.address();
        let segment = file
            .segments()
            .find(|segment| {
                (segment.address()..segment.address() + segment.size()).contains(&address)
            })
            .unwrap();
        let offset = address - segment.address() + segment.file_range().0;
        let said = Nameless::default().name(path.to_str().unwrap(), offset + 8);
        assert_eq!(said, format!("function at {address:#x}"));
    }

    #[test]
    fn what_is_no_program_has_no_functions() {
        let mut nameless = Nameless::default();
        for path in ["/nonexistent", "/proc/self/status", "/dev/zero", "[vdso]"] {
            assert_eq!(nameless.name(path, 64), UNKNOWN);
        }
    }
}
