//! Paths whose answer is known without any replay, and what is committed.

use std::path::Path;

use sealane_lab_model::document::{CurvePoint, KernelCall, KernelRow, Profile};

use super::{hold, *};
use crate::forecast::replays::Speed;

const THREADS: u32 = 128;
const TRANSFER_NS: f64 = 100.0;

/// Four holds in 100 us.
const PATH: ServerPath = ServerPath { holds: 4, work_ns: 100_000.0, hold_ns: 0.0, lines: 2 };

fn found(path: ServerPath, transfer_ns: f64) -> KernelPath {
    let stop = Interrupt::default();
    let profile = Profile { name: "made up".into(), transfer_ns, ..Profile::default() };
    let target = Target::new(profile, &[2, THREADS]);
    forecast(path, &Published::shipped().unwrap(), &target, &Watch::silent(&stop)).unwrap()
}

fn last(curve: &sealane_lab_model::document::Curve) -> CurvePoint {
    *curve.points.last().unwrap()
}

#[test]
fn if_it_is_held_for_no_time_and_lines_move_for_nothing_one_table_is_as_good_as_many() {
    let path = found(PATH, 0.0);
    assert!(last(&path.own_tables).efficiency == 1.0, "{path:?}");
    assert!(last(&path.one_table).efficiency > 0.999, "{path:?}");
    // The lines of the lock and of the table alone make threads wait.
    assert!(last(&found(PATH, TRANSFER_NS).one_table).efficiency < 0.9);
}

#[test]
fn what_happens_under_the_lock_happens_to_one_thread_at_a_time() {
    let path = found(ServerPath { hold_ns: 2_000.0, ..PATH }, TRANSFER_NS);
    // 8 us of each connection, so that the rest of its 108 hides behind 128 threads.
    let turn_ns = path.alone_ns / last(&path.one_table).efficiency / f64::from(THREADS * 4);
    // To be taken and given back, and for the two lines; each stays for 5 ns more.
    let most_ns = 2_000.0 + 5.0 * (TRANSFER_NS + 5.0);
    assert!((2_000.0..most_ns).contains(&turn_ns), "{turn_ns} ns for each hold");
    let turn = path.beside.last().unwrap();
    assert!((2_000.0..most_ns).contains(&turn.forecast), "{turn:?}");
    assert!((turn.published * 4.0 * 95_000.0 / 1e9 - 1.0).abs() < 1e-9, "{turn:?}");
    assert!(last(&path.own_tables).efficiency == 1.0, "{path:?}");
}

#[test]
fn what_tables_of_their_own_bring_hangs_on_the_path_and_nothing_else() {
    let gain = |path: ServerPath| {
        let path = found(path, TRANSFER_NS);
        let [_, _, gain, waiting, _] = &path.beside[..] else { panic!("{path:?}") };
        let one = last(&path.one_table);
        assert!((gain.forecast - 1.0 / one.efficiency).abs() < 1e-9, "{path:?}");
        assert!((waiting.forecast - (1.0 - one.efficiency)).abs() < 1e-9, "{path:?}");
        assert!((gain.low..=gain.high).contains(&gain.forecast), "{path:?}");
        assert!((gain.off - gain.forecast / gain.published).abs() < 1e-9, "{path:?}");
        gain.forecast
    };
    let calm = gain(ServerPath { work_ns: 10e6, ..PATH });
    let [busy, busier] = [100.0, 2_000.0].map(|hold_ns| gain(ServerPath { hold_ns, ..PATH }));
    assert!(calm < 1.05, "{calm}");
    // 500 ns for each hold, and 2,400.
    assert!(busy > 1.5 && busier > 4.0 * busy, "{busy}, {busier}");
}

#[test]
fn rates_are_those_of_all_threads() {
    let path = found(ServerPath { work_ns: 10e6, ..PATH }, TRANSFER_NS);
    let own = path.beside.iter().find(|figure| figure.what.contains("each thread")).unwrap();
    assert!((own.forecast / (f64::from(THREADS) * 100.0) - 1.0).abs() < 1e-9, "{own:?}");
    assert!((own.low / own.forecast - 0.5).abs() < 1e-9, "{own:?}");
    // How far one hold is from the next is told of threads that do nothing else: the lock is taken
    // and given back, and two lines move.
    let turn = path.beside.last().unwrap();
    assert!((TRANSFER_NS..6.0 * TRANSFER_NS).contains(&turn.forecast), "{turn:?}");
}

