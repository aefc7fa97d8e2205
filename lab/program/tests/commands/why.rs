//! The command `why` for a process id, as people run it, on real servers: which verdict each gets,
//! with every tool and with none. Its figures are not looked at.

use std::{
    env, fs,
    io::Read,
    net::{SocketAddr, TcpStream},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use sealane_lab_model::document::{Live, LiveKind, Run};
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

#[test]
fn an_idle_nginx_waits_for_clients() {
    let server = nginx();
    for tools in [Tools::All, Tools::None] {
        let (live, text) = why(server.id(), &tools, &["--seconds", "1"]);
        assert_eq!(live.findings[0].kind, LiveKind::WaitsForClients, "{text}");
        assert!(text.contains("sleep in epoll_wait"), "{text}");
        assert_eq!(live.processes.len(), 3, "a master and two workers: {text}");
        assert!(!live.ended && live.threads.len() == 3, "{text}");
    }
}

/// Whatever a busy machine leaves it, it never waits for a lock, and its connections are counted.
#[test]
fn a_loaded_nginx_waits_for_no_lock_and_its_calls_are_counted() {
    let server = nginx();
    let load = Load::on(server.address());
    let (live, text) = why(server.id(), &Tools::All, &["--seconds", "2"]);
    drop(load);
    let kinds: Vec<LiveKind> = live.findings.iter().map(|finding| finding.kind).collect();
    assert!(!kinds.contains(&LiveKind::WaitsForLock), "{text}");
    assert!(!kinds.contains(&LiveKind::LockContention), "{text}");
    assert_ne!(kinds[0], LiveKind::NotEnough, "{text}");
    let calls = live.calls.expect(&text);
    assert!(calls.calls.iter().any(|call| call.call == "accept4" && call.count > 0), "{text}");
    let accepted: u64 = live.threads.iter().filter_map(|thread| thread.accepts).sum();
    assert!(accepted > 0, "{text}");
    let profile = live.profile.expect(&text);
    assert!(profile.samples > 0 && !profile.paths.is_empty(), "{text}");
    let owners: Vec<&str> = profile.functions.iter().map(|it| it.owner.as_str()).collect();
    assert!(owners.contains(&"libcrypto.so.3"), "{owners:?}");
}

/// Where bpftrace is not, `perf trace` counts; where that is not either, `strace`, if allowed.
#[test]
fn each_instrument_stands_in_for_the_one_before() {
    let server = nginx();
    let load = Load::on(server.address());
    let counted_by = |tools: &[&str], more: &[&str]| {
        let arguments = [&["--seconds", "2"], more].concat();
        let (live, text) = why(server.id(), &Tools::only(tools), &arguments);
        let calls = live.calls.map(|calls| {
            assert!(calls.calls.iter().any(|call| call.call == "accept4"), "{text}");
            calls.instrument
        });
        (calls, text)
    };
    let (by, text) = counted_by(&["perf"], &[]);
    assert_eq!(by.as_deref(), Some("perf trace"), "{text}");
    assert!(text.contains("bpftrace is missing\n    to allow it: apt-get install bpftrace"));
    let (by, text) = counted_by(&["strace"], &["--allow-slow"]);
    assert_eq!(by.as_deref(), Some("strace"), "{text}");
    let (by, text) = counted_by(&["strace"], &[]);
    assert_eq!(by, None, "it would slow the server");
    assert!(text.contains("--allow-slow"), "{text}");
    drop(load);
}

/// A handshake by one thread after another: OpenSSL's test server is one loop.
#[test]
fn openssl_s_server_under_load_is_one_loop_or_waits_for_clients() {
    let server = s_server();
    let load = Load::on(server.address());
    let expected = [LiveKind::SingleLoop, LiveKind::WaitsForClients];
    why_unless_starved(server.id(), &Tools::All, &["--seconds", "2"], &expected);
    drop(load);
    let idle_again = [LiveKind::WaitsForClients];
    why_unless_starved(server.id(), &Tools::None, &["--seconds", "1"], &idle_again);
}

#[test]
fn our_own_server_idle_waits_for_clients() {
    let server = sealane();
    let (live, text) = why(server.id(), &Tools::All, &["--seconds", "1"]);
    assert_eq!(live.findings[0].kind, LiveKind::WaitsForClients, "{text}");
    assert!(live.threads.iter().any(|thread| thread.name.starts_with("lane-")), "{text}");
}

#[test]
fn threads_on_one_mutex_wait_for_a_lock() {
    let child = own_child("child_on_one_mutex");
    let lock = [LiveKind::WaitsForLock];
    let arguments = ["--seconds", "2"];
    let (live, text) = why_unless_starved(child.id(), &Tools::All, &arguments, &lock);
    let futex = live.futex.expect(&text);
    assert!(futex.waits > Some(0), "{text}");
    // Where tracefs was not mounted until now, bpftrace may leave the count to perf, which knows no
    // addresses.
    assert!(futex.addresses.first().is_none_or(|address| address.threads > 1), "{text}");
    assert!(futex.paths.iter().any(|path| path.kind == "lock"), "{text}");
    // From /proc alone.
    why_unless_starved(child.id(), &Tools::None, &["--seconds", "2"], &lock);
}

#[test]
fn one_busy_thread_is_the_limit() {
    let child = own_child("child_with_one_busy_thread");
    for tools in [Tools::All, Tools::None] {
        let (live, text) = why(child.id(), &tools, &["--seconds", "2"]);
        assert_eq!(live.findings[0].kind, LiveKind::SingleLoop, "{text}");
    }
}

/// Parked threads sleep in the same system call as those that wait for a lock.
#[test]
fn a_pool_without_work_waits_for_no_lock() {
    let child = own_child("child_with_an_idle_pool");
    let (live, text) = why(child.id(), &Tools::None, &["--seconds", "1"]);
    assert_eq!(live.findings[0].kind, LiveKind::WaitsForThreads, "{text}");
}

/// Rust's condition counts its calls, and the word of a mutex is 2 while somebody waits.
#[test]
fn a_pool_that_was_called_twice_waits_for_no_lock() {
    let child = own_child("child_with_a_pool_that_was_called_twice");
    let (live, text) = why(child.id(), &Tools::None, &["--seconds", "1"]);
    assert_eq!(live.findings[0].kind, LiveKind::WaitsForThreads, "{text}");
}

#[test]
fn without_a_tool_it_says_what_it_could_not_see() {
    let child = own_child("child_with_an_idle_pool");
    let (live, text) = why(child.id(), &Tools::None, &["--seconds", "1"]);
    assert!(live.profile.is_none() && live.calls.is_none(), "{text}");
    for package in ["linux-perf", "bpftrace", "strace"] {
        assert!(live.unseen.iter().any(|it| it.remedy.contains(package)), "{package}: {text}");
    }
    assert!(text.contains("not seen:"), "{text}");
}

#[test]
fn a_target_that_ends_is_reported_as_far_as_it_was_seen() {
    let mut child = own_child("child_with_one_busy_thread");
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("why.json");
    let mut command = Tools::None.command(folder.path());
    command.arg(child.id().to_string()).args(["--seconds", "60", "--json"]).arg(&json);
    let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
    // It reads of nothing else so often.
    while read_calls(running.id()) < 2_000 {
        assert!(running.try_wait().unwrap().is_none());
        thread::yield_now();
    }
    child.stop();
    let mut text = String::new();
    running.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(running.wait().unwrap().success(), "{text}");
    assert!(text.contains("it ended meanwhile"), "{text}");
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(run.live[0].ended && !run.complete);
}

/// The instruments end with it, and the server lives on.
#[test]
fn ctrl_c_ends_the_instruments_and_not_the_server() {
    let mut child = own_child("child_on_one_mutex");
    let folder = tempfile::tempdir().unwrap();
    let mut command = Tools::All.command(folder.path());
    command.args([&child.id().to_string(), "--seconds", "60"]);
    let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut tools = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    // bpftrace first, then perf.
    while tools.len() < 2 {
        assert!(Instant::now() < deadline && running.try_wait().unwrap().is_none());
        tools = children(running.id());
        thread::yield_now();
    }
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    let mut text = String::new();
    running.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130), "{text}");
    assert!(text.starts_with("MEASURED"), "what was seen is told: {text}");
    for tool in tools {
        assert!(!Path::new(&format!("/proc/{tool}")).exists(), "instrument {tool} is still there");
    }
    assert!(child.process.try_wait().unwrap().is_none(), "the server must live");
}

