//! The command `gate` as a build runs it: what it finds in a project that is not ours, and with
//! which status it ends. The shared writes of whole handshakes, which take a build of their own,
//! are held to `lab/budget.toml` by `./check --only counts`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use sealane_lab_model::document::Run;

/// A folder with a budget in it.
struct Gate {
    folder: tempfile::TempDir,
}

impl Gate {
    fn new(budget: &str) -> Self {
        let gate = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(
            gate.path("budget.toml"),
            budget.replace("FOLDER", gate.path("").to_str().unwrap()),
        )
        .unwrap();
        gate
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = crate::with_valgrind();
        command.args(["gate", "--budget", "budget.toml"]).current_dir(self.folder.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        told(&self.command().args(arguments).output().unwrap())
    }

    fn script(&self, name: &str, text: &str) {
        crate::write_program(&self.path(name), text);
    }
}

fn told(output: &Output) -> (Option<i32>, String) {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8_lossy(&all).into_owned())
}

fn example() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("examples/gate-elsewhere")
}

fn elsewhere(features: &[&str]) -> Gate {
    let gate = Gate::new(&fs::read_to_string(example().join("budget.toml")).unwrap());
    let mut build = Command::new("cargo");
    build.args(["test", "--offline", "--quiet", "--no-run", "--profile", "gate"]).args(features);
    build.arg("--manifest-path").arg(example().join("Cargo.toml"));
    // Not what the build of the lab says.
    build.env("CARGO_TARGET_DIR", gate.path("target")).env_remove("RUSTFLAGS");
    // This test may be told to take itself for a nightly one; what it builds is not.
    build.env_remove("RUSTC_BOOTSTRAP");
    assert!(build.status().unwrap().success(), "{build:?}");
    gate
}

#[test]
fn a_project_that_is_not_ours_keeps_its_budget() {
    let gate = elsewhere(&[]);
    let (status, text) = gate.run(&["--json", "run.json"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.ends_with("gate: 1 kept, 0 exceeded, 0 not counted\n"), "{text}");
    let run: Run = serde_json::from_slice(&fs::read(gate.path("run.json")).unwrap()).unwrap();
    assert!(run.complete && run.gates[0].kept, "{:?}", run.gates);
    let writes = run.gates[0].figures.iter().find(|it| it.figure == "shared writes").unwrap();
    assert!(writes.counted.abs() < 1e-9, "{writes:?}");
}

#[test]
fn one_clone_more_breaks_it_and_is_named_with_its_place() {
    let gate = elsewhere(&["--features", "slower"]);
    let (status, text) = gate.run(&["--only", "one hit"]);
    assert_eq!(status, Some(1), "{text}");
    let source = fs::read_to_string(example().join("src/lib.rs")).unwrap();
    let line = 1 + source.lines().position(|line| line.contains("let _kept")).unwrap();
    for wanted in [
        "2 shared writes per operation are more than the budget of 0 (budget.toml:3, \"one hit\")",
        "a new line, which no [[test.line]] names: memory written by clone",
        "class reference-count, in hits-",
        "hit_counter::Counter::hit",
        &format!("src/lib.rs:{line}"),
        "gate: 0 kept, 1 exceeded, 0 not counted",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
}

/// One lock of Rust's and one of the C library per operation, shared by two threads.
const LOCKS: &str = r#"
use std::{sync::{Barrier, Mutex, RwLock}, thread, env};
static SUM: Mutex<u64> = Mutex::new(0);
static NAMES: RwLock<u64> = RwLock::new(7);
#[inline(never)]
fn add(what: u64) {
    *SUM.lock().unwrap() += what + *NAMES.read().unwrap();
}
fn main() {
    let operations: u64 = env::var("SEALANE_GATE_OPERATIONS").unwrap().parse().unwrap();
    let both = Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                both.wait();
                (0..operations / 2).for_each(add);
            });
        }
    });
}
"#;

