//! A server under test while it runs, [`Running`], with the plain backend behind it.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::{child::Child, interrupt::Interrupt, process::Process, reserve};
use sealane_lab_model::error::Error;
use sealane_reserved_port::ReservedPort;

use crate::servers::{
    case::Profile,
    configuration::{Many, Place},
    placement::Placement,
    programs::{Entry, Program},
};

/// A server under test and the backend behind it.
pub struct Running {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// The process, with all that it started.
    pub process: Process,
    _backend: Backend,
    _reserved: ReservedPort,
    /// The command line.
    pub command: Vec<String>,
    /// What its configuration sets for the sake of speed.
    pub(crate) settings: Vec<String>,
    /// From its start until it listened.
    pub(crate) listens_after: Duration,
    started: Instant,
}

/// What all servers of a round have in common.
#[derive(Clone, Copy)]
pub struct Circumstances<'a> {
    /// Certificate, then key.
    pub pem: &'a Path,
    /// Many certificates, instead of that one.
    pub many: Option<Many<'a>>,
    /// What servers offer.
    pub profile: Profile,
    /// Which processors are whose.
    pub placement: &'a Placement,
    /// Workers, threads or lanes of each.
    pub workers: usize,
    /// The most connections at once that one must hold.
    pub connections_max: u64,
    /// Ctrl-C, which ends the wait for a start.
    pub interrupted: &'a Interrupt,
}

impl Running {
    /// Starts backend and server, and waits until the latter listens.
    pub fn start(
        entry: &Entry,
        binary: &Path,
        folder: &Path,
        circumstances: Circumstances<'_>,
    ) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let backend = Backend::start()?;
        let Circumstances { pem, many, profile, placement, workers, connections_max, interrupted } =
            circumstances;
        let reserved = reserve::port()?;
        let (listen, behind) = (reserved.address(), backend.address);
        let place =
            Place { folder, listen, backend: behind, pem, many, profile, workers, connections_max };
        let command = entry.command(binary, &place)?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words = words.map(|word| shown(&word.to_string_lossy())).collect();
        let started = Instant::now();
        let log = folder.join("log");
        let mut process = placement.start(|| Process::start(command, &log))??;
        if entry.program == Program::Stunnel {
            process = process.with_passing_threads();
        }
        let mut running = Self {
            address: listen,
            process,
            _backend: backend,
            _reserved: reserved,
            command: words,
            settings: Entry::settings(folder),
            listens_after: Duration::ZERO,
            started,
        };
        running.wait_until_it_listens(interrupted)?;
        Ok(running)
    }

    /// Since its start.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The end of its output, for an error.
    pub fn did_not_start(&self, reason: &Error) -> Error {
        Error::Start { reason: reason.to_string(), log: self.process.last_words() }
    }

    fn wait_until_it_listens(&mut self, interrupted: &Interrupt) -> Result<(), Error> {
        let deadline = self.started + START_TIME_MAX;
        while TcpStream::connect(self.address).is_err() {
            if interrupted.is_pressed() {
                return Err(Error::Interrupted);
            }
            let reason = if !self.process.runs() {
                "it ended".to_owned()
            } else if Instant::now() > deadline {
                format!("nothing listens on {} after {START_TIME_MAX:?}", self.address)
            } else {
                thread::sleep(Duration::from_millis(POLL_MS));
                continue;
            };
            return Err(self.did_not_start(&Error::Check(reason)));
        }
        self.listens_after = self.age();
        Ok(())
    }
}

/// A word of a command line, by a path from here where that is shorter: what a document tells is
/// read on other machines.
fn shown(word: &str) -> String {
    let here = env::current_dir().unwrap_or_default();
    let inside = Path::new(word).strip_prefix(here).map(|path| path.display().to_string());
    inside.unwrap_or_else(|_| word.to_owned())
}

/// The backend's process.
pub(crate) struct Backend {
    /// The child ends with its input, too.
    _child: Child,
    address: SocketAddr,
}

impl Backend {
    fn start() -> Result<Self, Error> {
        let program = env::current_exe().map_err(Error::io("find the lab's own binary"))?;
        let mut command = Command::new(program);
        command.arg("backend").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Child::start(&mut command)?;
        let mut line = String::new();
        if let Some(stdout) = child.take_output() {
            BufReader::new(stdout).read_line(&mut line).map_err(Error::io("ask the backend"))?;
        }
        match line.trim().parse() {
            Ok(address) => Ok(Self { _child: child, address }),
            Err(_) => Err(Error::Check(format!("the backend says no address but {line:?}"))),
        }
    }
}

const POLL_MS: u64 = 5;
/// Some servers take minutes to read 10,000 certificates.
pub(crate) const START_TIME_MAX: Duration = Duration::from_secs(180);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_names_what_lies_here_by_a_path_from_here() {
        let here = env::current_dir().unwrap();
        let binary = here.join("target/release/sealane");
        assert_eq!(shown(&binary.to_string_lossy()), "target/release/sealane");
        assert_eq!(shown("/usr/sbin/haproxy"), "/usr/sbin/haproxy");
        assert_eq!(shown("-db"), "-db");
    }
}
