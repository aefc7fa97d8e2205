//! The recorder, told by traces that are written here.

use sealane_lab_model::recording::LockClass;

use super::*;
use crate::count::{
    operation::{Does, Operation},
    trace::Trace,
};

const MARKS: u64 = 0x10_0000;
/// Instructions of the program that these traces are of.
const ATOMIC: u64 = 0x1000;
const CALL: u64 = 0x1010;
const PLAIN: u64 = 0x1020;
/// In a function that takes a lock.
const LOCK: u64 = 0x2000;
const UNLOCK: u64 = 0x2010;
const SPIN_LOCK: u64 = 0x2020;
const SPIN_UNLOCK: u64 = 0x2030;
const RETURN: u64 = 0x2040;
/// Where the lock is taken by code in line.
const IN_LINE: u64 = 0x2050;

fn codes() -> Codes {
    let of = |flow, atomic| Kind { flow, atomic };
    let found =
        |class, does, inlined| Found::Operation { operation: Operation { class, does }, inlined };
    Codes::known(
        &[
            (ATOMIC, of(Flow::On, true)),
            (CALL, of(Flow::Call, false)),
            (PLAIN, of(Flow::On, false)),
            (LOCK, of(Flow::On, true)),
            (UNLOCK, of(Flow::On, true)),
            (SPIN_LOCK, of(Flow::On, true)),
            (SPIN_UNLOCK, of(Flow::On, false)),
            (RETURN, of(Flow::Return, false)),
            (IN_LINE, of(Flow::On, true)),
        ],
        &[
            (LOCK, found(LockClass::RwLock, Does::TakeToRead, false)),
            (UNLOCK, found(LockClass::RwLock, Does::Release, false)),
            (SPIN_LOCK, found(LockClass::Mutex, Does::Take, false)),
            (SPIN_UNLOCK, found(LockClass::Mutex, Does::Release, false)),
            (IN_LINE, found(LockClass::FutexMutex, Does::Take, true)),
        ],
    )
}

/// Thread 2 enters the server's phase and does this, one instruction with its accesses in each row.
fn recorded(rows: &[(u64, &[&str])]) -> Trace {
    let mut text = format!("{}{}", thread(2), enter(Phase::Server));
    for (pc, accesses) in rows {
        text += &instruction(*pc, accesses);
    }
    text += &enter(Phase::Outside);
    traced(&text, Limits::default()).expect("within limits")
}

fn traced(text: &str, limits: Limits) -> Result<Trace, Error> {
    let mut trace = Trace::recorded_by(Recorder::new(codes(), limits));
    trace.set_marks(MARKS);
    trace.feed(text.as_bytes()).map(|()| trace)
}

fn thread(number: usize) -> String {
    format!("--1--   SCHED[{number}]:  acquired lock (x)\n")
}

fn enter(phase: Phase) -> String {
    format!(" S {:08x},1\n", MARKS + 64 * phase as u64)
}

fn instruction(pc: u64, accesses: &[&str]) -> String {
    let accesses: String = accesses.iter().map(|access| format!(" {access}\n")).collect();
    format!("I  {pc:08x},4\n{accesses}")
}

/// Events between the marks, each with the line or the lock that it is on.
fn events(trace: &mut Trace) -> Vec<(Event, u64)> {
    let recorder = trace.recorder().expect("a recorder");
    let between = recorder.kept.iter().filter(|kept| kept.event != Event::Enter);
    between
        .map(|kept| match kept.event {
            Event::Load | Event::Store | Event::Update => {
                (kept.event, recorder.touches[kept.place as usize].address)
            }
            event => (event, recorder.locks.known[kept.lock as usize].0),
        })
        .collect()
}

#[test]
fn atomic_and_plain_writes_are_told_apart() {
    let mut trace = recorded(&[
        // As valgrind prints an atomic addition, and a plain one.
        (ATOMIC, &["L 00200000,8", "M 00200000,8"]),
        (PLAIN, &["M 00200040,8"]),
        (PLAIN, &["S 00200080,8"]),
    ]);
    let expected =
        [(Event::Update, 0x20_0000), (Event::Store, 0x20_0040), (Event::Store, 0x20_0080)];
    assert_eq!(events(&mut trace), expected);
}

#[test]
fn a_load_soon_after_another_access_is_dropped() {
    let far = vec![(PLAIN, &[][..]); LOAD_AGAIN as usize];
    let mut rows: Vec<(u64, &[&str])> = vec![
        (PLAIN, &["L 00200000,8"]),
        (PLAIN, &["L 00200010,8"]),
        (PLAIN, &["S 00200000,8"]),
        (PLAIN, &["L 00200000,8"]),
    ];
    rows.extend(far);
    rows.push((PLAIN, &["L 00200000,8"]));
    let expected = [Event::Load, Event::Store, Event::Load].map(|event| (event, 0x20_0000));
    assert_eq!(events(&mut recorded(&rows)), expected);
}

