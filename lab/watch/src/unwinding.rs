//! Where the functions of a file begin and end, [`Functions`]: the tables for unwinding tell it
//! even of stripped files, without names.

use addr2line::gimli::{
    BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection,
};
use object::{Object, ObjectSection};

/// The functions of one file, by its own addresses.
#[derive(Debug, Default)]
pub struct Functions {
    /// First address, and the one behind the last; ascending.
    functions: Vec<(u64, u64)>,
}

impl Functions {
    /// The functions of a file; without the tables, nothing is known.
    pub fn of(file: &object::File<'_>) -> Self {
        let mut all = Self::default();
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

    /// The address at which the function around `address` begins.
    pub fn around(&self, address: u64) -> Option<u64> {
        let after = self.functions.partition_point(|(start, _)| *start <= address);
        let (start, end) = self.functions.get(after.checked_sub(1)?)?;
        (address < *end).then_some(*start)
    }
}

/// What a function without a name is called.
pub fn name(start: u64) -> String {
    format!("{FUNCTION_AT}{start:#x}")
}

/// How such a name begins.
pub const FUNCTION_AT: &str = "function at ";
const FUNCTIONS_MAX: usize = 1_000_000;
