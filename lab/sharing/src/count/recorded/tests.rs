//! Recordings of a program whose shared lines are known, under valgrind.

use std::{fs, path::Path, process::Command};

use sealane_lab_harness::interrupt::Interrupt;
use sealane_lab_model::recording::LockClass;

use super::*;
use crate::count::{lines, progress::Progress, run::Program};

const ROUNDS: u64 = 3;
const THREADS: u64 = 2;

/// Two threads; in each of [`ROUNDS`] rounds each touches, in the server's phase, once each of what
/// the variables' names say. `longjmp` leaves a function before one of the counters is counted.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
_Alignas(4096) volatile char marks[4096]
    __asm__("_ZN19sealane_lab_harness5phase5MARKS17h0123456789abcdefE");
static struct { _Alignas(64) pthread_mutex_t one; int between; } two_locks[1];
static _Alignas(64) struct { char before[56]; pthread_rwlock_t lock; } across
    = { .lock = PTHREAD_RWLOCK_INITIALIZER };
static _Alignas(64) struct { pthread_spinlock_t first, second; } spins;
static _Alignas(64) struct { pthread_mutex_t one; pthread_cond_t never; } waits_for[1];
static _Alignas(64) int references;
static _Alignas(64) int counted_after_a_jump;
static _Alignas(64) volatile int beside[16];
static _Alignas(64) volatile int together;
static _Alignas(64) volatile int told[16];
static _Alignas(64) volatile int untouched[16];
static volatile char *volatile moved, *volatile apart;
static int *volatile handed[2];
static pthread_barrier_t barrier;
static jmp_buf back[2];
static void enter(int phase) { marks[64 * phase] = 1; }
__attribute__((noinline)) void thing_up_ref(void) {
  __atomic_fetch_add(&references, 1, __ATOMIC_SEQ_CST);
}
__attribute__((noinline)) void leaves(int me) { longjmp(back[me], 1); }
__attribute__((noinline)) void count_it(void) {
  __atomic_fetch_add(&counted_after_a_jump, 1, __ATOMIC_SEQ_CST);
}
__attribute__((noinline)) void on_server(int me, volatile char *heap) {
  pthread_mutex_lock(&two_locks->one);
  two_locks->between += 1;
  pthread_mutex_unlock(&two_locks->one);
  pthread_rwlock_rdlock(&across.lock);
  pthread_rwlock_unlock(&across.lock);
  pthread_rwlock_wrlock(&across.lock);
  pthread_rwlock_unlock(&across.lock);
  pthread_spin_lock(&spins.first);
  pthread_spin_lock(&spins.second);
  pthread_spin_unlock(&spins.second);
  pthread_spin_unlock(&spins.first);
  pthread_mutex_lock(&waits_for->one);
  pthread_cond_timedwait(&waits_for->never, &waits_for->one, &(struct timespec){0});
  pthread_mutex_unlock(&waits_for->one);
  thing_up_ref();
  if (!setjmp(back[me])) leaves(me);
  count_it();
  beside[me] += 1;
  together += 1;
  // A value that is not used is not read under valgrind.
  if (me) told[0] += 1; else if (told[0] < 0) abort();
  heap[me] += 1;
  heap[2] += 1;
  apart[me] += 1;
}
// Each thread frees what the other one has used alone, and gets it in the next round.
__attribute__((noinline)) void hand_over(int me) {
  int *own = malloc(100);
  __atomic_fetch_add(own, 1, __ATOMIC_SEQ_CST);
  handed[me] = own;
  pthread_barrier_wait(&barrier);
  free(handed[!me]);
  pthread_barrier_wait(&barrier);
}
static void *run(void *argument) {
  int me = argument != NULL;
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < 3; i++) {
    enter(1);
    on_server(me, moved);
    hand_over(me);
    enter(0);
    untouched[0] += 1;
  }
  return NULL;
}
int main(void) {
  pthread_t threads[2];
  pthread_mutex_init(&two_locks->one, NULL);
  pthread_spin_init(&spins.first, 0);
  pthread_spin_init(&spins.second, 0);
  moved = aligned_alloc(64, 64);
  memset((char *)moved, 0, 64);
  apart = aligned_alloc(64, 64);
  memset((char *)apart, 0, 64);
  pthread_barrier_init(&barrier, NULL, 2);
  for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, run, (void *)i);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  return 0;
}
"#;

fn recorded(folder: &Path, how: &[&str]) -> Recording {
    let (source, binary) = (folder.join("program.c"), folder.join("program"));
    fs::write(&source, PROGRAM).expect("a file");
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-pthread"]).args(how).arg("-o").arg(&binary).arg(&source);
    assert!(compile.status().expect("cc").success(), "cc failed");
    let program = Program { binary, ..Program::default() };
    let go_on = Interrupt::default();
    let (_, recording) =
        lines::record(&program, ROUNDS * THREADS, folder, &go_on, &Progress::start())
            .expect("valgrind");
    recording
}

fn line<'a>(recording: &'a Recording, symbol: &str) -> (u32, &'a RecordedLine) {
    let found = recording.lines.iter().position(|line| line.symbol.contains(symbol));
    let at = found.unwrap_or_else(|| panic!("no line {symbol} in {:#?}", recording.lines));
    (u32::try_from(at).expect("few lines"), &recording.lines[at])
}

/// Events on the locks of `symbol`, in order, each with its lock.
fn lock_events(recording: &Recording, symbol: &str) -> Vec<(Event, u32)> {
    let steps = recording.steps.iter().filter(|step| is_on_lock(step.event));
    steps
        .filter(|step| recording.locks[step.place as usize].symbol == symbol)
        .map(|step| (step.event, step.place))
        .collect()
}

