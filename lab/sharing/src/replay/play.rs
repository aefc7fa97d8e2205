//! Plays a [`Program`] on many threads, always the one whose clock is behind.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use fastrand::Rng;
use sealane_lab_model::error::Error;

use super::{
    PARTS, PASSES_MAX, PASSES_MIN, PS_PER_NS, Question, RECHECK_PS, SPIN_PS, STARTS_AIMED_AT,
    STEPS_AIMED_AT, TURNS_MAX, WAKE_PS, WAKER_PAYS_PS,
    cache::Caches,
    locks::{Lock, Released, Wait, Waiter},
    program::{Act, Kind, Program},
};

/// Mean waiting per pass, in ns: for each line of the program, for each part. Few threads fall into
/// step with each other, in one way or another by where they began: they begin anew several times,
/// elsewhere.
///
/// # Errors
/// All threads wait for each other.
pub(super) fn play(program: &Program, question: &Question<'_>) -> Result<Vec<f64>, Error> {
    let threads = u64::from(question.threads);
    let pass = program.acts.len() as u64 * threads;
    let plays_max = (STEPS_AIMED_AT / (pass * PASSES_MIN)).max(1);
    let plays = STARTS_AIMED_AT.div_ceil(threads).min(plays_max);
    let passes = (STEPS_AIMED_AT / (pass * plays)).clamp(PASSES_MIN, PASSES_MAX) * threads;
    let mut random = Rng::with_seed(question.seed);
    let mut waits_ns = vec![0.0; program.lines.len() * PARTS];
    for _ in 0..plays {
        let waited = Play::new(program, question, passes, &mut random).run(question)?;
        for (sum, waited) in waits_ns.iter_mut().zip(waited) {
            *sum += waited / plays as f64;
        }
    }
    Ok(waits_ns)
}

struct Play<'a> {
    program: &'a Program,
    caches: Caches,
    locks: Vec<Lock>,
    threads: Vec<Thread>,
    /// Who has a turn when; a thread that was resumed since is not meant any more.
    turns: BinaryHeap<Reverse<Turn>>,
    /// By line and part.
    waits_ps: Vec<u64>,
    /// Passes of all threads, so far and in all. Nobody stops before the end, so that nobody works
    /// alone; who is kept out of a lock for long does fewer.
    passes: u64,
    passes_max: u64,
    /// Whether waits count by now, and the passes done when they began to.
    counts: bool,
    counted_from: f64,
    now_ps: u64,
    released: Released,
    /// Turns that the turn under way gave to others.
    resumed: Vec<Turn>,
}

/// In order of time, then of threads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at_ps: u64,
    thread: u32,
    number: u32,
}

#[derive(Clone, Copy)]
struct Thread {
    /// The number of the thread's next turn.
    number: u32,
    /// The thread's act.
    act: usize,
    state: State,
    /// Since when it waits for a lock.
    since_ps: u64,
    passes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The time of the thread's act has come.
    Arrives,
    /// The thread has its lock's line.
    Decides,
    /// The thread was handed its lock.
    Handed,
    Queues,
    Rechecks,
    /// The thread waits no more and tries again.
    Retries,
    Sleeps,
    Spins,
}

impl<'a> Play<'a> {
    fn new(
        program: &'a Program,
        question: &Question<'_>,
        passes_max: u64,
        random: &mut Rng,
    ) -> Self {
        let count = question.threads as usize;
        let mut play = Self {
            program,
            caches: Caches::new(program.lines.len(), count, question.machine.transfer_ns),
            locks: program.locks.iter().map(|place| Lock::new(place.class)).collect(),
            threads: Vec::with_capacity(count),
            turns: BinaryHeap::with_capacity(2 * count),
            waits_ps: vec![0; program.lines.len() * PARTS],
            passes: 0,
            passes_max,
            counts: false,
            counted_from: 0.0,
            now_ps: 0,
            released: Released::default(),
            resumed: Vec::new(),
        };
        for thread in 0..question.threads {
            let offset_ps = random.u64(0..program.whole_ps().max(1));
            let behind = program.at_ps.partition_point(|at_ps| *at_ps < offset_ps);
            let act = behind + program.acts[behind..].iter().take_while(|act| act.held).count();
            let at_ps = program.at_ps[act] - offset_ps;
            let state = State::Arrives;
            let begun = Thread { number: 0, act, state, since_ps: 0, passes: 0 };
            play.threads.push(begun);
            play.turns.push(Reverse(Turn { at_ps, thread, number: 0 }));
        }
        play
    }