#[test]
fn what_is_no_server_is_refused() {
    for (target, expected) in [
        ("4294967295", "there is none with this id"),
        ("2", "the kernel"),
        ("no-such-thing", "no stack is called no-such-thing"),
    ] {
        // In a container, number 2 may be anything.
        if target == "2" && !fs::read_to_string("/proc/2/comm").is_ok_and(|c| c == "kthreadd\n") {
            continue;
        }
        let output = lab().args(["why", target]).output().unwrap();
        let text = text(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_page_is_drawn_too() {
    let child = own_child("child_on_one_mutex");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("why.html");
    let html = page.to_str().unwrap();
    let (_, text) = why(child.id(), &Tools::All, &["--seconds", "2", "--html", html]);
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("<section id=\"live\""), "{text}");
    assert!(page.contains("it waits for a lock") && page.contains("<svg"), "{text}");
}

/// Started by `own_child`: four threads, one mutex, held for a while by each in turn.
#[test]
#[ignore = "a child of other tests"]
fn child_on_one_mutex() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    let mutex = Arc::new(Mutex::new(0_u64));
    for _ in 0..4 {
        let mutex = Arc::clone(&mutex);
        thread::spawn(move || {
            loop {
                let mut sum = mutex.lock().unwrap();
                for number in 0..20_000 {
                    *sum = std::hint::black_box(*sum ^ number);
                }
            }
        });
    }
    serve_until_killed();
}

/// The same processes as above: one of three threads does everything.
#[test]
#[ignore = "a child of other tests"]
fn child_with_one_busy_thread() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    thread::spawn(|| {
        let mut sum = 0_u64;
        loop {
            sum = std::hint::black_box(sum.wrapping_mul(3) ^ 1);
        }
    });
    serve_until_killed();
}

