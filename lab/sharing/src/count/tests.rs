//! The instruments on programs whose counts are known.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sealane_lab_harness::interrupt::Interrupt;
use sealane_lab_model::document::SharedLine;

use crate::count::{instructions, lines, locks, progress::Progress, run::Program};

const ROUNDS: u64 = 3;
const THREADS: u64 = 2;

/// Two threads; in each of [`ROUNDS`] rounds each thread, in the server's phase, takes one mutex,
/// adds to one atomic counter, adds to a counter of its own that shares a line with the other's,
/// writes what is its own, and allocates; in the client's it takes a lock to read. In the outside
/// phase it writes what is shared too, which does not count.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
_Alignas(4096) volatile char marks[4096]
    __asm__("_ZN19sealane_lab_harness5phase5MARKS17h0123456789abcdefE");
static __thread volatile char current;
static _Alignas(64) pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(64) pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static _Alignas(64) int references;
static _Alignas(64) volatile int beside[16];
static _Alignas(64) volatile int apart[2][16];
static _Alignas(64) volatile int outside;
static pthread_barrier_t barrier;
static void enter(int phase) { marks[64 * phase] = 1; current = phase; }
static void thing_up_ref(void) { __atomic_fetch_add(&references, 1, __ATOMIC_SEQ_CST); }
__attribute__((noinline)) void on_server(int me, int work) {
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
  thing_up_ref();
  beside[me] += 1;
  for (int i = 0; i < work; i++) apart[me][0] += 1;
  free(malloc(100));
}
__attribute__((noinline)) void on_client(void) {
  pthread_rwlock_rdlock(&lock);
  pthread_rwlock_unlock(&lock);
}
static int rounds, work;
static void *run(void *argument) {
  int me = argument != NULL;
  char name[64];
  snprintf(name, sizeof name, "SEALANE_LAB_PHASE=%lx", (unsigned long)&current);
  getenv(name);
  free(malloc(100));
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < rounds; i++) {
    enter(1);
    on_server(me, work);
    enter(2);
    on_client();
    enter(0);
    outside += 1;
  }
  return NULL;
}
int main(int count, char **arguments) {
  pthread_t threads[2];
  rounds = atoi(arguments[1]);
  work = count > 2 ? atoi(arguments[2]) : 1;
  pthread_barrier_init(&barrier, NULL, 2);
  for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, run, (void *)i);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  return 0;
}
"#;

fn built(folder: &Path) -> PathBuf {
    built_from(PROGRAM, folder)
}

fn built_from(text: &str, folder: &Path) -> PathBuf {
    let (source, binary) = (folder.join("program.c"), folder.join("program"));
    fs::write(&source, text).expect("a file");
    let mut compile = Command::new("cc");
    // Atomic operations in line, as compilers do on x86-64 and as arm64 does not by itself.
    compile.args(["-O1", "-g", "-pthread", "-o"]).arg(&binary).arg(&source);
    assert!(compile.status().expect("cc").success(), "cc failed");
    binary
}

fn program(binary: &Path, rounds: u64) -> Program {
    let arguments = vec![rounds.to_string().into()];
    Program { binary: binary.to_owned(), arguments, ..Program::default() }
}

fn go_on() -> Interrupt {
    Interrupt::default()
}

fn line<'a>(lines: &'a [SharedLine], symbol: &str) -> &'a SharedLine {
    let found = lines.iter().find(|line| line.symbol == symbol);
    found.unwrap_or_else(|| panic!("no line {symbol} in {lines:#?}"))
}

