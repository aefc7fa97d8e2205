//! Reads the memory trace that valgrind's tool lackey prints: [`Trace`] keeps who wrote which cache
//! line in which phase, [`WrittenLine`] is a line that several threads wrote.
//!
//! ```text
//! --27573--   SCHED[2]:  acquired lock (...)   thread 2 runs from here on
//! I  0401ab70,3                                it executes an instruction of 3 bytes,
//!  S 1fff000758,8                              which stores 8 bytes there
//!  M 0010f1c0,4                                or loads and stores: counted once, as one write
//!  L 0010f1c0,4                                loads are left out
//! ```

use std::{
    collections::HashMap,
    ops::{Range, RangeInclusive},
};

use sealane_lab_harness::phase;
use sealane_lab_model::error::Error;

use crate::count::threads::{Threads, Work};

/// What was read so far.
pub(super) struct Trace {
    /// Where the marks lie; before that is known nothing is counted.
    marks: Option<Range<u64>>,
    /// The phase of each thread that has marked one.
    phases: Vec<usize>,
    /// The phase of all others.
    first_phase: usize,
    threads: Threads,
    /// Who runs.
    thread: usize,
    pc: u64,
    /// The bytes of a line whose end has not come yet.
    rest: Vec<u8>,
    lines: HashMap<u64, Written>,
    /// Instructions by phase, of all threads.
    instructions: [u64; PHASES],
    /// Lines read.
    read: u64,
    /// Lines of the trace that are the program's or valgrind's own words, the last ones.
    words: Vec<String>,
}

/// What was written to one line.
#[derive(Default)]
struct Written {
    writes: Vec<Write>,
    /// Who wrote it last.
    last: usize,
    /// Whether somebody wrote it while another one of its writers lived.
    met: bool,
}

/// Writes of one instruction to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) thread: usize,
    /// The phase's number, see [`phase::Phase`].
    pub(super) phase: usize,
    /// The instruction.
    pub(super) pc: u64,
    /// The first byte that it writes there.
    pub(super) address: u64,
    /// How many bytes from there on.
    pub(super) bytes: u64,
    /// How often.
    pub(super) count: u64,
}

#[cfg(test)]
impl Write {
    pub(super) fn of_phase(phase: phase::Phase, count: u64) -> Self {
        Self { thread: 0, phase: phase as usize, pc: 0, address: 0, bytes: 1, count }
    }
}

/// A cache line that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenLine {
    /// The line's first byte.
    pub(super) address: u64,
    /// By instruction.
    pub(super) writes: Vec<Write>,
    /// Whether threads wrote it that lived at the same time. What one leaves to another when it
    /// ends is not shared.
    pub(super) met: bool,
}

impl WrittenLine {
    /// Whether more than one thread shares it.
    pub(super) fn has_writers(&self) -> bool {
        self.met && self.writes.iter().any(|write| write.thread != self.writes[0].thread)
    }

    /// Writes in any of `phases`, of all threads.
    pub(super) fn writes_in(&self, phases: &[phase::Phase]) -> u64 {
        let wanted = |write: &&Write| phases.iter().any(|phase| *phase as usize == write.phase);
        self.writes.iter().filter(wanted).map(|write| write.count).sum()
    }
}

impl Trace {
    /// The trace of a program that marks its phases; see [`Self::set_marks`].
    pub(super) fn with_marks() -> Self {
        Self {
            marks: None,
            phases: Vec::new(),
            first_phase: phase::Phase::Outside as usize,
            threads: Threads::by_number(),
            thread: 0,
            pc: 0,
            rest: Vec::new(),
            lines: HashMap::new(),
            instructions: [0; PHASES],
            read: 0,
            words: Vec::new(),
        }
    }

    /// The trace of a program without marks: all that it does counts as the server's.
    pub(super) fn without_marks() -> Self {
        let first_phase = phase::Phase::Server as usize;
        Self { marks: Some(0..0), first_phase, ..Self::with_marks() }
    }

    /// The same, of a process whose threads may come and go.
    pub(super) fn of_server() -> Self {
        Self { threads: Threads::told_apart(), ..Self::without_marks() }
    }

    /// Where the marks lie.
    pub(super) fn set_marks(&mut self, address: u64) {
        self.marks = Some(address..address + phase::MARKS_BYTES as u64);
    }

