//! The runtime `asio`: compiles our C++ driver with the system's Asio and a libssl, once, and runs
//! it for each trial.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use sealane_lab_harness::{
    credentials::{Credentials, SERVER_NAME, Side},
    descriptors,
    native::Program,
    trial::BulkOutcome,
};
use sealane_lab_model::{
    document::BulkRound,
    error::Error,
    library::Identity,
    scenario::{Group, Key, Negotiated, Scenario, Version},
};
use serde::Deserialize;

use crate::{
    bulk::{
        sockets,
        task::{BulkTask, Emulation, Fault, FaultKind, Loops, Runtime, Verify, word},
    },
    compat::openssl_names,
    stacks::{cache, libssl},
};

/// A libssl, and headers that belong to it if they lie somewhere else than the system's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    /// The name on the command line.
    pub(crate) name: String,
    /// The file; `None` is what the compiler finds.
    pub(crate) path: Option<PathBuf>,
    /// The `include` folder of its headers.
    pub(crate) include: Option<PathBuf>,
}

impl Library {
    /// The libssl at `path`, with its headers in `include`, or beside it as builds put them.
    pub(crate) fn new(name: &str, path: Option<&Path>, include: Option<&Path>) -> Self {
        let beside = || {
            let folder = path?.parent()?;
            [folder.join("include"), folder.parent()?.join("include")]
                .into_iter()
                .find(|include| include.join("openssl/ssl.h").exists())
        };
        let include = include.map(Path::to_owned).or_else(beside);
        Self { name: name.to_owned(), path: path.map(Path::to_owned), include }
    }

    /// What the compiler is told, without source and output.
    fn flags(&self) -> Vec<String> {
        let mut flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend(self.include.iter().map(|include| format!("-I{}", include.display())));
        flags
    }

    fn libraries(&self) -> Vec<String> {
        let Some((path, folder)) =
            self.path.as_deref().and_then(|path| Some((path, path.parent()?)))
        else {
            return vec!["-lssl".into(), "-lcrypto".into()];
        };
        // libcrypto lies beside it, maybe with a version behind its name as libssl has.
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let crypto = folder.join(name.replacen("ssl", "crypto", 1));
        let crypto =
            if crypto.exists() { crypto.display().to_string() } else { "-lcrypto".to_owned() };
        vec![
            path.display().to_string(),
            crypto,
            format!("-L{}", folder.display()),
            format!("-Wl,-rpath,{},--disable-new-dtags", folder.display()),
        ]
    }
}

