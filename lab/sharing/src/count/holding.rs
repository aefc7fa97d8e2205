//! Puts native times into a recording: [`add`] finds each lock that was timed among those that were
//! recorded, by the names of the lock and of who takes it.

use std::collections::{BTreeMap, BTreeSet};

use sealane_lab_model::recording::{Event, Hold, LockClass, Part, Recording, TAKEN_BY};

use crate::count::{class::is_lock_name, holds::HeldLock};

/// Calls are the recording's own, so that they agree with its steps; times are those of `timed`.
pub(super) fn add(recording: &mut Recording, timed: &[HeldLock]) {
    let takers = takers(recording);
    let operations = recording.operations as f64;
    for (lock, taken) in recording.locks.iter_mut().zip(&takers) {
        let functions: BTreeSet<&str> = taken.functions.iter().map(String::as_str).collect();
        for ((part, read), calls) in &taken.calls {
            let part = Part::ALL[*part as usize];
            let here = || {
                let is_here =
                    |held: &&HeldLock| held.read == *read && is_there(held, lock.class, part);
                timed.iter().filter(is_here)
            };
            let named = here().filter(|held| is_it(held, lock.class, &lock.symbol, &functions));
            let (mut sum, mut weight) = mean(named);
            if weight == 0.0 {
                // Of several functions that take it as often, the clock may have noted another one.
                let is_taker = |taker| taken.takers.iter().any(|known| known == taker);
                (sum, weight) = mean(here().filter(|held| taker(held).is_some_and(is_taker)));
            }
            if weight > 0.0 {
                let calls = *calls as f64 / operations;
                lock.holds.push(Hold { part, read: *read, calls, ns: sum / weight });
            }
        }
    }
}

/// A sum of times, and the calls that it is of: one name may stand for several locks, and one lock
/// have several names.
fn mean<'a>(held: impl Iterator<Item = &'a HeldLock>) -> (f64, f64) {
    held.fold((0.0, 0.0), |(sum, weight), held| {
        (sum + held.ns * held.calls_per_operation, weight + held.calls_per_operation)
    })
}

/// The function that a lock on the heap is called by.
fn taker(held: &HeldLock) -> Option<&str> {
    held.symbol.strip_prefix("taken by ")
}

/// How one lock is taken.
#[derive(Default)]
struct Taken {
    /// How often, by the part as a number and whether it is to read.
    calls: BTreeMap<(u32, bool), u64>,
    /// The functions around it, without what they belong to.
    functions: BTreeSet<String>,
    /// The innermost of them that are no part of locks, whole.
    takers: BTreeSet<String>,
}

fn takers(recording: &Recording) -> Vec<Taken> {
    let mut takers: Vec<Taken> = recording.locks.iter().map(|_| Taken::default()).collect();
    let mut part = Part::Outside as u32;
    for step in &recording.steps {
        let read = match step.event {
            Event::Enter => {
                part = step.place;
                continue;
            }
            Event::ReadLock => true,
            Event::MutexLock | Event::WriteLock => false,
            _ => continue,
        };
        let taken = &mut takers[step.place as usize];
        *taken.calls.entry((part, read)).or_default() += 1;
        let mut is_inside = true;
        for node in recording.callers(step.path) {
            taken.functions.extend(functions(&node.function).map(str::to_owned));
            let mut around = names(&node.function).filter(|name| !is_lock_name(name)).peekable();
            if is_inside && around.peek().is_some() {
                taken.takers.extend(around.map(str::to_owned));
                is_inside = false;
            }
        }
    }
    takers
}

/// `encrypt` and `send` of `<a::B as a::C>::encrypt in a::send at a/b.rs:7`.
fn functions(told: &str) -> impl Iterator<Item = &str> {
    names(told).map(|name| name.rsplit("::").next().unwrap_or_default())
}

/// The same, whole.
fn names(told: &str) -> impl Iterator<Item = &str> {
    told.rsplit_once(" at ").map_or(told, |(names, _)| names).split(" in ")
}

/// Whether it is held in that part; of a function of rustls, the side alone is known.
fn is_there(held: &HeldLock, class: LockClass, part: Part) -> bool {
    let is_client = |part| matches!(part, Part::Client | Part::ClientSetup);
    match class {
        LockClass::FutexMutex | LockClass::FutexRwLock => is_client(held.part) == is_client(part),
        LockClass::KernelSpin | LockClass::Mutex | LockClass::RwLock => held.part == part,
    }
}

