//! The command `compare`: real servers side by side on this machine, in interleaved rounds.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::CertificateDer;
use serde::Serialize;

use crate::{
    client::SERVER_NAME,
    error::Error,
    load::{self, Amount, Case, Target},
    process::Process,
    report::{Report, Row, load_average},
    request::Pattern,
    servers::{ENTRIES, Entry, Place, tls_library},
};

/// What the operator asked for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Settings {
    pub(crate) sealane: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) amount: Amount,
}

/// Measures everything. Rows that fail have a reason instead of figures.
pub(crate) fn run(settings: Settings) -> Result<Report, Error> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(Error::io("handle signals"))?;
    }
    raise_descriptor_limit(settings.amount.idle_connections)?;
    let folder = tempfile::tempdir().map_err(Error::io("temporary folder"))?;
    let pem = folder.path().join("localhost.pem");
    let authority = make_certificate(&pem)?;
    let mut comparison = Comparison {
        amount: settings.amount,
        sealane: settings.sealane.clone(),
        folder: folder.path(),
        pem,
        authority,
        pattern: Pattern::new(),
        interrupted: &interrupted,
        rows: ENTRIES.iter().map(|entry| Row::new(entry.name, entry.program)).collect(),
        progress: Progress::new(settings.rounds),
    };
    let load_before = load_average();
    for round in 0..settings.rounds {
        comparison.round(round)?;
    }
    let rows = comparison.rows;
    Ok(Report::new(settings, rows, [load_before, load_average()]))
}

struct Comparison<'a> {
    amount: Amount,
    sealane: PathBuf,
    folder: &'a Path,
    pem: PathBuf,
    authority: CertificateDer<'static>,
    pattern: Pattern,
    interrupted: &'a AtomicBool,
    /// As in [`ENTRIES`].
    rows: Vec<Row>,
    progress: Progress,
}

impl Comparison<'_> {
    /// Starts every server anew, so that no figure rests on one process's luck with its memory
    /// layout, and measures each case on all of them in turn.
    fn round(&mut self, round: usize) -> Result<(), Error> {
        let mut servers = Vec::new();
        for (index, entry) in ENTRIES.iter().enumerate() {
            if self.rows[index].failure.is_none() {
                match self.start(entry, index) {
                    Ok(server) => servers.push((index, server)),
                    Err(error) => self.fail(index, error)?,
                }
            }
        }
        if round % 2 == 1 {
            servers.reverse();
        }
        for case in Case::ALL {
            for (index, server) in &servers {
                let index = *index;
                if self.rows[index].failure.is_some() || !ENTRIES[index].cases.contains(&case) {
                    continue;
                }
                match self.measure(case, server) {
                    Ok(figure) => {
                        self.rows[index].figures.entry(case).or_default().push(figure);
                        self.progress.say(round, ENTRIES[index].name, case, figure);
                    }
                    Err(error) => self.fail(index, error)?,
                }
            }
        }
        Ok(())
    }

    fn fail(&mut self, index: usize, error: Error) -> Result<(), Error> {
        if matches!(error, Error::Interrupted) {
            return Err(error);
        }
        let row = &mut self.rows[index];
        let _ = writeln!(io::stderr(), "{}: {error}", row.name);
        row.fail(&error);
        Ok(())
    }

    fn start(&mut self, entry: &Entry, index: usize) -> Result<Server, Error> {
        let binary = entry.program.find(&self.sealane)?;
        let folder = self.folder.join(index.to_string());
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        let backend = Backend::start()?;
        let place = Place {
            folder: &folder,
            listen: free_address()?,
            backend: backend.address,
            pem: &self.pem,
            connections_max: self.amount.idle_connections + CONNECTIONS_SPARE,
        };
        let command = entry.command(&binary, &place)?;
        let process = Process::start(command, folder.join("log"))?;
        let mut server = Server { address: place.listen, process, _backend: backend };
        if let Err(error) = server.wait_until_ready(self) {
            let log = server.process.last_words();
            return Err(Error::Start { reason: error.to_string(), log });
        }
        let row = &mut self.rows[index];
        if row.version.is_empty() {
            row.version = entry.program.version(&binary);
            row.tls_library = tls_library(&server.process, &binary)?;
        }
        Ok(server)
    }

    fn measure(&self, case: Case, server: &Server) -> Result<f64, Error> {
        let (amount, target) = (&self.amount, self.target(server.address));
        let cpu = |work: &mut dyn FnMut() -> Result<(), Error>| {
            settle();
            let before = server.process.cpu()?;
            work()?;
            settle();
            Ok(server.process.cpu()?.since(&before)? as f64)
        };
        let memory = |work: &mut dyn FnMut() -> Result<(), Error>| {
            settle();
            let before = server.process.pss_bytes()?;
            work()?;
            settle();
            Ok(server.process.pss_bytes()? as f64 - before as f64)
        };
        let difference = match case {
            Case::Full => load::handshakes(&target, amount, false, cpu)?,
            Case::Resumed => load::handshakes(&target, amount, true, cpu)?,
            Case::Download => load::transfers(&target, amount, false, cpu)?,
            Case::Upload => load::transfers(&target, amount, true, cpu)?,
            Case::Idle => load::idle(&target, amount, memory)?,
        };
        Ok(case.per_unit(difference, amount))
    }

    fn target(&self, address: SocketAddr) -> Target<'_> {
        let Self { authority, pattern, interrupted, .. } = self;
        Target { address, authority, pattern, interrupted }
    }
}