/// Four threads, parked.
#[test]
#[ignore = "a child of other tests"]
fn child_with_an_idle_pool() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    for _ in 0..4 {
        thread::spawn(|| {
            loop {
                thread::park();
            }
        });
    }
    serve_until_killed();
}

/// Four threads in a condition that has been told of work twice.
#[test]
#[ignore = "a child of other tests"]
fn child_with_a_pool_that_was_called_twice() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    let pool = Arc::new((Mutex::new(0), Condvar::new()));
    for _ in 0..4 {
        let pool = Arc::clone(&pool);
        thread::spawn(move || {
            let mut waits = pool.0.lock().unwrap();
            loop {
                *waits += 1;
                waits = pool.1.wait(waits).unwrap();
            }
        });
    }
    for all in [4, 8, 12] {
        while *pool.0.lock().unwrap() < all {
            thread::yield_now();
        }
        if all < 12 {
            pool.1.notify_all();
        }
    }
    serve_until_killed();
}

/// Says that all threads run; ends by itself if nobody ends it.
fn serve_until_killed() {
    println!("\nready");
    thread::sleep(CHILD_LIFE_MAX);
    std::process::exit(0);
}

/// This test's own program, as one of its children.
fn own_child(test: &str) -> Server {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &format!("why::{test}"), "--ignored", "--nocapture"]).env(CHILD, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    let mut output = process.stdout.take().unwrap();
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("\nready") {
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
    Server { process, reserved: None, _folder: None }
}

/// A server of a test; dropping it ends it.
struct Server {
    process: Child,
    reserved: Option<ReservedPort>,
    _folder: Option<TempDir>,
}

impl Server {
    fn address(&self) -> SocketAddr {
        self.reserved.as_ref().unwrap().address()
    }

    fn id(&self) -> u32 {
        self.process.id()
    }

    fn stop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while self.process.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                self.process.kill().unwrap();
            }
            thread::yield_now();
        }
    }

    /// Starts `command`, and waits until it accepts.
    fn start(mut command: Command, reserved: ReservedPort, folder: TempDir) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().expect("./check --only install brings it");
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(reserved.address()).is_err() {
            assert!(Instant::now() < deadline, "it does not accept");
            assert!(process.try_wait().unwrap().is_none(), "it ended");
            thread::sleep(Duration::from_millis(10));
        }
        Self { process, reserved: Some(reserved), _folder: Some(folder) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn nginx() -> Server {
    let (folder, reserved) = (credentials(), ReservedPort::on_loopback().unwrap());
    let file = folder.path().join("nginx.conf");
    let text = format!(
        "worker_processes 2;\ndaemon off;\npid nginx.pid;\nerror_log error.log;\n\
         events {{ worker_connections 64; }}\nhttp {{\n  access_log off;\n  server {{\n\
         listen {} ssl;\nssl_certificate certificate.pem;\nssl_certificate_key key.pem;\n\
         location / {{ return 200 \"x\"; }}\n  }}\n}}\n",
        reserved.address()
    );
    fs::write(&file, text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder.path()).arg("-c").arg(&file);
    command.env("PATH", format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap()));
    Server::start(command, reserved, folder)
}

