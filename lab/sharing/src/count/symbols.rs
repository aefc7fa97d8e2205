//! Names for the addresses of a process that has ended: [`Symbols`], from its memory map and the
//! symbol tables of its files.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use addr2line::Loader;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind, SymbolKind};
use sealane_lab_watch::{
    demangle,
    unwinding::{self, FUNCTION_AT, Functions},
};

/// Answers for one process.
pub(super) struct Symbols {
    files: Vec<Mapped>,
}

/// Where an instruction stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Code {
    /// The file's name, such as `libcrypto.so.3`; empty for none.
    pub(super) owner: String,
    /// The place's function, and before it the functions that were inlined there, innermost first.
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
            Some(outermost) if !is_nameless(&name) => outermost.name = name,
            Some(_) => {}
            None => functions.push(Function { name, ..Function::default() }),
        }
        let atomic = file.instruction(address).is_some_and(|bytes| is_atomic(&bytes));
        Code { owner: file.name.clone(), functions, atomic }
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
    if offset.bytes().any(|digit| digit != b'0') {
        return None;
    }
    let start = u64::from_str_radix(range.split('-').next()?, 16).ok()?;
    // No other field has a slash; a path may have spaces.
    Some((start, PathBuf::from(&line[line.find('/')?..])))
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
    /// By start; of two that begin together, the longer one first.
    symbols: Vec<Symbol>,
    /// Up to each symbol, the last address that any of the same kind covers: where none reaches,
    /// nobody looks further.
    reach: Vec<Reach>,
    /// The functions that have no symbol.
    unnamed: Functions,
    /// `None` if it has no line table.
    lines: Option<Loader>,
}

struct Segment {
    address: u64,
    offset: u64,
    bytes: u64,
}

/// See [`Mapped::reach`].
#[derive(Clone, Copy, Default)]
struct Reach {
    code: u64,
    data: u64,
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
            bias: start.checked_sub(first / PAGE_BYTES * PAGE_BYTES)?,
            extent: first..end,
            segments: segments
                .iter()
                .map(|segment| {
                    let (offset, bytes) = segment.file_range();
                    Segment { address: segment.address(), offset, bytes }
                })
                .collect(),
            reach: reach(&symbols),
            symbols,
            unnamed: Functions::of(&object),
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
                    name: demangle::name(&name),
                    file: at.as_ref().and_then(|at| at.file).unwrap_or_default().to_owned(),
                    line: at.and_then(|at| at.line).unwrap_or_default(),
                });
            }
        }
        functions
    }

    /// The function at `address`. A symbol answers for the bytes that it covers and for no others:
    /// where none does, the function is called after its neighbours and after where it begins.
    fn function(&self, address: u64) -> String {
        if let Some(symbol) = self.covering(address, true) {
            return symbol.name.clone();
        }
        let next = self.symbols.partition_point(|symbol| symbol.start <= address);
        let code = |symbol: &&Symbol| symbol.is_code;
        let before = self.symbols[..next].iter().rev().find(code);
        let after = self.symbols[next..].iter().find(code);
        let place = match self.unnamed.around(address) {
            Some(start) => unwinding::name(start),
            None => format!("{CODE_AT}{address:#x}"),
        };
        if before.or(after).is_none() {
            return place;
        }
        let [before, after] =
            [before, after].map(|symbol| symbol.map_or(NOBODY, |symbol| &symbol.name));
        format!("{place}{BETWEEN}{before}{AND}{after}")
    }

    fn variable(&self, address: u64) -> String {
        match self.covering(address, false) {
            Some(symbol) => symbol.name.clone(),
            None => format!("data at {address:#x}"),
        }
    }

    /// The symbol that begins last of those that cover `address`.
    fn covering(&self, address: u64, is_code: bool) -> Option<&Symbol> {
        let next = self.symbols.partition_point(|symbol| symbol.start <= address);
        let before = self.symbols[..next].iter().zip(&self.reach[..next]).rev();
        let reached = before.take_while(|(_, reach)| match is_code {
            true => reach.code > address,
            false => reach.data > address,
        });
        let mut covering = reached.map(|(symbol, _)| symbol);
        covering.find(|symbol| symbol.is_code == is_code && address < symbol.end)
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
            let is_code = match symbol.kind() {
                SymbolKind::Text => true,
                // Assembly often does not say what its symbols are.
                SymbolKind::Unknown => is_in_code(object, &symbol),
                _ => false,
            };
            let (start, bytes) = (symbol.address(), symbol.size());
            let name = demangle::name(symbol.name().ok()?);
            (bytes > 0).then_some(Symbol { start, end: start + bytes, is_code, name })
        })
        .collect()
}

fn is_in_code<'a>(object: &object::File<'a>, symbol: &object::Symbol<'a, '_>) -> bool {
    let section = symbol.section_index().and_then(|at| object.section_by_index(at).ok());
    section.is_some_and(|section| section.kind() == SectionKind::Text)
}

/// Debian keeps the names of inner functions in files of their own, by build id.
fn separate_symbols(object: &object::File<'_>) -> Option<Vec<Symbol>> {
    let id = object.build_id().ok()??;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("{DEBUG_FILES}/{}/{}.debug", hex.get(..2)?, hex.get(2..)?);
    let data = fs::read(path).ok()?;
    Some(symbols_of(&object::File::parse(&*data).ok()?))
}

fn reach(symbols: &[Symbol]) -> Vec<Reach> {
    let mut reach = Reach::default();
    let further = |symbol: &Symbol| {
        match symbol.is_code {
            true => reach.code = reach.code.max(symbol.end),
            false => reach.data = reach.data.max(symbol.end),
        }
        reach
    };
    symbols.iter().map(further).collect()
}

/// Whether a function's name only tells where it stands.
pub(super) fn is_nameless(function: &str) -> bool {
    [FUNCTION_AT, CODE_AT].iter().any(|start| function.starts_with(start))
}

/// The named functions beside one without a name, as far as there are any.
pub(super) fn neighbours(function: &str) -> impl Iterator<Item = &str> {
    let nameless = is_nameless(function).then_some(function);
    let beside = nameless.and_then(|name| name.split_once(BETWEEN));
    beside.into_iter().flat_map(|(_, names)| names.split(AND))
}

/// Whether an x86-64 instruction has the prefix LOCK, or is an exchange with memory, which needs
/// none; of other processors' it is not known.
pub(super) fn is_atomic(instruction: &[u8]) -> bool {
    cfg!(target_arch = "x86_64") && matches!(behind_prefixes(instruction), [0xf0 | 0x86 | 0x87, ..])
}

/// The rest of an x86-64 instruction behind its prefixes, but for LOCK: BND, REP, NOTRACK, operand
/// and address sizes, segments, REX.
fn behind_prefixes(instruction: &[u8]) -> &[u8] {
    let is_segment = |byte: u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65);
    let is_other = |byte: u8| matches!(byte, 0x40..=0x4f | 0x66 | 0x67 | 0xf2 | 0xf3);
    let is_prefix = |byte: &&u8| is_segment(**byte) || is_other(**byte);
    &instruction[instruction.iter().take_while(is_prefix).count()..]
}

/// How a function without a name is called: `function at 0x80 between a and b`.
const BETWEEN: &str = " between ";
const AND: &str = " and ";
/// How an instruction is called of which not even the function is known.
const CODE_AT: &str = "code at ";
/// In the place of a neighbour's name.
const NOBODY: &str = "?";
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";
const INSTRUCTION_BYTES: usize = 15;
const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests;
