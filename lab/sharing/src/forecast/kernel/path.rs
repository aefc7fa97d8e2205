//! A connection's way through a server as steps of the replay: [`ServerPath`].

use sealane_lab_model::{
    library::Identity,
    recording::{ByPart, Event, Hold, Lock, LockClass, Part, RecordedLine, Recording, Step},
};

/// System calls that hold a file table's lock, and the work between them, dealt out evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ServerPath {
    /// Times that the lock is taken.
    pub(super) holds: u64,
    /// CPU time outside of it.
    pub(super) work_ns: f64,
    /// How long it is held each time, if its lines are here already.
    pub(super) hold_ns: f64,
    /// Lines that are written under it, beside its own.
    pub(super) lines: u32,
}

impl ServerPath {
    /// The steps of one connection. What a call does under the lock moves the lock's line, then the
    /// table's.
    pub(super) fn recording(self) -> Recording {
        let Self { holds, hold_ns, lines, .. } = self;
        let step = |gap, event, place| Step { gap, event, place, path: 0 };
        let mut steps = vec![step(0, Event::Enter, Part::Server as u32)];
        for _ in 0..holds {
            steps.push(step(BETWEEN, Event::MutexLock, 0));
            steps.extend((1..=lines).map(|line| step(0, Event::Update, line)));
            steps.push(step(WITHIN, Event::MutexUnlock, 0));
        }
        let hold = Hold { part: Part::Server, read: false, calls: holds as f64, ns: hold_ns };
        Recording {
            command: ["sealane-lab", "forecast", "--kernel"].map(str::to_owned).into(),
            stack: Identity { name: FILE_LOCK.into(), ..Identity::default() },
            operations: 1,
            lines: vec![RecordedLine::default(); lines as usize + 1],
            locks: vec![Lock {
                class: LockClass::KernelSpin,
                line: 0,
                symbol: FILE_LOCK.into(),
                holds: vec![hold],
            }],
            steps,
            ..Recording::default()
        }
    }

    /// What it takes who waits for nobody.
    pub(super) fn base_ns(self) -> ByPart<f64> {
        let server = self.work_ns + self.holds as f64 * self.hold_ns;
        ByPart { server, ..ByPart::default() }
    }

    /// The lines of the table: without them, each thread has its own.
    pub(super) fn table(self) -> Vec<u32> {
        (0..=self.lines).collect()
    }
}

/// In the kernel's source: `files_struct::file_lock`.
const FILE_LOCK: &str = "file_lock";
/// Instructions before each hold: any number, because all are the same.
const BETWEEN: u32 = 1_000;
/// And in it, after the lines have come.
const WITHIN: u32 = 1;
