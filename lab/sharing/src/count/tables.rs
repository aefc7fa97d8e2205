//! Lock calls of a server that runs, [`Tables`]: the interposer's tables are files that are read
//! whenever a round of connections is over, so that no server has to end by itself.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use sealane_lab_harness::phase::Phase;
use sealane_lab_model::error::Error;

use crate::count::{
    locks::{Row, Rows, Sites},
    slope::LENGTHS,
};

/// What was read so far.
pub(super) struct Tables {
    folder: PathBuf,
    /// By process, as it was when it was read last.
    processes: BTreeMap<u32, Process>,
    readings: usize,
}

#[derive(Default)]
struct Process {
    maps: String,
    /// By table and place in it: the calls of each reading, and the row.
    rows: BTreeMap<(usize, usize), (Vec<u64>, Row)>,
}

impl Tables {
    /// In `folder`, nothing so far.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, processes: BTreeMap::new(), readings: 0 }
    }

    /// Reads all tables once more.
    ///
    /// # Errors
    /// If a limit of the interposer was met, or it is not there.
    pub(super) fn read(&mut self) -> Result<(), Error> {
        let entries = fs::read_dir(&self.folder).map_err(Error::file(&self.folder))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name == LOST {
                return Err(Error::Check(
                    "the interposer met a limit (native/locks.c): more than 64 threads at once, or \
                     a server whose user may not write below the temporary folder (TMPDIR)"
                        .into(),
                ));
            }
            let numbers =
                name.split_once('.').map(|(process, table)| (process.parse(), table.parse()));
            if let Some((Ok(process), Ok(table))) = numbers {
                self.table(process, table, &entry.path())?;
            }
        }
        self.readings += 1;
        Ok(())
    }

    /// Whether any process has the interposer in it.
    pub(super) fn are_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// The calls of the last three steps from one reading to the next, by site, and how many locks
    /// two threads take.
    pub(super) fn steps(&self) -> ([Sites; LENGTHS], u64) {
        let mut steps = [Sites::new(), Sites::new(), Sites::new()];
        let mut shared = 0;
        for process in self.processes.values() {
            let rows = process.rows.values().map(|(_, row)| row.clone()).collect();
            let rows = Rows { rows, maps: process.maps.clone() };
            shared += rows.shared();
            for ((calls, _), site) in process.rows.values().zip(rows.sites()) {
                let at = |reading: usize| calls.get(reading).copied().unwrap_or_default();
                let first = self.readings.saturating_sub(LENGTHS);
                for (step, sites) in steps.iter_mut().enumerate() {
                    let before = (first + step).checked_sub(1).map_or(0, at);
                    let calls = at(first + step).saturating_sub(before);
                    sites.entry(site.clone()).or_default().server += calls;
                }
            }
        }
        (steps, shared)
    }

    fn table(&mut self, process: u32, table: usize, file: &Path) -> Result<(), Error> {
        let bytes = fs::read(file).map_err(Error::file(file))?;
        let number = |at: usize| -> u64 {
            let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        if number(0) > 0 {
            return Err(Error::Check(
                "the interposer met a limit (native/locks.c): too many locks and call paths; ask \
                 for fewer connections"
                    .into(),
            ));
        }
        let known = self.processes.entry(process).or_default();
        // Of one that has ended, what was read before.
        if let Ok(maps) = fs::read_to_string(format!("/proc/{process}/maps"))
            && !maps.is_empty()
        {
            known.maps = maps;
        }
        for (place, at) in (HEADER_BYTES..bytes.len()).step_by(ROW_BYTES).enumerate() {
            let (lock, calls) = (number(at), number(at + 8));
            if lock == 0 {
                continue;
            }
            let [kind, phase, frames] = [16, 17, 18].map(|field| usize::from(bytes[at + field]));
            let path = (0..frames).map(|frame| number(at + PATH_AT + 8 * frame)).collect();
            let kind = KINDS.get(kind).copied().unwrap_or("mutex").to_owned();
            let row = Row { thread: table, kind, phase, lock, calls, path };
            let (readings, last) =
                known.rows.entry((table, place)).or_insert_with(|| (Vec::new(), row.clone()));
            readings.resize(self.readings, 0);
            readings.push(calls);
            *last = row;
        }
        Ok(())
    }
}

const _: () = assert!(Phase::Server as usize == 1, "what the interposer calls phase 1");
/// The header's length, as in `native/locks.c`.
const HEADER_BYTES: usize = 8;
const KINDS: [&str; 4] = ["mutex", "read", "write", "spin"];
const LOST: &str = "lost";
const PATH_AT: usize = 24;
const ROW_BYTES: usize = 24 + 8 * 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(u64, u64, u8)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        for (lock, calls, kind) in rows {
            let mut row = vec![0; ROW_BYTES];
            row[..8].copy_from_slice(&lock.to_ne_bytes());
            row[8..16].copy_from_slice(&calls.to_ne_bytes());
            row[16..19].copy_from_slice(&[*kind, 1, 0]);
            bytes.extend(row);
        }
        bytes
    }

    #[test]
    fn what_each_step_added_is_told_by_lock() {
        let folder = tempfile::tempdir().unwrap();
        let mut tables = Tables::new(folder.path().to_owned());
        for (mutex, read) in [(5, 0), (15, 0), (35, 8), (65, 20)] {
            let rows = [(0x10, mutex, 0), (0, 0, 0), (0x20, read, 1)];
            fs::write(folder.path().join("4000000.0"), table(&rows)).unwrap();
            tables.read().unwrap();
        }
        let (steps, shared) = tables.steps();
        let calls = steps.map(|sites| {
            let mut calls: Vec<_> =
                sites.iter().map(|((_, kind, _), it)| (kind.clone(), it.server)).collect();
            calls.sort();
            calls
        });
        let expected = |mutex, read| vec![("mutex".to_owned(), mutex), ("read".to_owned(), read)];
        assert_eq!(calls, [expected(10, 0), expected(20, 8), expected(30, 12)]);
        assert_eq!(shared, 0);
    }

    #[test]
    fn a_limit_that_was_met_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut tables = Tables::new(folder.path().to_owned());
        tables.read().unwrap();
        assert!(tables.are_empty());
        let mut lost = table(&[(1, 1, 0)]);
        lost[0] = 7;
        fs::write(folder.path().join("1.0"), lost).unwrap();
        assert!(tables.read().is_err());
        fs::remove_file(folder.path().join("1.0")).unwrap();
        fs::write(folder.path().join("lost"), "").unwrap();
        assert!(tables.read().is_err());
    }
}
