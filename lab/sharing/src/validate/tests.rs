//! The published data, and a curve's forecast from a recording built here.

use std::path::Path;

use sealane_lab_harness::{interrupt::Interrupt, journal};
use sealane_lab_model::{
    document::{Knee, Profile, ValidatedCurve, ValidatedPoint, Validation},
    library::Identity,
    recording::{ByPart, Event, Part, RecordedLine, Recording, Step},
};

use super::{
    Task,
    curve::{Subject, forecast},
    published::{Published, PublishedCurve, Ratios},
    score, table,
};
use crate::{forecast::replays::Watch, replay};

/// The committed recordings.
const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../recordings");

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
        published.scenario(curve).exists().unwrap();
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
fn recordings_are_named_once() {
    let all = [Published::shipped().unwrap(), Published::held_out().unwrap()];
    let curves = || all.iter().flat_map(|published| &published.curves);
    let mut names: Vec<&str> = curves().map(|curve| curve.recording.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), curves().count());
}

#[test]
fn every_published_curve_has_a_recording_that_can_be_replayed() {
    let ratios = Ratios::shipped().unwrap();
    for published in [Published::shipped().unwrap(), Published::held_out().unwrap()] {
        let task = Task { published: &published, ratios: &ratios, seed: 1 };
        let found = task.recordings(Path::new(RECORDINGS));
        for (curve, found) in published.curves.iter().zip(found) {
            let recording = found.unwrap_or_else(|reason| panic!("{}: {reason}", curve.name));
            replay::check(&recording).unwrap();
            assert_eq!(recording.stack.name, curve.stack);
            let Identity { path, build, .. } = &recording.stack;
            for text in [path, build, &recording.command[0]] {
                let is_ours = text.contains("/home") || text.starts_with('/');
                assert!(!is_ours, "a folder of ours: {text}");
            }
        }
    }
}

/// What the committed document says is what its curves come to, and which curves those are is what
/// the published files say: none that is held out is judged, fitted or was looked at in a revision.
#[test]
fn the_committed_tallies_are_those_of_the_committed_curves() {
    let home = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let run = journal::read(&home.join("results/validation.json")).unwrap();
    let committed = run.validation.unwrap();
    let (published, held_out) = (Published::shipped().unwrap(), Published::held_out().unwrap());
    for (curves, of) in [(&committed.curves, &published), (&committed.held_out, &held_out)] {
        let names = |curve: &ValidatedCurve| (curve.name.clone(), curve.source.clone());
        let told: Vec<_> = curves.iter().map(names).collect();
        let wanted = of.curves.iter().map(|curve| (curve.name.clone(), of.source()));
        assert_eq!(told, wanted.collect::<Vec<_>>());
        for (curve, of_curve) in curves.iter().zip(&of.curves) {
            let points = curve.points.iter().map(|point| (point.threads, point.published));
            assert_eq!(points.collect::<Vec<_>>(), of_curve.points(of.cores), "{}", curve.name);
        }
    }
    assert!(held_out.revisions.is_empty() && !held_out.curves.iter().any(|curve| curve.fitted));
    assert_eq!(committed.score, score::judged(&committed.curves));
    assert_eq!(committed.held_out_score, score::score(&committed.held_out));
    assert_eq!(committed.revisions, published.revisions);
    let page = include_str!("../../../FORECAST.md");
    let text = table::text(&committed, &published, &Ratios::shipped().unwrap());
    let told: Vec<&str> = text.lines().filter(|line| is_on_the_page(line)).collect();
    assert_eq!(told.len(), 6, "{text}");
    for line in told {
        assert!(page.contains(line), "FORECAST.md does not say: {line}");
    }
    let (_, changed) = page.split_once("## What was changed while looking at the truth").unwrap();
    let (changed, _) = changed.split_once("\n## ").unwrap();
    let is_one = |line: &&str| line.starts_with(|first: char| first.is_ascii_digit());
    assert_eq!(changed.lines().filter(is_one).count(), committed.revisions.len());
}

/// Which lines `./check --only forecast` chooses.
fn is_on_the_page(line: &str) -> bool {
    ["unfitted", "baseline", "rank", "held out"].iter().any(|start| line.starts_with(start))
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
        assert!(sealane_lab_model::verdict::off(pair) <= 2.0, "{name}: {pair:?}");
    }
}

