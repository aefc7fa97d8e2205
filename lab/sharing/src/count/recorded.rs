//! From what a [`Recorder`] kept to a [`Recording`]: only what touches lines that threads share
//! stays, with names.

use std::collections::{BTreeMap, HashMap};

use sealane_lab_harness::phase::Phase;
use sealane_lab_model::{
    error::Error,
    recording::{
        ALLOCATOR, ByPart, Event, LeftOut, Lock, NAMELESS_MEMORY, Part, RecordedLine, Recording,
        SCHEMA, Step, TAKEN_BY,
    },
};

use crate::{
    count::{
        class, lines,
        paths::Paths,
        record::{Kept, Recorder},
        symbols::Symbols,
        trace::{LINE_BYTES, WrittenLine},
    },
    replay::STEPS_MAX,
};

/// The recording of `handshakes` handshakes, all threads together; `written` are the lines that
/// any thread wrote. What was recorded, and when, is the caller's to add.
///
/// # Errors
/// Nothing was recorded, one thread only did something, or it is too long to be replayed.
pub(super) fn recording(
    recorder: &mut Recorder,
    written: &[WrittenLine],
    symbols: &Symbols,
    handshakes: u64,
) -> Result<Recording, Error> {
    let mut kept = std::mem::take(&mut recorder.kept);
    let recorder = &*recorder;
    let threads = recorder.threads_entered();
    if threads < 2 {
        return Err(Error::Check(format!(
            "{threads} threads entered a phase; what threads share takes two"
        )));
    }
    let operations = (handshakes / threads as u64).max(1);
    let mut building = Building {
        recording: Recording { schema: SCHEMA.into(), operations, ..Recording::default() },
        recorder,
        symbols,
        paths: Paths::new(&recorder.nodes, symbols),
        lines: HashMap::new(),
        locks: HashMap::new(),
        left_out: BTreeMap::new(),
        used_once: symbols.has_file(lines::HEAP),
    };
    for line in written {
        building.line(line, handshakes as f64);
    }
    end_at_the_last_mark(&mut kept);
    pair(&mut kept);
    building.take_locks(&kept);
    building.steps(&kept);
    building.count();
    let Building { mut recording, left_out, paths, .. } = building;
    if recording.steps.len() > STEPS_MAX {
        return Err(Error::Check(format!(
            "{} accesses to shared lines are more than the {STEPS_MAX} that can be replayed; \
             record fewer with --handshakes",
            recording.steps.len()
        )));
    }
    recording.left_out = left_out.into_values().collect();
    recording.paths = paths.into_nodes();
    Ok(recording)
}

struct Building<'a> {
    recording: Recording,
    recorder: &'a Recorder,
    symbols: &'a Symbols,
    paths: Paths<'a>,
    /// The number in [`Recording::lines`], by the recorder's.
    lines: HashMap<u32, u32>,
    /// The number in [`Recording::locks`], by the recorder's.
    locks: HashMap<u32, u32>,
    left_out: BTreeMap<&'static str, LeftOut>,
    /// Whether no memory was used twice: then heap memory that several threads write apart is false
    /// sharing, not one object after another.
    used_once: bool,
}

