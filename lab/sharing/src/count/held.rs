//! The locks of one thread: [`Locks`] knows each by its address, and which are held.

use std::collections::HashMap;

use sealane_lab_model::recording::{Event, LockClass};

use crate::count::operation::{Does, Operation};

/// All locks that were taken so far.
#[derive(Default)]
pub(super) struct Locks {
    /// The address of each, and how it waits.
    pub(super) known: Vec<(u64, LockClass)>,
    numbers: HashMap<(u64, LockClass), u32>,
    /// Those taken and not given back, in that order.
    held: Vec<Held>,
}

struct Held {
    lock: u32,
    to_read: bool,
}

impl Locks {
    /// What `operation` does, whose first update is that of `address`, and to which lock; `None` if
    /// it gives back what was not seen to be taken.
    pub(super) fn event(&mut self, operation: Operation, address: u64) -> Option<(Event, u32)> {
        let Operation { class, does } = operation;
        if does == Does::Release {
            let at = self.held.iter().rposition(|held| {
                let (base, of) = self.known[held.lock as usize];
                of == class && (base..base + bytes(class)).contains(&address)
            })?;
            let Held { lock, to_read } = self.held.remove(at);
            return Some((released(class, to_read), lock));
        }
        let next = u32::try_from(self.known.len()).ok()?;
        let lock = *self.numbers.entry((address, class)).or_insert(next);
        if lock == next {
            self.known.push((address, class));
        }
        if self.held.len() == HELD_MAX {
            self.held.remove(0);
        }
        let to_read = does == Does::TakeToRead;
        self.held.push(Held { lock, to_read });
        Some((taken(class, to_read), lock))
    }

    /// Whether a lock that begins at `address` is held.
    pub(super) fn is_held_at(&self, address: u64) -> bool {
        self.held.iter().any(|held| self.known[held.lock as usize].0 == address)
    }
}

fn taken(class: LockClass, to_read: bool) -> Event {
    match class {
        LockClass::FutexMutex | LockClass::KernelSpin | LockClass::Mutex => Event::MutexLock,
        LockClass::FutexRwLock | LockClass::RwLock if to_read => Event::ReadLock,
        LockClass::FutexRwLock | LockClass::RwLock => Event::WriteLock,
    }
}

fn released(class: LockClass, to_read: bool) -> Event {
    match class {
        LockClass::FutexMutex | LockClass::KernelSpin | LockClass::Mutex => Event::MutexUnlock,
        LockClass::FutexRwLock | LockClass::RwLock if to_read => Event::ReadUnlock,
        LockClass::FutexRwLock | LockClass::RwLock => Event::WriteUnlock,
    }
}

/// How far into a lock its functions may write first. Who releases a `pthread_rwlock_t` that was
/// taken to write begins at another word than who takes it; the others have one word only.
fn bytes(class: LockClass) -> u64 {
    match class {
        LockClass::RwLock => 56,
        _ => 1,
    }
}

/// A thread that holds more has failed to take some of them.
const HELD_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Operation = Operation { class: LockClass::RwLock, does: Does::TakeToRead };
    const RELEASE: Operation = Operation { class: LockClass::RwLock, does: Does::Release };
    const WRITE: Operation = Operation { class: LockClass::RwLock, does: Does::Take };

    #[test]
    fn what_is_given_back_is_what_was_taken() {
        let mut locks = Locks::default();
        assert_eq!(locks.event(READ, 0x100), Some((Event::ReadLock, 0)));
        assert_eq!(locks.event(WRITE, 0x200), Some((Event::WriteLock, 1)));
        // At another word of the lock.
        assert_eq!(locks.event(RELEASE, 0x20c), Some((Event::WriteUnlock, 1)));
        assert_eq!(locks.event(RELEASE, 0x100), Some((Event::ReadUnlock, 0)));
        assert_eq!(locks.event(RELEASE, 0x100), None, "not held any more");
    }

    #[test]
    fn two_locks_in_one_line_are_two() {
        let mut locks = Locks::default();
        let take = Operation { class: LockClass::Mutex, does: Does::Take };
        let release = Operation { class: LockClass::Mutex, does: Does::Release };
        assert_eq!(locks.event(take, 0x100), Some((Event::MutexLock, 0)));
        assert_eq!(locks.event(take, 0x128), Some((Event::MutexLock, 1)));
        assert!(locks.is_held_at(0x100));
        assert_eq!(locks.event(release, 0x100), Some((Event::MutexUnlock, 0)));
        assert_eq!(locks.event(release, 0x128), Some((Event::MutexUnlock, 1)));
        assert!(!locks.is_held_at(0x100));
    }
}
