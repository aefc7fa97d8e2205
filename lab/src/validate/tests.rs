//! The published data, and a curve's forecast from a recording built here.

use std::path::Path;

use super::{
    Task,
    curve::{Subject, forecast},
    published::{Published, PublishedCurve, Ratios},
    table,
};
use crate::{
    document::{Knee, Profile, ValidatedCurve, ValidatedPoint, Validation},
    forecast::replays::Watch,
    interrupt::Interrupt,
    recording::{ByPart, Event, Line, Part, Recording, Step},
    replay,
};

/// The committed recordings.
const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/recordings");

#[test]
fn published_curves_have_a_source_and_are_sane() {
    let (published, ratios) = (Published::shipped().unwrap(), Ratios::shipped().unwrap());
    for text in [&published.title, &published.address, &published.read, &published.machine] {
        assert!(!text.is_empty());
    }
    assert!(published.source().contains(&published.date), "{}", published.source());
    assert_eq!(published.curves.len(), 18);
    assert_eq!(published.curves.iter().filter(|curve| curve.fitted).count(), 1);
    for curve in &published.curves {
        let points = curve.points(published.cores);
        let threads: Vec<u32> = points.iter().map(|point| point.0).collect();
        assert_eq!(threads, [8, 14, 32, 62, 80], "{}", curve.name);
        assert!(points.iter().all(|(_, kept)| (0.0..=1.05).contains(kept)), "{points:?}");
        assert_eq!(curve.first().unwrap().0, 2, "{}", curve.name);
        assert!(ratios.client_over_server.contains_key(&curve.client), "{}", curve.name);
        curve.scenario().exists().unwrap();
        assert!(curve.timed.contains(&Part::Server), "{}", curve.name);
        knee_lies_on_the_curve(curve, &points);
    }
}

/// Read from the chart with more points than are kept: it must lie where they say.
fn knee_lies_on_the_curve(curve: &PublishedCurve, points: &[(u32, f64)]) {
    let above = points.iter().rev().find(|point| point.1 >= 0.7).map_or(2, |point| point.0);
    let below = points.iter().find(|point| point.1 < 0.7).map(|point| point.0);
    match (curve.knee, below) {
        (Some(knee), Some(below)) => {
            assert!((above..=below).contains(&knee), "{}: {knee}, {points:?}", curve.name);
        }
        (None, None) => {}
        other => panic!("{}: {other:?}", curve.name),
    }
}

#[test]
fn recordings_are_named_once_and_their_commands_can_be_given() {
    let published = Published::shipped().unwrap();
    let mut names: Vec<&str> = published.curves.iter().map(|c| c.recording.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), published.curves.len());
    for curve in &published.curves {
        let command = curve.command("folder".as_ref());
        let words = command.split_whitespace().skip(1).map(str::to_owned);
        crate::cli::parses(words).unwrap();
    }
}

#[test]
fn every_published_curve_has_a_recording_that_can_be_replayed() {
    let (published, ratios) = (Published::shipped().unwrap(), Ratios::shipped().unwrap());
    let task = Task { published: &published, ratios: &ratios, seed: 1 };
    let found = task.recordings(Path::new(RECORDINGS)).unwrap();
    for (curve, found) in published.curves.iter().zip(found) {
        let recording = found.unwrap_or_else(|reason| panic!("{}: {reason}", curve.name));
        replay::check(&recording).unwrap();
        assert_eq!(recording.stack.name, curve.stack);
        for text in [&recording.stack.path, &recording.stack.build, &recording.command[0]] {
            assert!(!text.contains("/home") && !text.starts_with('/'), "a folder of ours: {text}");
        }
    }
}

