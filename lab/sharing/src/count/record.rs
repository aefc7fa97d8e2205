//! What a thread does between the lines that it shares: [`Recorder`] is told of every instruction
//! and access of a trace and keeps the accesses of one thread; what the others do, it keeps by
//! line.
//!
//! ```text
//! mark --> the first thread that enters a phase is the subject
//! instruction --> shadow stack, instructions so far           (the subject's)
//! access --> who touched which bytes of which line            (of all threads, in a phase)
//!        --> an event with its call path, a lock's by name    (the subject's)
//! ```

use std::{collections::HashMap, ops::Range};

use sealane_lab_harness::phase::Phase;
use sealane_lab_model::{error::Error, recording::Event};

use crate::count::{
    code::{Codes, Flow, Kind},
    held::Locks,
    operation::Found,
    shadow::{Node, Nodes, Shadow},
    trace::{LINE_BYTES, lines_of},
};

/// What was recorded so far.
pub(super) struct Recorder {
    pub(super) codes: Codes,
    pub(super) nodes: Nodes,
    pub(super) locks: Locks,
    /// In the order in which the subject did them.
    pub(super) kept: Vec<Kept>,
    /// By number, see [`Kept::place`].
    pub(super) touches: Vec<Touch>,
    places: HashMap<u64, u32>,
    threads: Vec<Thread>,
    subject: Option<Subject>,
    limits: Limits,
}

/// How much is kept at most, all in memory; who meets one gets an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Accesses of the subject, of 20 bytes.
    pub(super) kept: usize,
    /// Cache lines, of about 80 bytes.
    pub(super) lines: usize,
    /// Call paths to accesses, of about 40 bytes.
    pub(super) paths: usize,
}

impl Default for Limits {
    /// Less than 2 GB together.
    fn default() -> Self {
        Self { kept: 32_000_000, lines: 8_000_000, paths: 8_000_000 }
    }
}

/// One event of the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Instructions of the subject before it.
    pub(super) at: u32,
    pub(super) event: Event,
    /// A number in [`Recorder::touches`]; of [`Event::Enter`], the phase.
    pub(super) place: u32,
    /// A number in [`Recorder::locks`], if the event is one on a lock.
    pub(super) lock: u32,
    /// The access, and the calls around it.
    pub(super) node: u32,
}

/// Who touched a line, in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    /// The line's first byte.
    pub(super) address: u64,
    first: Option<usize>,
    /// Whether another one touched it too.
    is_shared: bool,
    /// When the subject kept an access to it.
    kept_at: Option<u32>,
}

/// One thread.
#[derive(Clone, Debug, Default)]
struct Thread {
    /// Whether it has entered a phase.
    entered: bool,
    phase: usize,
    /// The instruction that it executes.
    kind: Kind,
    /// Where calls have left the addresses to return to.
    stack: Option<Range<u64>>,
}

/// The thread whose accesses are kept.
struct Subject {
    number: usize,
    shadow: Shadow,
    pc: u64,
    /// Instructions so far.
    at: u32,
}

/// One access to memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Writes, or reads and writes.
    pub(super) is_write: bool,
}

impl Recorder {
    /// The record of a process whose instructions `codes` knows.
    pub(super) fn new(codes: Codes, limits: Limits) -> Self {
        Self {
            codes,
            nodes: Nodes::new(limits.paths),
            locks: Locks::default(),
            kept: Vec::new(),
            touches: Vec::new(),
            places: HashMap::new(),
            threads: Vec::new(),
            subject: None,
            limits,
        }
    }

    /// `thread` enters `phase`.
    ///
    /// # Errors
    /// If a limit is met.
    pub(super) fn enter(&mut self, thread: usize, phase: usize) -> Result<(), Error> {
        let of = self.thread(thread);
        of.phase = phase;
        of.entered |= phase != Phase::Outside as usize;
        if !of.entered {
            return Ok(());
        }
        let subject = self.subject.get_or_insert_with(|| Subject {
            number: thread,
            shadow: Shadow::new(),
            pc: 0,
            at: 0,
        });
        if subject.number == thread {
            let at = subject.at;
            let place = u32::try_from(phase).unwrap_or(u32::MAX);
            self.keep(Kept { at, event: Event::Enter, place, lock: 0, node: 0 })?;
        }
        Ok(())
    }

    /// `thread` executes the instruction at `pc`.
    ///
    /// # Errors
    /// If a limit is met.
    pub(super) fn instruction(&mut self, thread: usize, pc: u64, bytes: u64) -> Result<(), Error> {
        if !self.threads.get(thread).is_some_and(|thread| thread.entered) {
            return Ok(());
        }
        let kind = self.codes.kind(pc);
        self.threads[thread].kind = kind;
        if let Some(subject) = self.subject.as_mut().filter(|it| it.number == thread) {
            subject.pc = pc;
            subject.at = subject.at.checked_add(1).ok_or_else(|| {
                Error::Check("more than 2^32 instructions; record fewer with --handshakes".into())
            })?;
            subject.shadow.step(pc, bytes, kind.flow, &mut self.nodes)?;
        }
        Ok(())
    }