#[test]
fn each_shared_line_is_found_named_classed_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = program(&built(folder.path()), ROUNDS);
    let handshakes = ROUNDS * THREADS;
    let counted =
        lines::count(&program, handshakes, &go_on(), &Progress::start()).expect("valgrind counts");
    let lines = &counted.writes.lines;
    let per_round: Vec<_> = ["mutex", "references", "beside", "lock"]
        .into_iter()
        .map(|symbol| {
            let line = line(lines, symbol);
            assert_eq!(line.owner, "program", "{line:?}");
            (symbol, line.class.as_str(), line.writes.server, line.writes.client)
        })
        .collect();
    let expected = [
        // Lock and owner and count, and the same back.
        ("mutex", "lock", per_round[0].2, 0.0),
        ("references", "reference-count", 1.0, 0.0),
        ("beside", "global", 1.0, 0.0),
        ("lock", "lock", 0.0, per_round[3].3),
    ];
    assert_eq!(per_round, expected, "{lines:#?}");
    assert!(per_round[0].2 >= 2.0 && per_round[0].2.fract() == 0.0, "{per_round:?}");
    assert_eq!(per_round[3].3, 2.0, "an atomic addition each to take and to release");
    let others = lines.iter().filter(|line| line.class != "allocator").count();
    assert_eq!(others, expected.len(), "private and outside lines are no shared ones: {lines:#?}");
    let references = line(lines, "references");
    let writer = &references.writers[0];
    assert!(writer.starts_with("thing_up_ref in on_server"), "inlined, and named: {writer}");
}

#[test]
fn lock_calls_are_counted_by_lock_kind_side_and_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = program(&built(folder.path()), 1_000);
    let handshakes = 1_000 * THREADS;
    let counted =
        locks::count(&program, handshakes, folder.path(), &go_on()).expect("locks are counted");
    assert_eq!((counted.mutex.server, counted.mutex.client), (1.0, 0.0));
    assert_eq!((counted.read.server, counted.read.client), (0.0, 1.0));
    assert_eq!((counted.write.server, counted.write.client), (0.0, 0.0));
    assert_eq!(counted.shared, 2);
    let sites = locks::sites(&program, handshakes, folder.path(), &go_on()).expect("sites");
    let told: Vec<_> = sites
        .iter()
        .map(|site| (site.lock.as_str(), site.kind.as_str(), site.path[0].as_str()))
        .collect();
    assert!(told.contains(&("mutex (program)", "mutex", "on_server (program)")), "{told:?}");
    assert!(told.contains(&("lock (program)", "read", "on_client (program)")), "{told:?}");
    assert_eq!(told.len(), 2);
}

#[test]
fn instructions_are_those_between_two_lengths() {
    let folder = tempfile::tempdir().expect("a folder");
    let binary = built(folder.path());
    let counted = |work: &str| {
        let of = |rounds: u64| {
            let arguments = vec![rounds.to_string().into(), work.into()];
            Program { binary: binary.clone(), arguments, ..Program::default() }
        };
        let (short, long) = (of(10), of(20));
        let lengths = [(&short, 10 * THREADS), (&long, 20 * THREADS)];
        instructions::count("on_server", lengths, folder.path(), &go_on()).expect("callgrind")
    };
    let (few, many) = (counted("1000"), counted("2000"));
    // The loop's body is a few instructions, the same each time.
    let body = (many - few) / 1000.0;
    assert!((2.0..=8.0).contains(&body) && body.fract() == 0.0, "{few} {many}");
}

#[test]
fn a_program_that_fails_gives_its_words_and_no_figure() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("program");
    fs::write(&script, "#!/bin/sh\necho it went wrong >&2\nexit 3\n").expect("a file");
    let mut allow = Command::new("chmod");
    assert!(allow.arg("+x").arg(&script).status().expect("chmod").success());
    let program = program(&script, 1);
    let error = locks::count(&program, 1, folder.path(), &go_on()).expect_err("no counts");
    assert!(error.to_string().contains("it went wrong"), "{error}");
    let stopped = Interrupt::default();
    stopped.press();
    let error = locks::count(&program, 1, folder.path(), &stopped).expect_err("no counts");
    assert_eq!(error.to_string(), "interrupted");
}