#[test]
fn locks_inside_a_rust_binary_are_counted_and_placed() {
    let gate = Gate::new(
        "[[test]]\nname = \"sum\"\nbinary = \"FOLDER/lock*\"\noperations = 500\nmutexes_max = 0.9\n\
         read_locks_max = 1\nwrite_locks_max = 0\nwrites_max = 100\n",
    );
    fs::write(gate.path("main.rs"), LOCKS).unwrap();
    let mut build = Command::new("rustc");
    build.args(["-O", "-C", "debuginfo=1", "--edition=2024", "-o"]).arg(gate.path("locks"));
    assert!(build.arg(gate.path("main.rs")).status().unwrap().success());
    let (status, text) = gate.run(&[]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("1 mutexes per operation are more than the budget of 0.9"), "{text}");
    assert!(text.contains("1 mutexes of main::SUM (locks)"), "{text}");
    assert!(text.contains("main.rs:7"), "{text}");
    assert!(!text.contains("read locks per operation are more"), "{text}");
    assert!(!text.contains("write locks per operation are more"), "{text}");
}

const THREADS: &str = r#"
#include <pthread.h>
#include <stdlib.h>
static _Alignas(64) pthread_mutex_t cache = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(64) pthread_rwlock_t names = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t both;
static long operations;
__attribute__((noinline)) void look_up(void) {
  pthread_mutex_lock(&cache);
  pthread_mutex_unlock(&cache);
  pthread_rwlock_rdlock(&names);
  pthread_rwlock_unlock(&names);
}
static void *serve(void *argument) {
  pthread_barrier_wait(&both);
  for (long i = 0; i < operations / 2; i++) look_up();
  return argument;
}
int main(void) {
  pthread_t threads[2];
  operations = atol(getenv("SEALANE_GATE_OPERATIONS"));
  pthread_barrier_init(&both, NULL, 2);
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, serve, NULL);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  return 0;
}
"#;

#[test]
fn locks_of_the_c_library_are_counted_with_their_call_path() {
    let gate = Gate::new(
        "[[test]]\nname = \"c\"\nbinary = \"FOLDER/threads\"\noperations = 200\nmutexes_max = 0\n\
         read_locks_max = 1\nwrite_locks_max = 0\n",
    );
    fs::write(gate.path("threads.c"), THREADS).unwrap();
    let mut build = Command::new("cc");
    build.args(["-O1", "-g", "-fno-optimize-sibling-calls", "-pthread", "-o"]);
    build.arg(gate.path("threads")).arg(gate.path("threads.c"));
    assert!(build.status().unwrap().success());
    let (status, text) = gate.run(&[]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("1 mutexes of cache (threads)"), "{text}");
    assert!(
        text.contains("taken in look_up (threads)") && text.contains("called by serve (threads)"),
        "{text}"
    );
    assert!(!text.contains("read locks per operation are more"), "{text}");
}

#[test]
fn a_budget_that_is_none_is_refused_with_all_its_mistakes() {
    let gate = Gate::new("[[test]]\nname = \"a\"\nbinray = \"x\"\nwrites_max = \"none\"\n");
    let (status, text) = gate.run(&[]);
    assert_eq!(status, Some(2), "{text}");
    for line in ["budget.toml:1: ", "budget.toml:3: ", "budget.toml:4: "] {
        assert!(text.contains(line), "no {line} in {text}");
    }
    let gate = Gate::new("[[test]]\nname = \"a\"\nbinary = \"x\"\nwrites_max = 0\n");
    let (status, text) = gate.run(&["--only", "b"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("nothing is called \"b\"; there is \"a\""), "{text}");
    let (status, text) = told(&gate.command().current_dir("/").output().unwrap());
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("budget.toml"), "{text}");
}

