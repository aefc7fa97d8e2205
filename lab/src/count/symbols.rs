//! Names for the addresses of a process that has ended: [`Symbols`], from its memory map and the
//! symbol tables of its files.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use addr2line::Loader;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// Answers for one process.
pub(super) struct Symbols {
    files: Vec<Mapped>,
}

/// Where an instruction stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Code {
    /// The file's name, such as `libcrypto.so.3`; empty for none.
    pub(super) owner: String,
    /// Its function, and before it the functions that were inlined there, innermost first.
    pub(super) functions: Vec<Function>,
    /// Whether the instruction is an atomic one; known on x86-64 only.
    pub(super) atomic: bool,
}

/// A function's name, and where its code stands, as far as the line table tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// The file's path; empty if not known.
    pub(super) file: String,
    /// The line of the instruction or of the call.
    pub(super) line: u32,
}

impl Symbols {
    /// From the text of `/proc/PID/maps`. Files that cannot be read give no names.
    pub(super) fn new(maps: &str) -> Self {
        let mut starts = BTreeMap::new();
        for line in maps.lines() {
            if let Some((start, path)) = first_mapping(line) {
                starts.entry(path).or_insert(start);
            }
        }
        let files = starts.iter().filter_map(|(path, start)| Mapped::open(path, *start)).collect();
        Self { files }
    }

    /// Where `pc` stands.
    pub(super) fn code(&self, pc: u64) -> Code {
        let Some(file) = self.file_at(pc) else { return Code::default() };
        let address = pc - file.bias;
        let mut functions = file.inlined(address);
        // The symbol's name is whole, the line table's may lack its path.
        let name = file.function(address);
        match functions.last_mut() {
            Some(outermost) if !name.starts_with(NAMELESS) => outermost.name = name,
            Some(_) => {}
            None => functions.push(Function { name, ..Function::default() }),
        }
        let atomic = file.instruction(address).is_some_and(|bytes| is_atomic(&bytes));
        Code { owner: file.name.clone(), functions, atomic }
    }

    /// The bytes from `pc` on, of which the first ones are the instruction; `None` if its file is
    /// not known.
    pub(super) fn instruction(&self, pc: u64) -> Option<Vec<u8>> {
        let file = self.file_at(pc)?;
        file.instruction(pc - file.bias)
    }

    /// The variable at `address` and the file that it belongs to; `None` on heap and stack.
    pub(super) fn variable(&self, address: u64) -> Option<(String, String)> {
        let file = self.file_at(address)?;
        Some((file.name.clone(), file.variable(address - file.bias)))
    }

    /// Where the variable called `name` lies in the process.
    pub(super) fn address_of(&self, name: &str) -> Option<u64> {
        self.files.iter().find_map(|file| {
            let symbol = file.symbols.iter().find(|symbol| symbol.name == name)?;
            Some(file.bias + symbol.start)
        })
    }

    fn file_at(&self, address: u64) -> Option<&Mapped> {
        self.files.iter().find(|file| {
            address.checked_sub(file.bias).is_some_and(|offset| file.extent.contains(&offset))
        })
    }
}

/// The start and the file of a mapping that begins at the file's first byte.
fn first_mapping(line: &str) -> Option<(u64, PathBuf)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, offset) = (fields.next()?, fields.nth(1)?);
    let path = fields.nth(2)?;
    if !path.starts_with('/') || offset.bytes().any(|digit| digit != b'0') {
        return None;
    }
    let start = u64::from_str_radix(range.split('-').next()?, 16).ok()?;
    Some((start, PathBuf::from(path)))
}

/// One mapped ELF file.
struct Mapped {
    name: String,
    file: File,
    /// What to add to an address of the file.
    bias: u64,
    /// From the first to behind the last address of the file, zeroed data included.
    extent: std::ops::Range<u64>,
    segments: Vec<Segment>,
    /// By start.
    symbols: Vec<Symbol>,
    /// `None` if it has no line table.
    lines: Option<Loader>,
}

struct Segment {
    address: u64,
    offset: u64,
    bytes: u64,
}

#[derive(Clone)]
struct Symbol {
    start: u64,
    end: u64,
    is_code: bool,
    name: String,
}

impl Mapped {
    fn open(path: &Path, start: u64) -> Option<Self> {
        // A server's shared memory is mapped from /dev/zero, which has no end.
        let _file = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let data = fs::read(path).ok()?;
        let object = object::File::parse(&*data).ok()?;
        let segments: Vec<_> = object.segments().collect();
        let first = segments.iter().map(ObjectSegment::address).min()?;
        let end = segments.iter().map(|segment| segment.address() + segment.size()).max()?;
        let mut symbols = symbols_of(&object);
        if let Some(debug) = separate_symbols(&object) {
            symbols.extend(debug);
        }
        symbols.sort_by(|a, b| (a.start, b.end, &a.name).cmp(&(b.start, a.end, &b.name)));
        let has_lines = object.section_by_name(".debug_line").is_some();
        Some(Self {
            name: path.file_name()?.to_string_lossy().into_owned(),
            file: File::open(path).ok()?,
            bias: start - first / PAGE_BYTES * PAGE_BYTES,
            extent: first..end,
            segments: segments
                .iter()
                .map(|segment| {
                    let (offset, bytes) = segment.file_range();
                    Segment { address: segment.address(), offset, bytes }
                })
                .collect(),
            symbols,
            lines: has_lines.then(|| Loader::new(path).ok()).flatten(),
        })
    }

