//! A made-up document of `why` for a running server, with something of everything.

use sealane_lab_model::document::{
    Live, LiveAddress, LiveCall, LiveCalls, LiveFinding, LiveFunction, LiveFutex, LiveKind,
    LiveLockCalls, LiveLockSite, LivePath, LiveProcess, LiveProfile, LiveThread, LiveWork, Run,
    Unseen,
};

use super::sample;

/// The document, without results of other commands.
pub(crate) fn run() -> Run {
    let (handshakes, memory, counts, bulk) = (vec![], vec![], vec![], vec![]);
    let (servers, comparisons, strategies) = (None, vec![], vec![]);
    let live = vec![live()];
    Run {
        live,
        strategies,
        handshakes,
        memory,
        counts,
        servers,
        comparisons,
        bulk,
        ..sample::run()
    }
}

fn live() -> Live {
    Live {
        pid: 4_711,
        name: "sample <server>".into(),
        executable: "/usr/sbin/sample".into(),
        watched_seconds: 5.0,
        ended: true,
        processors_allowed: 8,
        processors_used: 2.3,
        samples: 250,
        processes: vec![process(4_711), process(4_712)],
        threads: vec![thread(4_713, 0.9), thread(4_714, 0.1)],
        threads_left_out: 3,
        profile: Some(profile()),
        futex: Some(futex()),
        calls: Some(LiveCalls {
            instrument: "bpftrace".into(),
            counted_seconds: 5.0,
            calls: vec![LiveCall { call: "futex".into(), count: 60_000, inside_ns: 4_000_000_000 }],
        }),
        lock_calls: Some(LiveLockCalls {
            counted_seconds: 2.0,
            sites: vec![LiveLockSite {
                function: "pthread_mutex_lock".into(),
                address: "0x55a4".into(),
                caller: "session_cache_insert".into(),
                count: 80_000,
            }],
        }),
        unseen: vec![Unseen {
            what: "where its CPU time goes in the kernel".into(),
            why: "perf may not look there".into(),
            remedy: "sysctl kernel.perf_event_paranoid=1".into(),
        }],
        findings: vec![LiveFinding {
            kind: LiveKind::WaitsForLock,
            sentence: "2 of 2 active threads sleep until another gives up a lock".into(),
            rule: "at least 2 threads sleep for a lock 20% of the time or more".into(),
        }],
    }
}

fn process(pid: u32) -> LiveProcess {
    LiveProcess { pid, name: "sample".into() }
}

fn thread(tid: u32, cpu: f64) -> LiveThread {
    LiveThread {
        pid: 4_712,
        tid,
        name: format!("worker-{tid}"),
        cpu_ns: (cpu * 5e9) as u64,
        user_ns: (cpu * 4e9) as u64,
        system_ns: (cpu * 1e9) as u64,
        run_delay_ns: 40_000_000,
        voluntary_switches: 61_000,
        involuntary_switches: 400,
        states: [("mutex".to_owned(), 1.0 - cpu), ("ready".to_owned(), cpu)].into(),
        lock_wait: 1.0 - cpu,
        accepts: Some(120),
    }
}

fn profile() -> LiveProfile {
    let path = |path: &[&str], share, kind: &str| LivePath {
        path: path.iter().map(|frame| (*frame).to_owned()).collect(),
        share,
        kind: kind.into(),
    };
    LiveProfile {
        event: "task-clock".into(),
        hertz: 199,
        samples: 2_300,
        functions: vec![LiveFunction {
            function: "bn_mul_mont".into(),
            owner: "libcrypto.so.3".into(),
            share: 0.6,
        }],
        paths: vec![
            path(&["bn_mul_mont (libcrypto.so.3)", "handshake (sample)"], 0.6, ""),
            path(&["pthread_mutex_lock (libc.so.6)", "cache (sample)"], 0.3, "lock"),
        ],
        lock_share: 0.3,
        work: vec![LiveWork { work: "RSA".into(), share: 0.6 }],
    }
}

fn futex() -> LiveFutex {
    let path = ["__lll_lock_wait (libc.so.6)", "pthread_mutex_lock (libc.so.6)", "cache (sample)"];
    LiveFutex {
        waits: Some(60_000),
        waited_ns: Some(4_000_000_000),
        addresses: vec![LiveAddress {
            pid: 4_712,
            address: "0x55a4".into(),
            waits: 60_000,
            waited_ns: 4_000_000_000,
            threads: 2,
        }],
        samples: 900,
        paths: vec![LivePath {
            path: path.map(Into::into).to_vec(),
            share: 1.0,
            kind: "lock".into(),
        }],
    }
}