#[test]
fn what_cannot_be_counted_says_why() {
    let gate = Gate::new(
        "[[test]]\nname = \"fails\"\nbinary = \"FOLDER/fails\"\nwrites_max = 0\n\
         [[test]]\nname = \"deaf\"\nbinary = \"true\"\nwrites_max = 0\n\
         [[test]]\nname = \"absent\"\nbinary = \"FOLDER/absent-*\"\nwrites_max = 0\n",
    );
    gate.script("fails", "echo it went wrong; exit 3");
    let (status, text) = gate.run(&[]);
    assert_eq!(status, Some(3), "{text}");
    for wanted in [
        "it went wrong",
        "Did it read SEALANE_GATE_OPERATIONS?",
        "absent-* is missing; run: cargo test --no-run",
        "gate: 0 kept, 0 exceeded, 3 not counted",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
}

#[test]
fn a_stack_s_locks_are_held_to_their_limits() {
    let gate = Gate::new(
        "[[stack]]\nname = \"locks\"\nstack = \"openssl\"\nserver_read_locks_max = 0\n\
         client_read_locks_max = 1000000\n",
    );
    let (status, text) = gate.run(&[]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("read locks of the server per handshake are more than"), "{text}");
    assert!(text.contains("taken in ") && text.contains("libcrypto"), "{text}");
}

/// A server that everybody has, with one thread. It reads no certificate authorities, which would
/// take valgrind longest.
const OPENSSL: &str = "[[server]]\nname = \"s_server\"\ncommand = [\"openssl\", \"s_server\", \
     \"-quiet\", \"-accept\", \"127.0.0.1:{port}\", \"-cert\", \"{cert}\", \"-key\", \"{cert}\", \
     \"-no-CAfile\", \"-no-CApath\", \"-no-CAstore\"]\nconnections = 2\nat_once = 1\n";

#[test]
fn a_server_keeps_its_budget() {
    let gate = Gate::new(&format!(
        "{OPENSSL}instructions_max = 100_000_000\nread_locks_max = 100_000\nmutexes_max = 10_000\n"
    ));
    let (status, text) = gate.run(&["--json", "run.json"]);
    assert_eq!(status, Some(0), "{text}");
    let run: Run = serde_json::from_slice(&fs::read(gate.path("run.json")).unwrap()).unwrap();
    let counted =
        |figure: &str| run.gates[0].figures.iter().find(|it| it.figure == figure).unwrap().counted;
    // A key exchange and a signature take more, all of it together far less.
    assert!((100_000.0..50_000_000.0).contains(&counted("instructions")), "{:?}", run.gates);
    assert!(counted("read locks") > 0.0, "{:?}", run.gates);
}

#[test]
fn a_server_that_resumes_nothing_is_not_counted_as_one_that_does() {
    let silent = OPENSSL.replace("\"-quiet\"", "\"-quiet\", \"-num_tickets\", \"0\"");
    let limits = "kind = \"ticket\"\nread_locks_max = 100_000\n";
    let (status, text) = Gate::new(&format!("{OPENSSL}{limits}")).run(&[]);
    assert_eq!(status, Some(0), "{text}");
    let (status, text) = Gate::new(&format!("{silent}{limits}")).run(&[]);
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("resumed no session, as kind = \"ticket\" asks for"), "{text}");
}

