//! Made-up servers, and what is said of them.

use sealane_lab_model::document::{LiveFutex, LivePath, LiveProfile, LiveWork, Unseen};

use super::*;

/// A thread of a second: CPU and delay in percent, and what it sleeps in, in percent.
fn thread(tid: u32, cpu: u64, delay: u64, states: &[(&str, u32)]) -> LiveThread {
    let states = states.iter().map(|(name, share)| ((*name).to_owned(), f64::from(*share) / 100.0));
    let states: BTreeMap<String, f64> = states.collect();
    LiveThread {
        pid: 1,
        tid,
        name: "worker".into(),
        cpu_ns: cpu * 10_000_000,
        run_delay_ns: delay * 10_000_000,
        lock_wait: states.get("mutex").copied().unwrap_or_default(),
        states,
        ..LiveThread::default()
    }
}

fn live(threads: Vec<LiveThread>) -> Live {
    let used: u64 = threads.iter().map(|thread| thread.cpu_ns).sum();
    Live {
        watched_seconds: 1.0,
        samples: 50,
        processors_allowed: 4,
        processors_used: used as f64 / 1e9,
        threads,
        ..Live::default()
    }
}

fn kinds(live: &Live) -> Vec<LiveKind> {
    findings(live).into_iter().map(|finding| finding.kind).collect()
}

fn said(live: &Live) -> String {
    let first = findings(live).remove(0);
    assert!(!first.rule.is_empty());
    first.sentence
}

fn locked(share: f64) -> LivePath {
    let path = ["pthread_rwlock_rdlock (libc.so.6)", "CRYPTO_THREAD_read_lock (libcrypto.so.3)"];
    let path = path.into_iter().chain(["EVP_MD_fetch (libcrypto.so.3)", "main (server)"]);
    LivePath { path: path.map(Into::into).collect(), share, kind: LOCK.into() }
}

#[test]
fn an_idle_server_waits_for_clients_and_its_master_does_not_count() {
    let master = thread(1, 0, 0, &[("rt_sigsuspend", 100)]);
    let worker = |tid| thread(tid, 2, 0, &[("epoll_wait", 98), ("ready", 2)]);
    let server = live(vec![worker(2), worker(3), master]);
    assert_eq!(kinds(&server), [LiveKind::WaitsForClients]);
    let said = said(&server);
    assert!(
        said.starts_with("2 of 2 active threads sleep in epoll_wait 98% of the time"),
        "{said}"
    );
}

#[test]
fn threads_in_a_mutex_wait_for_a_lock_and_its_place_is_named() {
    let worker = |tid| thread(tid, 30, 0, &[("mutex", 60), ("ready", 40)]);
    let mut server = live((1..5).map(worker).collect());
    assert_eq!(kinds(&server), [LiveKind::WaitsForLock]);
    let futex = LiveFutex {
        waits: Some(1_200),
        waited_ns: Some(2_400_000_000),
        paths: vec![locked(0.9)],
        ..LiveFutex::default()
    };
    server.futex = Some(futex);
    let said = said(&server);
    assert!(said.contains("4 of 4 active threads sleep") && said.contains("60%"), "{said}");
    assert!(said.contains("1,200 waits in futex took 2.4 s together"), "{said}");
    assert!(said.ends_with("most begin in pthread_rwlock_rdlock under EVP_MD_fetch"), "{said}");
}

/// One accepts while the others wait for their turn in a mutex: nobody is held up.
#[test]
fn threads_that_take_turns_at_accepting_wait_for_clients() {
    let first = thread(1, 0, 0, &[("accept4", 100)]);
    let others = (2..5).map(|tid| thread(tid, 0, 0, &[("mutex", 100)]));
    let server = live([first].into_iter().chain(others).collect());
    assert_eq!(kinds(&server), [LiveKind::WaitsForClients]);
}

#[test]
fn a_pool_that_waits_for_work_waits_for_no_lock() {
    let server = live((1..9).map(|tid| thread(tid, 0, 0, &[("futex", 100)])).collect());
    assert_eq!(kinds(&server), [LiveKind::WaitsForThreads]);
}

#[test]
fn one_busy_thread_is_the_limit_and_a_busy_machine_hides_it_not() {
    let idle = |tid| thread(tid, 3, 0, &[("epoll_wait", 97)]);
    let server = live(vec![thread(1, 98, 1, &[("ready", 100)]), idle(2), idle(3)]);
    assert_eq!(kinds(&server), [LiveKind::SingleLoop]);
    let sentence = said(&server);
    assert!(sentence.contains("uses 98% of a core"), "{sentence}");
    assert!(sentence.contains("each of the others at most 3%"), "{sentence}");
    let starved = live(vec![thread(1, 30, 68, &[("ready", 100)]), idle(2)]);
    assert_eq!(kinds(&starved), [LiveKind::SingleLoop, LiveKind::ProcessorsFull]);
    let alone = Live { processors_allowed: 1, ..server };
    assert_eq!(kinds(&alone), [LiveKind::OnProcessor], "there is nowhere else to run");
}

#[test]
fn who_wants_processors_more_than_clients_is_told_so() {
    let worker = |tid, cpu, delay, peers| {
        thread(tid, cpu, delay, &[("epoll_wait", peers), ("ready", 100 - peers)])
    };
    let verdict =
        |cpu, delay, peers| kinds(&live((1..3).map(|t| worker(t, cpu, delay, peers)).collect()));
    assert_eq!(verdict(25, 57, 18), [LiveKind::ProcessorsFull]);
    assert_eq!(verdict(82, 0, 18), [LiveKind::WaitsForClients]);
    assert_eq!(verdict(40, 20, 40), [LiveKind::WaitsForClients, LiveKind::ProcessorsFull]);
}

