//! Recordings built here, whose curves are known without any replay.

use sealane_lab_harness::interrupt::Interrupt;
use sealane_lab_model::{
    document::{Forecast, KNEE, KNEE_THREADS_MIN, Knee, Profile, VerdictKind},
    recording::{
        ByPart, Event, Hold, Lock, LockClass, Part, PathNode, RecordedLine, Recording, SCHEMA, Step,
    },
    verdict,
};

use super::{
    Target, of,
    replays::{self, Watch},
    table,
};

const TRANSFER_NS: f64 = 100.0;

/// One operation of `server_ns`, all of it the server's, at 1 ns per instruction.
fn recording(server_ns: u32, steps: &[Step]) -> Recording {
    let enter = |part: Part, gap| Step { gap, event: Event::Enter, place: part as u32, path: 0 };
    let spent: u32 = steps.iter().map(|step| step.gap).sum();
    let mut all = vec![enter(Part::Server, 0)];
    all.extend(steps);
    all.push(enter(Part::Outside, server_ns - spent));
    let ns = f64::from(server_ns);
    Recording {
        schema: SCHEMA.into(),
        operations: 1,
        instructions: ByPart { server: ns, ..ByPart::default() },
        native_ns: Some(ByPart { server: ns, ..ByPart::default() }),
        paths: vec![
            PathNode::default(),
            PathNode { caller: None, function: "accept".into(), owner: "x".into() },
            PathNode { caller: Some(1), function: "count_up".into(), owner: "x".into() },
        ],
        steps: all,
        ..Recording::default()
    }
}

fn line(class: &str, symbol: &str, updates: f64) -> RecordedLine {
    RecordedLine {
        class: class.into(),
        symbol: symbol.into(),
        owner: "x".into(),
        updates: ByPart { server: updates, ..ByPart::default() },
        ..RecordedLine::default()
    }
}

/// Adds one to a counter that all threads share.
fn counter(server_ns: u32) -> Recording {
    let step = Step { gap: server_ns / 2, event: Event::Update, place: 0, path: 2 };
    Recording { lines: vec![line("global", "COUNTER", 1.0)], ..recording(server_ns, &[step]) }
}

/// Holds a mutex for `hold_ns`.
fn mutex(server_ns: u32, hold_ns: u32) -> Recording {
    let lock = |gap, event| Step { gap, event, place: 0, path: 2 };
    let steps = [lock(server_ns / 2, Event::MutexLock), lock(hold_ns, Event::MutexUnlock)];
    let hold = Hold { part: Part::Server, read: false, calls: 1.0, ns: f64::from(hold_ns) };
    let held =
        Lock { class: LockClass::Mutex, line: 0, symbol: "TICKETS".into(), holds: vec![hold] };
    Recording {
        lines: vec![line("lock", "TICKETS", 2.0)],
        locks: vec![held],
        ..recording(server_ns, &steps)
    }
}

fn target(cores: &[u32]) -> Target {
    Target {
        profile: Profile {
            name: "made up".into(),
            transfer_ns: TRANSFER_NS,
            source: "a test".into(),
        },
        cores: cores.to_vec(),
        seed: 1,
    }
}

fn forecast(recording: &Recording) -> Forecast {
    let stop = Interrupt::default();
    of(recording, &target(&[16, 64, 80]), &Watch::silent(&stop)).unwrap()
}

fn at(forecast: &Forecast, threads: u32) -> f64 {
    let point = forecast.server.points.iter().find(|point| point.threads == threads);
    point.unwrap().efficiency
}

/// `is` between `wanted` less and more a share of it.
fn near(is: f64, wanted: f64, share: f64) {
    assert!((is / wanted - 1.0).abs() <= share, "{is} for {wanted}");
}

