//! A server while it runs: [`Running`].

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use sealane_lab_harness::{
    credentials::{Credentials, Side},
    process::Process,
    reserve,
};
use sealane_lab_model::{
    error::Error,
    scenario::{Group, Scenario, Version},
};
use sealane_reserved_port::ReservedPort;
use serde_json::json;

use crate::{
    node::{Case, Mode, NodeTask, mode::find_nginx},
    servers::{
        case::Profile,
        configuration::{Place, nginx_files},
    },
};

/// A server that ends with this.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) process: Process,
    log: PathBuf,
    is_node: bool,
    _reserved: ReservedPort,
}

impl Running {
    /// Starts the server, its files in `folder`, and waits until all of its processes listen.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn start(task: &NodeTask, folder: &Path) -> Result<Self, Error> {
        let reserved = reserve::port()?;
        let address = reserved.address();
        let is_node = task.mode != Mode::Nginx;
        let command = match is_node {
            true => node(task, address),
            false => nginx(task, folder, address)?,
        };
        let log = folder.join("log");
        let process = Process::start(command, &log)?;
        let mut running = Self { address, process, log, is_node, _reserved: reserved };
        running.wait("start", START_TIME_MAX, |running| match is_node {
            true => running.has_said("ready"),
            false => TcpStream::connect(address).is_ok(),
        })?;
        Ok(running)
    }

    /// Has Node collect its garbage: what is left is what is used.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn collect(&mut self) -> Result<(), Error> {
        if !self.is_node {
            return Ok(());
        }
        let before = self.times_said("collected");
        self.process.signal(Signal::USR2)?;
        let done = |running: &Self| running.times_said("collected") > before;
        self.wait("collect its garbage", COLLECT_TIME_MAX, done)
    }

    /// How many sessions Node has resumed so far, by its own count; nginx does not count them.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn resumed(&mut self) -> Result<Option<u64>, Error> {
        self.collect()?;
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let mut counts = text.lines().filter_map(|line| line.strip_prefix("resumed "));
        Ok(counts.next_back().and_then(|line| line.split(' ').next()?.parse().ok()))
    }

    fn wait(
        &mut self,
        what: &str,
        time_max: Duration,
        is_done: impl Fn(&Self) -> bool,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + time_max;
        while !is_done(self) {
            let reason = match self.process.runs() {
                false => "it ended".to_owned(),
                true if Instant::now() > deadline => format!("it did not {what} in {time_max:?}"),
                true => {
                    thread::sleep(POLL);
                    continue;
                }
            };
            return Err(Error::Start { reason, log: self.process.last_words() });
        }
        Ok(())
    }

    fn has_said(&self, word: &str) -> bool {
        self.times_said(word) > 0
    }

    fn times_said(&self, word: &str) -> usize {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter(|line| *line == word).count()
    }
}

/// What both ends of every connection are to agree on.
pub(super) fn scenario(case: Case) -> Scenario {
    Scenario {
        key: case.key(),
        version: Version::Tls13,
        group: Group::X25519,
        ..Scenario::default()
    }
}

fn node(task: &NodeTask, address: SocketAddr) -> Command {
    let credentials = Credentials::at(&task.credentials);
    let tls = match task.mode {
        Mode::Http => "none",
        _ if task.mode.is_sealane() => "sealane",
        _ => "node",
    };
    let settings = json!({
        "tls": tls,
        "h2": task.case == Case::H2,
        "processes": task.processes,
        // Connections that stand would stay where chance has put them.
        "even": matches!(task.case, Case::KeepAlive | Case::KeepAliveSweep),
        "lanes": task.lanes,
        "handover": task.mode.handover(),
        "package": task.package,
        "port": address.port(),
        "bodies": task.files.join(BODIES),
        "key": credentials.key(Side::Server),
        "cert": credentials.certificate(Side::Server),
        "ciphers": scenario(task.case).suite(),
        "group": "X25519",
        "ticketKeys": TICKET_KEYS,
        "blocked": task.case == Case::Blocked,
    });
    let mut command = Command::new(&task.node);
    command.arg("--expose-gc").arg(task.files.join(SCRIPT)).arg(settings.to_string());
    command
}

fn nginx(task: &NodeTask, folder: &Path, address: SocketAddr) -> Result<Command, Error> {
    let Scenario { key, version, group, .. } = scenario(task.case);
    let place = Place {
        folder,
        listen: address,
        backend: address, // there is none
        pem: &task.credentials.join(BOTH),
        many: None,
        profile: Profile { key, version, group },
        workers: usize::from(task.processes),
        connections_max: task.connections_max(),
    };
    let protocol = match task.case {
        Case::H2 => "ssl http2",
        _ => "ssl",
    };
    let file = folder.join("config");
    let text = nginx_files(&place, &task.files.join(BODIES), protocol);
    fs::write(&file, text).map_err(Error::file(&file))?;
    // Unlike Node's servers it does not look at its standard input, so that a shell does: it ends
    // even if the lab is killed.
    let script = "\"$0\" -p \"$1\" -c \"$2\" & server=$!; cat; kill $server; wait";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(find_nginx()?).arg(folder).arg(file);
    Ok(command)
}

/// Below the run's folder: what servers answer with.
pub(super) const BODIES: &str = "bodies";
/// Below the run's folder.
pub(super) const SCRIPT: &str = "server.js";
/// Beside the credentials: certificate, then key.
pub(super) const BOTH: &str = "both.pem";
/// 48 bytes; what they are does not matter.
const TICKET_KEYS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\
                           202122232425262728292a2b2c2d2e2f";
const START_TIME_MAX: Duration = Duration::from_secs(30);
const COLLECT_TIME_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
