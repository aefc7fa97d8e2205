//! The servers that `contexts` starts and ends: Redis, and `mongo-java-server` behind the few lines
//! of ours in `lab/mongo`, both with TLS on a free port of this machine.

use std::{
    env, fs,
    io::ErrorKind,
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::{
    child::Child,
    credentials::{Credentials, SERVER_NAME, Side},
    reserve,
};
use sealane_lab_model::error::Error;
use sealane_reserved_port::ReservedPort;

use crate::contexts::target::{Protocol, Target};

/// One of them, which ends with this value.
pub(super) struct Server {
    /// Where it is.
    pub(super) target: Target,
    _process: Child,
    /// The port of a server that cannot be asked for any free one.
    _reserved: Option<ReservedPort>,
}

impl Server {
    /// Starts one that shows the server's certificate of `credentials`; its log goes to `folder`.
    ///
    /// # Errors
    /// [`Error::Missing`] names what must be installed or built; else what it printed.
    pub(super) fn start(
        protocol: Protocol,
        folder: &Path,
        credentials: &Credentials,
    ) -> Result<Self, Error> {
        match protocol {
            Protocol::Mongodb => mongodb(folder, credentials),
            Protocol::Redis => redis(folder, credentials),
            Protocol::Tls => Err(Error::Unsupported("tls has no server of its own".into())),
        }
    }
}

fn redis(folder: &Path, credentials: &Credentials) -> Result<Server, Error> {
    // Redis cannot be asked for any free port.
    let reserved = reserve::port()?;
    let port = reserved.address().port();
    let mut command = Command::new("redis-server");
    let files = [
        ("--tls-cert-file", credentials.certificate(Side::Server)),
        ("--tls-key-file", credentials.key(Side::Server)),
        ("--tls-ca-cert-file", credentials.root()),
        ("--dir", folder.to_owned()),
    ];
    command.args(["--bind", "127.0.0.1", "--port", "0", "--tls-port", &port.to_string()]);
    command.args(["--tls-auth-clients", "optional", "--save", "", "--appendonly", "no"]);
    for (name, file) in files {
        command.arg(name).arg(file);
    }
    let log = folder.join(format!("redis-{port}.log"));
    let process = start(command, &log, "redis-server", "apt-get install redis-server")?;
    wait(&process, || TcpStream::connect(reserved.address()).ok())?;
    let target = Target { protocol: Protocol::Redis, host: SERVER_NAME.to_owned(), port };
    Ok(Server { target, _process: process, _reserved: Some(reserved) })
}

fn mongodb(folder: &Path, credentials: &Credentials) -> Result<Server, Error> {
    let built = mongodb_folder().ok_or_else(|| Error::Missing {
        program: "the lab's server of MongoDB's protocol".into(),
        remedy: "mvn -q -f lab/mongo/pom.xml compile".into(),
    })?;
    let path = env::join_paths([built.join("classes"), built.join("dependency/*")])
        .map_err(|error| Error::Check(format!("{}: {error}", built.display())))?;
    let mut command = Command::new("java");
    command.arg("-cp").arg(path).arg(MAIN_CLASS);
    command.arg(credentials.certificate(Side::Server)).arg(credentials.key(Side::Server));
    let log = folder.join("mongodb.log");
    let remedy = "apt-get install default-jdk-headless";
    let process = start(command, &log, "java", remedy)?;
    // It prints its port as soon as it listens.
    let port = wait(&process, || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.strip_suffix('\n')?.parse().ok()
    })?;
    let target = Target { protocol: Protocol::Mongodb, host: SERVER_NAME.to_owned(), port };
    Ok(Server { target, _process: process, _reserved: None })
}

/// Whether the MongoDB server was built here.
pub(super) fn mongodb_is_built() -> bool {
    mongodb_folder().is_some()
}

/// In the target folder that this binary lies in.
fn mongodb_folder() -> Option<PathBuf> {
    let binary = env::current_exe().ok()?;
    let folders = binary.ancestors().skip(1).take(TARGET_DEPTH_MAX);
    let mut folders = folders.map(|folder| folder.join("mongo"));
    folders.find(|folder| folder.join("classes/sealane/Server.class").exists())
}

fn start(mut command: Command, log: &Path, program: &str, remedy: &str) -> Result<Child, Error> {
    Child::logged(&mut command, log).map_err(|error| match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            Error::Missing { program: program.to_owned(), remedy: remedy.to_owned() }
        }
        error => error,
    })
}

/// Polls `ready` until it has something, the process ends, or it takes too long.
fn wait<T>(process: &Child, mut ready: impl FnMut() -> Option<T>) -> Result<T, Error> {
    let deadline = Instant::now() + START_TIME_MAX;
    loop {
        let runs = process.runs();
        if let Some(found) = ready() {
            return Ok(found);
        }
        if !runs || Instant::now() > deadline {
            let reason = if runs { "it does not listen" } else { "it ended" };
            return Err(Error::Start { reason: reason.to_owned(), log: process.last_words() });
        }
        thread::sleep(POLL);
    }
}

const MAIN_CLASS: &str = "sealane.Server";
/// `target/debug/deps`, `target/count/count`, and `target` itself.
const TARGET_DEPTH_MAX: usize = 4;
/// Java on a machine that is busy.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
