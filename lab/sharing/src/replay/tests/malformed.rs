//! What is refused.

use super::*;

fn refusal(tape: &Tape) -> String {
    let error = check(&tape.0).expect_err("it is malformed").to_string();
    assert!(error.contains("sealane-lab count"), "no remedy: {error}");
    let played = replay(&tape.asked(1_000.0, 2)).expect_err("it cannot be played");
    assert_eq!(error, played.to_string());
    error
}

#[test]
fn a_recording_that_no_thread_can_have_made_is_refused() {
    let locked = |class| Tape::new(1).lock(class, 0, &[]);
    let mutex = || locked(LockClass::Mutex);
    let rwlock = || locked(LockClass::RwLock);
    let bad_hold = Hold { ns: f64::NAN, ..Hold::default() };
    let cases = [
        (Tape::new(0).then(0, Event::Enter, 5), "step 1 names part 5 of 5"),
        (Tape::new(2).then(0, Event::Load, 2), "step 1 names line 2 of 2"),
        (Tape::new(2).then(0, Event::Update, 9), "names line 9 of 2"),
        (Tape::new(2).then(0, Event::MutexLock, 0), "names lock 0 of 0"),
        (Tape::new(1).lock(LockClass::Mutex, 1, &[]), "lock 0 is in line 1 of 1"),
        (Tape::new(1).lock(LockClass::Mutex, 0, &[bad_hold]), "lock 0 is held for NaN ns"),
        (mutex().then(0, Event::ReadLock, 0), "does ReadLock on lock 0, which is a Mutex"),
        (rwlock().then(0, Event::MutexLock, 0), "does MutexLock on lock 0, which is a RwLock"),
        (mutex().then(0, Event::MutexUnlock, 0), "step 1 gives back lock 0, which is not held"),
        (mutex().then(0, Event::MutexLock, 0), "lock 0 is never given back"),
        (
            rwlock().then(0, Event::ReadLock, 0).then(0, Event::WriteUnlock, 0),
            "in another way than it was taken",
        ),
        (rwlock().then(0, Event::ReadLock, 0).then(0, Event::WriteLock, 0), "a deadlock"),
    ];
    for (tape, cause) in cases {
        let error = refusal(&tape);
        assert!(error.contains(cause), "{cause:?} is not in {error:?}");
    }
    let mut none = Tape::new(1);
    none.0.operations = 0;
    assert!(refusal(&none).contains("no operation"));
    none.0.operations = 1;
    none.0.steps.clear();
    assert!(refusal(&none).contains("no operation"));
}

#[test]
fn questions_beyond_the_limits_are_refused() {
    let tape = Tape::new(1).then(10, Event::Update, 0);
    let ask = |change: &dyn Fn(&mut Question<'_>)| {
        let mut question = tape.asked(1_000.0, 2);
        change(&mut question);
        replay(&question).expect_err("it is refused").to_string()
    };
    assert!(ask(&|question| question.threads = 0).contains("0 threads"));
    assert!(ask(&|question| question.threads = THREADS_MAX + 1).contains("513 threads"));
    assert!(ask(&|question| question.without = &[1]).contains("without line 1, of 1"));
    for ns in [f64::NAN, f64::INFINITY, -1.0, 1e7] {
        assert!(ask(&|question| question.machine.transfer_ns = ns).contains("a transfer of"));
    }
    for ns in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e13] {
        assert!(ask(&|question| question.base_ns.server = ns).contains("an operation of"));
    }
}

/// Two recordings, whole and with one byte changed.
#[test]
fn damaged_recordings_are_refused_or_played() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/recordings");
    let mut random = fastrand::Rng::with_seed(7);
    let mut played = 0;
    for file in std::fs::read_dir(folder).expect("seeds").flatten() {
        let seed = std::fs::read(file.path()).expect("a seed");
        assert!(Recording::unpacked(&seed[..]).is_ok(), "{file:?}");
        for _ in 0..100 {
            let mut bytes = seed.clone();
            bytes[random.usize(..seed.len())] = random.u8(b' '..=b'~');
            let Ok(recording) = Recording::unpacked(&bytes[..]) else { continue };
            let written = serde_json::to_vec(&recording).expect("JSON");
            assert_eq!(Recording::unpacked(&written[..]), Ok(recording.clone()));
            if let Ok(answer) = replay(&Tape(recording).asked(1_000.0, 3)) {
                assert!(answer.ns.server.is_finite() && answer.ns.server >= 1_000.0);
                played += 1;
            }
        }
    }
    assert!(played > 0);
}
