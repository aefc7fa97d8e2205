//! Lines that threads read and write.

use super::*;

/// One update per operation, of `work` instructions.
fn counter(work: u32) -> Tape {
    Tape::new(1).then(0, Event::Update, 0).work(work)
}

#[test]
fn who_shares_nothing_loses_nothing() {
    let tape = Tape::new(0).work(1_000);
    for threads in [1, 2, 80, THREADS_MAX] {
        assert_eq!(tape.server_ns(10_000.0, threads), 10_000.0);
    }
}

#[test]
fn a_counter_is_written_once_per_transfer_and_not_more_often() {
    // Z / s is 100: with 200 threads the line alone says how fast it goes.
    let ns = counter(1_000).server_ns(10_000.0, 200);
    assert_within(ns, 200.0 * TURN_NS * 0.99, 200.0 * TURN_NS * 1.01);
    let four = Tape::new(1).times(4, |tape| tape.then(250, Event::Update, 0));
    let ns = four.server_ns(10_000.0, 100);
    assert_within(ns, 400.0 * TURN_NS * 0.99, 400.0 * TURN_NS * 1.01);
}

#[test]
fn below_its_knee_a_counter_costs_its_transfer() {
    let ns = counter(1_000).server_ns(10_000.0, 10);
    assert_within(ns, 10_000.0 + 0.99 * TRANSFER_NS, 10_000.0 + 1.5 * TRANSFER_NS);
}

#[test]
fn updates_in_a_burst_share_a_transfer() {
    // Together they take less than half a transfer, which a thread keeps the line for at least.
    let burst = Tape::new(1).times(4, |tape| tape.then(1, Event::Update, 0)).work(1_000);
    let ns = burst.server_ns(10_000.0, 200);
    assert_within(ns, 200.0 * TURN_NS * 0.99, 200.0 * TURN_NS * 1.01);
}

#[test]
fn variables_that_share_a_line_by_chance_cost_what_one_variable_does() {
    let mut stores = counter(1_000);
    stores.0.steps[1].event = Event::Store;
    stores.0.lines[0].class = "false-sharing".into();
    let answers = [stores.asked(10_000.0, 100), counter(1_000).asked(10_000.0, 100)]
        .map(|question| replay(&question).expect("an answer"));
    assert!(answers[0].ns.server > 10_400.0);
    assert_eq!(answers[0].ns, answers[1].ns);
}

#[test]
fn a_line_that_is_only_read_costs_nothing() {
    let tape = Tape::new(1).then(0, Event::Load, 0).work(1_000);
    assert_eq!(tape.server_ns(10_000.0, 80), 10_000.0);
}

#[test]
fn readers_of_a_line_pay_for_who_writes_it() {
    // Each operation writes once and reads 9 times: between two writes all others may fetch it.
    let reads = |tape: Tape| tape.times(9, |tape| tape.then(1_000, Event::Load, 0));
    let tape = reads(Tape::new(1)).then(1_000, Event::Store, 0);
    let threads = 8;
    let ns = tape.server_ns(100_000.0, threads);
    let fetches = f64::from(threads - 1) + 1.0;
    assert_within(ns, 100_000.0 + 2.0 * TRANSFER_NS, 100_000.0 + 3.0 * fetches * TRANSFER_NS);
    let rare = reads(reads(reads(reads(Tape::new(1))))).then(1_000, Event::Store, 0);
    let rarely_ns = rare.server_ns(400_000.0, threads) / 4.0;
    assert!(rarely_ns < ns, "{rarely_ns} with a quarter of the writes, {ns} before");
}

#[test]
fn two_lines_are_two_queues() {
    let tape = Tape::new(2).then(500, Event::Update, 0).then(500, Event::Update, 1);
    let answer = replay(&tape.asked(10_000.0, 200)).expect("an answer");
    assert_within(answer.ns.server, 200.0 * TURN_NS * 0.99, 200.0 * TURN_NS * 1.15);
    assert!(answer.waits_ns.iter().all(|waits| waits.server > 0.0));
}

#[test]
fn waits_are_the_line_s_and_the_part_s() {
    let tape = counter(1_000).then(0, Event::Enter, Part::Client as u32).work(0);
    let mut tape = tape.then(0, Event::Enter, Part::Client as u32).then(1_000, Event::Load, 0);
    tape.0.lines.push(RecordedLine::default());
    let mut question = tape.asked(10_000.0, 150);
    question.base_ns.client = 5_000.0;
    let Answer { ns, waits_ns } = replay(&question).expect("an answer");
    assert!(waits_ns[0].server > 0.0 && waits_ns[0].client > 0.0);
    assert_eq!(waits_ns[1], ByPart::default());
    assert_eq!(ns.server, 10_000.0 + waits_ns[0].server);
    assert_eq!(ns.client, 5_000.0 + waits_ns[0].client);
}

#[test]
fn without_a_line_is_as_if_it_had_never_been() {
    let both = Tape::new(2).lock(LockClass::Mutex, 1, &[]);
    let both = both.then(300, Event::Update, 0).then(300, Event::MutexLock, 0);
    let both = both.then(40, Event::MutexUnlock, 0).then(160, Event::Load, 1);
    let one = Tape::new(2).then(300, Event::Update, 0).work(500);
    let without = replay(&Question { without: &[1], ..both.asked(8_000.0, 100) });
    assert_eq!(without.expect("an answer"), replay(&one.asked(8_000.0, 100)).expect("another"));
    assert!(both.server_ns(8_000.0, 100) > one.server_ns(8_000.0, 100) * 1.2);
}

#[test]
fn where_two_threads_begin_decides_little() {
    // Half of the time a thread writes the line: the two meet there always, or never.
    let tape = Tape::new(1).times(20, |tape| tape.then(50, Event::Update, 0)).work(1_000);
    let seeded = |seed| {
        let question = Question { seed, ..tape.asked(10_000.0, 2) };
        replay(&question).expect("an answer").ns.server
    };
    assert_eq!(seeded(5).to_bits(), seeded(5).to_bits(), "the same seed");
    let ns: Vec<f64> = (0..8).map(seeded).collect();
    let mean = ns.iter().sum::<f64>() / 8.0;
    assert!(ns.iter().all(|ns| (ns / mean - 1.0).abs() < 0.03), "{ns:?}");
    // All 20 writes would wait for a transfer, or one.
    assert_within(mean, 10_000.0 + 5.0 * TRANSFER_NS, 10_000.0 + 15.0 * TRANSFER_NS);
}