    /// Whether the traced program runs and waits to be asked where its marks lie.
    pub(super) fn wants_marks(&self) -> bool {
        self.marks.is_none() && self.pc != 0
    }

    /// Takes the next bytes of the trace.
    ///
    /// # Errors
    /// If a limit is met.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, after) = bytes.split_at(end);
            bytes = &after[1..];
            if self.rest.is_empty() {
                self.line(line)?;
            } else {
                let mut whole = std::mem::take(&mut self.rest);
                whole.extend_from_slice(line);
                self.line(&whole)?;
            }
        }
        self.rest.extend_from_slice(bytes);
        if self.rest.len() > LINE_BYTES_MAX {
            return Err(Error::Check(format!(
                "valgrind printed a line of more than {LINE_BYTES_MAX} bytes"
            )));
        }
        Ok(())
    }

    /// The lines that at least two threads wrote, in a counted phase, since the last call; the
    /// most written one first.
    pub(super) fn take_shared(&mut self) -> Vec<WrittenLine> {
        let mut written = self.take_written();
        written.retain(WrittenLine::has_writers);
        written
    }

    /// The lines that any thread wrote, in the same order.
    pub(super) fn take_written(&mut self) -> Vec<WrittenLine> {
        let mut shared: Vec<WrittenLine> = self
            .lines
            .drain()
            .map(|(line, written)| {
                let Written { writes, met, .. } = written;
                WrittenLine { address: line * LINE_BYTES, writes, met }
            })
            .collect();
        let total = |line: &WrittenLine| line.writes.iter().map(|write| write.count).sum::<u64>();
        shared.sort_by_key(|line| (std::cmp::Reverse(total(line)), line.address));
        shared
    }

    /// Instructions in any of `phases`, of all threads.
    pub(super) fn instructions(&self, phases: &[phase::Phase]) -> u64 {
        phases.iter().map(|phase| self.instructions[*phase as usize]).sum()
    }

    /// What each thread did since the last call, the busiest first.
    pub(super) fn take_work(&mut self) -> Vec<Work> {
        self.threads.take_work()
    }

    /// Lines read so far.
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    /// Whether it ended, so far, in the middle of a line.
    pub(super) fn is_cut_short(&self) -> bool {
        !self.rest.is_empty()
    }

    /// What was printed between the trace's lines, the last of it.
    pub(super) fn words(&self) -> String {
        self.words.join("\n")
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Error> {
        self.read += 1;
        if self.read > TRACE_LINES_MAX {
            return Err(Error::Check(format!(
                "the memory trace has more than {TRACE_LINES_MAX} lines; count fewer handshakes"
            )));
        }
        match line {
            [b'I', b' ', b' ', address @ ..] => {
                self.pc = hexadecimal(address);
                self.instructions[self.phase()] += 1;
                self.threads.count(self.thread);
            }
            [b' ', b'S' | b'M', b' ', access @ ..] => self.store(access)?,
            [b' ', b'L', b' ', ..] => {}
            _ => self.word(line)?,
        }
        Ok(())
    }

    fn store(&mut self, access: &[u8]) -> Result<(), Error> {
        let address = hexadecimal(access);
        let Some(marks) = &self.marks else { return Ok(()) };
        if marks.contains(&address) {
            let phase = (address - marks.start) / phase::MARK_STRIDE_BYTES as u64;
            let phase = usize::try_from(phase).unwrap_or(0).min(PHASES - 1);
            if self.phases.len() <= self.thread {
                self.phases.resize(self.thread + 1, self.first_phase);
            }
            self.phases[self.thread] = phase;
            return Ok(());
        }
        let bytes = length(access);
        if self.phase() == phase::Phase::Outside as usize {
            return Ok(());
        }
        let last = address.saturating_add(bytes.max(1) - 1);
        for line in lines_of(address, bytes) {
            let first = address.max(line * LINE_BYTES);
            let end = last.min(line * LINE_BYTES + (LINE_BYTES - 1));
            self.note(line, first, end - first + 1)?;
        }
        Ok(())
    }

    fn note(&mut self, line: u64, address: u64, bytes: u64) -> Result<(), Error> {
        let (thread, phase, pc) = (self.thread, self.phase(), self.pc);
        if self.lines.len() >= LINES_MAX {
            return Err(Error::Check(format!(
                "more than {LINES_MAX} cache lines were written; count fewer handshakes"
            )));
        }
        let Written { writes, last, met } = self.lines.entry(line).or_default();
        if *last != thread {
            let others = || writes.iter().map(|write| write.thread).filter(|it| *it != thread);
            *met = *met || others().any(|other| self.threads.lives(other));
            *last = thread;
        }
        let wanted = Write { thread, phase, pc, address, bytes, count: 0 };
        let same = |write: &Write| Write { count: 0, ..*write } == wanted;
        // What wrote a line last mostly writes it next: search from the end.
        match writes.iter().rposition(same) {
            Some(at) => writes[at].count += 1,
            None if writes.len() < WRITERS_MAX => {
                writes.push(Write { count: 1, ..wanted });
            }
            None => {
                return Err(Error::Check(format!(
                    "more than {WRITERS_MAX} instructions write the line {:#x}",
                    line * LINE_BYTES
                )));
            }
        }
        Ok(())
    }

    fn word(&mut self, line: &[u8]) -> Result<(), Error> {
        let text = String::from_utf8_lossy(line);
        let Some((_, after)) = text.split_once(" SCHED[") else {
            if self.words.len() == WORDS_MAX {
                self.words.remove(0);
            }
            self.words.push(text.into_owned());
            return Ok(());
        };
        let Some((number, what)) = after.split_once("]:") else { return Ok(()) };
        let number = number.parse().unwrap_or(usize::MAX);
        if what.contains("acquired lock") {
            self.thread = self.threads.running(number, self.read)?;
        } else if what.contains("exiting VG_(scheduler)") {
            self.threads.ended(number, self.read);
        }
        Ok(())
    }

    /// The phase of whoever runs.
    fn phase(&self) -> usize {
        self.phases.get(self.thread).copied().unwrap_or(self.first_phase)
    }
}

