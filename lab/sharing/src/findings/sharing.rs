//! What a [`Recording`] says that threads share, summed: [`finding`].

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeMap,
};

use sealane_lab_model::{
    document::{
        Amount, BySide, Finding, HOT_LINES_MAX, HotLine, PATH_FUNCTIONS_MAX, Recorded, SITES_MAX,
        Site,
    },
    recording::{ByPart, Event, Part, RecordedLine, Recording, Step},
    words::without_folders,
};

use crate::findings::as_typed;

/// Everything that needs no model.
pub(super) fn finding(recording: &Recording) -> Finding {
    let written = written(recording);
    let (mut updates, mut stores) = (BySide::default(), BySide::default());
    let mut lines = BySide::<u64>::default();
    let mut causes: BTreeMap<&str, BySide<f64>> = BTreeMap::new();
    for (_, line) in &written {
        let (updated, stored) = (sides(&line.updates), sides(&line.stores));
        add(&mut updates, updated);
        add(&mut stores, stored);
        lines.server += u64::from(updated.server + stored.server > 0.0);
        lines.client += u64::from(updated.client + stored.client > 0.0);
        let cause = causes.entry(&line.class).or_default();
        add(cause, updated);
        add(cause, stored);
    }
    Finding {
        stack: recording.stack.name.clone(),
        version: recording.stack.version.clone(),
        scenario: recording.scenario.clone(),
        recorded: Recorded {
            started: recording.started.clone(),
            processor: recording.processor.clone(),
            command: command(&recording.command),
            operations: recording.operations,
            sha256: recording.stack.sha256.clone(),
        },
        instructions: sides(&recording.instructions),
        lines,
        updates,
        stores,
        causes: amounts(causes),
        locks: locks(recording),
        hottest: hottest(recording, &written),
        left_out: left_out(recording),
        forecast: None,
    }
}

/// The lines that more than one thread writes, with their index; what one thread writes and others
/// only read is not among them.
fn written(recording: &Recording) -> Vec<(u32, &RecordedLine)> {
    let lines = (0..).zip(&recording.lines);
    lines.filter(|(_, line)| line.class != READ_SHARED).collect()
}

/// The busiest lines of either side, by atomic updates.
fn hottest(recording: &Recording, written: &[(u32, &RecordedLine)]) -> Vec<HotLine> {
    let amount = |line: &RecordedLine| (both(sides(&line.updates)), both(sides(&line.stores)));
    let mut chosen = written.to_vec();
    chosen.retain(|(_, line)| amount(line) > (0.0, 0.0));
    chosen.sort_by(|(at, a), (other, b)| {
        let order = amount(b).partial_cmp(&amount(a)).unwrap_or(Ordering::Equal);
        order.then(at.cmp(other))
    });
    // The server's busiest must not be lost behind lines that clients alone write.
    let of_server = |(at, line): &(u32, &RecordedLine)| (sides(&line.updates).server, Reverse(*at));
    let first = chosen.iter().enumerate().max_by(|(_, a), (_, b)| {
        of_server(a).partial_cmp(&of_server(b)).unwrap_or(Ordering::Equal)
    });
    if let Some((place, _)) = first
        && place >= HOT_LINES_MAX
    {
        chosen.swap(place, HOT_LINES_MAX - 1);
    }
    chosen.truncate(HOT_LINES_MAX);
    let mut sites = sites(recording);
    let hot = |(at, line): (u32, &RecordedLine)| HotLine {
        class: line.class.clone(),
        symbol: without_folders(&line.symbol),
        owner: line.owner.clone(),
        updates: sides(&line.updates),
        stores: sides(&line.stores),
        sites: sites.remove(&at).unwrap_or_default(),
    };
    chosen.into_iter().map(hot).collect()
}

/// By line, the call paths that write it.
fn sites(recording: &Recording) -> BTreeMap<u32, Vec<Site>> {
    let mut found: BTreeMap<u32, BTreeMap<Vec<String>, BySide<f64>>> = BTreeMap::new();
    for (part, step) in parts(recording) {
        let Some(line) = recording.written_line(step) else { continue };
        let path = path(recording, step.path);
        let writes = found.entry(line).or_default().entry(path).or_default();
        note(writes, part);
    }
    let sorted = |(line, paths): (u32, BTreeMap<Vec<String>, BySide<f64>>)| {
        let site = |(path, writes)| Site { path, writes: each(writes, recording.operations) };
        let mut sites: Vec<Site> = paths.into_iter().map(site).collect();
        sites.retain(|site| both(site.writes) > 0.0);
        sites.sort_by(|a, b| both(b.writes).total_cmp(&both(a.writes)));
        sites.truncate(SITES_MAX);
        (line, sites)
    };
    found.into_iter().map(sorted).collect()
}

