//! A plain discrete-event model: [`replay`] lets a number of virtual threads go through one
//! thread's [`Recording`] and tells how long they wait for each other's cache lines and locks.
//!
//! ```text
//! recording --check--> program (gaps in time) --each thread from a random place--> play --> Answer
//!                                                  caches: who has which line
//!                                                  locks:  who is inside, who waits
//! ```
//! Rules of a line, with `s` the cost of a transfer:
//! - Who reads a line that it does not have waits until the line is free, then `s`; the line is
//!   free again after `s` if another had changed it, else after a tenth of `s`.
//! - Who writes a line that it does not have alone waits until the line is free, then `s`; all
//!   others lose it. The line is free again 5 ns later.
//! - Who loses a line goes on using it until half of the transfer that takes it is over.
//! - Who takes a lock of pthread's reads its line first, whatever the recording says: where the
//!   lock lies across two lines, the recording has that of the other one.
//! - A line that no thread has yet costs nothing: the uncontended time has that in it.
//!
//! Rules of locks are in `replay/locks.rs`. Threads have a core each: nobody is preempted. What
//! the rules leave out: hits that are slower while a line is contended, sockets, siblings on
//! one core, the scheduler, frequency.

mod cache;
mod check;
mod locks;
mod play;
mod program;
#[cfg(test)]
mod tests;
mod times;

use sealane_lab_model::{
    error::Error,
    recording::{ByPart, Part, Recording},
};

pub use check::check;

/// What is asked of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Question<'a> {
    /// What every thread does, over and over.
    pub recording: &'a Recording,
    /// Uncontended time of one operation, in ns.
    pub base_ns: ByPart<f64>,
    /// Costs of the machine.
    pub machine: Machine,
    /// Virtual threads, one per core.
    pub threads: u32,
    /// Lines that are taken as each thread's own: "without this line". Locks in them never wait.
    pub without: &'a [u32],
    /// The seed of the random offsets at which threads begin.
    pub seed: u64,
}

/// Costs of a machine, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// To move a contended line from one core to another.
    pub transfer_ns: f64,
}

/// What the model says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Mean time per operation, waiting included, in ns: the uncontended time and all waits.
    pub ns: ByPart<f64>,
    /// Mean waiting per operation for each line of the recording, in ns; waiting for a lock, and
    /// waking who waits for it, is its line's.
    pub waits_ns: Vec<ByPart<f64>>,
}

/// Plays it a fixed number of times, of which the first third does not count; few threads begin
/// anew several times, elsewhere, as who meets whom hangs on where they began. The time of an
/// operation is that of all threads together by what they did in it, so that a thread that is kept
/// out of a lock counts with its waiting. The same question has the same answer, to the bit.
///
/// # Errors
/// The recording or the question is malformed, or its threads block each other for ever.
pub fn replay(question: &Question<'_>) -> Result<Answer, Error> {
    check::question(question)?;
    let program = program::Program::new(question);
    let waits = play::play(&program, question)?;
    let operations = question.recording.operations as f64;
    let mut answer = Answer {
        ns: question.base_ns,
        waits_ns: vec![ByPart::default(); question.recording.lines.len()],
    };
    for (line, waited) in program.lines.iter().zip(waits.chunks_exact(PARTS)) {
        for (part, waited) in Part::ALL.into_iter().zip(waited) {
            let ns = waited / operations;
            *answer.ns.of_mut(part) += ns;
            *answer.waits_ns[*line as usize].of_mut(part) += ns;
        }
    }
    Ok(answer)
}

/// How many parts there are.
const PARTS: usize = Part::ALL.len();

/// The model's clock: whole picoseconds, so that sums are exact and times have an order.
const PS_PER_NS: f64 = 1e3;

/// A line is not given away in this time after a write. Set a priori.
const WRITE_OCCUPIES_PS: u64 = 5_000;
/// A clean line's transfer keeps others from it for this share of the transfer. Set a priori.
const CLEAN_OCCUPIES: f64 = 0.1;
/// Who loses a line uses it for this share of the transfer that takes it. Added while looking at
/// the published curve of OpenSSL 3.0, whose knee came far too early without it.
const GRACE: f64 = 0.5;
/// A sleeper runs again so long after it was woken. Set a priori.
const WAKE_PS: u64 = 3_000_000;
/// Waking costs the waker this. Set a priori.
const WAKER_PAYS_PS: u64 = 1_500_000;
/// Rust's mutex spins so long before it sleeps, if nobody sleeps. Set a priori.
const SPIN_PS: u64 = 1_000_000;
/// Between deciding to sleep and sleeping, when a lock that is given back is still noticed. Added
/// while looking at the published curve of rustls with a mutex, which came out at x0.3.
const RECHECK_PS: u64 = 400_000;

/// A gap of more instructions is arithmetic (RSA, elliptic curves), whose time per instruction is
/// not that of the code around it. Set a priori.
const SMALL_GAP_INSTRUCTIONS_MAX: u32 = 50_000;
/// What a small gap takes at most per instruction, where there are large ones to take the rest.
/// Set a priori.
const SMALL_GAP_NS_PER_INSTRUCTION_MAX: f64 = 0.25;

/// Times that each thread goes through the recording, on average: at least, at most.
const PASSES_MIN: u64 = 3;
const PASSES_MAX: u64 = 300;
/// So many places at which threads begin, of all plays together, are aimed at: two threads play 32
/// times.
const STARTS_AIMED_AT: u64 = 64;
/// So many steps of all threads in all plays together are aimed at within these bounds.
const STEPS_AIMED_AT: u64 = 3_000_000;
/// After so many turns of all threads a play ends with what was measured until then.
const TURNS_MAX: u64 = 1 << 30;

/// Virtual threads.
pub const THREADS_MAX: u32 = 512;
/// Steps of a recording that is replayed.
pub const STEPS_MAX: usize = 16 << 20;
/// Lines times threads, each of which takes 16 bytes.
const HOLDINGS_MAX: usize = 8 << 20;
/// Longest transfer and longest operation, in ns.
const TRANSFER_NS_MAX: f64 = 1e6;
const OPERATION_NS_MAX: f64 = 1e12;
