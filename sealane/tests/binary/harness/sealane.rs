//! Sealane as a process: started, read, signalled, stopped.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use sealane_reserved_port::ReservedPort;

use super::process::Process;
use super::{PATIENCE, wait_for};

/// A configuration file that a test writes, and may write again.
#[derive(Clone)]
pub struct Settings {
    pub lanes: usize,
    /// Further lines before the tables.
    pub more: String,
    /// Variables of the process's environment.
    pub environment: Vec<(String, String)>,
    /// Lines of the table `limits`.
    pub limits: String,
    pub listeners: Vec<ListenerSettings>,
    /// A folder for what strace(1) sees of the process, by its threads.
    pub trace_to: Option<PathBuf>,
}

/// One listener of it.
#[derive(Clone)]
pub struct ListenerSettings {
    pub name: String,
    pub address: SocketAddr,
    /// A unix socket that it listens on instead.
    pub socket: Option<PathBuf>,
    /// None where no TLS ends.
    pub certificates: Option<PathBuf>,
    pub backends: Vec<String>,
    /// Further lines of its table.
    pub more: String,
    /// The port of `address`, unless that was chosen otherwise.
    reserved: Arc<ReservedPort>,
}

impl ListenerSettings {
    /// A listener on a port of its own in front of one backend.
    pub fn new(name: &str, certificates: &Path, backend: &impl ToString) -> Self {
        let reserved = Arc::new(ReservedPort::on_loopback().unwrap());
        Self {
            name: name.into(),
            address: reserved.address(),
            socket: None,
            certificates: Some(certificates.into()),
            backends: vec![backend.to_string()],
            more: String::new(),
            reserved,
        }
    }

    /// Gives it a port of `address` that no other listener has.
    pub fn move_to(&mut self, address: IpAddr) {
        let reserved = Arc::new(ReservedPort::on(address).unwrap());
        self.address = reserved.address();
        self.reserved = reserved;
    }

    /// With further lines of its table.
    pub fn with(mut self, more: &str) -> Self {
        self.more = more.into();
        self
    }
}

impl Settings {
    pub fn new(listeners: Vec<ListenerSettings>) -> Self {
        let (more, limits, environment) = (String::new(), String::new(), Vec::new());
        // Of a whole suite, if that is asked for.
        let trace_to = std::env::var_os(TRACE_TO).map(PathBuf::from);
        Self { lanes: 2, more, environment, limits, listeners, trace_to }
    }

    /// Writes the file whole: beside its place, and then into it by renaming.
    pub fn write(&self, folder: &Path) {
        let mut text = format!(
            "lanes = {}\n{}\n[admin]\naddress = \"unix:{}\"\n[limits]\n{}\n",
            self.lanes,
            self.more,
            folder.join("admin.sock").display(),
            self.limits
        );
        for listener in &self.listeners {
            let address = match &listener.socket {
                Some(path) => format!("unix:{}", path.display()),
                None => listener.address.to_string(),
            };
            writeln!(text, "[[listener]]\nname = {:?}\naddress = {address:?}", listener.name)
                .unwrap();
            if !listener.backends.is_empty() {
                writeln!(text, "backends = {:?}", listener.backends).unwrap();
            }
            if let Some(certificates) = &listener.certificates {
                writeln!(text, "certificates = [{certificates:?}]").unwrap();
            }
            writeln!(text, "{}", listener.more).unwrap();
        }
        replace(&folder.join("sealane.toml"), &text);
    }
}

/// Writes a file as careful programs do, by renaming.
pub fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, path).unwrap();
}

/// A running Sealane.
pub struct Sealane {
    pub process: Process,
    folder: PathBuf,
    said: Arc<Mutex<Vec<String>>>,
}

impl Sealane {
    /// Starts it with `settings` in `folder` and waits until it is ready.
    pub fn start(folder: &Path, settings: &Settings) -> Self {
        let mut sealane = Self::launch(folder, settings, &PathBuf::from(BINARY));
        sealane.wait_until_said("serve: ready");
        sealane
    }

    /// Starts `binary` without waiting for it.
    pub fn launch(folder: &Path, settings: &Settings, binary: &Path) -> Self {
        let mut command = Command::new(binary);
        command.stdin(Stdio::null());
        Self::launch_by(folder, settings, command)
    }