#[test]
fn all_threads_busy_is_computing_and_its_work_is_named() {
    let mut server = live((1..5).map(|tid| thread(tid, 97, 0, &[("ready", 100)])).collect());
    assert_eq!(kinds(&server), [LiveKind::OnProcessor]);
    let work = vec![LiveWork { work: "RSA".into(), share: 0.78 }];
    server.profile = Some(LiveProfile { samples: 900, work, ..LiveProfile::default() });
    assert!(said(&server).ends_with("it computes, 78% of it in RSA"), "{}", said(&server));
}

#[test]
fn cpu_time_in_locks_is_contention_where_several_threads_run() {
    let busy = |tid| thread(tid, 97, 0, &[("ready", 100)]);
    let profile = LiveProfile {
        samples: 900,
        lock_share: 0.41,
        paths: vec![locked(0.41)],
        ..LiveProfile::default()
    };
    let server = Live { profile: Some(profile), ..live((1..5).map(busy).collect()) };
    assert_eq!(kinds(&server), [LiveKind::LockContention]);
    let sentence = said(&server);
    let expected = "41% of its CPU time is in pthread_rwlock_rdlock under EVP_MD_fetch: ";
    let unclear = sentence.strip_prefix(expected).unwrap();
    assert!(unclear.starts_with("no thread slept for one"), "locks of its own? {sentence}");
    let futex = LiveFutex { waits: Some(90), ..LiveFutex::default() };
    let waited = Live { futex: Some(futex), ..server.clone() };
    assert_eq!(said(&waited), format!("{expected}lock contention in libcrypto.so.3"));
    let alone = Live { threads: vec![busy(1)], ..server };
    assert_eq!(kinds(&alone), [LiveKind::SingleLoop], "nobody to contend with");
}

#[test]
fn uneven_accepting_is_told_beside_the_verdict() {
    let worker = |tid, accepts| LiveThread {
        accepts: Some(accepts),
        ..thread(tid, 20, 0, &[("epoll_wait", 80)])
    };
    let server = |all: [u64; 4]| live((1..).zip(all).map(|(t, n)| worker(t, n)).collect());
    let uneven = server([0, 900, 50, 50]);
    assert_eq!(kinds(&uneven), [LiveKind::WaitsForClients, LiveKind::AcceptSkew]);
    let sentence = &findings(&uneven)[1].sentence;
    assert!(
        sentence.contains("thread 2 accepted 900 of 1000 connections, 3.6 times"),
        "{sentence}"
    );
    assert_eq!(kinds(&server([250, 240, 260, 250])), [LiveKind::WaitsForClients]);
    assert_eq!(kinds(&server([9, 0, 1, 0])), [LiveKind::WaitsForClients], "too few to tell");
    assert_eq!(kinds(&server([8, 7, 3, 2])), [LiveKind::WaitsForClients], "by chance");
    assert_eq!(kinds(&server([0, 900, 0, 0])), [LiveKind::WaitsForClients], "one deals them out");
}

#[test]
fn storage_and_too_little_are_told() {
    let slow = thread(1, 10, 0, &[("disk", 60), ("ready", 10), ("epoll_wait", 30)]);
    assert_eq!(kinds(&live(vec![slow])), [LiveKind::WaitsForDisk]);
    assert_eq!(kinds(&live(vec![])), [LiveKind::NotEnough]);
    let short = Live { samples: 3, ..live(vec![thread(1, 90, 0, &[("ready", 100)])]) };
    assert!(said(&short).starts_with("not enough to say"));
    let hidden = live(vec![thread(1, 40, 0, &[("asleep", 60), ("ready", 40)])]);
    let sentence = said(&hidden);
    assert!(sentence.contains("asleep 60%"), "{sentence}");
}

#[test]
fn a_stopped_server_waits_for_no_client() {
    let server = live((1..3).map(|tid| thread(tid, 0, 0, &[("stopped", 100)])).collect());
    assert_eq!(kinds(&server), [LiveKind::NotEnough]);
    assert!(said(&server).contains("a signal has stopped it"), "{}", said(&server));
}

#[test]
fn a_runtime_with_locks_of_its_own_is_not_said_to_wait_for_none() {
    let worker = |tid| thread(tid, 2, 0, &[("epoll_pwait", 98), ("ready", 2)]);
    let server = live(vec![worker(1), worker(2)]);
    assert!(said(&server).ends_with("not for a lock"), "{}", said(&server));
    let hidden = Unseen { what: runtime::WHAT.into(), ..Unseen::default() };
    let server = Live { unseen: vec![hidden], ..server };
    assert!(said(&server).ends_with("a lock of its runtime, which is not to be seen from outside"));
}

#[test]
fn threads_that_wait_until_a_table_has_grown_are_told_what_to_do() {
    let worker = |tid| {
        let thread = thread(tid, 30, 0, &[("file table", 60), ("ready", 40)]);
        LiveThread { lock_wait: 0.6, ..thread }
    };
    let server = live((1..5).map(worker).collect());
    assert_eq!(kinds(&server), [LiveKind::WaitsForLock]);
    assert!(said(&server).contains("grow it before the first thread starts"), "{}", said(&server));
}

#[test]
fn threads_that_change_the_memory_map_wait_for_a_lock_of_the_kernel() {
    let worker = |tid| {
        let thread = thread(tid, 30, 0, &[("memory map", 60), ("ready", 40)]);
        LiveThread { lock_wait: 0.6, ..thread }
    };
    let server = live((1..5).map(worker).collect());
    assert_eq!(kinds(&server), [LiveKind::WaitsForLock]);
    assert!(said(&server).contains("the process's memory map"), "{}", said(&server));
}
