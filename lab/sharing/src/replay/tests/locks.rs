//! Locks that threads wait for.

use super::*;

const CLASSES: [LockClass; 5] = [
    LockClass::FutexMutex,
    LockClass::FutexRwLock,
    LockClass::KernelSpin,
    LockClass::Mutex,
    LockClass::RwLock,
];

/// A lock that is held for `hold` of 1,000 instructions to write.
fn writers(class: LockClass, hold: u32) -> Tape {
    let mutex = matches!(class, LockClass::FutexMutex | LockClass::KernelSpin | LockClass::Mutex);
    let (take, give) = match mutex {
        true => (Event::MutexLock, Event::MutexUnlock),
        false => (Event::WriteLock, Event::WriteUnlock),
    };
    Tape::new(1).lock(class, 0, &[]).then(1_000 - hold, take, 0).then(hold, give, 0)
}

/// `reads` read sections and `writes` write sections.
fn sections(class: LockClass, reads: u32, writes: u32) -> Tape {
    let tape = Tape::new(1)
        .lock(class, 0, &[])
        .times(reads, |tape| tape.then(1_000, Event::ReadLock, 0).then(50, Event::ReadUnlock, 0));
    tape.times(writes, |tape| tape.then(1_000, Event::WriteLock, 0).then(50, Event::WriteUnlock, 0))
}

#[test]
fn what_is_done_under_a_lock_is_done_by_one_thread_at_a_time() {
    for class in CLASSES {
        // 2,000 of 10,000 ns: Amdahl's bound is 5 threads' worth.
        let ns = writers(class, 200).server_ns(10_000.0, 32);
        let handover_ns = (WAKE_PS + WAKER_PAYS_PS) as f64 / PS_PER_NS + 4.0 * TURN_NS;
        assert_within(ns, 32.0 * 2_000.0, 32.0 * (2_000.0 + handover_ns));
    }
}

#[test]
fn a_lock_that_is_seldom_busy_costs_its_line() {
    for class in CLASSES {
        let ns = writers(class, 1).server_ns(100_000.0, 4);
        assert_within(ns, 100_000.0 + TRANSFER_NS / 2.0, 100_000.0 + 3.0 * TRANSFER_NS);
    }
}

#[test]
fn readers_alone_only_move_the_line() {
    for class in [LockClass::FutexRwLock, LockClass::RwLock] {
        let reads = sections(class, 2, 0);
        let mut updates = reads.clone();
        updates.0.steps =
            (reads.0.steps.iter()).flat_map(|step| as_accesses(*step, class)).collect();
        // Threads begin at other places: none begins between a lock's load and its update.
        let [reads, updates] = [reads, updates].map(|tape| tape.server_ns(10_000.0, 64));
        assert_within(reads, updates * 0.97, updates * 1.03);
    }
}

/// What a step on a lock does to its line. Where the recorder has a lock of pthread's in one
/// line, it has the load that comes first; where the lock lies across two, the replay has it.
fn as_accesses(step: Step, class: LockClass) -> Vec<Step> {
    let first = Step { event: Event::Load, ..step };
    let then = Step { event: Event::Update, ..step };
    match (step.event, class) {
        (Event::Enter, _) => vec![step],
        (Event::ReadLock, LockClass::RwLock) => vec![first, Step { gap: 0, ..then }],
        _ => vec![then],
    }
}

#[test]
fn the_load_before_a_lock_is_taken_costs_the_same_recorded_or_not() {
    let without = sections(LockClass::RwLock, 2, 0);
    let mut with = without.clone();
    let load = |step: &Step| match step.event {
        Event::ReadLock => vec![Step { event: Event::Load, ..*step }, Step { gap: 0, ..*step }],
        _ => vec![*step],
    };
    with.0.steps = without.0.steps.iter().flat_map(load).collect();
    let answers =
        [&without, &with].map(|tape| replay(&tape.asked(10_000.0, 1)).expect("an answer"));
    assert_eq!(answers[0], answers[1]);
    let [without, with] = [without, with].map(|tape| tape.server_ns(10_000.0, 64));
    assert_within(with, without * 0.95, without * 1.05);
}

#[test]
fn a_writer_now_and_then_makes_readers_wait() {
    for class in [LockClass::FutexRwLock, LockClass::RwLock] {
        let reading = sections(class, 10, 0).server_ns(100_000.0, 32);
        let writing = sections(class, 9, 1).server_ns(100_000.0, 32);
        assert!(writing > reading * 1.01, "{class:?}: {writing} with a writer, {reading} without");
    }
}