    /// Starts it by `command`, which the arguments are added to, without waiting for it.
    pub fn launch_by(folder: &Path, settings: &Settings, mut command: Command) -> Self {
        super::raise_descriptor_limit();
        settings.write(folder);
        command.args(["serve", "--config"]).arg(folder.join("sealane.toml"));
        let mut command = traced(command, settings.trace_to.as_deref());
        command.envs(settings.environment.iter().cloned()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // What is passed on by it is the child's alone now.
        drop(command);
        let said = Arc::<Mutex<Vec<String>>>::default();
        let (stderr, lines) = (child.stderr.take().unwrap(), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        Self { process: Process::new(child), folder: folder.into(), said }
    }

    /// What it has said so far.
    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// How many lines that contain `text` it has said.
    pub fn count_said(&self, text: &str) -> usize {
        self.said().iter().filter(|line| line.contains(text)).count()
    }

    pub fn wait_until_said(&mut self, text: &str) {
        self.wait_until_said_times(text, 1);
    }

    pub fn wait_until_said_times(&mut self, text: &str, times: usize) {
        wait_for(&format!("{text:?} {times} times"), || {
            // Looked at first: whoever reads what it says has let go of that when all is read.
            let has_said_all = Arc::strong_count(&self.said) == 1;
            let found = self.count_said(text) >= times;
            if !found
                && has_said_all
                && let Some(status) = self.process.status()
            {
                panic!("sealane ended with {status} and said {:#?}", self.said());
            }
            found.then_some(())
        });
    }

    /// Waits until it has reloaded so often since it started, and lanes serve what was read.
    pub fn wait_until_reloaded(&mut self, times: usize) {
        self.wait_until_said_times("reload: reloaded", times);
        self.wait_until_lanes_serve();
    }

    /// Waits until every lane serves the generation that is published.
    pub fn wait_until_lanes_serve(&self) {
        self.wait_for_metrics("lanes serve what was read", |metrics| {
            let generation = metrics.sum("sealane_generation", &[]);
            let lines = metrics.0.lines();
            let lanes = lines.filter(|line| line.starts_with("sealane_lane_generation{")).count();
            metrics.sum("sealane_lane_generation", &[]) == lanes as u64 * generation
        });
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Drains, and fails unless that ends within a test's patience.
    pub fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.process.wait(PATIENCE).code()
    }

    /// All metrics, as they are now.
    pub fn metrics(&self) -> Metrics {
        Metrics(self.admin("/metrics"))
    }

    /// What the admin address answers.
    pub fn admin(&self, path: &str) -> String {
        let text = self.admin_answer(path);
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// The same, with its status and header, whatever that is.
    pub fn admin_answer(&self, path: &str) -> String {
        let mut stream = UnixStream::connect(self.folder.join("admin.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// A command that speaks to it.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(words).arg("--socket").arg(self.folder.join("admin.sock"));
        command
    }

    /// Waits until `holds` says so of the metrics; fails with `what`.
    pub fn wait_for_metrics(&self, what: &str, holds: impl Fn(&Metrics) -> bool) -> Metrics {
        wait_for(what, || Some(self.metrics()).filter(&holds))
    }
}

/// The same command, under strace(1) if there is a folder for what that writes: a file for each
/// thread.
fn traced(command: Command, folder: Option<&Path>) -> Command {
    let Some(folder) = folder else { return command };
    std::fs::create_dir_all(folder).unwrap();
    let to = tempfile::Builder::new().prefix("trace").tempfile_in(folder).unwrap();
    let (_, path) = to.keep().unwrap();
    let mut by = Command::new("strace");
    // The tracer is the grandchild, so that the process has the number that is expected.
    by.args(["-D", "-ff", "-qq", "-o"]).arg(path);
    by.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        by.current_dir(folder);
    }
    by.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    by
}

/// The variable that names a folder for traces of all processes that a run of the tests starts.
pub const TRACE_TO: &str = "SEALANE_TRACE_TO";

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_sealane");

/// What `/metrics` answered.
pub struct Metrics(pub String);

impl Metrics {
    /// The sum of all samples of `name` that have all of `labels`.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let has_labels = |line: &str| {
            labels.iter().all(|(label, value)| {
                let pair = format!("{label}=\"{value}\"");
                line.contains(&format!("{{{pair}")) || line.contains(&format!(",{pair}"))
            })
        };
        let named =
            |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let mut samples = self.0.lines().filter(named).peekable();
        assert!(samples.peek().is_some(), "there is no metric {name} in\n{}", self.0);
        samples
            .filter(|line| has_labels(line))
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum()
    }

    /// How many connections ended by which cause, as text for a failed test.
    pub fn ends(&self) -> String {
        let ends = self.0.lines().filter(|line| line.starts_with("sealane_connections_ended"));
        let happened: Vec<_> = ends.filter(|line| !line.ends_with(" 0")).collect();
        happened.join("\n")
    }

    /// Connections that ended by `cause`.
    pub fn ended(&self, cause: &str) -> u64 {
        self.sum("sealane_connections_ended_total", &[("cause", cause)])
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.sum("sealane_connections", &[])
    }

    /// Handshakes that a lane completed.
    pub fn handshakes(&self, lane: usize) -> u64 {
        self.sum("sealane_handshakes_total", &[("lane", &lane.to_string())])
    }

    /// Handshakes that a lane resumed.
    pub fn resumed(&self, lane: usize, version: &str) -> u64 {
        let lane = lane.to_string();
        self.sum(
            "sealane_handshakes_total",
            &[("lane", &lane), ("version", version), ("resumed", "true")],
        )
    }
}