    /// To the end; what a pass waited, in the mean.
    fn run(mut self, question: &Question<'_>) -> Result<impl Iterator<Item = f64>, Error> {
        let mut turns = 0;
        while self.passes < self.passes_max && turns < TURNS_MAX {
            if !self.turn() {
                return Err(deadlock(question));
            }
            turns += 1;
        }
        self.stop();
        let passes = self.progress() - self.counted_from;
        if !self.counts || passes <= 0.0 {
            return Err(Error::Check(format!(
                "{} threads did not get far in {TURNS_MAX} turns of the replay of {}: its \
                 recording is too long",
                question.threads, question.recording.stack.name
            )));
        }
        Ok(self.waits_ps.into_iter().map(move |ps| ps as f64 / PS_PER_NS / passes))
    }

    /// The next thread's turn; `false` if none has one.
    fn turn(&mut self) -> bool {
        let Some(Reverse(turn)) = self.turns.peek().copied() else { return false };
        self.now_ps = turn.at_ps;
        let thread = &self.threads[turn.thread as usize];
        let next_ps = (thread.number == turn.number).then(|| self.go_on(turn)).flatten();
        if let Some(mut top) = self.turns.peek_mut() {
            match next_ps {
                Some(at_ps) => top.0.at_ps = at_ps,
                None => drop(PeekMut::pop(top)),
            }
        }
        self.turns.extend(self.resumed.drain(..).map(Reverse));
        true
    }

    /// What a thread does at its time; tells when it has its next turn, if not another gives it
    /// one.
    fn go_on(&mut self, Turn { at_ps, thread, .. }: Turn) -> Option<u64> {
        let number = thread as usize;
        let act = self.program.acts[self.threads[number].act];
        match self.threads[number].state {
            State::Arrives => self.arrive(act, thread, at_ps),
            State::Decides => self.decide(act, thread, at_ps),
            State::Handed => {
                self.waited(act, at_ps - self.threads[number].since_ps);
                Some(self.next(number, at_ps))
            }
            State::Retries => {
                self.waited(act, at_ps - self.threads[number].since_ps);
                self.arrive(act, thread, at_ps)
            }
            State::Rechecks | State::Spins => self.wait_on(act, thread, at_ps),
            State::Queues | State::Sleeps => None,
        }
    }

    fn arrive(&mut self, act: Act, thread: u32, now_ps: u64) -> Option<u64> {
        let has_ps = match act.kind {
            Kind::End => return Some(self.end_pass(thread as usize, now_ps)),
            Kind::Load => self.caches.read(act.place, thread, now_ps),
            Kind::Write => self.caches.write(act.place, thread, now_ps),
            Kind::Give | Kind::TakeRead | Kind::TakeWrite => {
                self.caches.write(self.line(act), thread, now_ps)
            }
        };
        self.waited(act, has_ps - now_ps);
        match act.kind {
            Kind::End | Kind::Load | Kind::Write => Some(self.next(thread as usize, has_ps)),
            _ if has_ps == now_ps => self.decide(act, thread, now_ps),
            _ => {
                self.threads[thread as usize].state = State::Decides;
                Some(has_ps)
            }
        }
    }

    /// What happens to the lock whose line the thread has.
    fn decide(&mut self, act: Act, thread: u32, now_ps: u64) -> Option<u64> {
        let number = thread as usize;
        let waiter = Waiter { thread, read: act.kind == Kind::TakeRead };
        let lock = &mut self.locks[act.place as usize];
        if act.kind == Kind::Give {
            let pays_ps = self.release(act, now_ps);
            self.waited(act, pays_ps);
            return Some(self.next(number, now_ps + pays_ps));
        }
        if lock.lets_in(waiter) {
            lock.enter(waiter.read);
            return Some(self.next(number, now_ps));
        }
        self.threads[number].since_ps = now_ps;
        let (state, until_ps) = match lock.wait(waiter) {
            Wait::Queue => (State::Queues, None),
            Wait::Recheck => (State::Rechecks, Some(now_ps + RECHECK_PS)),
            Wait::Sleep => (State::Sleeps, None),
            Wait::Spin => (State::Spins, Some(now_ps + SPIN_PS)),
        };
        self.threads[number].state = state;
        until_ps
    }

