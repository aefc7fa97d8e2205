//! What holds of any recording.

use proptest::prelude::*;

use super::*;

/// What a thread does, of which any sequence is a recording.
#[derive(Clone, Debug)]
enum Doing {
    Access(u32, Event, u32),
    /// A lock by number, how, and what is done inside.
    Locked(u32, bool, Vec<Doing>),
    Part(u32, u32),
}

const LINES: u32 = 3;
const CLASSES: [LockClass; 5] = [
    LockClass::FutexMutex,
    LockClass::FutexRwLock,
    LockClass::Mutex,
    LockClass::RwLock,
    LockClass::KernelSpin,
];

fn access() -> impl Strategy<Value = Doing> {
    let event = prop_oneof![Just(Event::Load), Just(Event::Store), Just(Event::Update)];
    (gap(), event, 0..LINES).prop_map(|(gap, event, line)| Doing::Access(gap, event, line))
}

fn gap() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0..3_000_u32, 1 => 50_000..500_000_u32]
}

fn doing() -> impl Strategy<Value = Doing> {
    let leaf = prop_oneof![
        6 => access(),
        1 => (gap(), 0..5_u32).prop_map(|(gap, part)| Doing::Part(gap, part)),
    ];
    leaf.prop_recursive(2, 12, 4, |inner| {
        (0..5_u32, any::<bool>(), prop::collection::vec(inner, 0..4))
            .prop_map(|(lock, read, inside)| Doing::Locked(lock, read, inside))
    })
}

/// Locks are taken in the order of their numbers, as who fears a deadlock does.
fn tell(tape: Tape, doing: &Doing, lowest: u32) -> Tape {
    match doing {
        Doing::Access(gap, event, line) => tape.then(*gap, *event, *line),
        Doing::Part(gap, part) => tape.then(*gap, Event::Enter, *part),
        Doing::Locked(lock, read, inside) => {
            let within =
                |tape, lowest| inside.iter().fold(tape, |tape, doing| tell(tape, doing, lowest));
            if *lock < lowest {
                return within(tape, lowest);
            }
            let (take, give) = match (CLASSES[*lock as usize], *read) {
                (LockClass::FutexMutex | LockClass::KernelSpin | LockClass::Mutex, _) => {
                    (Event::MutexLock, Event::MutexUnlock)
                }
                (_, true) => (Event::ReadLock, Event::ReadUnlock),
                (_, false) => (Event::WriteLock, Event::WriteUnlock),
            };
            within(tape.then(100, take, *lock), lock + 1).then(100, give, *lock)
        }
    }
}

fn tape() -> impl Strategy<Value = Tape> {
    prop::collection::vec(doing(), 1..12).prop_map(|all| {
        let empty = CLASSES.into_iter().zip([0, 1, 1, 2, 0]);
        let empty = empty.fold(Tape::new(3), |tape, (class, line)| tape.lock(class, line, &[]));
        all.iter().fold(empty, |tape, doing| tell(tape, doing, 0))
    })
}

/// Few: these run in debug builds.
const CASES: u32 = 48;

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, ..ProptestConfig::with_cases(CASES)
    })]

    #[test]
    fn nobody_is_faster_together_and_time_is_base_and_waits(
        tape in tape(), threads in 1..12_u32, base in 1.0..1e5_f64, transfer in 0.0..300.0_f64,
    ) {
        let machine = Machine { transfer_ns: transfer };
        let (server, client) = (base, base / 3.0);
        let base_ns = ByPart { client, server, outside: 1.0, ..ByPart::default() };
        let question = Question { machine, base_ns, ..tape.asked(0.0, threads) };
        let answer = replay(&question).expect("an answer");
        for part in Part::ALL {
            let waits: f64 = answer.waits_ns.iter().map(|waits| *waits.of(part)).sum();
            let expected = base_ns.of(part) + waits;
            prop_assert!(answer.waits_ns.iter().all(|waits| *waits.of(part) >= 0.0));
            prop_assert!((answer.ns.of(part) - expected).abs() <= expected * 1e-9);
        }
        if threads == 1 {
            prop_assert_eq!(answer.ns, base_ns);
        }
        let alone = replay(&Question { without: &[0, 1, 2], ..question }).expect("an answer");
        prop_assert_eq!(alone.ns, base_ns);
    }

    // With locks it may: a slow line spreads threads out that a fast one lets run into sleep.
    #[test]
    fn without_locks_a_dearer_transfer_does_not_make_it_faster(
        accesses in prop::collection::vec(access(), 1..12),
        threads in 2..12_u32,
        transfer in 20.0..200.0_f64,
    ) {
        let tape = accesses.iter().fold(Tape::new(3), |tape, doing| tell(tape, doing, 0));
        let ns = [transfer, 2.0 * transfer].map(|transfer_ns| {
            let machine = Machine { transfer_ns };
            let question = Question { machine, ..tape.asked(20_000.0, threads) };
            replay(&question).expect("an answer").ns.server
        });
        prop_assert!(ns[1] >= ns[0] * 0.9, "{} ns, and with twice the cost {} ns", ns[0], ns[1]);
    }
}