/// Names from the innermost outwards.
fn path(recording: &Recording, node: u32) -> Vec<&str> {
    recording.callers(node).map(|node| node.function.as_str()).collect()
}

#[test]
fn lines_are_classed_by_who_touches_which_of_their_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = recorded(folder.path(), &["-g"]);
    assert_eq!(recording.operations, ROUNDS);
    for (symbol, class, updates, stores) in [
        ("references", "reference-count", 1.0, 0.0),
        ("counted_after_a_jump", "global", 1.0, 0.0),
        ("beside", "false-sharing", 0.0, 1.0),
        ("together", "global", 0.0, 1.0),
        ("memory written by on_server", "false-sharing", 0.0, 1.0),
    ] {
        let (_, line) = line(&recording, symbol);
        let told = (line.class.as_str(), line.updates.server, line.stores.server);
        assert_eq!(told, (class, updates, stores), "{line:?}");
    }
    // Some C libraries give a spin lock back by a plain store.
    let (_, spins) = line(&recording, "spins");
    assert_eq!((spins.class.as_str(), spins.updates.server + spins.stores.server), ("lock", 4.0));
    let (_, told) = line(&recording, "told");
    assert_eq!(told.class, "read-shared");
    assert!(!recording.lines.iter().any(|line| line.symbol.contains("untouched")));
    let left_out: Vec<_> =
        recording.left_out.iter().map(|it| (it.reason.as_str(), it.lines)).collect();
    assert_eq!(left_out, [("recycled", 1)], "memory on the heap without an atomic write");
    let recycled = &recording.left_out[0];
    assert!((recycled.writes.server - 2.0).abs() < 1e-9, "{recycled:?}");
    let of_one_thread = |line: &&RecordedLine| line.symbol.contains("memory written by hand_over");
    assert_eq!(recording.lines.iter().find(of_one_thread), None, "memory that is used once");
    locks_are_told_apart(&recording);
    paths_survive_a_jump(&recording);
}

#[test]
fn what_is_linked_statically_and_without_a_line_table_is_told_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = recorded(folder.path(), &["-static"]);
    for (symbol, class) in [("references", "reference-count"), ("beside", "false-sharing")] {
        assert_eq!(line(&recording, symbol).1.class, class);
    }
    locks_are_told_apart(&recording);
    paths_survive_a_jump(&recording);
}

fn locks_are_told_apart(recording: &Recording) {
    let mutex = lock_events(recording, "two_locks");
    let once = [Event::MutexLock, Event::MutexUnlock];
    let events: Vec<_> = mutex.iter().map(|(event, _)| *event).collect();
    assert_eq!(events, once.repeat(3));
    assert_eq!(recording.locks[mutex[0].1 as usize].class, LockClass::Mutex);
    // One that lies across two lines: both are there, and it is one lock.
    let rwlock = lock_events(recording, "across");
    let once = [Event::ReadLock, Event::ReadUnlock, Event::WriteLock, Event::WriteUnlock];
    let events: Vec<_> = rwlock.iter().map(|(event, _)| *event).collect();
    assert_eq!(events, once.repeat(3));
    assert!(rwlock.iter().all(|(_, lock)| *lock == rwlock[0].1), "{rwlock:?}");
    let across = recording.lines.iter().filter(|line| line.symbol.contains("across"));
    assert_eq!(across.count(), 2);
    // Given back and taken again while it waits for a condition.
    let waits_for = lock_events(recording, "waits_for");
    let events: Vec<_> = waits_for.iter().map(|(event, _)| *event).collect();
    assert_eq!(events, [Event::MutexLock, Event::MutexUnlock].repeat(6));
    // Two in one line.
    let spins = lock_events(recording, "spins");
    let (first, second) = (spins[0].1, spins[1].1);
    assert_ne!(first, second);
    let once = [
        (Event::MutexLock, first),
        (Event::MutexLock, second),
        (Event::MutexUnlock, second),
        (Event::MutexUnlock, first),
    ];
    assert_eq!(spins, once.repeat(3));
    let line_of = |lock: u32| recording.locks[lock as usize].line;
    assert_eq!(line_of(first), line_of(second));
}

fn paths_survive_a_jump(recording: &Recording) {
    for (symbol, function) in [("references", "thing_up_ref"), ("counted_after", "count_it")] {
        let (number, _) = line(recording, symbol);
        let updates = recording.steps.iter().filter(|step| step.event == Event::Update);
        let paths: Vec<_> = updates
            .filter(|step| step.place == number)
            .map(|step| path(recording, step.path))
            .collect();
        assert_eq!(paths.len(), 3);
        for path in paths {
            assert!(path[0].starts_with(function) && path[1] == "on_server", "{path:?}");
        }
    }
}

#[test]
fn locks_without_their_other_half_become_updates() {
    let kept = |event, lock| Kept { at: 0, event, place: 0, lock, node: 0 };
    let events = [
        // A try that fails, and the one that does not.
        kept(Event::MutexLock, 0),
        kept(Event::MutexLock, 0),
        kept(Event::MutexUnlock, 0),
        kept(Event::MutexUnlock, 0),
        kept(Event::WriteLock, 1),
    ];
    let paired = |kept: &[Kept]| -> Vec<Event> {
        let mut kept = kept.to_vec();
        pair(&mut kept);
        kept.iter().map(|kept| kept.event).collect()
    };
    let expected =
        [Event::MutexLock, Event::MutexLock, Event::MutexUnlock, Event::MutexUnlock, Event::Update];
    assert_eq!(paired(&events), expected);
    let failed =
        [kept(Event::MutexLock, 0), kept(Event::MutexLock, 0), kept(Event::MutexUnlock, 0)];
    assert_eq!(paired(&failed), [Event::Update, Event::MutexLock, Event::MutexUnlock]);
}
