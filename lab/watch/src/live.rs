//! Watches a running server, any, from outside: [`watch`]. Each instrument stands alone, may be
//! missing or refused, and says then what could not be seen and how to allow it.
//!
//! ```text
//!                +- /proc: CPU, run delay, what each thread sleeps in ----> threads
//! the server and +- perf: software clock, begins of waits in futex -------> profile, call paths
//! its children   +- bpftrace, perf trace or strace: system calls ---------> calls, futex, accepts
//!                                                   diagnosis: rules over all of it -> findings
//! ```

pub mod calls;
mod code;
mod diagnosis;
mod nameless;
mod names;
mod profile;
mod runtime;
mod samples;
mod state;
pub mod table;
mod target;
mod threads;
pub mod tool;

use std::{
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::interrupt::Interrupt;
use sealane_lab_model::{
    document::{Live, LiveFutex, LiveProcess, LiveThread, Unseen},
    error::Error,
};

use calls::{Calls, Told};
use profile::{Profile, Profiled};
use samples::{PATHS_MAX, Samples};
use target::Target;
use threads::Threads;

/// What is asked of it.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// How long to watch.
    pub seconds: u32,
    /// Instruments that slow the server by many times are allowed.
    pub allow_slow: bool,
}

/// Watches process `pid` and what it started.
///
/// # Errors
/// It is no process that can be watched. Whatever else goes wrong is said in the result.
pub fn watch(pid: u32, wish: Wish, stop: &Interrupt) -> Result<Live, Error> {
    let target = Target::open(pid)?;
    let processes = target.processes();
    let processors_allowed = processors_allowed(pid);
    let mut unseen: Vec<Unseen> = runtime::hidden_locks(&processes).into_iter().collect();
    let mut calls = match Calls::begin(&processes, wish) {
        Ok(calls) => Some(calls),
        Err(refused) => {
            unseen.extend(refused);
            None
        }
    };
    let mut profile =
        kept(Profile::begin(&processes, wish.seconds, processors_allowed), &mut unseen);
    // They take a while to load, and all are to look at the same seconds.
    loop {
        profile.iter_mut().for_each(Profile::attend);
        calls.iter_mut().for_each(Calls::attend);
        let samples = profile.as_mut().is_none_or(Profile::is_ready);
        let counts = calls.as_mut().is_none_or(Calls::is_ready);
        if samples && counts || stop.is_pressed() {
            break;
        }
        thread::sleep(TURN);
    }
    let mut threads = Threads::begin(&processes);
    let begun = Instant::now();
    let window = Duration::from_secs(wish.seconds.into());
    while begun.elapsed() < window && !stop.is_pressed() && target.lives() {
        threads.sample(&processes);
        profile.iter_mut().for_each(Profile::attend);
        calls.iter_mut().for_each(Calls::attend);
        thread::sleep(TURN);
    }
    let (used, hidden) = threads_of(threads, &target, &processes);
    unseen.extend(hidden);
    let watched_seconds = begun.elapsed().as_secs_f64();
    let samples = used.samples;
    let told = calls.map(Calls::end).unwrap_or_default();
    let profiled = profile.map(|profile| profile.end(stop)).unwrap_or_default();
    let mut live = Live {
        pid,
        name: target.name.clone(),
        executable: target.executable.clone(),
        watched_seconds,
        samples,
        processors_allowed,
        processes,
        threads: used.threads,
        unseen,
        ..Live::default()
    };
    add(&mut live, told, profiled);
    live.ended = !target.lives();
    finish(&mut live);
    Ok(live)
}

/// The accounts of all threads, and how often they were looked at.
struct Used {
    threads: Vec<LiveThread>,
    samples: u32,
}

/// The threads of a server; if it has ended, what was read before counts.
fn threads_of(threads: Threads, target: &Target, processes: &[LiveProcess]) -> (Used, Vec<Unseen>) {
    let samples = threads.samples;
    let now = if target.lives() { target.processes() } else { processes.to_vec() };
    let (threads, mut unseen) = threads.end(&now);
    let known = |pid| processes.iter().any(|process| process.pid == pid);
    let later = now.iter().filter(|process| !known(process.pid)).count();
    if later > 0 {
        unseen.push(Unseen {
            what: format!("what {later} more processes waited for, which began meanwhile"),
            why: "only those that were there at first were looked at; CPU time is of all".into(),
            remedy: "run this again, now that they run".into(),
        });
    }
    (Used { threads, samples }, unseen)
}

