//! Replays of one recording, each made once: `Replays`, and what is read from them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use sealane_lab_harness::{interrupt::Interrupt, progress::Progress};
use sealane_lab_model::{
    document::{Curve, CurvePoint, KNEE, KNEE_THREADS_MIN, Knee},
    error::Error,
    recording::{ByPart, Part, Recording},
};

use crate::replay::{Answer, Machine, Question, replay};

/// One recording on one kind of machine, by number of threads.
pub(crate) struct Replays<'a> {
    /// What every thread does.
    pub recording: &'a Recording,
    /// Uncontended time per operation, in ns.
    base_ns: ByPart<f64>,
    /// The cost of moving a contended line, in ns.
    transfer_ns: f64,
    /// Lines that are taken as each thread's own.
    without: &'a [u32],
    /// The seed of the offsets at which threads begin.
    seed: u64,
    /// Told before each replay.
    watch: &'a Watch<'a>,
    /// By threads, and whether a line is moved in half the time.
    made: RefCell<BTreeMap<(u32, Speed), Answer>>,
}

/// How fast a line moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Speed {
    /// In half of the time: the band's other end.
    Fast,
    /// In the time that the machine's profile says.
    Given,
}

/// Sees every replay begin, and Ctrl-C.
pub struct Watch<'a> {
    stop: &'a Interrupt,
    progress: Option<Mutex<State>>,
}

struct State {
    bar: Progress,
    done: u64,
}

impl<'a> Replays<'a> {
    /// None is made yet.
    pub(crate) fn new(
        recording: &'a Recording,
        base_ns: ByPart<f64>,
        transfer_ns: f64,
        seed: u64,
        watch: &'a Watch<'a>,
    ) -> Self {
        let made = RefCell::default();
        Self { recording, base_ns, transfer_ns, without: &[], seed, watch, made }
    }

    /// The same where each thread has `lines` for itself; none is made yet.
    pub(crate) fn without<'b>(&self, lines: &'b [u32]) -> Replays<'b>
    where
        'a: 'b,
    {
        Replays { without: lines, made: RefCell::default(), ..*self }
    }

    /// What `threads` threads come to.
    ///
    /// # Errors
    /// Ctrl-C.
    pub(crate) fn at(&self, threads: u32, speed: Speed) -> Result<Answer, Error> {
        if let Some(answer) = self.made.borrow().get(&(threads, speed)) {
            return Ok(answer.clone());
        }
        let transfer_ns = match speed {
            Speed::Fast => self.transfer_ns / 2.0,
            Speed::Given => self.transfer_ns,
        };
        let stack = &self.recording.stack.name;
        self.watch.begin(&format!("{stack}: {threads} threads, {transfer_ns:.0} ns a transfer"))?;
        let answer = replay(&Question {
            recording: self.recording,
            base_ns: self.base_ns,
            machine: Machine { transfer_ns },
            threads,
            without: self.without,
            seed: self.seed,
        });
        self.watch.end();
        let answer = answer?;
        self.made.borrow_mut().insert((threads, speed), answer.clone());
        Ok(answer)
    }

    /// What share of its speed as a single thread a thread keeps in `parts`, 0 to 1.
    ///
    /// # Errors
    /// Ctrl-C.
    pub(crate) fn efficiency(
        &self,
        parts: &[Part],
        threads: u32,
        speed: Speed,
    ) -> Result<f64, Error> {
        let kept = time(&self.base_ns, parts) / time(&self.at(threads, speed)?.ns, parts);
        // Without any work there is nothing to lose.
        Ok(if kept.is_finite() { kept.clamp(0.0, 1.0) } else { 1.0 })
    }

    /// The curve of `parts` at `cores`, in ascending order, with its band and its knee.
    ///
    /// # Errors
    /// Ctrl-C.
    pub(crate) fn curve(&self, parts: &[Part], cores: &[u32]) -> Result<Curve, Error> {
        let mut points = Vec::new();
        for threads in cores.iter().copied() {
            let efficiency = self.efficiency(parts, threads, Speed::Given)?;
            let [low, high] = band(efficiency, self.efficiency(parts, threads, Speed::Fast)?);
            points.push(CurvePoint { threads, efficiency, low, high });
        }
        Ok(Curve { points, knee: self.knee(parts, cores)? })
    }

    /// Where `parts` fall below 70%, up to the most of `cores`.
    ///
    /// # Errors
    /// Ctrl-C.
    pub(crate) fn knee(&self, parts: &[Part], cores: &[u32]) -> Result<Knee, Error> {
        knee(cores, |threads| self.efficiency(parts, threads, Speed::Given))
    }
}

