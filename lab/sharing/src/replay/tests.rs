//! Recordings whose answer is known.

mod cache;
mod lines;
mod locks;
mod malformed;
mod properties;
mod rules;
mod times;

use sealane_lab_model::recording::{Event, Hold, Lock, LockClass, RecordedLine, Step};

use super::*;

/// A recording of one operation, by hand.
#[derive(Clone, Debug)]
struct Tape(Recording);

impl Tape {
    fn new(lines: usize) -> Self {
        let recording = Recording {
            operations: 1,
            lines: vec![RecordedLine::default(); lines],
            command: vec!["sealane-lab".into(), "count".into()],
            ..Recording::default()
        };
        Self(recording).then(0, Event::Enter, Part::Server as u32)
    }

    fn lock(mut self, class: LockClass, line: u32, holds: &[Hold]) -> Self {
        self.0.locks.push(Lock { class, line, holds: holds.into(), ..Lock::default() });
        self
    }

    fn then(mut self, gap: u32, event: Event, place: u32) -> Self {
        self.0.steps.push(Step { gap, event, place, path: 0 });
        self
    }

    fn times(self, count: u32, mut what: impl FnMut(Self) -> Self) -> Self {
        (0..count).fold(self, |tape, _| what(tape))
    }

    /// `gap` instructions after the last step.
    fn work(self, gap: u32) -> Self {
        self.then(gap, Event::Enter, Part::Server as u32)
    }

    fn asked(&self, server_ns: f64, threads: u32) -> Question<'_> {
        Question {
            recording: &self.0,
            base_ns: ByPart { server: server_ns, ..ByPart::default() },
            machine: Machine { transfer_ns: TRANSFER_NS },
            threads,
            without: &[],
            seed: 1,
        }
    }

    /// Server's ns per operation.
    fn server_ns(&self, server_ns: f64, threads: u32) -> f64 {
        replay(&self.asked(server_ns, threads)).expect("an answer").ns.server
    }
}

/// That `found` lies from `low` to `high`.
fn assert_within(found: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&found), "{found} is not from {low} to {high}");
}

const TRANSFER_NS: f64 = 100.0;
/// How long a contended line is taken up by each write.
const TURN_NS: f64 = TRANSFER_NS + WRITE_OCCUPIES_PS as f64 / PS_PER_NS;
