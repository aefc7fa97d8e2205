//! What every thread did, from `/proc` alone: [`Threads`]. It slows nobody, and needs no tool.

use std::{
    collections::BTreeMap,
    fs,
    ops::Bound::{Excluded, Unbounded},
    time::{Duration, Instant},
};

use sealane_lab_harness::processor::thread_cpu_ns;
use sealane_lab_model::document::{LiveProcess, LiveThread, Unseen};

use super::{
    names::{FUTEX, MUTEX, MUTEX_OR_CONDITION, Waits},
    state::state,
    target::{Stat, text_of},
};

/// Accounts at the start, and states since then.
pub(super) struct Threads {
    known: BTreeMap<u32, Known>,
    /// How often all threads have been looked at.
    pub(super) samples: u32,
    /// The last one that was looked at this time round; 0 before the first.
    seen_to: u32,
    /// A thread's system call could not be read.
    hidden: bool,
    /// More threads than are followed.
    cut: bool,
    next: Instant,
    next_accounts: Instant,
}

/// One thread.
struct Known {
    pid: u32,
    name: String,
    before: Account,
    after: Account,
    states: BTreeMap<String, u32>,
}

/// What the kernel has counted for a thread so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    cpu_ns: u64,
    run_delay_ns: u64,
    user_ticks: u64,
    system_ticks: u64,
    voluntary: u64,
    involuntary: u64,
}

impl Threads {
    /// Begins with the threads that `processes` have now.
    pub(super) fn begin(processes: &[LiveProcess]) -> Self {
        let (known, now) = (BTreeMap::new(), Instant::now());
        let mut threads = Self {
            known,
            samples: 0,
            seen_to: 0,
            hidden: false,
            cut: false,
            next: now,
            next_accounts: now + ACCOUNTS_EVERY,
        };
        threads.take_accounts(processes, true);
        threads
    }

    /// Reads the state of the next threads, if it is time. A server of a thousand is not to feel
    /// that somebody looks: a look has a limit, and a rest behind it by the CPU time that it took.
    pub(super) fn sample(&mut self, processes: &[LiveProcess]) {
        let now = Instant::now();
        // A thread may begin and end meanwhile: what was read of it last counts.
        if now >= self.next_accounts {
            let rest = rest_after(|| self.take_accounts(processes, false));
            self.next_accounts = now + ACCOUNTS_EVERY.max(rest);
        }
        if now >= self.next {
            let rest = rest_after(|| self.look());
            self.next = now + SAMPLE_EVERY.max(rest);
        }
    }

    fn look(&mut self) {
        let following = self.known.range_mut((Excluded(self.seen_to), Unbounded));
        for (tid, thread) in following.take(LOOK_MAX) {
            self.seen_to = *tid;
            if let Some(state) = state(thread.pid, *tid, &mut self.hidden) {
                *thread.states.entry(state).or_default() += 1;
            }
        }
        if self.known.last_key_value().is_none_or(|(last, _)| *last <= self.seen_to) {
            self.samples += 1;
            self.seen_to = 0;
        }
    }

    /// All threads, most CPU time first; those that came later have what they used since.
    pub(super) fn end(mut self, processes: &[LiveProcess]) -> (Vec<LiveThread>, Vec<Unseen>) {
        self.take_accounts(processes, false);
        let unseen = self.unseen();
        let mut threads: Vec<LiveThread> =
            self.known.into_iter().map(|(tid, known)| known.used(tid)).collect();
        threads.sort_by_key(|thread| std::cmp::Reverse((thread.cpu_ns, thread.tid)));
        (threads, unseen)
    }

    fn take_accounts(&mut self, processes: &[LiveProcess], first: bool) {
        for process in processes {
            let pid = process.pid;
            let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            let names = tasks.flatten().map(|task| task.file_name());
            for tid in names.filter_map(|name| name.to_str()?.parse::<u32>().ok()) {
                let Some((name, account)) = account(pid, tid) else { continue };
                if self.known.len() >= THREADS_MAX && !self.known.contains_key(&tid) {
                    self.cut = true;
                    continue;
                }
                let known = self.known.entry(tid).or_insert_with(|| {
                    let before = if first { account } else { Account::default() };
                    Known { pid, name, before, after: before, states: BTreeMap::new() }
                });
                known.after = account;
            }
        }
    }

    fn unseen(&self) -> Vec<Unseen> {
        let mut unseen = Vec::new();
        if self.hidden {
            unseen.push(Unseen {
                what: "which system call each thread sleeps in".into(),
                why: "the kernel shows it only to those who may trace the server".into(),
                remedy: "run this as root, or as the server's own user with \
                         `sysctl kernel.yama.ptrace_scope=0`; in a container, with the capability \
                         SYS_PTRACE"
                    .into(),
            });
        }
        if self.cut {
            unseen.push(Unseen {
                what: format!("threads beyond the first {THREADS_MAX}"),
                why: "their number is limited, so that looking costs little".into(),
                remedy: "give the id of one worker process".into(),
            });
        }
        unseen
    }
}

