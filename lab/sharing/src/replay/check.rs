//! What is refused before it is played: a recording that no thread can have made, and questions
//! beyond the limits.

use sealane_lab_model::{
    error::Error,
    recording::{Event, LockClass, Part, Recording, Step},
};

use super::{HOLDINGS_MAX, OPERATION_NS_MAX, Question, STEPS_MAX, THREADS_MAX, TRANSFER_NS_MAX};

/// That a recording can be replayed: its indices exist, and every lock is given back by who took
/// it, the way it was taken, before the end.
///
/// # Errors
/// What is wrong with it, and in which step.
pub fn check(recording: &Recording) -> Result<(), Error> {
    recorded(recording).map_err(|what| {
        Error::Check(format!(
            "the recording of {} cannot be replayed: {what}; the recorder is at fault: make it \
             again with: {}",
            recording.stack.name,
            recording.command.join(" ")
        ))
    })
}

/// That, and what is asked.
pub(super) fn question(question: &Question<'_>) -> Result<(), Error> {
    check(question.recording)?;
    asked(question).map_err(|what| Error::Check(format!("a replay was asked for {what}")))
}

fn recorded(recording: &Recording) -> Result<(), String> {
    let lines = recording.lines.len();
    if recording.operations == 0 || recording.steps.is_empty() {
        return Err("it holds no operation".into());
    }
    if recording.steps.len() > STEPS_MAX {
        return Err(format!("{} steps are more than {STEPS_MAX}", recording.steps.len()));
    }
    for (number, lock) in recording.locks.iter().enumerate() {
        if lock.line as usize >= lines {
            return Err(format!("lock {number} is in line {} of {lines}", lock.line));
        }
        if let Some(hold) = lock.holds.iter().find(|hold| !is_time(hold.ns, OPERATION_NS_MAX)) {
            return Err(format!("lock {number} is held for {} ns", hold.ns));
        }
    }
    let mut held = vec![Held::default(); recording.locks.len()];
    for (number, step) in recording.steps.iter().enumerate() {
        follow(recording, *step, &mut held).map_err(|what| format!("step {number} {what}"))?;
    }
    match held.iter().position(|held| held.depth > 0) {
        Some(lock) => Err(format!("lock {lock} is never given back")),
        None => Ok(()),
    }
}

/// One step, and what it leaves held.
fn follow(recording: &Recording, step: Step, held: &mut [Held]) -> Result<(), String> {
    let place = step.place as usize;
    let exists = |kind: &str, count: usize| match place < count {
        true => Ok(()),
        false => Err(format!("names {kind} {place} of {count}")),
    };
    let (takes, read) = match step.event {
        Event::Enter => return exists("part", Part::ALL.len()),
        Event::Load | Event::Store | Event::Update => {
            return exists("line", recording.lines.len());
        }
        Event::MutexLock | Event::WriteLock => (true, false),
        Event::MutexUnlock | Event::WriteUnlock => (false, false),
        Event::ReadLock => (true, true),
        Event::ReadUnlock => (false, true),
    };
    exists("lock", recording.locks.len())?;
    let class = recording.locks[place].class;
    let of_mutex = matches!(step.event, Event::MutexLock | Event::MutexUnlock);
    let is_mutex =
        matches!(class, LockClass::FutexMutex | LockClass::KernelSpin | LockClass::Mutex);
    if of_mutex != is_mutex {
        return Err(format!("does {:?} on lock {place}, which is a {class:?}", step.event));
    }
    let held = &mut held[place];
    match (takes, held.depth) {
        (true, 0) => *held = Held { depth: 1, read },
        (true, _) if held.read && !read => {
            return Err(format!("takes lock {place} to write and holds it to read: a deadlock"));
        }
        // A recursive lock; a reader within a writer counts as one more of the writer.
        (true, _) => held.depth += 1,
        (false, 0) => return Err(format!("gives back lock {place}, which is not held")),
        (false, 1) if held.read != read => {
            return Err(format!("gives back lock {place} in another way than it was taken"));
        }
        (false, _) => held.depth -= 1,
    }
    Ok(())
}

fn asked(question: &Question<'_>) -> Result<(), String> {
    let lines = question.recording.lines.len();
    if question.threads == 0 || question.threads > THREADS_MAX {
        return Err(format!("{} threads: 1 to {THREADS_MAX} can be", question.threads));
    }
    if lines.saturating_mul(question.threads as usize) > HOLDINGS_MAX {
        return Err(format!(
            "{lines} lines and {} threads: together (multiplied) {HOLDINGS_MAX} can be",
            question.threads
        ));
    }
    if !is_time(question.machine.transfer_ns, TRANSFER_NS_MAX) {
        return Err(format!("a transfer of {} ns", question.machine.transfer_ns));
    }
    let times = Part::ALL.map(|part| *question.base_ns.of(part));
    let whole: f64 = times.iter().sum();
    if !times.iter().all(|ns| is_time(*ns, OPERATION_NS_MAX)) || !(1.0..).contains(&whole) {
        return Err(format!("an operation of {times:?} ns: from 1 to {OPERATION_NS_MAX} can be"));
    }
    match question.without.iter().find(|line| **line as usize >= lines) {
        Some(line) => Err(format!("what is without line {line}, of {lines}")),
        None => Ok(()),
    }
}

/// Finite, not negative, not beyond `ns_max`.
fn is_time(ns: f64, ns_max: f64) -> bool {
    (0.0..=ns_max).contains(&ns)
}

#[derive(Clone, Copy, Default)]
struct Held {
    depth: u32,
    read: bool,
}
