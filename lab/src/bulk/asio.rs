//! The runtime `asio`: compiles our C++ driver with the system's Asio and a libssl, once, and runs
//! it for each trial.
//!
//! The driver is kept in `$XDG_CACHE_HOME` (or `~/.cache`) under `sealane/asio-HASH`, where the
//! hash covers its source and the command that compiles it.

use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::{
    bulk::{
        sockets,
        task::{BulkOutcome, BulkTask, Emulate, Fault, FaultKind, Loops},
    },
    credentials::{Credentials, SERVER_NAME, Side},
    document::BulkRound,
    error::Error,
    scenario::{Cipher, Group, Key, Negotiated, Version},
    stack::Identity,
};

/// A libssl, and headers that belong to it if they lie somewhere else than the system's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    /// The name on the command line.
    pub(crate) name: String,
    /// The file; `None` is what the compiler finds.
    pub(crate) path: Option<PathBuf>,
    /// Its `include` folder.
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

/// Where the compiled driver for `library` is; compiles it if nobody has.
///
/// # Errors
/// [`Error::Missing`] names the package of what is not installed; else what the compiler says.
pub(crate) fn driver(library: &Library) -> Result<PathBuf, Error> {
    let (flags, libraries) = (library.flags(), library.libraries());
    let mut hash = Sha256::new();
    for part in
        [SOURCE, COMPILER].into_iter().chain(flags.iter().chain(&libraries).map(String::as_str))
    {
        hash.update(part);
        hash.update([0]);
    }
    let hash: String = hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = cache()?.join(format!("asio-{hash}"));
    let driver = folder.join("asio");
    if driver.exists() {
        return Ok(driver);
    }
    check_installed(&flags)?;
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    // Two trials may compile at once; each then puts a whole driver in place.
    let own = tempfile::tempdir_in(&folder).map_err(Error::file(&folder))?;
    let source = own.path().join("asio.cc");
    fs::write(&source, SOURCE).map_err(Error::file(&source))?;
    let made = own.path().join("asio");
    let mut command = Command::new(COMPILER);
    command.args(&flags).arg("-o").arg(&made).arg(&source).args(&libraries);
    compile(&mut command)?;
    fs::rename(&made, &driver).map_err(Error::file(&driver))?;
    Ok(driver)
}