fn s_server() -> Server {
    let (folder, reserved) = (credentials(), ReservedPort::on_loopback().unwrap());
    let mut command = Command::new("openssl");
    command.args([
        "s_server",
        "-quiet",
        "-www",
        "-accept",
        &reserved.address().to_string(),
        "-cert",
    ]);
    command.arg(folder.path().join("certificate.pem"));
    command.arg("-key").arg(folder.path().join("key.pem"));
    Server::start(command, reserved, folder)
}

fn sealane() -> Server {
    let (folder, reserved) = (credentials(), ReservedPort::on_loopback().unwrap());
    let whole = folder.path().join("whole.pem");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    fs::write(&whole, read("certificate.pem") + &read("key.pem")).unwrap();
    let mut command = Command::new(crate::servers::sealane());
    command.args(["serve", "--lanes", "2", "--listen", &reserved.address().to_string()]);
    let nobody = format!("unix:{}", folder.path().join("nobody").display());
    command.args(["--backend", &nobody, "--certificates"]).arg(whole);
    Server::start(command, reserved, folder)
}

/// A folder with `certificate.pem` and `key.pem`.
fn credentials() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    // nginx's workers are somebody else's.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(folder.path().join("certificate.pem"), signed.cert.pem()).unwrap();
    fs::write(folder.path().join("key.pem"), signed.signing_key.serialize_pem()).unwrap();
    folder
}

/// A client, until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn on(address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let mut command = lab();
                command.args(["connect", &address.to_string(), "--insecure", "--duration", "2"]);
                command.arg("--handshakes-only");
                command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// What `why` finds in its path.
enum Tools {
    All,
    None,
    Only(Vec<PathBuf>),
}

impl Tools {
    fn only(names: &[&str]) -> Self {
        let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap()).collect();
        let found = names.iter().map(|name| {
            let mut paths = folders.iter().map(|folder| folder.join(name));
            paths.find(|path| path.is_file()).expect("./check --only install brings it")
        });
        Self::Only(found.collect())
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = lab();
        command.arg("why");
        match self {
            Self::All => {}
            Self::None => {
                command.env("PATH", "");
            }
            Self::Only(paths) => {
                for path in paths {
                    symlink(path, folder.join(path.file_name().unwrap())).unwrap();
                }
                command.env("PATH", folder);
            }
        }
        command
    }
}

/// What `why` says of process `pid`, as a document and as text.
/// Looks until the verdict is one of `expected`. Where others take the processors each time, that
/// is the verdict, and a true one.
fn why_unless_starved(
    pid: u32,
    tools: &Tools,
    arguments: &[&str],
    expected: &[LiveKind],
) -> (Live, String) {
    let mut left = STARVED_LOOKS_MAX;
    loop {
        left -= 1;
        let (live, text) = why(pid, tools, arguments);
        let verdict = live.findings[0].kind;
        let is_starved = verdict == LiveKind::ProcessorsFull;
        assert!(is_starved || expected.contains(&verdict), "{expected:?}: {text}");
        if !is_starved || left == 0 {
            return (live, text);
        }
    }
}

const STARVED_LOOKS_MAX: u32 = 5;

fn why(pid: u32, tools: &Tools, arguments: &[&str]) -> (Live, String) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("why.json");
    let mut command = tools.command(folder.path());
    let output =
        command.arg(pid.to_string()).args(arguments).arg("--json").arg(&json).output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let mut run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    (run.live.remove(0), text)
}

/// How often a process has called read.
fn read_calls(of: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{of}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: "));
    line.and_then(|count| count.parse().ok()).unwrap_or_default()
}

fn children(of: u32) -> Vec<u32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn lab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const CHILD: &str = "SEALANE_WHY_CHILD";
const CHILD_LIFE_MAX: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(60);