/// From the innermost function outwards.
fn path(recording: &Recording, node: u32) -> Vec<String> {
    let functions = recording.callers(node).map(|node| &node.function);
    let named = functions.filter(|name| !name.is_empty()).take(PATH_FUNCTIONS_MAX);
    named.map(|name| without_folders(name)).collect()
}

/// The command as one types it: where the program and its file lay is nobody's business.
fn command(words: &[String]) -> Vec<String> {
    let mut words = as_typed(words.to_vec());
    if let Some(file) = words.iter().position(|word| word == "--record")
        && let Some(file) = words.get_mut(file + 1)
    {
        *file = file.rsplit('/').next().unwrap_or_default().to_owned();
    }
    words
}

/// Acquisitions by kind.
fn locks(recording: &Recording) -> Vec<Amount> {
    let mut calls: BTreeMap<&str, BySide<f64>> = BTreeMap::new();
    for (part, step) in parts(recording) {
        let kind = match step.event {
            Event::MutexLock => "mutex",
            Event::ReadLock => "read",
            Event::WriteLock => "write",
            _ => continue,
        };
        note(calls.entry(kind).or_default(), part);
    }
    for calls in calls.values_mut() {
        *calls = each(*calls, recording.operations);
    }
    amounts(calls)
}

fn left_out(recording: &Recording) -> Vec<Amount> {
    let mut reasons: BTreeMap<&str, BySide<f64>> = BTreeMap::new();
    for left in &recording.left_out {
        add(reasons.entry(&left.reason).or_default(), sides(&left.writes));
    }
    amounts(reasons)
}

/// Each step with the part in which it was taken.
fn parts(recording: &Recording) -> impl Iterator<Item = (Part, &Step)> {
    let mut part = Part::default();
    recording.steps.iter().map(move |step| {
        if step.event == Event::Enter {
            part = Part::ALL.get(step.place as usize).copied().unwrap_or_default();
        }
        (part, step)
    })
}

/// One more in `part`; what the harness does is nobody's.
fn note(count: &mut BySide<f64>, part: Part) {
    match part {
        Part::Server | Part::ServerSetup => count.server += 1.0,
        Part::Client | Part::ClientSetup => count.client += 1.0,
        Part::Outside => {}
    }
}

/// The count of one operation; divided last, so that whole figures stay whole.
fn each(all: BySide<f64>, operations: u64) -> BySide<f64> {
    let operations = operations.max(1) as f64;
    BySide { server: all.server / operations, client: all.client / operations }
}

fn sides(by: &ByPart<f64>) -> BySide<f64> {
    BySide { server: by.server + by.server_setup, client: by.client + by.client_setup }
}

fn add(sum: &mut BySide<f64>, more: BySide<f64>) {
    sum.server += more.server;
    sum.client += more.client;
}

fn both(by: BySide<f64>) -> f64 {
    by.server + by.client
}

/// The most first.
fn amounts(by: BTreeMap<&str, BySide<f64>>) -> Vec<Amount> {
    let amount = |(of, by): (&str, BySide<f64>)| Amount { of: of.to_owned(), by };
    let mut amounts: Vec<Amount> = by.into_iter().map(amount).collect();
    amounts.retain(|amount| both(amount.by) > 0.0);
    amounts.sort_by(|a, b| both(b.by).total_cmp(&both(a.by)));
    amounts
}

const READ_SHARED: &str = "read-shared";

#[cfg(test)]
mod tests {
    use sealane_lab_model::recording::{LeftOut, Lock, PathNode};

    use super::*;

    fn of(server: f64, client: f64) -> ByPart<f64> {
        ByPart { server, client, ..ByPart::default() }
    }

    fn line(class: &str, symbol: &str, updates: ByPart<f64>) -> RecordedLine {
        RecordedLine {
            class: class.into(),
            symbol: symbol.into(),
            updates,
            ..RecordedLine::default()
        }
    }

