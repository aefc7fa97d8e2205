//! Who goes on when a lock is given back.

use super::LockClass;
use crate::replay::locks::{Lock, Released, Wait, Waiter};

fn reader(thread: u32) -> Waiter {
    Waiter { thread, read: true }
}

fn writer(thread: u32) -> Waiter {
    Waiter { thread, read: false }
}

fn release(lock: &mut Lock) -> (Vec<u32>, Vec<u32>, bool) {
    let mut released = Released::default();
    lock.release(&mut released);
    (released.retry, released.woken, released.handed)
}

/// Taken to write.
fn taken(class: LockClass) -> Lock {
    let mut lock = Lock::new(class);
    assert!(lock.lets_in(writer(9)));
    lock.enter(false);
    assert!(!lock.lets_in(writer(9)) && !lock.lets_in(reader(9)));
    lock
}

#[test]
fn a_pthread_mutex_is_looked_at_once_more_and_then_slept_for() {
    let mut lock = taken(LockClass::Mutex);
    for thread in 1..=3 {
        assert_eq!(lock.wait(writer(thread)), Wait::Recheck);
    }
    lock.leave_awake(writer(1), true);
    lock.leave_awake(writer(2), true);
    assert_eq!(release(&mut lock), (vec![3], vec![1], false));
    // Barging: whoever comes first.
    assert!(lock.lets_in(writer(9)));
    lock.enter(false);
    assert_eq!(release(&mut lock), (vec![], vec![2], false));
    assert_eq!(release(&mut taken(LockClass::Mutex)), (vec![], vec![], false));
}

#[test]
fn rust_s_mutex_is_spun_for_while_nobody_sleeps() {
    let mut lock = taken(LockClass::FutexMutex);
    assert_eq!(lock.wait(writer(1)), Wait::Spin);
    assert_eq!(lock.wait(writer(2)), Wait::Spin);
    lock.leave_awake(writer(1), true);
    assert_eq!(lock.wait(writer(3)), Wait::Recheck);
    assert_eq!(release(&mut lock), (vec![2], vec![1], false));
}

#[test]
fn a_pthread_rwlock_is_handed_over() {
    let mut lock = Lock::new(LockClass::RwLock);
    lock.enter(true);
    assert_eq!(lock.wait(writer(1)), Wait::Sleep);
    // Readers come first.
    assert!(lock.lets_in(reader(9)));
    lock.enter(true);
    assert_eq!(release(&mut lock), (vec![], vec![], false));
    assert_eq!(release(&mut lock), (vec![], vec![1], true));
    assert!(!lock.lets_in(reader(9)) && !lock.lets_in(writer(9)));
    for waiter in [reader(2), writer(3), reader(4), writer(5)] {
        assert_eq!(lock.wait(waiter), Wait::Sleep);
    }
    assert_eq!(release(&mut lock), (vec![], vec![2, 4], true));
    assert!(lock.lets_in(reader(9)) && !lock.lets_in(writer(9)));
    release(&mut lock);
    assert_eq!(release(&mut lock), (vec![], vec![3], true));
    // From writer to writer it is not handed over: another may come first.
    assert_eq!(release(&mut lock), (vec![], vec![5], false));
    assert!(lock.lets_in(writer(9)));
}

#[test]
fn rust_s_rwlock_wakes_a_writer_before_all_readers() {
    let mut lock = taken(LockClass::FutexRwLock);
    for waiter in [reader(1), writer(2), reader(3)] {
        lock.wait(waiter);
        lock.leave_awake(waiter, true);
    }
    assert_eq!(release(&mut lock), (vec![], vec![2], false));
    // Nobody overtakes readers that sleep.
    assert!(!lock.lets_in(reader(9)) && lock.lets_in(writer(9)));
    lock.enter(false);
    assert_eq!(release(&mut lock), (vec![], vec![1, 3], false));
    assert!(lock.lets_in(reader(9)));
}

#[test]
fn readers_that_spin_go_on_together() {
    let mut lock = taken(LockClass::FutexRwLock);
    for waiter in [reader(1), writer(2), reader(3)] {
        lock.wait(waiter);
    }
    assert_eq!(release(&mut lock), (vec![1, 3], vec![], false));
    lock.enter(true);
    assert_eq!(release(&mut lock), (vec![2], vec![], false));
}

#[test]
fn the_kernel_s_spin_lock_serves_who_came_first() {
    let mut lock = taken(LockClass::KernelSpin);
    for thread in [3, 1, 2] {
        assert_eq!(lock.wait(writer(thread)), Wait::Queue);
    }
    for next in [3, 1, 2] {
        assert_eq!(release(&mut lock), (vec![next], vec![], false));
        // Who comes now is too late, though the lock is free.
        let too_late = (1..=9).filter(|thread| *thread != next);
        assert!(too_late.map(writer).all(|waiter| !lock.lets_in(waiter)), "before {next}");
        assert!(lock.lets_in(writer(next)));
        lock.enter(false);
    }
    assert_eq!(release(&mut lock), (vec![], vec![], false));
    assert!(lock.lets_in(writer(9)));
}