fn cache() -> Result<PathBuf, Error> {
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(home)
        .map(|cache| cache.join("sealane"))
        .ok_or_else(|| Error::Unsupported("neither XDG_CACHE_HOME nor HOME is set".into()))
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

fn compile(command: &mut Command) -> Result<(), Error> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(Error::io("start the C++ compiler"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let tells = |line: &&str| line.contains("error") || line.contains("undefined reference");
    let first: Vec<&str> = said.lines().filter(tells).take(LINES_SHOWN).collect();
    Err(Error::Unsupported(format!(
        "Asio's driver does not compile with this libssl and its headers:\n{}",
        first.join("\n")
    )))
}

/// Carries everything once.
///
/// # Errors
/// What the driver says, or what differs from what was asked.
pub(crate) fn run(task: &BulkTask, library: &Library) -> Result<BulkOutcome, Error> {
    // Children inherit the limit.
    sockets::allow_descriptors(2 * task.connections)?;
    let driver = driver(library)?;
    let mut command = Command::new(&driver);
    command.args(arguments(task));
    let text = output_of(command, Duration::from_secs(task.seconds_max() + PATIENCE_S))?;
    let said: Said = serde_json::from_str(&text).map_err(|error| {
        Error::Check(format!("what Asio's driver printed is no result: {error}"))
    })?;
    let (server, client) = (said.server.words()?, said.client.words()?);
    let round = BulkRound {
        bytes: said.bytes_received,
        wall_ns: said.wall_ns,
        cpu_ns: said.cpu_ns,
        check_ns: said.check_ns,
        lock_calls: said.error_locks,
        migrated: said.migrated,
        threads: said.threads,
        ..BulkRound::default()
    };
    if said.bytes_sent != task.bytes() {
        let text = format!("{} bytes were sent, wanted {}", said.bytes_sent, task.bytes());
        return Err(Error::Check(text));
    }
    sockets::judge(task, &round, &server, &client)?;
    let file = fs::read(&said.path).map_err(Error::file(&said.path))?;
    let sha256 = Sha256::digest(file).iter().map(|byte| format!("{byte:02x}")).collect();
    let stack = Identity {
        name: library.name.clone(),
        version: said.library,
        path: said.path,
        sha256,
        build: String::new(),
    };
    let negotiated = Negotiated { group: client.group.or(server.group), ..server };
    let driver = Some(format!("Asio {}", version(said.asio)));
    Ok(BulkOutcome { stack, driver, negotiated, round })
}

/// `ASIO_VERSION` in people's form.
fn version(number: u32) -> String {
    format!("{}.{}.{}", number / 100_000, number / 100 % 1_000, number % 100)
}

fn arguments(task: &BulkTask) -> Vec<String> {
    let credentials = Credentials::at(&task.credentials);
    let path = |path: PathBuf| path.display().to_string();
    let fault = task.fault.map(|fault| fault.kind.name());
    let Fault { connection, after_bytes, .. } = task.fault.unwrap_or(NO_FAULT);
    let processors: Vec<String> = task.processors.iter().map(ToString::to_string).collect();
    let pairs = [
        ("--threads", task.threads.to_string()),
        ("--connections", task.connections.to_string()),
        ("--messages", task.messages.to_string()),
        ("--size", task.message_bytes.to_string()),
        ("--loops", task.loops.map_or("shared", Loops::name).to_owned()),
        ("--verify", task.verify.name().to_owned()),
        ("--emulate", task.emulate.map_or("none", |Emulate::ErrorLock| "error-lock").to_owned()),
        ("--fault", fault.unwrap_or("none").to_owned()),
        ("--fault-connection", connection.to_string()),
        ("--fault-after", after_bytes.to_string()),
        (
            "--version",
            if task.scenario.version == Version::Tls13 { "1.3" } else { "1.2" }.to_owned(),
        ),
        ("--suite", suite(task)),
        ("--group", group_name(task.scenario.group).to_owned()),
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

/// In OpenSSL's words.
fn suite(task: &BulkTask) -> String {
    let cipher = match task.scenario.cipher {
        Cipher::Aes128Gcm => "AES128-GCM-SHA256",
        Cipher::Aes256Gcm => "AES256-GCM-SHA384",
        Cipher::Chacha20Poly1305 => "CHACHA20-POLY1305",
    };
    match (task.scenario.version, task.scenario.key) {
        (Version::Tls13, _) => task.scenario.suite(),
        (Version::Tls12, Key::Rsa2048 | Key::Rsa4096) => format!("ECDHE-RSA-{cipher}"),
        (Version::Tls12, _) => format!("ECDHE-ECDSA-{cipher}"),
    }
}

fn group_name(group: Group) -> &'static str {
    match group {
        Group::P256 => "P-256",
        Group::P384 => "P-384",
        Group::X25519 => "X25519",
        Group::X25519MlKem768 => "X25519MLKEM768",
    }
}

/// Runs the driver, for a limited time, and returns what it printed.
fn output_of(mut command: Command, time_max: Duration) -> Result<String, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Error::io("start Asio's driver"))?;
    let (out, said) = (child.stdout.take(), child.stderr.take());
    let deadline = Instant::now() + time_max;
    // It prints a line at its end, which a pipe holds: nobody has to read meanwhile.
    let status = loop {
        if let Some(status) = child.try_wait().map_err(Error::io("wait for Asio's driver"))? {
            break status;
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::Check("Asio's driver did not end in time".into()));
        }
        thread::sleep(POLL);
    };
    if status.success() {
        return Ok(text_of(out));
    }
    let said = text_of(said);
    let said = said.lines().next().unwrap_or_default().trim_start_matches("asio: ").to_owned();
    Err(Error::Check(if said.is_empty() { format!("Asio's driver: {status}") } else { said }))
}

fn text_of(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    if let Some(pipe) = pipe {
        // What cannot be read is missing in a result that is checked.
        let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_string(&mut text);
    }
    text
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
    error_locks: u64,
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
            group: match self.group {
                0 => None,
                23 => Some(Group::P256),
                24 => Some(Group::P384),
                29 => Some(Group::X25519),
                0x11ec => Some(Group::X25519MlKem768),
                other => return Err(unknown(&format!("group {other}"))),
            },
            resumed: self.resumed,
            peer_certificate: self.peer_certificate,
        })
    }
}

const SOURCE: &str = include_str!("../../native/asio.cc");
const COMPILER: &str = "g++";
const FLAGS: [&str; 4] = ["-std=c++17", "-O2", "-DASIO_STANDALONE", "-pthread"];
/// Of what the compiler says.
const LINES_SHOWN: usize = 5;
const POLL: Duration = Duration::from_millis(5);
/// What the driver may print.
const OUTPUT_BYTES_MAX: u64 = 1 << 16;
/// What the driver may take beside its own limit: certificates, threads, digests.
const PATIENCE_S: u64 = 60;