    /// The instruction that `thread` executes reads or writes memory.
    ///
    /// # Errors
    /// If a limit is met.
    pub(super) fn access(&mut self, thread: usize, access: Access) -> Result<(), Error> {
        let Some(of) = self.threads.get_mut(thread).filter(|thread| thread.entered) else {
            return Ok(());
        };
        let Access { address, bytes, is_write } = access;
        if of.kind.flow == Flow::Call && is_write {
            of.pushes(address);
            return Ok(());
        }
        if of.owns(address) {
            return Ok(());
        }
        let counts = of.phase != Phase::Outside as usize;
        let atomic = of.kind.atomic;
        let keeps = self.subject.as_ref().is_some_and(|subject| subject.number == thread);
        for line in lines_of(address, bytes) {
            let place = self.place(line * LINE_BYTES)?;
            if counts {
                let touch = &mut self.touches[place as usize];
                touch.is_shared |= *touch.first.get_or_insert(thread) != thread;
            }
            if keeps {
                let event = match (is_write, atomic) {
                    (true, true) => Event::Update,
                    (true, false) => Event::Store,
                    (false, _) => Event::Load,
                };
                self.keep_access(place, event, address)?;
            }
        }
        Ok(())
    }

    /// How many threads entered a phase.
    pub(super) fn threads_entered(&self) -> usize {
        self.threads.iter().filter(|thread| thread.entered).count()
    }

    /// Whether `address` lies on a thread's stack.
    pub(super) fn is_on_a_stack(&self, address: u64) -> bool {
        self.threads.iter().any(|thread| thread.owns(address))
    }

    /// The number of the line at `address`, and who touched it.
    pub(super) fn touch_of(&self, address: u64) -> Option<(u32, &Touch)> {
        self.places.get(&address).map(|place| (*place, &self.touches[*place as usize]))
    }

    fn thread(&mut self, number: usize) -> &mut Thread {
        if self.threads.len() <= number {
            self.threads.resize_with(number + 1, Thread::default);
        }
        &mut self.threads[number]
    }

    fn place(&mut self, address: u64) -> Result<u32, Error> {
        if let Some(place) = self.places.get(&address) {
            return Ok(*place);
        }
        if self.touches.len() >= self.limits.lines {
            return Err(Error::Check(format!(
                "more than {} cache lines were touched; record fewer with --handshakes",
                self.limits.lines
            )));
        }
        let place = u32::try_from(self.touches.len()).unwrap_or(u32::MAX);
        self.places.insert(address, place);
        self.touches.push(Touch { address, first: None, is_shared: false, kept_at: None });
        Ok(place)
    }

    fn keep_access(&mut self, place: u32, event: Event, address: u64) -> Result<(), Error> {
        let Some(subject) = &mut self.subject else { return Ok(()) };
        let at = subject.at;
        let kept_at = &mut self.touches[place as usize].kept_at;
        if event == Event::Load && kept_at.is_some_and(|before| at - before < LOAD_AGAIN) {
            return Ok(());
        }
        *kept_at = Some(at);
        let node = Node { caller: subject.shadow.node(), pc: subject.pc };
        let node = self.nodes.of(node)?;
        if let Some(before) = self.kept.last()
            && (before.at, before.place, before.node) == (at, place, node)
        {
            // Valgrind reads what an atomic instruction updates once more before.
            if before.event != Event::Load {
                return Ok(());
            }
            self.kept.pop();
        }
        let on_lock = match event {
            Event::Update => self.on_lock(address),
            // A spin lock is given back by a plain store.
            Event::Store if self.locks.is_held_at(address) => self.on_lock(address),
            _ => None,
        };
        let (event, lock) = on_lock.unwrap_or((event, 0));
        self.keep(Kept { at, event, place, lock, node })
    }

    /// What the subject does to a lock by its update of `address`: the first one of each call of a
    /// function that takes or releases locks.
    fn on_lock(&mut self, address: u64) -> Option<(Event, u32)> {
        let subject = self.subject.as_mut()?;
        let mut pc = subject.pc;
        for above in 0..=CALLERS_ASKED {
            match self.codes.operation(pc) {
                Found::Later => return None,
                Found::Nothing => {
                    pc = self.nodes.node(subject.shadow.frame(above)?.node).pc;
                }
                Found::Operation { operation, inlined } => {
                    let shadow = &mut subject.shadow;
                    // Code in line has no call of its own, but what it calls has.
                    let is_first = match (inlined, above) {
                        (true, 0) => true,
                        (true, _) => shadow.is_first_update(above - 1),
                        (false, _) => shadow.is_first_update(above),
                    };
                    return if is_first { self.locks.event(operation, address) } else { None };
                }
            }
        }
        None
    }

    fn keep(&mut self, kept: Kept) -> Result<(), Error> {
        if self.kept.len() >= self.limits.kept {
            return Err(Error::Check(format!(
                "one thread has more than {} accesses; record fewer with --handshakes",
                self.limits.kept
            )));
        }
        self.kept.push(kept);
        Ok(())
    }
}

impl Thread {
    fn pushes(&mut self, address: u64) {
        let stack = self.stack.get_or_insert(address..address);
        stack.start = stack.start.min(address);
        stack.end = stack.end.max(address);
    }

    /// Whether `address` lies on its stack, so far as that is known.
    fn owns(&self, address: u64) -> bool {
        self.stack.as_ref().is_some_and(|stack| {
            (stack.start.saturating_sub(STACK_BELOW)..stack.end + STACK_ABOVE).contains(&address)
        })
    }
}

impl Touch {
    /// Whether more than one thread touched it.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }
}

/// How far out a function that works on a lock may be called: in code that is not optimised, an
/// atomic operation is a function of its own, and what that calls is one too.
const CALLERS_ASKED: usize = 3;
/// A line that was touched so few instructions ago is still there.
const LOAD_AGAIN: u32 = 50;
/// Variables of the thread's outermost function, which was entered before it was followed.
const STACK_ABOVE: u64 = 512;
/// What the innermost function may use below the last call.
const STACK_BELOW: u64 = 64 * 1024;

#[cfg(test)]
mod tests;