/// One update of a shared line in the middle of the server's work.
fn counter() -> Recording {
    let enter = |part: Part, gap| Step { gap, place: part as u32, ..Step::default() };
    let update = Step { gap: 10_000, event: Event::Update, ..Step::default() };
    Recording {
        operations: 1,
        instructions: ByPart { server: 20_000.0, client: 20_000.0, ..ByPart::default() },
        lines: vec![RecordedLine {
            updates: ByPart { server: 1.0, ..ByPart::default() },
            ..RecordedLine::default()
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

/// What the curve of that recording's name is forecast to keep, from `recording` instead.
fn forecast_of(recording: &Recording, name: &str, transfer_ns: f64, threads: u32) -> f64 {
    let (published, ratios) = (Published::shipped().unwrap(), Ratios::shipped().unwrap());
    let curve = published.curves.iter().find(|curve| curve.recording == name).unwrap();
    let subject = Subject { curve, recording, ratios: &ratios, seed: 1 };
    let stop = Interrupt::default();
    let made = forecast(&subject, transfer_ns, &[threads], false, &Watch::silent(&stop));
    made.unwrap().efficiencies[0]
}

fn near(is: f64, wanted: f64) {
    assert!((is / wanted - 1.0).abs() <= 0.02, "{is} for {wanted}");
}

#[test]
fn the_client_takes_its_published_share_and_what_it_takes_more() {
    // A loop of 80 threads is 80 transfers of 100 us. The server, whose 3,322 us at two threads
    // have a transfer in them, waits for all that the client, at 0.22 of 3,222 and 740 us more,
    // does not fill.
    let client_us = 0.22 * 3_222.0 + 740.0;
    let kept = forecast_of(&counter(), "openssl-3.0-full-1.3", 1e5, 80);
    near(kept, 3_322.0 / (8_000.0 - client_us));
}

#[test]
fn the_time_alone_is_such_that_two_threads_come_to_the_published_rate() {
    // Half of what two threads take is a transfer of 32 us: without looking for the time alone, it
    // would be 96 us over the wait of 80 threads.
    let kept = forecast_of(&counter(), "openssl-3.0-ticket-1.2", 3.2e4, 80);
    near(kept, 64.3 / (80.0 * 32.0 - 1.11 * 32.3));
}

#[test]
fn who_times_the_setup_sees_it_wait() {
    let mut setup = counter();
    setup.steps[0].place = Part::ServerSetup as u32;
    setup.instructions = ByPart { server_setup: 20_000.0, ..setup.instructions };
    // It is the server's time for rustls-bench, and nobody's for openssl-bench.
    assert!(forecast_of(&setup, "rustls-0.23.16-ticket-1.2", 1e4, 80) < 0.1);
    assert!(forecast_of(&setup, "openssl-3.0-ticket-1.2", 1e4, 80) > 0.99);
}

#[test]
fn a_curve_without_rates_goes_by_the_time_that_was_recorded() {
    let held_out = Published::held_out().unwrap();
    let ratios = Ratios::shipped().unwrap();
    let curve = held_out.curves.iter().find(|curve| curve.stack == "openssl@3.4").unwrap();
    let native = ByPart { server: 40_000.0, client: 60_000.0, ..ByPart::default() };
    let recording = Recording { native_ns: Some(native), ..counter() };
    let subject = Subject { curve, recording: &recording, ratios: &ratios, seed: 1 };
    let stop = Interrupt::default();
    // A loop of 100 us with one transfer of 10 is full at ten threads, and flat from there on.
    let made = forecast(&subject, 1e4, &[40, 64], false, &Watch::silent(&stop)).unwrap();
    near(made.efficiencies[0], 20.0 / 40.0);
    near(made.efficiencies[1], 20.0 / 64.0);
}

#[test]
fn a_recording_of_another_stack_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let file = |of: &str| Path::new(of).join("rustls-0.23.16-ticket-1.2.json.gz");
    let of = Path::new(RECORDINGS).join("rustls-0.23.17-ticket-1.2.json.gz");
    std::fs::copy(of, file(folder.path().to_str().unwrap())).unwrap();
    let right = "rustls-0.23.17-ticket-1.2.json.gz";
    std::fs::copy(Path::new(RECORDINGS).join(right), folder.path().join(right)).unwrap();
    let (published, ratios) = (Published::shipped().unwrap(), Ratios::shipped().unwrap());
    let task = Task { published: &published, ratios: &ratios, seed: 1 };
    let found = task.recordings(folder.path());
    let at = |name| published.curves.iter().position(|curve| curve.recording == name).unwrap();
    assert!(found[at("rustls-0.23.17-ticket-1.2")].is_ok());
    let reason = found[at("rustls-0.23.16-ticket-1.2")].as_ref().unwrap_err();
    assert!(reason.contains("another stack"), "{reason}");
}

#[test]
fn a_change_is_told_as_rates_beside_each_other() {
    let curve = |name: &str, forecast, published| ValidatedCurve {
        name: name.into(),
        points: vec![ValidatedPoint { threads: 80, published, forecast }],
        ..ValidatedCurve::default()
    };
    let curves = vec![
        curve("rustls 0.23.16 ticket 1.2 (mutex)", 0.08, 4_695.0 / 54_207.0),
        curve("rustls 0.23.17 ticket 1.2 (rwlock)", 0.80, 51_632.0 / 54_845.0),
    ];
    let validation = Validation { curves, ..Validation::default() };
    let (published, ratios) = (Published::shipped().unwrap(), Ratios::shipped().unwrap());
    let text = table::text(&validation, &published, &ratios);
    assert!(text.contains("at 80 threads: FORECAST x10.12, published x11.00"), "{text}");
    assert!(
        text.contains("of the 1 unfitted curves that fall below a half: 1 within x2"),
        "{text}"
    );
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
        super::validation(Profile::default(), curves, Vec::new(), vec!["one change".into()]);
    let (published, ratios) = (Published::shipped().unwrap(), Ratios::shipped().unwrap());
    let text = table::text(&validation, &published, &ratios);
    let row = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    assert!(row("one (FIT)").contains(".50/.50"), "{text}");
    assert!(row("two").contains("x0.20") && row("two").ends_with("few/19 MISS"), "{text}");
    assert!(row("three").ends_with("no forecast: no such file"), "{text}");
    assert!(text.contains("published 3.4.0; recorded 3.4.9"), "{text}");
    assert!(text.contains("cannot be judged, recordings are missing"), "{text}");
    assert!(text.contains("baseline, every thread keeps all: 1 of the same 1 curves"), "{text}");
    assert!(text.contains("revised 1 times") && text.contains("1. one change"), "{text}");
    assert!(text.contains("rustls.dev/perf/2024-11-28-threading"), "{text}");
}