/// The numbers of the lines that an access touches.
pub(super) fn lines_of(address: u64, bytes: u64) -> RangeInclusive<u64> {
    address / LINE_BYTES..=address.saturating_add(bytes.max(1) - 1) / LINE_BYTES
}

/// The number that `text` begins with.
fn hexadecimal(text: &[u8]) -> u64 {
    let mut value = 0;
    for byte in text {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => break,
        };
        value = value << 4 | u64::from(digit);
    }
    value
}

/// The number behind the comma. No instruction touches more than [`ACCESS_BYTES_MAX`]: who says so
/// is not valgrind, but the program, whose words stand between its lines.
fn length(text: &[u8]) -> u64 {
    let comma = text.iter().position(|byte| *byte == b',');
    comma.map_or(1, |comma| {
        text[comma + 1..]
            .iter()
            .fold(0, |sum, digit| (sum * 10 + u64::from(digit & 0xf)).min(ACCESS_BYTES_MAX))
    })
}

/// More than the whole state of a processor, which one instruction saves.
const ACCESS_BYTES_MAX: u64 = 16 * 1024;
/// Bytes of a cache line.
pub(super) const LINE_BYTES: u64 = 64;
const LINE_BYTES_MAX: usize = 64 * 1024;
const LINES_MAX: usize = 4_000_000;
const PHASES: usize = 8;
const TRACE_LINES_MAX: u64 = 4_000_000_000;
const WORDS_MAX: usize = 20;
const WRITERS_MAX: usize = 8_192;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sealane_lab_harness::phase::Phase;

    use super::*;

    const MARKS: u64 = 0x10_0000;

    fn by_address(shared: &[WrittenLine], phases: &[Phase]) -> BTreeMap<u64, u64> {
        shared.iter().map(|line| (line.address, line.writes_in(phases))).collect()
    }

    fn trace(text: &str) -> Trace {
        let mut trace = Trace::with_marks();
        trace.set_marks(MARKS);
        // Cut at every place, so that no line depends on where a read ended.
        for byte in text.as_bytes() {
            trace.feed(&[*byte]).expect("within limits");
        }
        trace
    }

    #[test]
    fn a_line_of_two_threads_is_shared_and_counted_by_phase() {
        let mut trace = trace(
            "--1--   SCHED[2]:  acquired lock (x)\n S 00100040,1\nI  00400000,3\n M 00200000,8\n\
             --1--   SCHED[3]:  acquired lock (x)\n S 00100080,1\nI  00400010,3\n S 0020003f,1\n\
             I  00400010,3\n S 0020003f,1\n L 00200000,8\n S 00300000,8\n",
        );
        let shared = trace.take_shared();
        assert_eq!(by_address(&shared, &[Phase::Server]), [(0x20_0000, 1)].into());
        assert_eq!(by_address(&shared, &[Phase::Client]), [(0x20_0000, 2)].into());
        assert_eq!(shared[0].writes.len(), 2, "{shared:?}");
        assert_eq!(trace.instructions(&[Phase::Server]), 1);
        assert_eq!(trace.instructions(&[Phase::Client]), 2);
    }

    #[test]
    fn a_side_is_its_handshake_and_its_setup() {
        let mut trace = trace(
            "--1--   SCHED[2]:  acquired lock (x)\n S 001000c0,1\nI  00400000,3\n S 00200000,8\n\
             --1--   SCHED[2]:  acquired lock (x)\n S 00100040,1\nI  00400000,3\nI  00400003,3\n\
             I  00400003,3\n S 00200000,8\n\
             --1--   SCHED[3]:  acquired lock (x)\n S 00100100,1\nI  00400010,3\n S 00200000,8\n",
        );
        let instructions = [&[Phase::Server][..], &[Phase::ServerSetup], &phase::SERVER_SIDE]
            .map(|phases| trace.instructions(phases));
        assert_eq!(instructions, [3, 1, 4]);
        assert_eq!(trace.instructions(&phase::CLIENT_SIDE), 1);
        let shared = trace.take_shared();
        assert_eq!(by_address(&shared, &phase::SERVER_SIDE), [(0x20_0000, 2)].into());
        assert_eq!(by_address(&shared, &[Phase::ServerSetup]), [(0x20_0000, 1)].into());
        assert_eq!(by_address(&shared, &phase::CLIENT_SIDE), [(0x20_0000, 1)].into());
    }

    #[test]
    fn what_is_outside_or_private_is_not_shared() {
        let mut trace = trace(
            "--1--   SCHED[2]:  acquired lock (x)\n S 00200000,8\n S 00100040,1\n S 00200040,8\n\
             --1--   SCHED[3]:  acquired lock (x)\n S 00100040,1\n S 00200000,8\n S 00100000,1\n\
             S 00200040,8\n",
        );
        assert_eq!(trace.take_shared(), []);
    }

    #[test]
    fn a_store_across_a_boundary_writes_both_lines() {
        let mut trace = trace(
            "--1--   SCHED[2]:  acquired lock (x)\n S 00100040,1\n S 0020003c,8\n\
             --1--   SCHED[3]:  acquired lock (x)\n S 00100040,1\n S 0020003c,8\n",
        );
        let shared = trace.take_shared();
        assert_eq!(by_address(&shared, &[Phase::Server]), [(0x20_0000, 2), (0x20_0040, 2)].into());
    }

    #[test]
    fn a_program_that_prints_lines_like_those_of_a_trace_costs_little() {
        let nines = "9".repeat(26);
        let mut trace = trace(&format!(
            "--1--   SCHED[2]:  acquired lock (x)\n S 00100040,1\nI  {0},{nines}\n S {0},{nines}\n \
             M \n S ,\n L zz,zz\nI  \n S 10,{nines}\n",
            "f".repeat(24)
        ));
        let lines = trace.take_written().len() as u64;
        assert!(lines <= ACCESS_BYTES_MAX / LINE_BYTES + 3, "{lines}");
    }

    #[test]
    fn what_a_thread_leaves_to_the_next_one_is_not_shared() {
        let text = |end: &str| {
            format!(
                "--1--   SCHED[1]:  acquired lock (x)\n--1--   SCHED[2]:  acquired lock (x)\n\
                 I  00400000,3\n S 00200000,8\n{end}--1--   SCHED[3]:  acquired lock (x)\n\
                 I  00400000,3\n S 00200000,8\n"
            )
        };
        let shared = |text: &str| {
            let mut trace = Trace::of_server();
            trace.feed(text.as_bytes()).expect("within limits");
            trace.take_shared().len()
        };
        assert_eq!(shared(&text("")), 1);
        assert_eq!(shared(&text("--1--   SCHED[2]: exiting VG_(scheduler)\n")), 0);
    }

    #[test]
    fn words_between_are_kept() {
        let trace = trace("==1== Lackey\nthread 'x' panicked\n");
        assert_eq!(trace.words(), "==1== Lackey\nthread 'x' panicked");
    }
}
