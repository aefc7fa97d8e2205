//! What one thread did to locks and keys, counted: [`Tally`].
//!
//! Each thread has its own, so counting shares nothing. A lock is tried before it is waited for,
//! which costs what taking it costs, and tells whether somebody else had it.

use std::{
    cell::Cell,
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError},
};

/// Counts of one thread.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Locks taken.
    pub(super) acquisitions: Cell<u64>,
    /// Locks that another thread had.
    pub(super) waits: Cell<u64>,
    /// Keys made from random bytes.
    pub(super) generated: Cell<u64>,
    /// The part of these that was made while this thread had a lock.
    pub(super) generated_locked: Cell<u64>,
    /// Locks that this thread has.
    held: Cell<u32>,
}

impl Tally {
    /// Waits for a lock; none if a thread panicked with it.
    pub(super) fn lock<'a, T>(&'a self, lock: &'a Mutex<T>) -> Option<Held<'a, MutexGuard<'a, T>>> {
        self.taken(lock.try_lock(), || lock.lock().ok())
    }

    /// Locks to read, as [`lock`](Self::lock) does.
    pub(super) fn read<'a, T>(
        &'a self,
        lock: &'a RwLock<T>,
    ) -> Option<Held<'a, RwLockReadGuard<'a, T>>> {
        self.taken(lock.try_read(), || lock.read().ok())
    }

    /// Locks to write, as [`lock`](Self::lock) does.
    pub(super) fn write<'a, T>(
        &'a self,
        lock: &'a RwLock<T>,
    ) -> Option<Held<'a, RwLockWriteGuard<'a, T>>> {
        self.taken(lock.try_write(), || lock.write().ok())
    }

    /// A key is being made.
    pub(super) fn generates(&self) {
        add(&self.generated);
        if self.held.get() > 0 {
            add(&self.generated_locked);
        }
    }

    fn taken<G>(
        &self,
        tried: Result<G, TryLockError<G>>,
        wait: impl FnOnce() -> Option<G>,
    ) -> Option<Held<'_, G>> {
        let guard = match tried {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(_)) => return None,
            Err(TryLockError::WouldBlock) => {
                add(&self.waits);
                wait()?
            }
        };
        add(&self.acquisitions);
        self.held.set(self.held.get() + 1);
        Some(Held { guard, held: &self.held })
    }
}

/// A lock that a thread has.
pub(super) struct Held<'a, G> {
    guard: G,
    held: &'a Cell<u32>,
}

impl<G: Deref> Deref for Held<'_, G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Held<'_, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<G> Drop for Held<'_, G> {
    fn drop(&mut self) {
        self.held.set(self.held.get() - 1);
    }
}

fn add(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn a_lock_that_another_thread_has_is_a_wait() {
        let lock = Mutex::new(());
        let (has_it, wait) = mpsc::channel();
        let (go_on, end) = mpsc::channel();
        thread::scope(|scope| {
            let lock = &lock;
            scope.spawn(move || {
                let guard = lock.lock().unwrap();
                has_it.send(()).unwrap();
                end.recv().unwrap();
                drop(guard);
            });
            wait.recv().unwrap();
            let tally = Tally::default();
            // The other thread lets go only once this one is seen to find the lock taken.
            let held = tally.taken(lock.try_lock(), || {
                go_on.send(()).unwrap();
                lock.lock().ok()
            });
            assert!(held.is_some());
            drop(held);
            assert!(tally.lock(lock).is_some());
            assert_eq!((tally.acquisitions.get(), tally.waits.get()), (2, 1));
        });
    }

    #[test]
    fn a_key_made_under_a_lock_is_told_from_one_made_outside() {
        let (mutex, readers) = (Mutex::new(()), RwLock::new(()));
        let tally = Tally::default();
        tally.generates();
        let held = tally.lock(&mutex).unwrap();
        tally.generates();
        drop(held);
        tally.generates();
        drop(tally.read(&readers).unwrap());
        tally.generates();
        let held = tally.write(&readers).unwrap();
        tally.generates();
        drop(held);
        assert_eq!((tally.generated.get(), tally.generated_locked.get()), (5, 2));
        assert_eq!((tally.acquisitions.get(), tally.waits.get()), (3, 0));
    }
}