impl Building<'_> {
    /// Takes `shared` over, or leaves it out.
    fn line(&mut self, shared: &WrittenLine, handshakes: f64) {
        let Some((place, touch)) = self.recorder.touch_of(shared.address) else { return };
        if !touch.is_shared() {
            return;
        }
        let named = class::named(shared, self.symbols, handshakes);
        let left_out = if self.recorder.is_on_a_stack(shared.address) {
            Some(STACK)
        } else if named.class == ALLOCATOR {
            Some(ALLOCATOR)
        } else if named.symbol.starts_with(NAMELESS_MEMORY)
            && !self.is_atomic(shared)
            && !(self.used_once && is_written_apart(shared))
        {
            Some(RECYCLED)
        } else {
            None
        };
        if let Some(reason) = left_out {
            let sum = self.left_out.entry(reason).or_default();
            reason.clone_into(&mut sum.reason);
            sum.lines += 1;
            for write in &shared.writes {
                *sum.writes.of_mut(part(write.phase)) += write.count as f64 / handshakes;
            }
            return;
        }
        let class = if !shared.has_writers() {
            READ_SHARED.to_owned()
        } else if is_written_apart(shared) {
            FALSE_SHARING.to_owned()
        } else {
            named.class
        };
        self.lines.insert(place, count_of(&self.recording.lines));
        self.recording.lines.push(RecordedLine {
            class,
            symbol: named.symbol,
            owner: named.owner,
            writers: named.writers,
            ..RecordedLine::default()
        });
    }

    fn is_atomic(&self, shared: &WrittenLine) -> bool {
        shared.writes.iter().any(|write| self.symbols.code(write.pc).atomic)
    }

    /// Takes over the locks in the lines that are replayed.
    fn take_locks(&mut self, kept: &[Kept]) {
        let mut takers: BTreeMap<u32, BTreeMap<[String; 2], u64>> = BTreeMap::new();
        for kept in kept.iter().filter(|kept| takes_lock(kept.event)) {
            let taker = self.paths.taker(kept.node);
            *takers.entry(kept.lock).or_default().entry(taker).or_default() += 1;
        }
        let mut callers = Vec::new();
        for (lock, takers) in takers {
            let (address, class) = self.recorder.locks.known[lock as usize];
            let line = address / LINE_BYTES * LINE_BYTES;
            let place = self.recorder.touch_of(line).map(|(place, _)| place);
            let Some(line) = place.and_then(|place| self.lines.get(&place)).copied() else {
                continue;
            };
            let most = takers.into_iter().max_by_key(|(_, count)| *count);
            let [taker, caller] = most.map(|(names, _)| names).unwrap_or_default();
            let (symbol, caller) = match self.symbols.variable(address) {
                Some((_, name)) => (name, String::new()),
                None => (format!("{TAKEN_BY}{taker}"), caller),
            };
            self.locks.insert(lock, count_of(&self.recording.locks));
            self.recording.locks.push(Lock { class, line, symbol, holds: Vec::new() });
            callers.push(caller);
        }
        self.name_locks(&callers);
    }

    /// Locks on the heap that one function takes are told apart by who mostly called it.
    fn name_locks(&mut self, callers: &[String]) {
        let Recording { locks, lines, .. } = &mut self.recording;
        let names: Vec<String> = locks.iter().map(|lock| lock.symbol.clone()).collect();
        for (lock, caller) in locks.iter_mut().zip(callers) {
            let same = names.iter().filter(|name| **name == lock.symbol).count();
            if same > 1 && !caller.is_empty() {
                lock.symbol += &format!(" for {caller}");
            }
            let of_line = &mut lines[lock.line as usize].symbol;
            if of_line.starts_with(NAMELESS_MEMORY) {
                lock.symbol.clone_into(of_line);
            }
        }
    }

    fn steps(&mut self, kept: &[Kept]) {
        let mut before = kept.first().map_or(0, |first| first.at);
        for kept in kept {
            let mut step = Step { gap: kept.at - before, event: kept.event, place: 0, path: 0 };
            if kept.event == Event::Enter {
                step.place = part(kept.place as usize) as u32;
                self.recording.steps.push(step);
                before = kept.at;
                continue;
            }
            let lock = self.locks.get(&kept.lock).copied().filter(|_| is_on_lock(kept.event));
            let line = self.lines.get(&kept.place).copied();
            if lock.is_none() && line.is_none() {
                continue;
            }
            step.path = self.paths.of_access(kept.node);
            before = kept.at;
            if let Some(lock) = lock {
                self.recording.steps.push(Step { place: lock, ..step });
                step.gap = 0;
            }
            // A lock may lie across two lines.
            let of_lock = lock.map(|lock| self.recording.locks[lock as usize].line);
            if let Some(line) = line.filter(|line| of_lock != Some(*line)) {
                let event = if is_on_lock(kept.event) { Event::Update } else { kept.event };
                self.recording.steps.push(Step { event, place: line, ..step });
            }
        }
    }

    /// Sums of what the steps say. A line most of whose updates take or release locks is a lock's,
    /// also where the instructions alone do not tell.
    fn count(&mut self) {
        let Recording { lines, locks, steps, instructions, operations, .. } = &mut self.recording;
        let each = 1.0 / *operations as f64;
        let mut now = Part::Outside;
        let mut on_lock_minus_others = vec![0_i64; lines.len()];
        for step in steps {
            *instructions.of_mut(now) += f64::from(step.gap) * each;
            let line = match step.event {
                Event::Enter => {
                    now = Part::ALL[step.place as usize];
                    continue;
                }
                event if is_on_lock(event) => locks[step.place as usize].line,
                _ => step.place,
            };
            on_lock_minus_others[line as usize] += match step.event {
                Event::Load | Event::Store => 0,
                Event::Update => -1,
                _ => 1,
            };
            let line = &mut lines[line as usize];
            let sum: &mut ByPart<f64> = match step.event {
                Event::Load => &mut line.loads,
                Event::Store => &mut line.stores,
                _ => &mut line.updates,
            };
            *sum.of_mut(now) += each;
        }
        for (line, balance) in lines.iter_mut().zip(on_lock_minus_others) {
            if balance > 0 && line.class != FALSE_SHARING {
                class::LOCK.clone_into(&mut line.class);
            }
        }
    }
}