/// Two threads of which it is known how many lines they move are found to move so many.
#[test]
fn the_lines_of_a_hold_are_those_with_which_two_threads_take_as_long() {
    let stop = Interrupt::default();
    for lines in [0, 2, 5] {
        let path = ServerPath { holds: 2, work_ns: 300.0, hold_ns: 50.0, lines };
        let recording = path.recording();
        let watch = Watch::silent(&stop);
        let replays = Replays::new(&recording, path.base_ns(), TRANSFER_NS, 1, &watch);
        let together_ns = 400.0 / replays.efficiency(SERVER, 2, Speed::Given).unwrap();
        let figures = [300.0, 400.0, together_ns].map(|ns| vec![ns * 0.9, ns, ns * 1.2]);
        let hold = hold::fitted(TRANSFER_NS, figures, &stop).unwrap();
        assert_eq!(hold.lines, lines, "{hold:?}");
        assert!((hold.hold_ns - 50.0).abs() < 1e-9, "{hold:?}");
        assert!((hold.replayed_ns / together_ns - 1.0).abs() < 1e-9, "{hold:?}");
    }
}

#[test]
fn two_threads_that_do_not_meet_tell_nothing() {
    let figures = [100.0, 400.0, 400.0].map(|ns| vec![ns]);
    let error = hold::fitted(TRANSFER_NS, figures, &Interrupt::default()).unwrap_err().to_string();
    assert!(error.contains("were not slower") && error.contains("measure again"), "{error}");
}

#[test]
fn servers_of_which_several_threads_write_one_table_are_forecast() {
    let ledger = |server: &str, writers, calls: &[(&str, u64)]| {
        let call = |(call, per_connection): &(&str, u64)| KernelCall {
            call: (*call).into(),
            per_connection: *per_connection,
            ..KernelCall::default()
        };
        let row = KernelRow {
            object: FILE_TABLE.into(),
            writers,
            per_connection: calls.iter().map(|call| call.1).sum(),
            calls: calls.iter().map(call).collect(),
            ..KernelRow::default()
        };
        KernelLedger { server: server.into(), rows: vec![row], ..KernelLedger::default() }
    };
    let each = [("close", 2), ("accept4", 1), ("socket", 1)];
    let nobody = [("close", 2), ("accept4", 1), ("accept4 of nobody", 1), ("socket", 1)];
    let run = |kernel_ledgers| Run { kernel_ledgers, ..Run::default() };
    let found = servers(
        Path::new("x.json"),
        &run(vec![
            ledger("a", 2, &each),
            ledger("b", 2, &nobody),
            ledger("c", 1, &each),
            ledger("d", 3, &each),
            ledger("e", 3, &[]),
        ]),
    );
    // Who finds nobody takes a number and gives it back.
    let wanted = [(4, vec!["a".to_owned(), "d".to_owned()]), (6, vec!["b".to_owned()])];
    assert_eq!(found.unwrap(), wanted.into());
    let none = servers(Path::new("x.json"), &run(vec![ledger("c", 1, &each)]));
    let error = none.unwrap_err().to_string();
    assert!(error.contains("x.json") && error.contains("count --kernel"), "{error}");
}

/// What `KERNEL.md` says is what this program makes of the committed ledger, the committed
/// recording and the times that were measured.
#[test]
fn the_committed_forecast_is_the_one_that_its_figures_give() {
    let home = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let ledger = home.join("results/kernel.json");
    let servers = servers(&ledger, &journal::read(&ledger).unwrap()).unwrap();
    let files = ["results/kernel-forecast.json", "results/kernel-forecast-altra.json"];
    let runs = files.map(|file| journal::read(&home.join(file)).unwrap());
    let stop = Interrupt::default();
    let all: Vec<_> = runs.iter().flat_map(|run| &run.kernel_forecasts).collect();
    assert_eq!(all.len(), 2);
    for committed in all {
        let KernelHold { look_ns, apart_ns, together_ns, .. } = committed.hold.clone();
        let figures = [look_ns, apart_ns, together_ns];
        let hold = hold::fitted(committed.hold.transfer_ns, figures, &stop).unwrap();
        assert_eq!(hold, committed.hold);
        let told: BTreeMap<u64, Vec<String>> =
            committed.paths.iter().map(|path| (path.holds, path.servers.clone())).collect();
        assert_eq!(told, servers);
        let published = Published::shipped().unwrap();
        let target = Target::new(committed.profile.clone(), &[published.threads]);
        for path in &committed.paths {
            let KernelHold { hold_ns, lines, .. } = hold;
            let work_ns = committed.base.server_ns;
            let server = ServerPath { holds: path.holds, work_ns, hold_ns, lines };
            let again = forecast(server, &published, &target, &Watch::silent(&stop)).unwrap();
            assert_eq!(again.beside, path.beside, "{} holds", path.holds);
        }
    }
}
