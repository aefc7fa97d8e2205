//! What every thread did, from `/proc` alone: [`Threads`]. It slows nobody, and needs no tool.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use crate::document::{LiveProcess, LiveThread, Unseen};

use super::{
    names::{ASLEEP, DISK, MUTEX, READY, call_name},
    target::Stat,
};

/// Accounts at the start, and states since then.
pub(super) struct Threads {
    known: BTreeMap<u32, Known>,
    /// Of all threads together.
    pub(super) samples: u32,
    /// A thread's system call could not be read.
    hidden: bool,
    /// More threads than are followed.
    cut: bool,
    next: Instant,
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
        let known = BTreeMap::new();
        let mut threads =
            Self { known, samples: 0, hidden: false, cut: false, next: Instant::now() };
        threads.take_accounts(processes, true);
        threads
    }

    /// Reads the state of every thread, if it is time.
    pub(super) fn sample(&mut self, processes: &[LiveProcess]) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.samples += 1;
        // A thread may begin and end meanwhile: what was read of it last counts.
        if self.samples.is_multiple_of(ACCOUNT_EVERY) {
            self.take_accounts(processes, false);
        }
        for (tid, thread) in &mut self.known {
            if let Some(state) = state(thread.pid, *tid, &mut self.hidden) {
                *thread.states.entry(state).or_default() += 1;
            }
        }
        // A server of a thousand threads is not to feel that somebody looks.
        let took = now.elapsed();
        self.next = now + SAMPLE_EVERY.max(took * REST_MIN);
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
        let Self { pid, name, before, after, states } = self;
        let seen: u32 = states.values().sum();
        let share = |count: u32| f64::from(count) / f64::from(seen.max(1));
        let ticks = |after: u64, before: u64| after.saturating_sub(before) * TICK_NS;
        let states: BTreeMap<String, f64> =
            states.into_iter().map(|(state, count)| (state, share(count))).collect();
        LiveThread {
            pid,
            tid,
            name,
            lock_wait: states.get(MUTEX).copied().unwrap_or_default(),
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
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}")).ok();
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

/// What a thread does at this moment; `None` if it has ended.
fn state(pid: u32, tid: u32, hidden: &mut bool) -> Option<String> {
    let folder = format!("/proc/{pid}/task/{tid}");
    let stat = Stat::parse(&fs::read_to_string(format!("{folder}/stat")).ok()?)?;
    match stat.state {
        'R' => return Some(READY.into()),
        'D' => return Some(DISK.into()),
        'Z' | 'X' => return None,
        _ => {}
    }
    match fs::read_to_string(format!("{folder}/syscall")) {
        Ok(line) => Some(slept_in(&line)),
        Err(_) => {
            *hidden = true;
            let place = fs::read_to_string(format!("{folder}/wchan")).unwrap_or_default();
            Some(kernel_place(&place).into())
        }
    }
}

/// What a line of `/proc/PID/task/TID/syscall` tells: number and arguments, or `running`.
fn slept_in(line: &str) -> String {
    let mut fields = line.split_whitespace();
    let number = match fields.next() {
        // It went on while we looked.
        Some("running") => return READY.into(),
        Some(number) => number.parse::<u64>(),
        None => return ASLEEP.into(),
    };
    let Ok(number) = number else { return ASLEEP.into() };
    let name = call_name(number);
    let arguments: Vec<u64> = fields
        .map_while(|field| u64::from_str_radix(field.trim_start_matches("0x"), 16).ok())
        .collect();
    match (name.as_str(), &arguments[..]) {
        ("futex", [_, operation, value, ..]) if is_mutex(*operation, *value) => MUTEX.into(),
        _ => name,
    }
}

/// glibc's mutex waits for a word of 2, its read-write lock for one of 3, Rust's mutex for 2; a
/// condition variable or a parked thread waits for others.
fn is_mutex(operation: u64, value: u64) -> bool {
    let waits = matches!(operation & FUTEX_OPERATION, FUTEX_WAIT | FUTEX_WAIT_BITSET);
    waits && matches!(value & u64::from(u32::MAX), 2 | 3)
}

/// The kernel function that a thread sleeps in, as the call that leads there.
fn kernel_place(place: &str) -> &'static str {
    match place {
        _ if place.contains("futex") => "futex",
        _ if place.contains("ep_poll") => "epoll_wait",
        _ if place.contains("csk_accept") => "accept",
        _ if place.contains("poll_schedule") || place.contains("do_select") => "poll",
        _ if place.contains("sigsuspend") => "rt_sigsuspend",
        _ if place.contains("nanosleep") => "nanosleep",
        _ => ASLEEP,
    }
}

/// Samples between two readings of the accounts.
const ACCOUNT_EVERY: u32 = 10;
const FUTEX_OPERATION: u64 = 127;
const FUTEX_WAIT: u64 = 0;
const FUTEX_WAIT_BITSET: u64 = 9;
/// Between two looks at least so many times what a look takes.
const REST_MIN: u32 = 20;
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
pub(super) const THREADS_MAX: usize = 1_024;
/// A tick of the kernel's interface, on every architecture that this runs on.
const TICK_NS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_the_call_and_a_mutex_by_its_form() {
        let futex = (0..500).find(|number| call_name(*number) == "futex").unwrap();
        let line =
            |op: &str, value: &str| format!("{futex} 0x7f00 {op} {value} 0x0 0x0 0x0 0x1 0x2");
        assert_eq!(slept_in(&line("0x80", "0x2")), MUTEX);
        assert_eq!(slept_in(&line("0x89", "0x3")), MUTEX);
        assert_eq!(slept_in(&line("0x89", "0xffffffff")), "futex", "a parked thread of Rust");
        assert_eq!(slept_in(&line("0x189", "0x0")), "futex", "a condition of glibc");
        assert_eq!(slept_in(&line("0x81", "0x2")), "futex", "it wakes, and waits for nothing");
        assert_eq!(slept_in("running\n"), READY);
        assert_eq!(slept_in("-1 0x7ffe 0x7f00\n"), ASLEEP);
        assert_eq!(slept_in(""), ASLEEP);
    }

    #[test]
    fn a_thread_that_sleeps_for_a_mutex_of_rust_is_seen_so() {
        use std::sync::{Arc, Mutex};
        let mutex = Arc::new(Mutex::new(()));
        let held = mutex.lock().unwrap();
        let other = Arc::clone(&mutex);
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            drop(other.lock().unwrap());
        });
        let tid = u32::try_from(receive.recv().unwrap()).unwrap();
        let mut hidden = false;
        while state(std::process::id(), tid, &mut hidden).unwrap() != MUTEX {
            assert!(!hidden);
            std::thread::yield_now();
        }
        drop(held);
        thread.join().unwrap();
    }
}
