//! Functions of files without symbols: [`Nameless`] calls them after the place where they begin,
//! which the tables for unwinding tell even of stripped files.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::Path,
};

use addr2line::gimli::{
    BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection,
};
use object::{Object, ObjectSection, ObjectSegment};

/// Keeps the tables of the files that it was asked about.
#[derive(Debug, Default)]
pub(super) struct Nameless {
    files: HashMap<String, Functions>,
    replaced: BTreeSet<String>,
}

/// Of one file.
#[derive(Debug, Default)]
struct Functions {
    /// Offset in the file, length, address.
    segments: Vec<[u64; 3]>,
    /// First and last address of each function, ascending.
    functions: Vec<(u64, u64)>,
}

impl Nameless {
    /// A name for the function around `offset` of the file at `path`.
    pub(super) fn name(&mut self, path: &str, offset: u64) -> String {
        if self.files.len() >= FILES_MAX && !self.files.contains_key(path) {
            return UNKNOWN.into();
        }
        let file =
            self.files.entry(path.to_owned()).or_insert_with(|| Functions::of(Path::new(path)));
        match file.around(offset) {
            Some(start) => format!("function at {start:#x}"),
            None => UNKNOWN.into(),
        }
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

impl Functions {
    /// Of a file that cannot be read, nothing is known.
    fn of(path: &Path) -> Self {
        let small = fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() <= BYTES_MAX);
        let bytes = if small { fs::read(path).unwrap_or_default() } else { Vec::new() };
        let Ok(file) = object::File::parse(&*bytes) else { return Self::default() };
        let segments = file.segments().map(|segment| {
            let (offset, length) = segment.file_range();
            [offset, length, segment.address()]
        });
        let mut all = Self { segments: segments.collect(), functions: Vec::new() };
        let Some(section) = file.section_by_name(".eh_frame") else { return all };
        let Ok(data) = section.data() else { return all };
        let mut bases = BaseAddresses::default().set_eh_frame(section.address());
        if let Some(text) = file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        let frames = EhFrame::new(data, LittleEndian);
        let mut entries = frames.entries(&bases);
        while let (Ok(Some(entry)), true) = (entries.next(), all.functions.len() < FUNCTIONS_MAX) {
            let CieOrFde::Fde(partial) = entry else { continue };
            let parsed = partial.parse(|frames: &EhFrame<EndianSlice<'_, _>>, bases, at| {
                frames.cie_from_offset(bases, at)
            });
            if let Ok(function) = parsed {
                let start = function.initial_address();
                all.functions.push((start, start.saturating_add(function.len())));
            }
        }
        all.functions.sort_unstable();
        all
    }

    /// The address at which the function around a place in the file begins.
    fn around(&self, offset: u64) -> Option<u64> {
        let [from, _, address] = self
            .segments
            .iter()
            .find(|[from, length, _]| offset >= *from && offset - from < *length)?;
        let place = offset - from + address;
        let after = self.functions.partition_point(|(start, _)| *start <= place);
        let (start, end) = self.functions.get(after.checked_sub(1)?)?;
        (place < *end).then_some(*start)
    }
}

const BYTES_MAX: u64 = 256 * 1024 * 1024;
const FILES_MAX: usize = 32;
const FUNCTIONS_MAX: usize = 1_000_000;
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