#[test]
fn a_counter_lets_one_transfer_happen_at_a_time() {
    // 4,000 ns of work and one transfer of 100: at 80 threads, a transfer each 105 ns is all there
    // is, and a thread keeps 4,000 / (80 * 105).
    let forecast = forecast(&counter(4_000));
    near(at(&forecast, 80), 4_000.0 / (80.0 * 105.0), 0.15);
    assert!(at(&forecast, 16) > 0.9, "{forecast:?}");
    let Knee::At { threads } = forecast.server.knee else { panic!("{forecast:?}") };
    // All of it is busy at 39 threads; 70% are left at 54.
    assert!((35..=60).contains(&threads), "{threads}");
    let first = &forecast.lines[0];
    assert_eq!((first.symbol.as_str(), first.class.as_str()), ("COUNTER", "global"));
    assert_eq!(first.path, ["count_up", "accept"]);
    assert!(first.share_of_waiting > 0.99 && first.without > 0.99, "{first:?}");
    assert_eq!(first.knee_without, Knee::NoneBelow { threads: 80 });
    assert_eq!(forecast.verdict.kind, VerdictKind::Stops);
}

#[test]
fn each_side_s_curve_is_its_own_time_s() {
    // 4,000 ns of each side in a loop, and the counter is the server's: 160 threads take 160
    // transfers for one loop, of which all the waiting is the server's.
    let mut both = counter(8_000);
    both.steps[1].gap = 2_000;
    both.steps[2].gap = 4_000;
    both.steps[2].place = Part::Client as u32;
    both.steps.insert(2, Step { gap: 2_000, event: Event::Enter, ..both.steps[2] });
    both.instructions = ByPart { server: 4_000.0, client: 4_000.0, ..ByPart::default() };
    both.native_ns = Some(both.instructions);
    both.steps[3].place = Part::Outside as u32;
    let stop = Interrupt::default();
    let forecast = of(&both, &target(&[160]), &Watch::silent(&stop)).unwrap();
    let loop_ns = 160.0 * 105.0;
    let last = |curve: &sealane_lab_model::document::Curve| curve.points[0].efficiency;
    near(last(&forecast.server), 4_000.0 / (loop_ns - 4_000.0), 0.02);
    near(last(&forecast.client), 1.0, 1e-9);
    near(last(&forecast.whole), 8_000.0 / loop_ns, 0.02);
}

#[test]
fn the_band_has_half_the_transfer_cost_in_it() {
    // 1,000 ns of work for 80 threads: one operation each 105 ns, or each 55.
    let point = forecast(&counter(1_000)).server.points[2];
    let [given, fast] = [105.0, 55.0].map(|turn_ns| 1_000.0 / (80.0 * turn_ns));
    near(point.efficiency, given, 0.02);
    near(point.low, given / 2.0, 0.02);
    near(point.high, fast * 2.0, 0.02);
}

#[test]
fn the_line_that_is_waited_for_most_comes_first() {
    let update = |gap, place| Step { gap, event: Event::Update, place, path: 2 };
    let steps = [update(100, 0), update(900, 1), update(900, 1), update(900, 1)];
    let lines = vec![line("global", "COOL", 1.0), line("reference-count", "HOT", 3.0)];
    let forecast = forecast(&Recording { lines, ..recording(4_000, &steps) });
    let told: Vec<&str> = forecast.lines.iter().map(|line| line.symbol.as_str()).collect();
    assert_eq!(told, ["HOT", "COOL"]);
    assert!(forecast.lines[0].share_of_waiting > 0.7, "{forecast:?}");
    // Three transfers in each loop, then one.
    near(at(&forecast, 80), 4_000.0 / (80.0 * 315.0), 0.05);
    near(forecast.lines[0].without, 4_000.0 / (80.0 * 105.0), 0.05);
}

#[test]
fn a_mutex_lets_one_holder_in_at_a_time() {
    // Nobody can be faster than one hold after the other, and nobody hands over for less than
    // nothing or more than a wake, its cost to the waker and three transfers.
    let (work_ns, hold_ns) = (100_000.0, 5_000.0);
    let forecast = forecast(&mutex(100_000, 5_000));
    let (most, least) =
        (work_ns / (80.0 * hold_ns), work_ns / (80.0 * (hold_ns + 4_500.0 + 3.0 * TRANSFER_NS)));
    let kept = at(&forecast, 80);
    assert!(kept <= most * 1.02 && kept >= least * 0.95, "{kept}: {least} to {most}");
    let first = &forecast.lines[0];
    assert_eq!(first.lock.as_deref(), Some("mutex"));
    assert!(first.without > 0.99, "{first:?}");
}