/// All curves at all points take a minute of a release build: `./check --only forecast`.
#[test]
fn short_curves_are_within_a_factor_of_two_at_eight_threads() {
    let (published, ratios) = (Published::shipped().unwrap(), Ratios::shipped().unwrap());
    let stop = Interrupt::default();
    let names = ["boringssl-ticket-1.2", "rustls-0.23.16-ticket-1.2", "rustls-0.23.17-ticket-1.2"];
    for name in names {
        let curve = published.curves.iter().find(|curve| curve.recording == name).unwrap();
        let file = Path::new(RECORDINGS).join(format!("{name}.json.gz"));
        let recording = Recording::read(&file).unwrap();
        let subject = Subject { curve, recording: &recording, ratios: &ratios, seed: 1 };
        let altra = crate::transfer::profile("altra", &stop).unwrap().transfer_ns;
        let made = forecast(&subject, altra, &[8], false, &Watch::silent(&stop)).unwrap();
        let pair = (made.efficiencies[0], curve.points(8)[0].1);
        assert!(super::score::off(pair) <= 2.0, "{name}: {pair:?}");
    }
}

/// One update of a shared line in the middle of the server's work.
fn counter() -> Recording {
    let enter = |part: Part, gap| Step {
        gap,
        place: u32::try_from(Part::ALL.iter().position(|of| *of == part).unwrap()).unwrap(),
        ..Step::default()
    };
    let update = Step { gap: 10_000, event: Event::Update, ..Step::default() };
    Recording {
        operations: 1,
        instructions: ByPart { server: 20_000.0, client: 20_000.0, ..ByPart::default() },
        lines: vec![Line {
            updates: ByPart { server: 1.0, ..ByPart::default() },
            ..Line::default()
        }],
        steps: vec![
            enter(Part::Server, 0),
            update,
            enter(Part::Client, 10_000),
            enter(Part::Outside, 20_000),
        ],
        ..Recording::default()
    }
}

#[test]
fn a_curve_is_relative_to_its_first_point() {
    let published = Published::shipped().unwrap();
    let curve = published.curves.iter().find(|curve| curve.client == "openssl-resumed-1.2");
    let (recording, ratios) = (counter(), Ratios::shipped().unwrap());
    let subject =
        Subject { curve: curve.unwrap(), recording: &recording, ratios: &ratios, seed: 1 };
    let stop = Interrupt::default();
    let made = forecast(&subject, 1e4, &[2, 80], true, &Watch::silent(&stop)).unwrap();
    assert!((made.efficiencies[0] - 1.0).abs() < 1e-9, "{:?}", made.efficiencies);
    // At 15,547 per second a server takes 64 us of 134 in all. With 80 threads and a transfer of
    // 10 us there is one operation each 10 us: 800 us a loop, of which all the waiting is the
    // server's.
    assert!((0.06..0.12).contains(&made.efficiencies[1]), "{:?}", made.efficiencies);
    assert!(matches!(made.knee, Knee::At { .. } | Knee::FewCores), "{:?}", made.knee);
}

#[test]
fn what_is_missing_and_what_missed_is_in_the_table() {
    let point = |forecast, published| ValidatedPoint { threads: 80, published, forecast };
    let with = |name: &str, points| ValidatedCurve {
        name: name.into(),
        points,
        knee: [Knee::FewCores, Knee::At { threads: 19 }],
        recorded: "3.4.9".into(),
        version: "3.4.0".into(),
        ..ValidatedCurve::default()
    };
    let curves = vec![
        ValidatedCurve { fitted: true, ..with("one", vec![point(0.5, 0.5)]) },
        with("two", vec![point(0.1, 0.5)]),
        ValidatedCurve { failure: Some("no such file".into()), ..with("three", Vec::new()) },
    ];
    let validation =
        Validation { profile: Profile::default(), score: super::score::score(&curves), curves };
    let (published, ratios) = (Published::shipped().unwrap(), Ratios::shipped().unwrap());
    let text = table::text(&validation, &published, &ratios);
    let row = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    assert!(row("one (FIT)").contains(".50/.50"), "{text}");
    assert!(row("two").contains("x0.20") && row("two").ends_with("few/19 MISS"), "{text}");
    assert!(row("three").ends_with("no forecast: no such file"), "{text}");
    assert!(text.contains("published 3.4.0; recorded 3.4.9"), "{text}");
    assert!(text.contains("cannot be judged, recordings are missing"), "{text}");
    assert!(text.contains("rustls.dev/perf/2024-11-28-threading"), "{text}");
}