    /// A thread has waited long enough in the way it did.
    fn wait_on(&mut self, act: Act, thread: u32, now_ps: u64) -> Option<u64> {
        let waiter = Waiter { thread, read: act.kind == Kind::TakeRead };
        let lock = &mut self.locks[act.place as usize];
        let mine = &mut self.threads[thread as usize];
        if lock.lets_in(waiter) {
            lock.leave_awake(waiter, false);
            mine.state = State::Retries;
            return Some(now_ps);
        }
        if mine.state == State::Spins {
            mine.state = State::Rechecks;
            return Some(now_ps + RECHECK_PS);
        }
        lock.leave_awake(waiter, true);
        mine.state = State::Sleeps;
        None
    }

    /// Lets the next ones go on; tells what that costs who gives the lock back.
    fn release(&mut self, act: Act, now_ps: u64) -> u64 {
        self.locks[act.place as usize].release(&mut self.released);
        let released = std::mem::take(&mut self.released);
        for thread in &released.retry {
            self.resume(*thread, State::Retries, now_ps);
        }
        let woken = if released.handed { State::Handed } else { State::Retries };
        for thread in &released.woken {
            self.resume(*thread, woken, now_ps + WAKE_PS);
        }
        let pays_ps = if released.woken.is_empty() { 0 } else { WAKER_PAYS_PS };
        self.released = released;
        pays_ps
    }

    /// Gives a thread that waits a turn, in place of any that it has.
    fn resume(&mut self, thread: u32, state: State, at_ps: u64) {
        let resumed = &mut self.threads[thread as usize];
        resumed.state = state;
        resumed.number = resumed.number.wrapping_add(1);
        self.resumed.push(Turn { at_ps, thread, number: resumed.number });
    }

    /// The thread is done with its act; tells when the next one comes.
    fn next(&mut self, thread: usize, now_ps: u64) -> u64 {
        let thread = &mut self.threads[thread];
        thread.act += 1;
        thread.state = State::Arrives;
        now_ps + self.program.acts[thread.act].gap_ps
    }

    fn end_pass(&mut self, thread: usize, now_ps: u64) -> u64 {
        let thread = &mut self.threads[thread];
        thread.passes += 1;
        thread.act = 0;
        self.passes += 1;
        if self.passes == self.passes_max.div_ceil(3) {
            self.count();
        }
        now_ps + self.program.acts[0].gap_ps
    }

    /// From now on waits count.
    fn count(&mut self) {
        self.counts = true;
        self.counted_from = self.progress();
        self.threads.iter_mut().for_each(|thread| thread.since_ps = self.now_ps);
    }

    /// Adds what threads waited that still do.
    fn stop(&mut self) {
        for thread in 0..self.threads.len() {
            let Thread { act, state, since_ps, .. } = self.threads[thread];
            if !matches!(state, State::Arrives | State::Decides) {
                self.waited(self.program.acts[act], self.now_ps.saturating_sub(since_ps));
            }
        }
    }

    /// Passes of all threads together, with the parts that are done of those under way.
    fn progress(&self) -> f64 {
        let whole_ps = self.program.whole_ps().max(1) as f64;
        let done = |thread: &Thread| {
            let behind = thread.act.checked_sub(1).map_or(0, |act| self.program.at_ps[act]);
            thread.passes as f64 + behind as f64 / whole_ps
        };
        self.threads.iter().map(done).sum()
    }

    fn waited(&mut self, act: Act, waited_ps: u64) {
        if self.counts && waited_ps > 0 {
            let line = match act.kind {
                Kind::Load | Kind::Write => act.place,
                Kind::End | Kind::Give | Kind::TakeRead | Kind::TakeWrite => self.line(act),
            };
            self.waits_ps[line as usize * PARTS + act.part as usize] += waited_ps;
        }
    }

    fn line(&self, act: Act) -> u32 {
        self.program.locks[act.place as usize].line
    }
}

fn deadlock(question: &Question<'_>) -> Error {
    Error::Check(format!(
        "{} threads of {} wait for each other for ever in the replay: its recording takes locks in \
         an order that cannot be, or one of them is not a lock; make it again with: {}",
        question.threads,
        question.recording.stack.name,
        question.recording.command.join(" ")
    ))
}