/// A server under test and the backend behind it.
struct Server {
    address: SocketAddr,
    process: Process,
    _backend: Backend,
}

impl Server {
    fn wait_until_ready(&mut self, comparison: &Comparison<'_>) -> Result<(), Error> {
        let deadline = Instant::now() + Duration::from_millis(START_TIME_MAX_MS);
        while TcpStream::connect(self.address).is_err() {
            if !self.process.runs() {
                return Err(Error::Check("it ended".into()));
            }
            if Instant::now() > deadline {
                return Err(Error::Check(format!("nothing listens on {}", self.address)));
            }
            thread::sleep(Duration::from_millis(20));
        }
        load::warm_up(&comparison.target(self.address), WARM_UP_CONNECTIONS)
    }
}

/// The backend's process.
struct Backend {
    child: Child,
    address: SocketAddr,
}

impl Backend {
    fn start() -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(Error::io("find the lab's own binary"))?;
        let mut child = Command::new(program)
            .arg("backend")
            .process_group(0) // Ctrl-C is for the lab
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::io("start the backend"))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(Error::io("ask the backend"))?;
        }
        match line.trim().parse() {
            Ok(address) => Ok(Self { child, address }),
            Err(_) => Err(Error::Check(format!("the backend says no address but {line:?}"))),
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Progress on standard error, with the time left.
struct Progress {
    started: Instant,
    done: usize,
    all: usize,
    rounds: usize,
}

impl Progress {
    fn new(rounds: usize) -> Self {
        let cells: usize = ENTRIES.iter().map(|entry| entry.cases.len()).sum();
        Self { started: Instant::now(), done: 0, all: cells * rounds, rounds }
    }

    fn say(&mut self, round: usize, name: &str, case: Case, figure: f64) {
        self.done += 1;
        let left = self.all.saturating_sub(self.done) as f64 / self.done as f64;
        let seconds_left = self.started.elapsed().as_secs_f64() * left;
        let (number, rounds, decimals) = (round + 1, self.rounds, case.decimals());
        let _ = writeln!(
            io::stderr(),
            "round {number}/{rounds}  {:<24} {name:<22} {figure:>8.decimals$}   \
             {seconds_left:.0} s left",
            case.title()
        );
    }
}

/// An authority and a P-256 leaf; the leaf with its key goes to `pem`.
fn make_certificate(pem: &Path) -> Result<CertificateDer<'static>, Error> {
    let wrong = |error: rcgen::Error| Error::Check(format!("make a certificate: {error}"));
    let mut authority = CertificateParams::new(Vec::new()).map_err(wrong)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().map_err(wrong)?;
    let root = authority.self_signed(&authority_key).map_err(wrong)?;
    let issuer = Issuer::new(authority, authority_key);
    let leaf_key = KeyPair::generate().map_err(wrong)?;
    let leaf = CertificateParams::new(vec![SERVER_NAME.to_owned()])
        .and_then(|params| params.signed_by(&leaf_key, &issuer))
        .map_err(wrong)?;
    fs::write(pem, leaf.pem() + &leaf_key.serialize_pem()).map_err(Error::file(pem))?;
    Ok(root.der().clone())
}

fn free_address() -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("find a free port"))?;
    listener.local_addr().map_err(Error::io("find a free port"))
}

/// A server with one process holds two descriptors per connection, the lab one; children inherit.
fn raise_descriptor_limit(connections: u64) -> Result<(), Error> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let wanted = 2 * (connections + CONNECTIONS_SPARE) + DESCRIPTORS_SPARE;
    if maximum.is_some_and(|maximum| maximum < wanted) {
        return Err(Error::Check(format!(
            "this shell may open too few descriptors; run: ulimit -Hn {wanted}"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(|error| Error::io("raise the limit of descriptors")(error.into()))
}

/// Lets the server finish what the last connections left it to do.
fn settle() {
    thread::sleep(Duration::from_millis(SETTLE_MS));
}

const WARM_UP_CONNECTIONS: u64 = 50;
const CONNECTIONS_SPARE: u64 = 500;
const DESCRIPTORS_SPARE: u64 = 500;
const SETTLE_MS: u64 = 150;
const START_TIME_MAX_MS: u64 = 10_000;