#[test]
fn the_threads_own_stack_is_left_out() {
    let mut trace = recorded(&[
        (CALL, &["S 1ffe000ff8,8"]),
        (PLAIN, &["S 1ffe000f00,8"]),
        (PLAIN, &["S 00200000,8"]),
    ]);
    assert_eq!(events(&mut trace), [(Event::Store, 0x20_0000)]);
    let recorder = trace.recorder().expect("a recorder");
    assert!(recorder.is_on_a_stack(0x1f_fe00_0f00) && !recorder.is_on_a_stack(0x20_0000));
}

#[test]
fn a_lock_is_taken_by_the_first_update_of_each_call() {
    let call: &[&str] = &["S 1ffe000ff8,8"];
    let mut trace = recorded(&[
        (CALL, call),
        (LOCK, &["M 00200000,4"]),
        // Others wait: more updates of the same call.
        (LOCK, &["M 00200008,4"]),
        (RETURN, &[]),
        (CALL + 4, &[]),
        (CALL, call),
        (UNLOCK, &["M 00200000,4"]),
    ]);
    let expected =
        [(Event::ReadLock, 0x20_0000), (Event::Update, 0x20_0000), (Event::ReadUnlock, 0x20_0000)];
    assert_eq!(events(&mut trace), expected);
}

#[test]
fn an_atomic_operation_in_a_function_of_its_own_belongs_to_its_caller() {
    let call: &[&str] = &["S 1ffe000ff8,8"];
    // As in a build without optimisation: the call stands in the function that takes the lock.
    let mut codes = codes();
    codes = codes.with_operation_at(CALL, LOCK);
    let mut trace = Trace::recorded_by(Recorder::new(codes, Limits::default()));
    trace.set_marks(MARKS);
    let text = thread(2)
        + &enter(Phase::Server)
        + &instruction(CALL, call)
        + &instruction(ATOMIC, &["M 00200000,4"]);
    trace.feed(text.as_bytes()).expect("within limits");
    assert_eq!(events(&mut trace), [(Event::ReadLock, 0x20_0000)]);
}

#[test]
fn a_lock_in_line_is_taken_by_each_update() {
    let mut trace = recorded(&[(IN_LINE, &["M 00200000,4"]), (IN_LINE, &["M 00200004,4"])]);
    let expected = [(Event::MutexLock, 0x20_0000), (Event::MutexLock, 0x20_0004)];
    assert_eq!(events(&mut trace), expected, "two locks in one line");
}

#[test]
fn a_spin_lock_is_given_back_by_a_plain_store() {
    let call: &[&str] = &["S 1ffe000ff8,8"];
    let mut trace = recorded(&[
        (CALL, call),
        (SPIN_LOCK, &["M 00200000,4"]),
        (RETURN, &[]),
        (CALL + 4, &["S 00200004,4"]),
        (CALL, call),
        (SPIN_UNLOCK, &["S 00200000,4"]),
        (RETURN, &[]),
        (CALL + 4, &[]),
        (CALL, call),
        // It is not held any more.
        (SPIN_UNLOCK, &["S 00200000,4"]),
    ]);
    let expected = [
        (Event::MutexLock, 0x20_0000),
        (Event::Store, 0x20_0000),
        (Event::MutexUnlock, 0x20_0000),
        (Event::Store, 0x20_0000),
    ];
    assert_eq!(events(&mut trace), expected);
}

#[test]
fn one_thread_is_kept_and_what_others_touch_is_known() {
    let text = thread(2)
        + &enter(Phase::Server)
        + &instruction(PLAIN, &["S 00200000,8", "S 00200040,8"])
        + &thread(3)
        + &instruction(PLAIN, &["L 00200040,8"])
        + &enter(Phase::Client)
        + &instruction(PLAIN, &["L 00200000,8"])
        + &enter(Phase::Outside)
        + &instruction(PLAIN, &["L 00200040,8"]);
    let mut trace = traced(&text, Limits::default()).expect("within limits");
    assert_eq!(events(&mut trace).len(), 2);
    let recorder = trace.recorder().expect("a recorder");
    assert_eq!(recorder.threads_entered(), 2);
    let is_shared =
        |address| recorder.touch_of(address).is_some_and(|(_, touch)| touch.is_shared());
    assert!(is_shared(0x20_0000), "read by the other one in a phase");
    assert!(!is_shared(0x20_0040), "read outside and before");
}

#[test]
fn each_limit_is_told_with_what_to_lower() {
    let many: String = (0..20)
        .map(|line| instruction(PLAIN, &[&format!("S {:08x},8", 0x20_0000 + 64 * line)]))
        .collect();
    let text = thread(2) + &enter(Phase::Server) + &many;
    let whole = Limits::default();
    for (limits, word) in [
        (Limits { kept: 10, ..whole }, "accesses"),
        (Limits { lines: 10, ..whole }, "cache lines"),
        (Limits { paths: 1, ..whole }, "call paths"),
    ] {
        let Err(error) = traced(&text, limits) else { panic!("no limit on {word}") };
        let error = error.to_string();
        assert!(error.contains(word) && error.contains("--handshakes"), "{error}");
    }
}