fn is_it(held: &HeldLock, class: LockClass, symbol: &str, functions: &BTreeSet<&str>) -> bool {
    match class {
        LockClass::FutexMutex | LockClass::FutexRwLock => functions.contains(&*held.symbol),
        LockClass::KernelSpin | LockClass::Mutex | LockClass::RwLock => match taker(held) {
            // A variable, and whose it is.
            None => held.symbol.rsplit_once(" (").is_some_and(|(variable, _)| variable == symbol),
            Some(taker) => symbol.strip_prefix(TAKEN_BY).is_some_and(|taken| {
                let taken = taken.split(" for ").next().unwrap_or_default();
                taken.split(" in ").any(|name| name == taker)
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use sealane_lab_model::recording::{Lock, PathNode, Step};

    use super::*;

    fn held(symbol: &str, read: bool, ns: f64) -> HeldLock {
        let part = Part::Server;
        HeldLock { symbol: symbol.into(), part, read, calls_per_operation: 1.0, ns }
    }

    /// Two operations; in the server's part each takes the lock once, in this function.
    fn recording(class: LockClass, symbol: &str, function: &str, takes: Event) -> Recording {
        let enter = Step { place: Part::Server as u32, ..Step::default() };
        let take = Step { event: takes, path: 1, ..Step::default() };
        let node = PathNode { function: function.into(), ..PathNode::default() };
        Recording {
            operations: 2,
            locks: vec![Lock { class, symbol: symbol.into(), ..Lock::default() }],
            paths: vec![PathNode::default(), node],
            steps: vec![enter, take, take],
            ..Recording::default()
        }
    }

    #[test]
    fn a_lock_is_found_by_its_variable_its_taker_or_the_function_that_holds_it() {
        for (class, symbol, function, takes, timed) in [
            (LockClass::RwLock, "a_lock", "f", Event::ReadLock, "a_lock (libcrypto.so.3)"),
            (
                LockClass::RwLock,
                "lock taken by get in outer for caller",
                "get in outer",
                Event::ReadLock,
                "taken by outer",
            ),
            (
                LockClass::FutexRwLock,
                "lock taken by x",
                "<a::B as a::Produces>::encrypt at a/b.rs:7",
                Event::ReadLock,
                "encrypt",
            ),
        ] {
            let mut recording = recording(class, symbol, function, takes);
            let others = [held("taken by another", true, 9.0), held(timed, false, 9.0)];
            add(&mut recording, &[&others[..], &[held(timed, true, 800.0)]].concat());
            let expected = Hold { part: Part::Server, read: true, calls: 1.0, ns: 800.0 };
            assert_eq!(recording.locks[0].holds, [expected], "{timed}");
        }
    }

    #[test]
    fn a_function_of_rustls_holds_its_lock_in_both_parts_of_its_side() {
        let function = "lock<a> in <a::Cache as a::Stores>::tls12_session at a/b.rs:7";
        let recorded = |part: Part| {
            let class = LockClass::FutexMutex;
            let mut recording = recording(class, "x", function, Event::MutexLock);
            recording.steps[0].place = part as u32;
            let part = Part::Client;
            add(&mut recording, &[HeldLock { part, ..held("tls12_session", false, 90.0) }]);
            recording.locks.remove(0).holds
        };
        for part in [Part::Client, Part::ClientSetup] {
            let expected = Hold { part, read: false, calls: 1.0, ns: 90.0 };
            assert_eq!(recorded(part), [expected]);
        }
        assert_eq!(recorded(Part::Server), []);
    }

    #[test]
    fn a_lock_that_two_functions_take_as_often_is_found_by_either() {
        let symbol = "lock taken by bssl::seal";
        let guard = "bssl::internal::MutexLockBase<&x>::MutexLockBase in bssl::rotate";
        let mut recording = recording(LockClass::RwLock, symbol, guard, Event::ReadLock);
        let other = held("taken by bssl::open", true, 9.0);
        add(&mut recording, &[other, held("taken by bssl::rotate", true, 70.0)]);
        let expected = Hold { part: Part::Server, read: true, calls: 1.0, ns: 70.0 };
        assert_eq!(recording.locks[0].holds, [expected]);
    }

    #[test]
    fn a_lock_that_was_not_timed_has_no_time() {
        let mut recording = recording(LockClass::FutexMutex, "m", "a::take", Event::MutexLock);
        add(&mut recording, &[held("encrypt", false, 800.0)]);
        assert_eq!(recording.locks[0].holds, []);
    }
}