#[test]
fn a_short_mutex_in_long_work_stops_nobody() {
    let forecast = forecast(&mutex(2_000_000, 500));
    assert_eq!(forecast.server.knee, Knee::NoneBelow { threads: 80 });
    assert_eq!(forecast.verdict.kind, VerdictKind::NoKneeFound);
    let sentence = &forecast.verdict.forecast;
    assert!(sentence.contains("no knee found below 80 threads"), "{sentence}");
    assert!(!sentence.contains('%'), "a share above 70% is not told: {sentence}");
}

#[test]
fn who_shares_nothing_keeps_everything() {
    let forecast = forecast(&recording(50_000, &[]));
    assert!(forecast.server.points.iter().all(|point| point.efficiency > 0.999), "{forecast:?}");
    assert_eq!(forecast.verdict.kind, VerdictKind::NoKneeFound);
    let text = table::text(&forecast);
    assert!(text.contains("no thread waits for another"), "{text}");
    assert!(text.contains("MEASURED: no atomic write"), "{text}");
}

#[test]
fn another_machine_s_profile_is_told_to_mix_two_machines() {
    let mut forecast = forecast(&counter(4_000));
    let said = |forecast: &Forecast| table::text(forecast).contains("two machines");
    assert!(said(&forecast));
    forecast.profile.name = "measured".into();
    assert!(!said(&forecast));
}

#[test]
fn a_knee_of_few_cores_has_no_number() {
    let forecast = forecast(&counter(500));
    assert_eq!(forecast.server.knee, Knee::FewCores);
    let text = table::text(&forecast);
    assert!(text.contains("few cores are enough to stop it"), "{text}");
    assert!(!text.contains("below 70% at about"), "{text}");
}

#[test]
fn no_knee_below_fourteen_is_ever_a_number() {
    for full in 1..200_u32 {
        let found = replays::knee(&[2, 16, 64], |threads| {
            Ok((f64::from(full) / f64::from(threads)).min(1.0))
        });
        match found.unwrap() {
            Knee::At { threads } => {
                assert!(threads >= KNEE_THREADS_MIN, "{full}: {threads}");
                near(f64::from(threads), f64::from(full) / KNEE, 0.05);
            }
            Knee::FewCores => assert!(f64::from(full) / KNEE < 15.0, "{full}"),
            Knee::NoneBelow { threads } => assert!(threads == 64 && full >= 44, "{full}"),
            Knee::Unknown => panic!("{full}"),
        }
    }
    assert_eq!(replays::knee(&[], |_| Ok(1.0)).unwrap(), Knee::Unknown);
}

#[test]
fn ctrl_c_ends_it_between_two_replays() {
    let stop = Interrupt::default();
    stop.press();
    let ended = of(&counter(4_000), &target(&[16]), &Watch::silent(&stop));
    assert!(matches!(ended, Err(sealane_lab_model::error::Error::Interrupted)), "{ended:?}");
}

#[test]
fn a_recording_without_a_server_is_not_enough() {
    let nothing = Recording { operations: 0, ..counter(1_000) };
    let forecast = forecast(&nothing);
    assert_eq!(forecast.verdict.kind, VerdictKind::NotEnoughToSay);
    assert!(forecast.verdict.forecast.is_empty(), "{forecast:?}");
    let client = Recording { steps: Vec::new(), ..counter(1_000) };
    let reason = verdict::not_enough(&client).unwrap();
    assert_eq!(reason, "no work of a server was recorded");
}

#[test]
fn writes_are_told_by_cause() {
    let mut both = mutex(100_000, 5_000);
    both.lines.push(line("reference-count", "CONTEXT", 3.0));
    both.lines.push(line("read-shared", "CLOCK", 0.0));
    let causes = forecast(&both).writes;
    let told: Vec<(&str, f64)> =
        causes.iter().map(|cause| (cause.cause.as_str(), cause.writes[0])).collect();
    assert_eq!(told, [("reference-count", 3.0), ("lock", 2.0)]);
}