/// Names the package of the first thing that is not there.
fn check_installed(flags: &[String]) -> Result<(), Error> {
    let missing = |program: &str, package: &str| Error::Missing {
        program: program.to_owned(),
        remedy: format!("apt-get install {package}"),
    };
    let finds = |header: &str| {
        let mut command = Command::new(COMPILER);
        command.args(flags).args(["-E", "-x", "c++", "-include", header, "/dev/null"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    match finds("asio/version.hpp") {
        Err(_) => return Err(missing("the C++ compiler g++", "g++")),
        Ok(status) if !status.success() => {
            return Err(missing("Asio without Boost", "libasio-dev"));
        }
        Ok(_) => {}
    }
    match finds("openssl/ssl.h") {
        Ok(status) if status.success() => Ok(()),
        _ => Err(missing("OpenSSL's headers", "libssl-dev")),
    }
}

/// Carries everything once.
///
/// # Errors
/// What the driver says, or what differs from what was asked.
pub(crate) fn run(task: &BulkTask, library: &Library) -> Result<BulkOutcome, Error> {
    // Children inherit the limit.
    descriptors::allow(2 * task.connections as u64)?;
    let (flags, libraries) = (library.flags(), library.libraries());
    let driver = Program {
        name: "asio",
        title: "Asio's driver",
        file: "asio.cc",
        source: SOURCE,
        compiler: COMPILER,
        flags: &flags,
        libraries: &libraries,
    };
    let mut command = Command::new(driver.compiled(|| check_installed(&flags))?);
    command.args(arguments(task));
    let time_max = Duration::from_secs(task.seconds_max() + PATIENCE_S);
    let text = driver.output_of(command, time_max)?;
    let said: Said = serde_json::from_str(&text).map_err(|error| {
        Error::Check(format!("what Asio's driver printed is no result: {error}"))
    })?;
    let (server, client) = (said.server.words()?, said.client.words()?);
    let round = BulkRound {
        bytes: said.bytes_received,
        wall_ns: said.wall_ns,
        cpu_ns: said.cpu_ns,
        check_ns: said.check_ns,
        lock_calls: said.locks.values().sum(),
        locks: said.locks,
        migrated: said.migrated,
        threads: said.threads,
        ..BulkRound::default()
    };
    if said.bytes_sent != task.bytes() {
        let text = format!("{} bytes were sent, wanted {}", said.bytes_sent, task.bytes());
        return Err(Error::Check(text));
    }
    sockets::judge(task, &round, &server, &client)?;
    let sha256 = cache::sha256(Path::new(&said.path))?;
    let (name, build) = (library.name.clone(), String::new());
    let stack = Identity { name, version: said.library, path: said.path, sha256, build };
    let negotiated = Negotiated { group: client.group.or(server.group), ..server };
    let driver = Some(format!("Asio {}", version(said.asio)));
    Ok(BulkOutcome { stack, driver, negotiated, round })
}

/// The least that shows whether a library of an OpenSSL before 1.1.0 works: a message of one byte.
pub(crate) fn first_byte(stack: String, credentials: PathBuf) -> BulkTask {
    BulkTask {
        stack,
        runtime: Runtime::Asio,
        loops: Some(Loops::Shared),
        emulate: Emulation::None,
        scenario: Scenario { version: Version::Tls12, group: Group::P256, ..Scenario::default() },
        threads: 1,
        connections: 1,
        messages: 1,
        message_bytes: 1,
        verify: Verify::Compare,
        fault: None,
        processors: Vec::new(),
        credentials,
        include: None,
    }
}

/// `ASIO_VERSION` in people's form.
fn version(number: u32) -> String {
    format!("{}.{}.{}", number / 100_000, number / 100 % 1_000, number % 100)
}

fn arguments(task: &BulkTask) -> Vec<String> {
    let credentials = Credentials::at(&task.credentials);
    let path = |path: PathBuf| path.display().to_string();
    let fault = task.fault.map(|fault| word(&fault.kind));
    let Fault { connection, after_bytes, .. } = task.fault.unwrap_or(NO_FAULT);
    let processors: Vec<String> = task.processors.iter().map(ToString::to_string).collect();
    let pairs = [
        ("--threads", task.threads.to_string()),
        ("--connections", task.connections.to_string()),
        ("--messages", task.messages.to_string()),
        ("--size", task.message_bytes.to_string()),
        ("--loops", task.loops.as_ref().map(word).unwrap_or_default()),
        ("--verify", word(&task.verify)),
        ("--emulate", word(&task.emulate)),
        ("--fault", fault.unwrap_or_else(|| "none".to_owned())),
        ("--fault-connection", connection.to_string()),
        ("--fault-after", after_bytes.to_string()),
        ("--version", word(&task.scenario.version)),
        ("--suite", openssl_names(&task.scenario).1),
        ("--group", group_name(task.scenario.group).to_owned()),
        ("--client-groups", client_groups(&task.scenario)),
        ("--certificate", path(credentials.certificate(Side::Server))),
        ("--key", path(credentials.key(Side::Server))),
        ("--root", path(credentials.root())),
        ("--server-name", SERVER_NAME.to_owned()),
        ("--tickets", task.scenario.tickets.to_string()),
        ("--processors", processors.join(",")),
        ("--seconds-max", task.seconds_max().to_string()),
    ];
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

const NO_FAULT: Fault = Fault { kind: FaultKind::Reset, connection: 0, after_bytes: 0 };

/// The one group, and in TLS 1.2 the curve of the certificate's key: whoever verifies must know it.
fn client_groups(scenario: &Scenario) -> String {
    let curve = match scenario.key {
        Key::P256 => Some(Group::P256),
        Key::P384 => Some(Group::P384),
        Key::Ed25519 | Key::Rsa2048 | Key::Rsa4096 => None,
    };
    let verified = |curve: &Group| scenario.version == Version::Tls12 && *curve != scenario.group;
    let groups = [Some(scenario.group), curve.filter(verified)];
    groups.into_iter().flatten().map(group_name).collect::<Vec<_>>().join(":")
}

fn group_name(group: Group) -> &'static str {
    match group {
        Group::P256 => "P-256",
        Group::P384 => "P-384",
        Group::X25519 => "X25519",
        Group::X25519MlKem768 => "X25519MLKEM768",
    }
}

/// What the driver prints.
#[derive(Debug, Deserialize)]
struct Said {
    bytes_sent: u64,
    bytes_received: u64,
    wall_ns: u64,
    cpu_ns: u64,
    check_ns: u64,
    migrated: u64,
    threads: u64,
    /// Acquisitions in the transfer, by the lock's name.
    locks: BTreeMap<String, u64>,
    server: Agreed,
    client: Agreed,
    library: String,
    path: String,
    asio: u32,
}

/// What an end read back.
#[derive(Debug, Deserialize)]
struct Agreed {
    version: String,
    suite: String,
    /// The IANA number; 0: the library does not tell.
    group: u16,
    resumed: bool,
    peer_certificate: bool,
}

impl Agreed {
    fn words(&self) -> Result<Negotiated, Error> {
        let unknown = |what: &str| Error::Check(format!("Asio's driver negotiated {what}"));
        Ok(Negotiated {
            version: match self.version.as_str() {
                "TLSv1.3" => Version::Tls13,
                "TLSv1.2" => Version::Tls12,
                other => return Err(unknown(other)),
            },
            suite: self.suite.clone(),
            group: Some(self.group).filter(|number| *number != 0).map(libssl::group).transpose()?,
            resumed: self.resumed,
            peer_certificate: self.peer_certificate,
        })
    }
}

const SOURCE: &str =
    concat!(include_str!("../../../native/asio-locks.h"), include_str!("../../../native/asio.cc"));
const COMPILER: &str = "g++";
const FLAGS: [&str; 4] = ["-std=c++17", "-O2", "-DASIO_STANDALONE", "-pthread"];
/// What the driver may take beside its own limit: certificates, threads, digests.
const PATIENCE_S: u64 = 60;
