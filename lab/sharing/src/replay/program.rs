//! What a virtual thread does: a recording's steps with times instead of instructions, and without
//! what can make nobody wait.

use sealane_lab_model::recording::{Event, LockClass, Part, Recording, Step};

use super::{Question, times::Times};

/// One pass through a recording.
#[derive(Default)]
pub(super) struct Program {
    /// In order; the last one is [`Kind::End`].
    pub(super) acts: Vec<Act>,
    /// When each act comes, from the pass's beginning, if nobody waits.
    pub(super) at_ps: Vec<u64>,
    /// The recording's number of each line that is left.
    pub(super) lines: Vec<u32>,
    /// The locks in them.
    pub(super) locks: Vec<ProgramLock>,
}

/// Something that can make a thread wait.
#[derive(Clone, Copy)]
pub(super) struct Act {
    /// After what came before.
    pub(super) gap_ps: u64,
    /// Index into the program's lines, or its locks.
    pub(super) place: u32,
    pub(super) kind: Kind,
    /// Whose waiting it is.
    pub(super) part: Part,
    /// Whether a lock was taken before it and is not given back yet: no thread begins here.
    pub(super) held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    End,
    Give,
    Load,
    TakeRead,
    TakeWrite,
    Write,
}

/// A lock: its line in the program, and how it waits.
#[derive(Clone, Copy)]
pub(super) struct ProgramLock {
    pub(super) line: u32,
    pub(super) class: LockClass,
}

impl Program {
    /// The program of a question that was checked.
    pub(super) fn new(question: &Question<'_>) -> Self {
        let times = Times::new(question);
        let mut writing = Writing::new(question);
        for (step, gap_ps) in question.recording.steps.iter().zip(times.gaps_ps) {
            writing.step(*step, gap_ps);
        }
        writing.end(times.rest_ps)
    }

    /// Uncontended time of one pass.
    pub(super) fn whole_ps(&self) -> u64 {
        self.at_ps.last().copied().unwrap_or(0)
    }
}

/// A program under way.
struct Writing<'a> {
    recording: &'a Recording,
    program: Program,
    lines: Vec<Number>,
    locks: Vec<Number>,
    /// How often each lock of the recording is held.
    depths: Vec<u32>,
    /// Locks that are held.
    held: u32,
    part: Part,
    /// Since the last act.
    gap_ps: u64,
}

/// What a line or lock of the recording is in the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    Dropped,
    Is(u32),
    Unmet,
}

impl<'a> Writing<'a> {
    fn new(question: &Question<'a>) -> Self {
        let recording = question.recording;
        let mut lines = vec![Number::Unmet; recording.lines.len()];
        question.without.iter().for_each(|line| lines[*line as usize] = Number::Dropped);
        Self {
            recording,
            program: Program::default(),
            lines,
            locks: vec![Number::Unmet; recording.locks.len()],
            depths: vec![0; recording.locks.len()],
            held: 0,
            part: Part::default(),
            gap_ps: 0,
        }
    }

    fn step(&mut self, step: Step, gap_ps: u64) {
        self.gap_ps += gap_ps;
        match step.event {
            Event::Enter => self.part = Part::ALL[step.place as usize],
            Event::Load => self.access(step.place, Kind::Load),
            Event::Store | Event::Update => self.access(step.place, Kind::Write),
            Event::MutexLock | Event::WriteLock => self.take(step.place, Kind::TakeWrite),
            Event::ReadLock => self.take(step.place, Kind::TakeRead),
            Event::MutexUnlock | Event::ReadUnlock | Event::WriteUnlock => self.give(step.place),
        }
    }

    fn end(mut self, rest_ps: u64) -> Program {
        self.gap_ps += rest_ps;
        self.act(0, Kind::End);
        let mut now_ps = 0;
        let at_ps = self.program.acts.iter().map(|act| {
            now_ps += act.gap_ps;
            now_ps
        });
        self.program.at_ps = at_ps.collect();
        self.program
    }

    fn access(&mut self, line: u32, kind: Kind) {
        if let Some(line) = self.line(line) {
            self.act(line, kind);
        }
    }

    fn take(&mut self, lock: u32, kind: Kind) {
        let depth = &mut self.depths[lock as usize];
        *depth += 1;
        if *depth > 1 {
            // Who has it only counts: a lock that can be taken again by its holder.
            return self.access(self.recording.locks[lock as usize].line, Kind::Write);
        }
        if let Some(lock) = self.lock(lock) {
            let ProgramLock { line, class } = self.program.locks[lock as usize];
            // Functions of pthread read a lock before they update it. Where its bytes lie across
            // two lines, which is luck of the heap, the recording has that of another line.
            if matches!(class, LockClass::Mutex | LockClass::RwLock) {
                self.act(line, Kind::Load);
            }
            self.act(lock, kind);
            self.held += 1;
        }
    }

    fn give(&mut self, lock: u32) {
        let depth = &mut self.depths[lock as usize];
        *depth -= 1;
        if *depth > 0 {
            return self.access(self.recording.locks[lock as usize].line, Kind::Write);
        }
        if let Some(lock) = self.lock(lock) {
            self.act(lock, Kind::Give);
            self.held -= 1;
        }
    }

    fn act(&mut self, place: u32, kind: Kind) {
        let held = self.held > 0;
        let gap_ps = std::mem::take(&mut self.gap_ps);
        self.program.acts.push(Act { gap_ps, place, kind, part: self.part, held });
    }

    fn line(&mut self, line: u32) -> Option<u32> {
        number(&mut self.lines[line as usize], line, &mut self.program.lines)
    }

    fn lock(&mut self, lock: u32) -> Option<u32> {
        let recorded = &self.recording.locks[lock as usize];
        let line = self.line(recorded.line)?;
        let place = ProgramLock { line, class: recorded.class };
        number(&mut self.locks[lock as usize], place, &mut self.program.locks)
    }
}

/// The number in the program; a new one for what is met for the first time.
fn number<T>(number: &mut Number, what: T, all: &mut Vec<T>) -> Option<u32> {
    if *number == Number::Unmet {
        // A recording has no more of them than a `u32` can number.
        *number = Number::Is(u32::try_from(all.len()).ok()?);
        all.push(what);
    }
    match *number {
        Number::Is(number) => Some(number),
        Number::Dropped | Number::Unmet => None,
    }
}