    fn step(event: Event, place: u32, path: u32) -> Step {
        Step { gap: 1, event, place, path }
    }

    /// Two operations of a server that reads under a lock and of a client that counts.
    fn recording() -> Recording {
        let node = |caller, function: &str| PathNode {
            caller,
            function: function.into(),
            owner: "a.so".into(),
        };
        let once = [
            step(Event::Enter, 3, 0),
            step(Event::ReadLock, 0, 2),
            step(Event::Load, 1, 2),
            step(Event::ReadUnlock, 0, 2),
            step(Event::Enter, 4, 0),
            step(Event::WriteLock, 0, 1),
            step(Event::WriteUnlock, 0, 1),
            step(Event::Enter, 0, 0),
            step(Event::Update, 2, 1),
            step(Event::Enter, 2, 0),
            step(Event::Update, 2, 1),
        ];
        let setup = ByPart { server: 2.0, server_setup: 2.0, ..ByPart::default() };
        let left = |writes| LeftOut { reason: "allocator".into(), lines: 1, writes };
        Recording {
            operations: 2,
            lines: vec![
                line("lock", "the lock", setup),
                line("read-shared", "the table", of(0.0, 0.0)),
                line("reference-count", "the count", of(0.0, 1.0)),
            ],
            locks: vec![Lock { line: 0, ..Lock::default() }],
            paths: vec![node(None, ""), node(None, "outer"), node(Some(1), "inner")],
            steps: [once, once].concat(),
            left_out: vec![left(of(3.0, 1.0)), left(of(1.0, 1.0))],
            ..Recording::default()
        }
    }

    fn told(amounts: &[Amount]) -> Vec<(&str, f64, f64)> {
        let told = |amount: &'_ Amount| (amount.by.server, amount.by.client);
        amounts.iter().map(|it| (&*it.of, told(it).0, told(it).1)).collect()
    }

    #[test]
    fn lines_locks_and_causes_are_those_of_one_operation_of_each_side() {
        let found = finding(&recording());
        assert_eq!((found.lines.server, found.lines.client), (1, 1), "what is only read is none");
        assert_eq!((found.updates.server, found.updates.client), (4.0, 1.0));
        assert_eq!(told(&found.causes), [("lock", 4.0, 0.0), ("reference-count", 0.0, 1.0)]);
        assert_eq!(told(&found.locks), [("read", 1.0, 0.0), ("write", 1.0, 0.0)]);
        assert_eq!(told(&found.left_out), [("allocator", 4.0, 2.0)]);
    }

    #[test]
    fn a_line_has_the_paths_that_write_it_and_the_harness_is_nobody() {
        let found = finding(&recording());
        let [lock, count] = &found.hottest[..] else { panic!("{:?}", found.hottest) };
        assert_eq!((&*lock.symbol, &*count.symbol), ("the lock", "the count"));
        let paths: Vec<_> = lock.sites.iter().map(|site| site.path.join(" < ")).collect();
        assert_eq!(paths, ["inner < outer", "outer"]);
        assert_eq!(lock.sites[0].writes, BySide { server: 2.0, client: 0.0 });
        assert_eq!(count.sites[0].writes, BySide { server: 0.0, client: 1.0 });
    }

    #[test]
    fn folders_of_whoever_built_and_recorded_it_are_left_out() {
        let name = "up in free at registry/src/x-1/lib/refcount.h:50";
        assert_eq!(without_folders(name), "up in free at refcount.h:50");
        assert_eq!(without_folders("ube_lock"), "ube_lock");
        let words = ["/home/x/sealane-lab", "count", "--record", "/home/x/a.json.gz", "--kind"];
        let words = words.map(str::to_owned);
        let said = command(&words).join(" ");
        assert_eq!(said, "sealane-lab count --record a.json.gz --kind");
    }

    #[test]
    fn the_servers_busiest_line_is_kept_behind_many_that_clients_write() {
        let mut recording = recording();
        recording.lines = (0..10).map(|at| line("lock", &at.to_string(), of(0.0, 9.0))).collect();
        recording.lines.push(line("lock", "server's", of(2.0, 0.0)));
        recording.steps.clear();
        let found = finding(&recording);
        assert_eq!(found.hottest.len(), HOT_LINES_MAX);
        assert!(found.hottest.iter().any(|line| line.symbol == "server's"), "{:?}", found.hottest);
    }
}
