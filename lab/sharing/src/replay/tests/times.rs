//! Times that gaps get.

use super::*;

/// The program's gaps in ns.
fn gaps_ns(question: &Question<'_>) -> Vec<f64> {
    check::question(question).expect("it is valid");
    let acts = program::Program::new(question).acts;
    acts.iter().map(|act| act.gap_ps as f64 / PS_PER_NS).collect()
}

#[test]
fn a_single_thread_takes_exactly_its_uncontended_time() {
    let hold = Hold { part: Part::Server, read: false, calls: 1.0, ns: 830.0 };
    let tape = Tape::new(2).lock(LockClass::FutexMutex, 1, &[hold]);
    let tape = tape.then(70_000, Event::Update, 0).then(7, Event::MutexLock, 0);
    let tape = tape.then(900, Event::Load, 0).then(2_500, Event::MutexUnlock, 0);
    let tape = tape.then(33, Event::Enter, Part::ClientSetup as u32).then(11, Event::Store, 0);
    let base_ns = ByPart {
        client: 0.1,
        client_setup: 77.7,
        outside: 12.5,
        server: 31_234.567,
        server_setup: 0.0,
    };
    let question = Question { base_ns, ..tape.asked(0.0, 1) };
    assert_eq!(replay(&question).expect("an answer").ns, base_ns);
    // Neither did the clock go another way.
    let played_ns: f64 = gaps_ns(&question).iter().sum();
    let whole_ns: f64 = Part::ALL.iter().map(|part| *base_ns.of(*part)).sum();
    assert_within(played_ns, whole_ns - 0.002, whole_ns + 0.002);
}

#[test]
fn gaps_go_by_instructions() {
    let tape = Tape::new(1).then(300, Event::Update, 0).then(100, Event::Update, 0).work(600);
    assert_eq!(gaps_ns(&tape.asked(2_000.0, 1)), [600.0, 200.0, 1_200.0]);
}

#[test]
fn large_gaps_take_what_small_ones_may_not() {
    let tape = Tape::new(1).then(1_000, Event::Update, 0).then(100_000, Event::Update, 0);
    // An even share would be 1 ns per instruction, and 0.1.
    assert_eq!(gaps_ns(&tape.asked(101_000.0, 1)), [250.0, 100_750.0, 0.0]);
    assert_eq!(gaps_ns(&tape.asked(10_100.0, 1)), [100.0, 10_000.0, 0.0]);
}

#[test]
fn the_native_clock_says_how_long_a_lock_is_held() {
    let hold = Hold { part: Part::Server, read: false, calls: 1.0, ns: 500.0 };
    let tape = Tape::new(2).lock(LockClass::FutexMutex, 0, &[hold]).then(100, Event::MutexLock, 0);
    let tape = tape.then(300, Event::Update, 1).then(100, Event::MutexUnlock, 0).work(100);
    assert_eq!(gaps_ns(&tape.asked(2_500.0, 1)), [1_000.0, 375.0, 125.0, 1_000.0]);
    // It does not fit: the part's time is what is sure.
    assert_eq!(gaps_ns(&tape.asked(400.0, 1)), [0.0, 300.0, 100.0, 0.0]);
}

#[test]
fn a_hold_within_a_hold_is_part_of_it() {
    let hold = |ns| Hold { part: Part::Server, read: false, calls: 1.0, ns };
    let tape = Tape::new(2).lock(LockClass::FutexMutex, 0, &[hold(500.0)]);
    let tape = tape.lock(LockClass::FutexMutex, 1, &[hold(200.0)]).then(0, Event::MutexLock, 0);
    let tape = tape.then(100, Event::MutexLock, 1).then(900, Event::MutexUnlock, 1);
    let tape = tape.then(50, Event::MutexUnlock, 0).work(100);
    assert_eq!(gaps_ns(&tape.asked(1_500.0, 1)), [0.0, 200.0, 200.0, 100.0, 1_000.0]);
}

#[test]
fn a_hold_of_another_part_or_way_is_not_taken() {
    let read = Hold { part: Part::Server, read: true, calls: 1.0, ns: 900.0 };
    let client = Hold { part: Part::Client, read: false, ..read };
    let tape = Tape::new(1).lock(LockClass::FutexRwLock, 0, &[read, client]);
    let tape = tape.then(100, Event::WriteLock, 0).then(100, Event::WriteUnlock, 0);
    assert_eq!(gaps_ns(&tape.asked(1_000.0, 1)), [500.0, 500.0, 0.0]);
}

#[test]
fn time_without_instructions_is_spent_all_the_same() {
    let tape = Tape::new(1).then(0, Event::Update, 0).then(0, Event::Update, 0);
    assert_eq!(gaps_ns(&tape.asked(800.0, 1)), [400.0, 400.0, 0.0]);
    let mut question = tape.asked(800.0, 1);
    question.base_ns.client = 50.0;
    assert_eq!(gaps_ns(&question), [400.0, 400.0, 50.0]);
}

#[test]
fn several_operations_take_several_times_the_time() {
    let mut tape = Tape::new(1).then(300, Event::Update, 0).work(100);
    tape.0.operations = 4;
    assert_eq!(gaps_ns(&tape.asked(1_000.0, 1)), [3_000.0, 1_000.0]);
    assert_eq!(tape.server_ns(1_000.0, 1), 1_000.0);
    // A counter that each of four operations adds to, and one operation that does.
    let one = || Tape::new(1).then(10, Event::Update, 0);
    let mut four = one().times(3, |tape| tape.then(10, Event::Update, 0));
    four.0.operations = 4;
    let [one, four] = [one(), four].map(|tape| tape.server_ns(1_000.0, 100));
    assert_within(four, one * 0.99, one * 1.01);
}