/// Leaves what happened between the first mark and the last one, which says that the last operation
/// is over.
fn end_at_the_last_mark(kept: &mut Vec<Kept>) {
    let last = kept.iter().rposition(|kept| kept.event == Event::Enter);
    kept.truncate(last.map_or(0, |last| last + 1));
}

/// Locks that are not both taken and given back become plain updates: it failed to be taken, or
/// another thread gives it back.
fn pair(all: &mut [Kept]) {
    let mut open: HashMap<u32, Vec<usize>> = HashMap::new();
    for (at, kept) in all.iter_mut().enumerate().filter(|(_, kept)| is_on_lock(kept.event)) {
        let taken = open.entry(kept.lock).or_default();
        if takes_lock(kept.event) {
            taken.push(at);
        } else if taken.pop().is_none() {
            kept.event = Event::Update;
        }
    }
    for at in open.into_values().flatten() {
        all[at].event = Event::Update;
    }
}

/// Whether several threads write and none writes a byte that another one does.
fn is_written_apart(shared: &WrittenLine) -> bool {
    let mut by_thread: BTreeMap<usize, u64> = BTreeMap::new();
    for write in &shared.writes {
        let first = write.address - shared.address;
        for byte in first..(first + write.bytes).min(LINE_BYTES) {
            *by_thread.entry(write.thread).or_default() |= 1 << byte;
        }
    }
    let all = by_thread.values().fold(0, |all, bytes| all | bytes);
    let sum: u32 = by_thread.values().map(|bytes| bytes.count_ones()).sum();
    by_thread.len() > 1 && sum == all.count_ones()
}

fn is_on_lock(event: Event) -> bool {
    !matches!(event, Event::Enter | Event::Load | Event::Store | Event::Update)
}

fn takes_lock(event: Event) -> bool {
    matches!(event, Event::MutexLock | Event::ReadLock | Event::WriteLock)
}

/// The part of a phase's number.
pub(super) fn part(phase: usize) -> Part {
    const PARTS: [(Phase, Part); 4] = [
        (Phase::Server, Part::Server),
        (Phase::Client, Part::Client),
        (Phase::ServerSetup, Part::ServerSetup),
        (Phase::ClientSetup, Part::ClientSetup),
    ];
    let found = PARTS.iter().find(|(known, _)| *known as usize == phase);
    found.map_or(Part::Outside, |(_, part)| *part)
}

fn count_of<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

const FALSE_SHARING: &str = "false-sharing";
const READ_SHARED: &str = "read-shared";
const RECYCLED: &str = "recycled";
const STACK: &str = "stack";

#[cfg(test)]
mod tests;