impl Known {
    fn used(self, tid: u32) -> LiveThread {
        let Self { pid, name, before, after, mut states } = self;
        // Who waits for a lock gets it some time; a condition may not come for as long as we look.
        if let Some(unclear) = states.remove(MUTEX_OR_CONDITION) {
            let moved = after.voluntary > before.voluntary;
            let state = if moved { MUTEX } else { FUTEX };
            *states.entry(state.into()).or_default() += unclear;
        }
        let seen: u32 = states.values().sum();
        let share = |count: u32| f64::from(count) / f64::from(seen.max(1));
        let ticks = |after: u64, before: u64| after.saturating_sub(before) * TICK_NS;
        let states: BTreeMap<String, f64> =
            states.into_iter().map(|(state, count)| (state, share(count))).collect();
        let locked = states.iter().filter(|(state, _)| Waits::of(state) == Some(Waits::Lock));
        let locked = locked.map(|(_, share)| share);
        LiveThread {
            pid,
            tid,
            name,
            lock_wait: locked.sum(),
            states,
            cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns),
            user_ns: ticks(after.user_ticks, before.user_ticks),
            system_ns: ticks(after.system_ticks, before.system_ticks),
            run_delay_ns: after.run_delay_ns.saturating_sub(before.run_delay_ns),
            voluntary_switches: after.voluntary.saturating_sub(before.voluntary),
            involuntary_switches: after.involuntary.saturating_sub(before.involuntary),
            accepts: None,
        }
    }
}

/// A thread's name and what it has used; `None` if it has ended.
fn account(pid: u32, tid: u32) -> Option<(String, Account)> {
    let read = |file: &str| text_of(&format!("/proc/{pid}/task/{tid}/{file}"));
    let stat = Stat::parse(&read("stat")?)?;
    // Some kernels count no nanoseconds; then ticks must do.
    let schedule = read("schedstat").unwrap_or_default();
    let mut schedule = schedule.split_whitespace().map_while(|field| field.parse().ok());
    let ticks = (stat.user_ticks + stat.system_ticks) * TICK_NS;
    let status = read("status").unwrap_or_default();
    let switches = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or_default()
    };
    let account = Account {
        cpu_ns: schedule.next().unwrap_or(ticks),
        run_delay_ns: schedule.next().unwrap_or_default(),
        user_ticks: stat.user_ticks,
        system_ticks: stat.system_ticks,
        voluntary: switches("voluntary_ctxt_switches:"),
        involuntary: switches("nonvoluntary_ctxt_switches:"),
    };
    Some((stat.name, account))
}

/// How long to rest after `work`, so that it takes its share of a processor at most.
fn rest_after(work: impl FnOnce()) -> Duration {
    let before = thread_cpu_ns();
    work();
    Duration::from_nanos(thread_cpu_ns().saturating_sub(before)) * REST_MIN
}

const ACCOUNTS_EVERY: Duration = Duration::from_millis(200);
/// Threads in one look.
const LOOK_MAX: usize = 128;
/// The rest is at least so many times what was before it.
const REST_MIN: u32 = 10;
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
pub(super) const THREADS_MAX: usize = 1_024;
/// A tick of the kernel's interface, on every architecture that this runs on.
const TICK_NS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A look is as long for a thousand threads as for a hundred, and all have their turn.
    #[test]
    fn many_threads_are_looked_at_in_turns() {
        let mut threads = Threads::begin(&[]);
        let idle = |_| Known {
            pid: u32::MAX,
            name: String::new(),
            before: Account::default(),
            after: Account::default(),
            states: BTreeMap::new(),
        };
        threads.known = (1..=1_000).map(|tid| (tid, idle(tid))).collect();
        let ends: Vec<(u32, u32)> = (0..9)
            .map(|_| {
                threads.look();
                (threads.seen_to, threads.samples)
            })
            .collect();
        let expected = [128, 256, 384, 512, 640, 768, 896].map(|tid| (tid, 0));
        assert_eq!(ends, [&expected[..], &[(0, 1), (128, 1)]].concat());
    }

    /// Rust's condition counts up from 0, and a mutex's word is 2: a pool that was asked twice
    /// sleeps like those that wait for a mutex.
    #[test]
    fn who_never_moved_waits_for_no_mutex_unless_the_form_is_clear() {
        let slept = |state: &str, switches| {
            let known = Known {
                pid: 1,
                name: String::new(),
                before: Account::default(),
                after: Account { voluntary: switches, ..Account::default() },
                states: [(state.to_owned(), 4)].into(),
            };
            let used = known.used(1);
            (used.states.into_keys().next().unwrap(), used.lock_wait > 0.5)
        };
        assert_eq!(slept(MUTEX_OR_CONDITION, 0), (FUTEX.into(), false));
        assert_eq!(slept(MUTEX_OR_CONDITION, 3), (MUTEX.into(), true));
        assert_eq!(slept(MUTEX, 0), (MUTEX.into(), true), "a mutex that nobody gives back");
    }
}
