//! The memory traces of a server and all processes that it forks, [`Traces`]: each writes a file of
//! its own, which is read, and given back to the disk, as it grows.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rustix::fs::FallocateFlags;
use sealane_lab_model::error::Error;

use crate::count::{
    lines,
    slope::Length,
    symbols::Symbols,
    threads::Work,
    trace::{Trace, WrittenLine},
};

/// Those that there are so far.
pub(super) struct Traces {
    folder: PathBuf,
    processes: BTreeMap<u32, Process>,
    buffer: Vec<u8>,
}

struct Process {
    file: File,
    at: u64,
    trace: Trace,
    maps: String,
    look_again: u64,
}

/// What was done since the last one was taken.
pub(super) struct Taken {
    pub(super) length: Length,
    /// The work of each process's threads.
    pub(super) works: Vec<Vec<Work>>,
}

/// The command line of lackey that writes such traces to `folder`.
///
/// # Errors
/// If valgrind is not installed.
pub(super) fn instrument(folder: &Path) -> Result<Vec<OsString>, Error> {
    let mut file = OsString::from("--log-file=");
    file.push(folder.join(PREFIX));
    file.push("%p");
    lines::lackey_with(["--trace-children=yes".into(), file])
}

impl Traces {
    /// In `folder`, none so far.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, processes: BTreeMap::new(), buffer: vec![0; READ_BYTES] }
    }

    /// Reads what has been written, of each process a piece: how many bytes.
    ///
    /// # Errors
    /// If a limit is met.
    pub(super) fn look(&mut self) -> Result<u64, Error> {
        self.find()?;
        let mut all = 0;
        for (id, process) in &mut self.processes {
            for _ in 0..READS_MAX {
                let read = process.read(*id, &mut self.buffer)?;
                all += read;
                if read == 0 {
                    break;
                }
            }
        }
        Ok(all)
    }

    /// What valgrind said of each process, the last of it.
    pub(super) fn words(&self) -> String {
        let words = self.processes.values().map(|process| process.trace.words());
        words.collect::<Vec<_>>().join("\n")
    }

    /// What all did since the last call.
    pub(super) fn take(&mut self) -> Taken {
        let mut works = Vec::new();
        let mut instructions = 0;
        let mut shared = Vec::new();
        let mut between: BTreeMap<(String, u64), WrittenLine> = BTreeMap::new();
        for (place, (id, process)) in self.processes.iter_mut().enumerate() {
            process.look_at_maps(*id);
            let work = process.trace.take_work();
            instructions += work.iter().map(|work| work.instructions).sum::<u64>();
            works.push(work);
            let objects = objects(&process.maps);
            for mut line in process.trace.take_written() {
                let object = objects.iter().find(|object| object.holds(line.address));
                let Some(object) = object else {
                    if line.has_writers() {
                        shared.push(line);
                    }
                    continue;
                };
                line.writes.iter_mut().for_each(|write| write.thread += place * THREADS);
                let key = (object.name.clone(), object.offset + line.address - object.start);
                match between.get_mut(&key) {
                    Some(same) => {
                        same.writes.append(&mut line.writes);
                        // Of two processes, which both live.
                        same.met = true;
                    }
                    None => _ = between.insert(key, line),
                }
            }
        }
        shared.extend(between.into_values().filter(WrittenLine::has_writers));
        Taken { length: Length { shared, instructions }, works }
    }

    /// The names of what the process with the most lines runs; all that were forked have the same.
    pub(super) fn symbols(&self) -> Symbols {
        let busiest = self.processes.values().max_by_key(|process| process.trace.read());
        Symbols::new(busiest.map_or("", |process| &process.maps))
    }

    fn find(&mut self) -> Result<(), Error> {
        let entries = fs::read_dir(&self.folder).map_err(Error::file(&self.folder))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
            let Some(id) = id.filter(|id| !self.processes.contains_key(id)) else { continue };
            if self.processes.len() >= PROCESSES_MAX {
                return Err(Error::Check(format!(
                    "more than {PROCESSES_MAX} processes were started; give it fewer workers"
                )));
            }
            // To read and to give it back.
            let path = entry.path();
            let file = File::options().read(true).write(true).open(&path);
            let file = file.map_err(Error::file(&path))?;
            let (trace, maps) = (Trace::of_server(), String::new());
            self.processes.insert(id, Process { file, at: 0, trace, maps, look_again: 0 });
        }
        Ok(())
    }
}

