//! Threads that work one at a time, [`Turns`], so that what an instrument counts of them is the
//! same every time: which of them runs is not the system's choice.

use std::sync::{Condvar, Mutex, PoisonError};

/// Whose turn it is, in the order of the threads' numbers, round after round.
pub(super) struct Turns {
    threads: usize,
    number: Mutex<usize>,
    passed: Condvar,
}

impl Turns {
    /// For threads that are numbered from 0.
    pub(super) fn new(threads: usize) -> Self {
        Self { threads, number: Mutex::new(0), passed: Condvar::new() }
    }

    /// Does `work` when it is the turn of the thread `number`, and passes the turn on. A thread
    /// that ends too early leaves the others waiting; the process ends then.
    pub(super) fn take<T>(&self, number: usize, work: impl FnOnce() -> T) -> T {
        if self.threads == 1 {
            return work();
        }
        let turn = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.passed.wait_while(turn, |turn| *turn != number);
        drop(turn.unwrap_or_else(PoisonError::into_inner));
        let done = work();
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) = (number + 1) % self.threads;
        self.passed.notify_all();
        done
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_work_in_the_order_of_their_numbers() {
        for threads in [1, 2, 5] {
            let turns = Turns::new(threads);
            let order = Mutex::new(Vec::new());
            thread::scope(|scope| {
                // The last is there first.
                for number in (0..threads).rev() {
                    let (turns, order) = (&turns, &order);
                    scope.spawn(move || {
                        for _ in 0..20 {
                            turns.take(number, || order.lock().unwrap().push(number));
                        }
                    });
                }
            });
            let wanted: Vec<_> = (0..20).flat_map(|_| 0..threads).collect();
            assert_eq!(order.into_inner().unwrap(), wanted);
        }
    }
}
