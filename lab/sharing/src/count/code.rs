//! What the instructions of a traced program are: [`Codes`] knows of each whether it calls, returns
//! or updates memory atomically, and whether it stands in a function that takes a lock.

use std::{collections::HashMap, fs};

use crate::count::{
    operation::{self, Found},
    symbols::{Symbols, behind_prefixes, is_atomic},
};

/// Answers for one process, and remembers.
#[derive(Default)]
pub(super) struct Codes {
    /// The process, whose memory map is read when the first answer is wanted: by then its
    /// libraries are loaded.
    process: Option<u32>,
    /// The last memory map, for a process that has ended since.
    maps: String,
    symbols: Option<Symbols>,
    kinds: HashMap<u64, Kind>,
    /// The same, one place for many instructions; an instruction is mostly asked for again soon.
    recent: Vec<(u64, Kind)>,
    found: HashMap<u64, Found>,
}

/// One instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) flow: Flow,
    /// Whether it reads and writes memory as one.
    pub(super) atomic: bool,
}

/// Where a thread goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Flow {
    /// Behind it, or somewhere in the same function.
    #[default]
    On,
    /// In another function, which returns behind it.
    Call,
    /// Where it was called.
    Return,
    /// Code whose bytes are not known: the kernel's own, or a file that is gone.
    Unknown,
}

impl Codes {
    /// The code of the process with that number.
    pub(super) fn of(process: u32) -> Self {
        Self { process: Some(process), ..Self::default() }
    }

    /// Takes the process's memory map, as last read.
    pub(super) fn set_maps(&mut self, maps: &str) {
        if self.symbols.is_none() {
            maps.clone_into(&mut self.maps);
        }
    }

    /// What the instruction at `pc` is.
    pub(super) fn kind(&mut self, pc: u64) -> Kind {
        if self.recent.is_empty() {
            self.recent = vec![(0, Kind::default()); RECENT];
        }
        let place = usize::try_from(pc).unwrap_or_default() % RECENT;
        let (known, kind) = self.recent[place];
        if known == pc {
            return kind;
        }
        let kind = match self.kinds.get(&pc) {
            Some(kind) => *kind,
            None => {
                let bytes = self.symbols().instruction(pc);
                let unknown = Kind { flow: Flow::Unknown, atomic: false };
                let kind = bytes.as_deref().map_or(unknown, kind_of);
                self.kinds.insert(pc, kind);
                kind
            }
        };
        self.recent[place] = (pc, kind);
        kind
    }

    /// What is done to a lock by the function that `pc` stands in.
    pub(super) fn operation(&mut self, pc: u64) -> Found {
        if let Some(found) = self.found.get(&pc) {
            return *found;
        }
        let found = operation::of(&self.symbols().code(pc).functions);
        self.found.insert(pc, found);
        found
    }

    fn symbols(&mut self) -> &Symbols {
        let Self { process, maps, symbols, .. } = self;
        symbols.get_or_insert_with(|| {
            let now = process.and_then(|id| fs::read_to_string(format!("/proc/{id}/maps")).ok());
            Symbols::new(now.as_ref().filter(|text| !text.is_empty()).unwrap_or(maps))
        })
    }
}

#[cfg(test)]
impl Codes {
    /// The code of a process that does not exist.
    pub(super) fn known(kinds: &[(u64, Kind)], found: &[(u64, Found)]) -> Self {
        Self {
            kinds: kinds.iter().copied().collect(),
            found: found.iter().copied().collect(),
            symbols: Some(Symbols::new("")),
            ..Self::default()
        }
    }

    /// With an instruction in the same function as another one.
    pub(super) fn with_operation_at(mut self, pc: u64, like: u64) -> Self {
        let found = self.operation(like);
        self.found.insert(pc, found);
        self
    }
}

/// The kind of an x86-64 instruction; of others, nothing is known but that they go on.
fn kind_of(bytes: &[u8]) -> Kind {
    if !cfg!(target_arch = "x86_64") {
        return Kind::default();
    }
    Kind { flow: flow(bytes), atomic: is_atomic(bytes) }
}

fn flow(bytes: &[u8]) -> Flow {
    match *behind_prefixes(bytes) {
        [0xe8, ..] => Flow::Call,
        [0xff, modes, ..] if modes >> 3 & 7 == 2 => Flow::Call,
        [0xc3 | 0xc2, ..] => Flow::Return,
        _ => Flow::On,
    }
}

/// A power of two; more than the instructions of any loop.
const RECENT: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_returns_are_known_by_their_bytes() {
        for (bytes, expected) in [
            (&[0xe8, 0, 0, 0, 0][..], Flow::Call),
            (&[0xff, 0x15, 0, 0, 0, 0], Flow::Call),
            (&[0x41, 0xff, 0xd4], Flow::Call),
            (&[0x67, 0xe8, 0, 0, 0, 0], Flow::Call),
            (&[0x64, 0xff, 0x14, 0x25, 0x10, 0, 0, 0], Flow::Call),
            (&[0xff, 0xe0], Flow::On),
            (&[0xff, 0x35, 0, 0, 0, 0], Flow::On),
            (&[0xc3], Flow::Return),
            (&[0xf3, 0xc3], Flow::Return),
            (&[0x48, 0x89, 0xc3], Flow::On),
            (&[], Flow::On),
        ] {
            assert_eq!(flow(bytes), expected, "{bytes:x?}");
        }
    }
}
