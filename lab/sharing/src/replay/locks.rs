//! Who is inside a lock and who waits for it, by the lock's class.
//!
//! - `pthread_mutex_t`: who finds it busy has a last look for a while, then sleeps. Who gives it
//!   back wakes one.
//! - Rust's mutex: the same, but before that it is spun for, if nobody sleeps.
//! - `pthread_rwlock_t`: who finds it busy sleeps. The last reader hands over to a writer, a writer
//!   to all readers that wait; if there are none, it wakes another writer.
//! - Rust's read-write lock: waits as Rust's mutex, and a reader also if anybody sleeps. Who gives
//!   it back wakes a writer, or else all readers.
//! - A spin lock of the kernel: who finds it busy, or others before it, queues; nobody sleeps. Who
//!   gives it back lets the first one try, which moves the lock's line, and nobody else before it.
//!
//! Where a sleeper is woken and not handed the lock, others may take it first (barging). Who spins
//! sees at once that a lock is given back.

use std::collections::VecDeque;

use sealane_lab_model::recording::LockClass;

/// One lock.
pub(super) struct Lock {
    class: LockClass,
    readers: u32,
    written: bool,
    /// Spin, queue, or are about to sleep; first come first.
    awake: VecDeque<Waiter>,
    /// Who of those that queued is next, and nobody else.
    next: Option<u32>,
    sleepers: VecDeque<Waiter>,
}

/// A thread that waits, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) thread: u32,
    pub(super) read: bool,
}

/// How a thread begins to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Queue,
    Recheck,
    Sleep,
    Spin,
}

/// Who goes on when a lock is given back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Released {
    /// Try again at once.
    pub(super) retry: Vec<u32>,
    /// Wake up, and then try again or, if `handed`, are inside already.
    pub(super) woken: Vec<u32>,
    pub(super) handed: bool,
}

impl Lock {
    pub(super) fn new(class: LockClass) -> Self {
        Self {
            class,
            readers: 0,
            written: false,
            awake: VecDeque::new(),
            next: None,
            sleepers: VecDeque::new(),
        }
    }

    /// Whether a thread that comes now gets in.
    pub(super) fn lets_in(&self, Waiter { thread, read }: Waiter) -> bool {
        let behind_sleepers = self.class == LockClass::FutexRwLock && !self.sleepers.is_empty();
        let is_its_turn = self.next.is_none_or(|next| next == thread);
        !self.written && is_its_turn && if read { !behind_sleepers } else { self.readers == 0 }
    }

    /// Lets a thread in.
    pub(super) fn enter(&mut self, read: bool) {
        self.next = None;
        if read { self.readers += 1 } else { self.written = true }
    }

    /// Lets a thread wait, and tells how.
    pub(super) fn wait(&mut self, waiter: Waiter) -> Wait {
        let spins = matches!(self.class, LockClass::FutexMutex | LockClass::FutexRwLock);
        if self.class == LockClass::RwLock {
            self.sleepers.push_back(waiter);
            return Wait::Sleep;
        }
        self.awake.push_back(waiter);
        if self.class == LockClass::KernelSpin {
            return Wait::Queue;
        }
        if spins && self.sleepers.is_empty() { Wait::Spin } else { Wait::Recheck }
    }

    /// Counts a thread as awake no more: it sleeps from now on, or tries again.
    pub(super) fn leave_awake(&mut self, waiter: Waiter, sleeps: bool) {
        self.awake.retain(|other| other.thread != waiter.thread);
        if sleeps {
            self.sleepers.push_back(waiter);
        }
    }

    /// Whoever is inside leaves; tells who goes on.
    pub(super) fn release(&mut self, released: &mut Released) {
        released.retry.clear();
        released.woken.clear();
        released.handed = false;
        let was_written = std::mem::take(&mut self.written);
        self.readers -= u32::from(!was_written);
        if self.readers > 0 {
            return;
        }
        match self.class {
            LockClass::KernelSpin => {
                self.next = self.awake.pop_front().map(|first| first.thread);
                released.retry.extend(self.next);
            }
            LockClass::RwLock => self.hand_over(was_written, released),
            LockClass::FutexMutex | LockClass::FutexRwLock | LockClass::Mutex => {
                self.let_go(released);
            }
        }
    }

    fn hand_over(&mut self, was_written: bool, released: &mut Released) {
        let Released { woken, handed, .. } = released;
        if was_written {
            self.take_readers(woken);
            self.readers = u32::try_from(woken.len()).unwrap_or(u32::MAX);
            *handed = !woken.is_empty();
        }
        // After a writer, another one has to get in by itself.
        if woken.is_empty() && self.take_writer(woken) && !was_written {
            self.written = true;
            *handed = true;
        }
    }

    fn let_go(&mut self, released: &mut Released) {
        if let Some(first) = self.awake.pop_front() {
            released.retry.push(first.thread);
            if first.read {
                let readers = self.awake.iter().filter(|waiter| waiter.read);
                released.retry.extend(readers.map(|waiter| waiter.thread));
                self.awake.retain(|waiter| !waiter.read);
            }
        }
        if !self.take_writer(&mut released.woken) {
            self.take_readers(&mut released.woken);
        }
    }

    fn take_writer(&mut self, woken: &mut Vec<u32>) -> bool {
        let first = self.sleepers.iter().position(|waiter| !waiter.read);
        let writer = first.and_then(|first| self.sleepers.remove(first));
        woken.extend(writer.map(|writer| writer.thread));
        writer.is_some()
    }

    fn take_readers(&mut self, woken: &mut Vec<u32>) {
        let readers = self.sleepers.iter().filter(|waiter| waiter.read);
        woken.extend(readers.map(|reader| reader.thread));
        self.sleepers.retain(|waiter| !waiter.read);
    }
}
