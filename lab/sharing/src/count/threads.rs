//! Who runs in a memory trace: [`Threads`] knows a thread by valgrind's number for it, or, since
//! valgrind gives the number of one that ended to the next one, tells these apart.

use sealane_lab_model::error::Error;

/// All that ran so far.
pub(super) struct Threads {
    /// Who has each of valgrind's numbers.
    by_number: Vec<Option<usize>>,
    all: Vec<Thread>,
    are_told_apart: bool,
}

#[derive(Clone, Copy, Default)]
struct Thread {
    instructions: u64,
    from: u64,
    until: Option<u64>,
}

/// What one thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) instructions: u64,
    /// The lines of trace during which it lived; the last one only if it has ended.
    pub(super) from: u64,
    pub(super) until: Option<u64>,
}

impl Threads {
    /// By valgrind's numbers, of which none ever ends.
    pub(super) fn by_number() -> Self {
        let by_number = (0..NUMBERS_MAX).map(Some).collect();
        Self { by_number, all: vec![Thread::default(); NUMBERS_MAX], are_told_apart: false }
    }

    /// Each by itself. Whoever runs before the first word about it has the first number, as in a
    /// process that was forked.
    pub(super) fn told_apart() -> Self {
        let mut by_number = vec![None; NUMBERS_MAX];
        by_number[FIRST_NUMBER] = Some(0);
        Self { by_number, all: vec![Thread::default()], are_told_apart: true }
    }

    /// Who runs from now on, with that number, at that line of the trace.
    ///
    /// # Errors
    /// If a limit is met.
    pub(super) fn running(&mut self, number: usize, at: u64) -> Result<usize, Error> {
        match self.by_number.get(number) {
            Some(Some(known)) => return Ok(*known),
            Some(None) if self.all.len() < THREADS_MAX => {}
            Some(None) => {
                return Err(Error::Check(format!(
                    "more than {THREADS_MAX} threads came and went in a trace"
                )));
            }
            None => {
                return Err(Error::Check(format!("more than {NUMBERS_MAX} threads in a trace")));
            }
        }
        let new = self.all.len();
        self.all.push(Thread { from: at, ..Thread::default() });
        self.by_number[number] = Some(new);
        Ok(new)
    }

    /// The one with that number ends.
    pub(super) fn ended(&mut self, number: usize, at: u64) {
        if !self.are_told_apart {
            return;
        }
        if let Some(thread) = self.by_number.get_mut(number).and_then(Option::take) {
            self.all[thread].until = Some(at);
        }
    }

    /// Counts an instruction that `thread` executed.
    pub(super) fn count(&mut self, thread: usize) {
        self.all[thread].instructions += 1;
    }

    /// Whether it has not ended.
    pub(super) fn lives(&self, thread: usize) -> bool {
        self.all.get(thread).is_none_or(|thread| thread.until.is_none())
    }

    /// What those did that did anything since the last call, the busiest first.
    pub(super) fn take_work(&mut self) -> Vec<Work> {
        let mut works = Vec::new();
        for thread in self.all.iter_mut().filter(|thread| thread.instructions > 0) {
            let Thread { instructions, from, until } = *thread;
            works.push(Work { instructions, from, until });
            thread.instructions = 0;
        }
        works.sort_by_key(|work| (std::cmp::Reverse(work.instructions), work.from));
        works
    }
}

/// The number of a process's first thread.
const FIRST_NUMBER: usize = 1;
/// Numbers of threads that live at the same time.
const NUMBERS_MAX: usize = 512;
const THREADS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_given_again_is_another_thread() {
        let mut threads = Threads::told_apart();
        let first = threads.running(1, 0).unwrap();
        let old = threads.running(2, 10).unwrap();
        threads.count(old);
        threads.ended(2, 20);
        let new = threads.running(2, 30).unwrap();
        threads.count(new);
        threads.count(new);
        assert_eq!((first, threads.running(2, 40).unwrap()), (0, new));
        assert!(old != new && !threads.lives(old) && threads.lives(new) && threads.lives(first));
        let works = [
            Work { instructions: 2, from: 30, until: None },
            Work { instructions: 1, from: 10, until: Some(20) },
        ];
        assert_eq!(threads.take_work(), works);
        assert_eq!(threads.take_work(), []);
    }

    #[test]
    fn by_number_nobody_ends() {
        let mut threads = Threads::by_number();
        let thread = threads.running(2, 0).unwrap();
        threads.ended(2, 1);
        assert!(threads.lives(thread));
        assert_eq!(threads.running(2, 2).unwrap(), thread);
        assert!(threads.running(NUMBERS_MAX, 3).is_err());
    }
}