#[test]
fn a_lock_of_another_line_is_another_lock() {
    let mut tape = writers(LockClass::Mutex, 100);
    tape.0.lines.push(RecordedLine::default());
    let tape = tape.lock(LockClass::Mutex, 1, &[]);
    let tape = tape.then(900, Event::MutexLock, 1).then(100, Event::MutexUnlock, 1);
    let answer = replay(&tape.asked(20_000.0, 64)).expect("an answer");
    // One lock for both would be twice this.
    let handover_ns = (WAKE_PS + WAKER_PAYS_PS) as f64 / PS_PER_NS + 4.0 * TURN_NS;
    assert_within(answer.ns.server, 64.0 * 1_000.0, 64.0 * (1_000.0 + handover_ns));
    assert!(answer.waits_ns.iter().all(|waits| waits.server > 0.0));
}

#[test]
fn who_takes_a_lock_again_goes_on() {
    let nested = Tape::new(1).lock(LockClass::Mutex, 0, &[]).then(800, Event::MutexLock, 0);
    let nested = nested.then(50, Event::MutexLock, 0).then(50, Event::MutexUnlock, 0);
    let nested = nested.then(100, Event::MutexUnlock, 0);
    assert!(nested.server_ns(10_000.0, 16) > 16.0 * 2_000.0);
    assert_eq!(nested.server_ns(10_000.0, 1), 10_000.0);
}

#[test]
fn locks_in_a_circle_are_told_and_not_waited_for() {
    let tape = Tape::new(2).lock(LockClass::Mutex, 0, &[]).lock(LockClass::Mutex, 1, &[]);
    let nest = |tape: Tape, outer, inner| {
        let tape = tape.then(10, Event::MutexLock, outer).then(10, Event::MutexLock, inner);
        tape.then(10, Event::MutexUnlock, inner).then(10, Event::MutexUnlock, outer)
    };
    let tape = nest(nest(tape, 0, 1), 1, 0);
    let error = replay(&tape.asked(1_000.0, 8)).expect_err("a deadlock").to_string();
    assert!(error.contains("wait for each other"), "{error}");
    assert!(error.contains("sealane-lab count"), "{error}");
}

/// Two threads that do everything under one lock, `hold_ns` long.
fn crowd_ns(class: LockClass, hold_ns: f64) -> f64 {
    writers(class, 1_000).server_ns(hold_ns, 2)
}

#[test]
fn waking_costs_and_who_is_kept_out_counts_with_its_waiting() {
    // Who gives it back has it again 1.5 us later, before the other, which takes 3, has woken up.
    for class in [LockClass::Mutex, LockClass::RwLock] {
        let ns = crowd_ns(class, 2_000.0);
        assert_within(ns, 2.0 * 3_500.0, 2.0 * (3_500.0 + 2.0 * TURN_NS));
    }
}

#[test]
fn who_sees_a_lock_given_back_in_time_does_not_sleep() {
    // A last look is 0.4 us long, spinning before it 1 us.
    let cases = [
        (LockClass::Mutex, 200.0, false),
        (LockClass::Mutex, 900.0, true),
        (LockClass::FutexMutex, 900.0, false),
        (LockClass::FutexRwLock, 900.0, false),
        (LockClass::FutexMutex, 1_900.0, true),
        (LockClass::RwLock, 900.0, true),
    ];
    for (class, hold_ns, sleeps) in cases {
        let ns = crowd_ns(class, hold_ns) / 2.0 - hold_ns;
        // Who does not sleep only moves the line, once.
        let range = if sleeps { 4.0 * TRANSFER_NS..1e9 } else { 0.0..1.1 * TRANSFER_NS };
        assert!(range.contains(&ns), "{class:?}: {hold_ns} ns under the lock, {ns} not");
    }
}

#[test]
fn who_still_waits_at_the_end_counts_with_its_waiting() {
    // So many steps that each thread goes through them only thrice, all under one lock: a third of
    // the waiting is under way when it ends.
    let threads = 64;
    let steps = u32::try_from(STEPS_AIMED_AT / 64 / 3).expect("few");
    let tape = Tape::new(2).lock(LockClass::FutexMutex, 0, &[]).then(0, Event::MutexLock, 0);
    let tape = tape.times(steps, |tape| tape.then(1, Event::Load, 1));
    let ns = tape.then(0, Event::MutexUnlock, 0).server_ns(1e7, threads);
    assert_within(ns, 64.0 * 1e7 * 0.95, 64.0 * 1e7 * 1.05);
}

#[test]
fn who_spins_in_the_kernel_never_sleeps_and_moves_the_line_each_time() {
    for hold_ns in [200.0, 2_000.0, 20_000.0] {
        // The lock's line goes to who comes, back to who gives the lock back, and to who is next.
        let ns = crowd_ns(LockClass::KernelSpin, hold_ns) / 2.0 - hold_ns;
        assert_within(ns, TRANSFER_NS / 2.0, 3.0 * TURN_NS);
    }
}