#[test]
fn a_server_s_locks_that_exceed_its_budget_are_told_with_where_they_are_taken() {
    let gate = Gate::new(&format!("{OPENSSL}read_locks_max = 1\nwrite_locks_max = 10_000\n"));
    let (status, text) = gate.run(&[]);
    assert_eq!(status, Some(1), "{text}");
    for wanted in [
        "read locks per connection are more than the budget of 1 (budget.toml:1, \"s_server\")",
        " read locks ",
        "taken in ",
        "(libcrypto.so",
        "gate: 0 kept, 1 exceeded, 0 not counted",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    assert!(!text.contains("write locks per connection are more"), "{text}");
}

#[test]
fn a_server_that_cannot_be_counted_says_why() {
    let gate = Gate::new(
        "[[server]]\nname = \"gone\"\n\
         command = [\"sh\", \"-c\", \"setsid sleep 600 & echo bye >&2\"]\n\
         mutexes_max = 0\n\
         [[server]]\nname = \"ends\"\n\
         command = [\"sh\", \"-c\", \"echo no such file >&2; exit 3\"]\n\
         mutexes_max = 0\n\
         [[server]]\nname = \"absent\"\ncommand = [\"no-such-server\"]\nmutexes_max = 0\n",
    );
    let (status, text) = gate.run(&[]);
    assert_eq!(status, Some(3), "{text}");
    for wanted in [
        "gone went to the background: keep it in the foreground",
        "bye",
        "ends ended too early, with exit status: 3",
        "no such file",
        "no-such-server is missing; run: apt-get install no-such-server",
        "gate: 0 kept, 0 exceeded, 3 not counted",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
}

#[test]
#[ignore = "a memory trace of a server takes minutes on a busy machine"]
fn a_server_with_one_thread_shares_nothing() {
    let gate = Gate::new(&format!("{OPENSSL}writes_max = 0\n"));
    let (status, text) = gate.run(&[]);
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("nearly all connections of s_server went to one thread"), "{text}");
    assert!(text.contains("limit instructions_max and mutexes_max instead"), "{text}");
}

#[test]
fn ctrl_c_ends_it_with_a_status_of_its_own() {
    let gate = Gate::new("[[test]]\nname = \"a\"\nbinary = \"FOLDER/long\"\nwrites_max = 0\n");
    let begun = gate.path("begun");
    gate.script("long", &format!("echo > {}; while :; do :; done", begun.display()));
    let mut child =
        gate.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the lab");
    while !begun.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        thread::yield_now();
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// Two threads with one file table, and two processes with one each, which do the same.
const TABLES: &str = r#"
[[server]]
name = "threads"
command = ["haproxy", "-db", "-f", "{folder}/haproxy.cfg"]
load = "echo"
connections = 4
at_once = 1
shared_table_writes_max = 0
[server.files]
"haproxy.cfg" = """
global
  nbthread 2
defaults
  mode tcp
  timeout connect 30s
  timeout client 30s
  timeout server 30s
frontend lab
  bind 127.0.0.1:{port} ssl crt {cert}
  default_backend lab
backend lab
  server one {backend}
"""

[[server]]
name = "processes"
command = ["nginx", "-p", "{folder}", "-c", "{folder}/nginx.conf"]
connections = 4
at_once = 1
shared_table_writes_max = 0
[server.files]
"nginx.conf" = """
daemon off;
worker_processes 2;
pid nginx.pid;
error_log error.log;
events {}
http {
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {
    listen 127.0.0.1:{port} ssl reuseport;
    ssl_protocols TLSv1.3;
    ssl_certificate {cert};
    ssl_certificate_key {cert};
    ssl_session_tickets off;
  }
}
"""
"#;

#[test]
fn one_file_table_for_two_threads_breaks_its_budget_and_one_for_each_keeps_it() {
    let gate = Gate::new(TABLES);
    let (status, text) = gate.run(&["--json", "run.json"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.ends_with("gate: 1 kept, 1 exceeded, 0 not counted\n"), "{text}");
    let run: Run = serde_json::from_slice(&fs::read(gate.path("run.json")).unwrap()).unwrap();
    let [threads, processes] = [0, 1].map(|at| run.gates[at].table.as_ref().unwrap());
    let each = |call: &str| {
        let found = threads.calls.iter().find(|it| it.call == call);
        found.map_or(0, |it| it.per_connection)
    };
    // It closes the client's connection and the one to the backend.
    assert_eq!([each("accept4"), each("socket"), each("close")], [1, 1, 2], "{threads:?}");
    assert_eq!((threads.threads, threads.apart), (2, 0), "{threads:?}");
    assert!(text.contains("of a table that is shared by 2 threads"), "{text}");
    assert_eq!((processes.shared, processes.per_connection), (0, 0), "{processes:?}");
    assert!(processes.apart >= 2, "{processes:?}");
}