/// Joins what the tools told with what is known of each thread.
fn add(live: &mut Live, told: Told, profiled: Profiled) {
    let Told { calls, counted, unseen } = told;
    live.unseen.extend(unseen);
    live.unseen.extend(profiled.unseen);
    live.profile = profiled.profile;
    let samples = profiled.waits.unwrap_or_default();
    let seconds = calls.as_ref().map_or(0.0, |calls| calls.counted_seconds);
    for thread in &mut live.threads {
        let accepts = counted.accepts.as_ref();
        thread.accepts = accepts.map(|by| by.get(&thread.tid).copied().unwrap_or_default());
        let waited = counted.waits.as_ref().and_then(|by| by.get(&thread.tid));
        if let (Some(waited), true) = (waited, seconds > 0.0) {
            let share = waited.ns as f64 / 1e9 / seconds;
            let for_locks = share.min(1.0) * lock_share(&samples, thread.tid);
            thread.lock_wait = thread.lock_wait.max(for_locks);
        }
    }
    let waits = counted.waits.as_ref();
    if waits.is_some() || samples.count > 0 {
        live.futex = Some(LiveFutex {
            waits: waits.map(|by| by.values().map(|total| total.count).sum()),
            waited_ns: waits.map(|by| by.values().map(|total| total.ns).sum()),
            addresses: counted.addresses,
            samples: samples.count,
            paths: samples.paths(PATHS_MAX),
        });
    }
    live.calls = calls;
}

/// The share of a thread's waits in futex that are for locks; 0 where too few of them were sampled
/// to tell.
fn lock_share(samples: &Samples, tid: u32) -> f64 {
    let Some(by) = samples.by_thread.get(&tid) else { return 0.0 };
    let all = by.lock + by.thread + by.other;
    if all < SAMPLED_WAITS_MIN { 0.0 } else { by.lock as f64 / all as f64 }
}

/// Sums, what had to be left out, and the verdict.
fn finish(live: &mut Live) {
    let used: u64 = live.threads.iter().map(|thread| thread.cpu_ns).sum();
    live.processors_used = used as f64 / 1e9 / live.watched_seconds.max(f64::MIN_POSITIVE);
    if live.processes.len() >= target::PROCESSES_MAX {
        live.unseen.push(Unseen {
            what: format!("processes beyond the first {}", target::PROCESSES_MAX),
            why: "their number is limited, so that looking costs little".into(),
            remedy: "give the id of one worker".into(),
        });
    }
    live.findings = diagnosis::findings(live);
    live.threads_left_out = live.threads.len().saturating_sub(THREADS_LISTED_MAX);
    live.threads.truncate(THREADS_LISTED_MAX);
}

/// What began, or else a line about what is not to be seen.
fn kept<T>(begun: Result<T, Unseen>, unseen: &mut Vec<Unseen>) -> Option<T> {
    begun.map_err(|reason| unseen.push(reason)).ok()
}

/// Processors in the mask of `pid`: those it may run on, as its `status` lists them (`0-3,8`).
fn processors_allowed(pid: u32) -> usize {
    let status = target::text_of(&format!("/proc/{pid}/status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let ranges = list.unwrap_or_default().trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.saturating_sub(first) + 1)
    });
    ranges.sum()
}

/// Fewer say nothing about a thread.
const SAMPLED_WAITS_MIN: u64 = 5;
const THREADS_LISTED_MAX: usize = 64;
const TURN: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_may_run_somewhere() {
        let allowed = processors_allowed(std::process::id());
        assert_eq!(allowed, thread::available_parallelism().unwrap().get());
        assert_eq!(processors_allowed(u32::MAX), 0);
    }

    #[test]
    fn waits_for_work_are_no_waits_for_locks() {
        let by = |lock, thread| samples::ByKind { lock, thread, other: 0 };
        let mut samples = Samples::default();
        samples.by_thread = [(1, by(9, 1)), (2, by(0, 50)), (3, by(2, 0))].into();
        let shares = [1, 2, 3, 4].map(|tid| lock_share(&samples, tid));
        assert_eq!(shares, [0.9, 0.0, 0.0, 0.0]);
    }
}