impl Process {
    fn read(&mut self, id: u32, buffer: &mut [u8]) -> Result<u64, Error> {
        let what = || format!("the memory trace of process {id}");
        let written = self.file.metadata().map_err(Error::io(what()))?.len();
        if written < self.at {
            // It has become another program, which began anew.
            (self.at, self.trace) = (0, Trace::of_server());
        }
        if written - self.at > BEHIND_BYTES_MAX {
            return Err(Error::Check(format!(
                "{} is {} bytes ahead of its reader, which would fill the disk; a release build \
                 of sealane-lab reads faster",
                what(),
                written - self.at
            )));
        }
        let read = self.file.read_at(buffer, self.at).map_err(Error::io(what()))?;
        self.trace.feed(&buffer[..read])?;
        let before = self.at;
        self.at += read as u64;
        if before / PUNCH_BYTES != self.at / PUNCH_BYTES {
            self.give_back(&what())?;
        }
        if self.trace.read() > self.look_again {
            // Libraries that were loaded since.
            self.look_at_maps(id);
            self.look_again = self.trace.read() + MAPS_EVERY_LINES;
        }
        Ok(read as u64)
    }

    /// The bytes that were read.
    fn give_back(&self, what: &str) -> Result<(), Error> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, hole, 0, self.at / PUNCH_BYTES * PUNCH_BYTES) {
            Err(error) if self.at > BEHIND_BYTES_MAX => Err(Error::Check(format!(
                "{what} grows beyond {BEHIND_BYTES_MAX} bytes, and its file system takes nothing \
                 back ({error}): set TMPDIR to a folder on ext4, xfs, btrfs or tmpfs"
            ))),
            _ => Ok(()),
        }
    }

    fn look_at_maps(&mut self, id: u32) {
        let maps = fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default();
        if !maps.is_empty() {
            self.maps = maps;
        }
    }
}

/// A piece of memory that processes may share.
struct Object {
    start: u64,
    end: u64,
    /// In the object that is mapped there.
    offset: u64,
    /// The file's device and its number there.
    name: String,
}

impl Object {
    fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// `7f1c2000-7f1c3000 rw-s 00000000 00:01 1031 /dev/zero (deleted)`.
fn objects(maps: &str) -> Vec<Object> {
    let object = |line: &str| {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next()?, fields.next()?);
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        let offset = hexadecimal(fields.next()?)?;
        let name = format!("{} {}", fields.next()?, fields.next()?);
        let (start, end) = range.split_once('-')?;
        let object = Object { start: hexadecimal(start)?, end: hexadecimal(end)?, offset, name };
        (rights.starts_with("rw") && rights.ends_with('s')).then_some(object)
    };
    maps.lines().filter_map(object).collect()
}

/// Bytes of a file that is not read yet, or that cannot be given back.
const BEHIND_BYTES_MAX: u64 = 4 << 30;
const MAPS_EVERY_LINES: u64 = 500_000;
const PREFIX: &str = "trace.";
const PROCESSES_MAX: usize = 64;
/// Bytes after whose reading they are given back.
const PUNCH_BYTES: u64 = 16 << 20;
const READ_BYTES: usize = 256 * 1024;
/// Reads of one process, before it is the next one's turn.
const READS_MAX: usize = 16;
/// More than there are in a process.
const THREADS: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00400000-00401000 rw-p 00000000 08:01 7 /usr/bin/x
04a00000-04a02000 rw-s 00001000 00:01 1031 /dev/zero (deleted)
04a02000-04a03000 r--s 00000000 08:01 9 /usr/share/x
";

    #[test]
    fn what_is_mapped_to_be_shared_is_found() {
        let objects = objects(MAPS);
        assert_eq!(objects.len(), 1);
        assert_eq!((objects[0].offset, &*objects[0].name), (0x1000, "00:01 1031"));
        assert!(objects[0].holds(0x4a0_1fff) && !objects[0].holds(0x40_0000));
    }

    #[test]
    fn processes_share_what_is_mapped_so_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "--1--   SCHED[1]:  acquired lock (x)\nI  00400800,3\n S 04a00000,8\n\
                     I  00400803,3\n S 00400010,8\n";
        let mut traces = Traces::new(folder.path().to_owned());
        // No processes of this machine.
        let ids = [4_000_001, 4_000_002];
        for id in ids {
            fs::write(folder.path().join(format!("trace.{id}")), lines).unwrap();
        }
        while traces.look().unwrap() > 0 {}
        for id in ids {
            traces.processes.get_mut(&id).unwrap().maps = MAPS.into();
        }
        let Taken { length, works } = traces.take();
        let shared: Vec<_> = length.shared.iter().map(|line| line.address).collect();
        assert_eq!((shared, length.instructions), (vec![0x4a0_0000], 4));
        assert_eq!(works.len(), 2);
        assert!(traces.take().length.shared.is_empty());
    }
}