    fn inlined(&self, address: u64) -> Vec<Function> {
        let mut functions = Vec::new();
        let Some(mut frames) =
            self.lines.as_ref().and_then(|lines| lines.find_frames(address).ok())
        else {
            return functions;
        };
        while let Ok(Some(frame)) = frames.next() {
            if let Some(Ok(name)) = frame.function.as_ref().map(addr2line::FunctionName::raw_name) {
                let at = frame.location;
                functions.push(Function {
                    name: demangle(&name),
                    file: at.as_ref().and_then(|at| at.file).unwrap_or_default().to_owned(),
                    line: at.and_then(|at| at.line).unwrap_or_default(),
                });
            }
        }
        functions
    }

    /// The function at `address`. In a file without the names of its inner functions, between which
    /// two of its public ones.
    fn function(&self, address: u64) -> String {
        let code = |symbol: &&Symbol| symbol.is_code;
        let next = self.symbols.partition_point(|symbol| symbol.start <= address);
        let before = self.symbols[..next].iter().rev().find(code);
        match before {
            Some(symbol) if address < symbol.end => symbol.name.clone(),
            _ => {
                let after = self.symbols[next..].iter().find(code);
                let name = |symbol: Option<&Symbol>| symbol.map_or("?", |s| &s.name).to_owned();
                format!("{NAMELESS}{} and {}", name(before), name(after))
            }
        }
    }

    fn variable(&self, address: u64) -> String {
        let next = self.symbols.partition_point(|symbol| symbol.start <= address);
        let before = self.symbols[..next].iter().rev().find(|symbol| !symbol.is_code);
        match before {
            Some(symbol) if address < symbol.end => symbol.name.clone(),
            _ => format!("data at {address:#x}"),
        }
    }

    fn instruction(&self, address: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; INSTRUCTION_BYTES];
        let at = self.segments.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.address)?;
            (inside < segment.bytes).then_some(segment.offset + inside)
        })?;
        let read = self.file.read_at(&mut bytes, at).ok()?;
        bytes.truncate(read);
        Some(bytes)
    }
}

/// Functions and variables, thread-local ones apart, which have no address of their own.
fn symbols_of(object: &object::File<'_>) -> Vec<Symbol> {
    object
        .symbols()
        .chain(object.dynamic_symbols())
        .filter(|symbol| symbol.is_definition() && symbol.kind() != SymbolKind::Tls)
        .filter_map(|symbol| {
            let is_code = symbol.kind() == SymbolKind::Text;
            let (start, bytes) = (symbol.address(), symbol.size());
            let name = demangle(symbol.name().ok()?);
            (bytes > 0).then_some(Symbol { start, end: start + bytes, is_code, name })
        })
        .collect()
}

/// Debian keeps the names of inner functions in files of their own, by build id.
fn separate_symbols(object: &object::File<'_>) -> Option<Vec<Symbol>> {
    let id = object.build_id().ok()??;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("{DEBUG_FILES}/{}/{}.debug", hex.get(..2)?, hex.get(2..)?);
    let data = fs::read(path).ok()?;
    Some(symbols_of(&object::File::parse(&*data).ok()?))
}

fn demangle(name: &str) -> String {
    // A symbol's version, `name@@GLIBC_2.34`, is no part of its name.
    let name = name.split('@').next().unwrap_or_default();
    format!("{:#}", rustc_demangle::demangle(name))
}

/// Whether an x86-64 instruction has the prefix LOCK, or is an exchange with memory, which needs
/// none; of other processors' it is not known.
pub(super) fn is_atomic(instruction: &[u8]) -> bool {
    let mut bytes = instruction.iter().copied();
    let Some(first) = bytes.by_ref().find(|byte| !matches!(byte, 0x66 | 0xf2 | 0xf3 | 0x40..=0x4f))
    else {
        return false;
    };
    cfg!(target_arch = "x86_64") && matches!(first, 0xf0 | 0x86 | 0x87)
}

/// How the name of a function begins that has none.
pub(super) const NAMELESS: &str = "between ";
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";
const INSTRUCTION_BYTES: usize = 15;
const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_mapped_from_a_device_has_no_names() {
        let maps = "00001000-00002000 rw-s 00000000 00:01 9    /dev/zero (deleted)\n";
        assert!(Symbols::new(maps).files.is_empty());
    }

    #[test]
    fn this_process_is_named() {
        let maps = fs::read_to_string("/proc/self/maps").expect("maps");
        let symbols = Symbols::new(&maps);
        let marks = symbols.address_of(crate::phase::SYMBOL).expect("the marks have a symbol");
        assert_eq!(marks, crate::phase::address() as u64);
        let (_, name) = symbols.variable(marks + 64).expect("a variable");
        assert_eq!(name, crate::phase::SYMBOL);
        assert_eq!(symbols.variable(0x10), None);
    }

    #[test]
    fn atomic_instructions_are_known() {
        assert!(is_atomic(&[0xf0, 0x48, 0x0f, 0xc1, 0x07]), "lock xadd");
        assert!(is_atomic(&[0x48, 0x87, 0x07]), "xchg");
        assert!(!is_atomic(&[0x48, 0x89, 0x07]), "mov");
    }
}