impl<'a> Watch<'a> {
    /// Shows how far `replays` are; at most so many are made.
    pub fn new(stop: &'a Interrupt, replays: u64) -> Self {
        let state = State { bar: Progress::new(replays), done: 0 };
        Self { stop, progress: Some(Mutex::new(state)) }
    }

    /// Shows nothing.
    pub(crate) fn silent(stop: &'a Interrupt) -> Self {
        Self { stop, progress: None }
    }

    /// Replays that turned out not to be needed, up to `number`, are done.
    pub(crate) fn skip_to(&self, number: u64) {
        if let Some(mut state) = self.state() {
            while state.done < number {
                state.bar.done();
                state.done += 1;
            }
        }
    }

    fn begin(&self, what: &str) -> Result<(), Error> {
        if self.stop.is_pressed() {
            return Err(Error::Interrupted);
        }
        if let Some(mut state) = self.state() {
            state.bar.step(what);
        }
        Ok(())
    }

    fn end(&self) {
        if let Some(mut state) = self.state() {
            state.bar.done();
            state.done += 1;
        }
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        // A bar that a panic left half drawn is still a bar.
        self.progress.as_ref().map(|state| state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The time of `parts` together.
pub(crate) fn time(ns: &ByPart<f64>, parts: &[Part]) -> f64 {
    parts.iter().map(|part| ns.of(*part)).sum()
}

/// From the forecast at the given transfer cost and at half of it, then a factor of two on the rate
/// either way: that is how far off forecasts of published curves are.
pub(crate) fn band(given: f64, fast: f64) -> [f64; 2] {
    [given.min(fast) / OFF, (given.max(fast) * OFF).min(1.0)]
}

/// Where `efficiency` falls below 70%: first among `cores`, in ascending order, then between two of
/// them.
///
/// # Errors
/// Those of `efficiency`.
pub(crate) fn knee(
    cores: &[u32],
    mut efficiency: impl FnMut(u32) -> Result<f64, Error>,
) -> Result<Knee, Error> {
    // A single thread waits for nobody.
    let mut above = (1, 1.0);
    for threads in cores.iter().copied() {
        let kept = efficiency(threads)?;
        if kept < KNEE {
            return between(above, (threads, kept), efficiency);
        }
        above = (threads, kept);
    }
    Ok(cores.last().map_or(Knee::Unknown, |most| Knee::NoneBelow { threads: *most }))
}

/// Narrows it down, then reads it off the straight line.
fn between(
    mut above: (u32, f64),
    mut below: (u32, f64),
    mut efficiency: impl FnMut(u32) -> Result<f64, Error>,
) -> Result<Knee, Error> {
    for _ in 0..KNEE_STEPS_MAX {
        let near = below.0 - above.0 <= (above.0 / KNEE_NEAR).max(1);
        if near || below.0 < KNEE_THREADS_MIN {
            break;
        }
        let middle = above.0.midpoint(below.0);
        let kept = efficiency(middle)?;
        *(if kept < KNEE { &mut below } else { &mut above }) = (middle, kept);
    }
    let share = (above.1 - KNEE) / (above.1 - below.1);
    let threads = f64::from(above.0) + share * f64::from(below.0 - above.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two u32")]
    let threads = threads.round() as u32;
    Ok(numbered(threads))
}

/// A knee of so few threads that the model is too early is told without a number.
pub(crate) fn numbered(threads: u32) -> Knee {
    if threads < KNEE_THREADS_MIN { Knee::FewCores } else { Knee::At { threads } }
}

/// Replays that one [`knee`] takes beyond the threads asked for.
pub(crate) const KNEE_STEPS_MAX: u32 = 6;
/// Close enough: an eighth apart.
const KNEE_NEAR: u32 = 8;
/// How far forecasts are off the rate, either way.
pub(crate) const OFF: f64 = 2.0;
