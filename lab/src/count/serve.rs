//! Counts of a running TLS server, [`Server`]: any program that listens, under valgrind, driven
//! over loopback by the lab's own client. The figures are the slope over N, 2N and 3N connections,
//! after a warm-up, so that what happens once, or by the clock, does not count.

mod load;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, Sender, TryRecvError},
    thread,
    time::{Duration, Instant},
};

pub(crate) use load::Load;

use crate::{
    count::{
        Tools, lines,
        locks::{self, Interposer, Rows},
        plain::{self, Counts},
        run::{self, Program, Run},
        serve::load::Client,
        slope::{self, LENGTHS, Length, Writer},
        symbols::Symbols,
        trace::Trace,
    },
    credentials::{Credentials, Side},
    document::{BySide, CountResult},
    error::Error,
    process,
    scenario::Scenario,
};

/// A server, how it is started and what is asked of it.
pub(crate) struct Server {
    /// In messages.
    pub(crate) name: String,
    /// The program and its arguments, in the foreground, with [placeholders](PLACEHOLDERS).
    pub(crate) command: Vec<String>,
    /// Its configuration files by name, with placeholders.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) load: Load,
    /// Of the client.
    pub(crate) scenario: Scenario,
    /// In the warm-up and in the shortest length; the others have twice and three times as many.
    pub(crate) connections: u64,
    /// Open at the same time.
    pub(crate) at_once: u64,
}

/// Counts shared writes of the binary `sealane`, with two lanes, in `scenario`.
///
/// # Errors
/// As [`Server::count`].
pub(super) fn sealane(
    binary: &Path,
    scenario: &Scenario,
    tools: &Tools,
) -> Result<CountResult, Error> {
    let binary = binary.canonicalize().map_err(|_| Error::Missing {
        program: format!("sealane ({})", binary.display()),
        remedy: "lab/build-for-counting".into(),
    })?;
    let mut command = vec![binary.display().to_string()];
    command.extend(SEALANE.map(str::to_owned));
    let server = Server {
        name: "sealane serve".into(),
        command,
        files: BTreeMap::new(),
        load: Load::Echo,
        scenario: scenario.clone(),
        connections: CONNECTIONS,
        at_once: 1,
    };
    let counts = server.count(false, tools)?;
    Ok(CountResult {
        stack: server.name,
        scenario: scenario.clone(),
        repeats: 1,
        instructions: Some(BySide { server: counts.instructions, client: 0.0 }),
        shared_writes: Some(counts.writes),
        ..CountResult::default()
    })
}

impl Server {
    /// Starts it, loads it and ends it; `with_locks` once more for each length, at its own speed.
    ///
    /// # Errors
    /// What stopped it, or that its threads cannot be compared.
    pub(crate) fn count(&self, with_locks: bool, tools: &Tools) -> Result<Counts, Error> {
        let lackey = lines::lackey()?;
        let (lengths, symbols) = self.traced(&lackey, tools)?;
        let step = self.connections as f64;
        let shared = lengths.each_ref().map(|length| &length.shared[..]);
        let grown = slope::grown(shared, step, Writer::Instruction, &symbols);
        let locks = match with_locks {
            true => {
                let [short, middle, long] =
                    self.lengths().map(|connections| self.locks(connections, tools));
                Some(plain::together(locks::slope(&[short?, middle?, long?], step), &grown))
            }
            false => None,
        };
        let instructions = slope::smaller_step(lengths.map(|length| length.instructions));
        Ok(Counts { writes: grown.writes, instructions: instructions as f64 / step, locks })
    }

    fn lengths(&self) -> [u64; LENGTHS] {
        [1, 2, 3].map(|times| times * self.connections)
    }

    /// What each length did, in one process.
    fn traced(
        &self,
        lackey: &[OsString],
        tools: &Tools,
    ) -> Result<([Length; LENGTHS], Symbols), Error> {
        let [short, middle, long] = self.lengths();
        let rounds = [self.connections, short, middle, long];
        let (program, client) = self.placed(tools)?;
        let mut run = Run::start(lackey, &program, &tools.stop)?;
        tools.progress.step(format!("{}: under valgrind", self.name));
        let (done, ends) = mpsc::channel();
        let (go, begin) = mpsc::channel();
        thread::spawn(move || {
            let result = client.drive(&rounds, &done, &begin);
            let _ = done.send(result);
        });
        let mut trace = Trace::without_marks();
        let followed = self.follow(&mut run, &mut trace, (&ends, &go), tools);
        let lengths = followed.map_err(|error| with_words(error, &trace))?;
        let symbols = Symbols::new(&run.maps().unwrap_or_default());
        run.terminate();
        let missing = |_| Error::Check("a round of connections is missing".into());
        let lengths = lengths.try_into().map_err(missing)?;
        Ok((lengths, symbols))
    }

    /// Reads the trace; whenever a round of connections is done and the server is quiet, the next
    /// one may begin.
    fn follow(
        &self,
        run: &mut Run,
        trace: &mut Trace,
        (ends, go): (&Receiver<Result<(), Error>>, &Sender<()>),
        tools: &Tools,
    ) -> Result<Vec<Length>, Error> {
        let mut buffer = vec![0; READ_BYTES];
        let mut lengths = Vec::new();
        let mut done_at: Option<Instant> = None;
        while lengths.len() <= LENGTHS {
            let mut is_quiet = done_at.is_some_and(|since| since.elapsed() > QUIET_TIME_MAX);
            if run.wait_for_bytes(QUIET)? {
                match run.read(&mut buffer)? {
                    0 => return Err(Error::Check(format!("{} ended too early", self.name))),
                    some => trace.feed(&buffer[..some])?,
                }
                tools.progress.trace(trace.read(), !lengths.is_empty(), None);
            } else {
                is_quiet = true;
            }
            if is_quiet && done_at.take().is_some() {
                self.must_be_one_process(run)?;
                let busiest = trace.take_busiest();
                self.must_share(&busiest)?;
                let instructions = busiest.iter().sum();
                lengths.push(Length { shared: trace.take_shared(), instructions });
                let _ = go.send(());
            }
            match ends.try_recv() {
                Ok(result) => result.map(|()| done_at = Some(Instant::now()))?,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
        }
        // The warm-up.
        lengths.remove(0);
        Ok(lengths)
    }

    /// No line is shared if one thread gets all connections.
    fn must_share(&self, busiest: &[u64]) -> Result<(), Error> {
        if busiest[1] * THREAD_SHARE_MAX >= busiest[0] {
            return Ok(());
        }
        Err(Error::Check(format!(
            "nearly all connections of {} went to one thread, so that nothing can be told of what \
             threads share. Does it have two (give it two workers or lanes)? If so the kernel \
             chose, try again, or with more connections",
            self.name
        )))
    }

    fn must_be_one_process(&self, run: &Run) -> Result<(), Error> {
        let processes = process::tree(run.id())?.len();
        if processes == 1 {
            return Ok(());
        }
        Err(Error::Check(format!(
            "{} runs as {processes} processes. A memory trace sees the threads of one, not what \
             processes share: start it with threads in one process",
            self.name
        )))
    }

    /// Lock calls of a run with a warm-up and so many connections more.
    fn locks(&self, connections: u64, tools: &Tools) -> Result<Rows, Error> {
        let (program, client) = self.placed(tools)?;
        let interposer = Interposer::new(tools.folder.path())?;
        let mut run = Run::start(&[], &interposer.in_all_of(program), &tools.stop)?;
        tools.progress.step(format!("{}: locks of {connections} connections", self.name));
        let (done, ends) = mpsc::channel();
        let (go, begin) = mpsc::channel();
        let rounds = [self.connections, connections];
        thread::spawn(move || {
            let result = client.drive(&rounds, &done, &begin);
            let _ = done.send(result);
        });
        for _ in rounds {
            loop {
                // Also whether the operator, or the clock, says to stop.
                run.wait_for_bytes(Duration::ZERO)?;
                match ends.recv_timeout(QUIET) {
                    Ok(result) => break result?,
                    Err(_) if run.has_ended()? => {
                        let words = run.words()?;
                        run.end(&words)?;
                        return Err(Error::Check(format!("{} ended too early", self.name)));
                    }
                    Err(_) => {}
                }
            }
            let _ = go.send(());
        }
        let process = run.id();
        run.terminate();
        run.words()?;
        interposer.rows_of(process)
    }

    /// The program with its files written and its ports chosen, and its client.
    fn placed(&self, tools: &Tools) -> Result<(Program, Client), Error> {
        let folder = tools.folder.path().join("serve");
        let credentials = Credentials::make(&folder, self.scenario.key)?;
        let pem_file = folder.join("server.pem");
        let mut pem = Vec::new();
        for file in [credentials.certificate(Side::Server), credentials.key(Side::Server)] {
            pem.extend(fs::read(&file).map_err(Error::file(file))?);
        }
        fs::write(&pem_file, pem).map_err(Error::file(&pem_file))?;
        let address = free_address()?;
        let backend = load::backend()?;
        let values = [
            address.port().to_string(),
            backend.to_string(),
            pem_file.display().to_string(),
            folder.display().to_string(),
        ];
        let filled = |text: &str| {
            PLACEHOLDERS.iter().zip(&values).fold(text.to_owned(), |text, (placeholder, value)| {
                text.replace(placeholder, value)
            })
        };
        for (name, text) in &self.files {
            let file = folder.join(name);
            fs::write(&file, filled(text)).map_err(Error::file(&file))?;
        }
        let config = load::config(&self.scenario, &credentials)?;
        let client = Client::new(&self.name, address, config, (self.load, self.at_once));
        let words: Vec<String> = self.command.iter().map(|word| filled(word)).collect();
        let (binary, arguments) = words
            .split_first()
            .ok_or_else(|| Error::Check(format!("{} has no command", self.name)))?;
        let program = Program {
            binary: found(binary)?,
            arguments: arguments.iter().map(Into::into).collect(),
            ..Program::default()
        };
        Ok((program, client))
    }
}

/// A program by its path, or by its name among those that are installed.
pub(crate) fn found(binary: &str) -> Result<PathBuf, Error> {
    if !binary.contains('/') {
        return run::installed(binary, binary);
    }
    Path::new(binary).canonicalize().map_err(|_| Error::Missing {
        program: binary.to_owned(),
        remedy: "whatever builds it".into(),
    })
}

fn with_words(error: Error, trace: &Trace) -> Error {
    match error {
        Error::Interrupted | Error::Missing { .. } => error,
        Error::Check(reason) => {
            Error::Check(format!("{reason}; its last words:\n{}", trace.words()))
        }
        other => Error::Check(format!("{other}; its last words:\n{}", trace.words())),
    }
}

fn free_address() -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("find a free port"))?;
    listener.local_addr().map_err(Error::io("find a free port"))
}

/// What the figures leave out.
pub(super) const NOTE: &str = "\
  per connection: handshake, one byte to the backend and back, end. The kernel's work, and what it
  shares, is not visible to valgrind.\n";
/// What stands in a command or a file for: the port to listen at, the address of a backend that
/// sends back what it gets, a file with a certificate and its key, the folder of the files.
pub(crate) const PLACEHOLDERS: [&str; 4] = ["{port}", "{backend}", "{cert}", "{folder}"];
const CONNECTIONS: u64 = 8;
/// No word of the trace for so long: the server waits for the next connection.
const QUIET: Duration = Duration::from_millis(150);
/// A server that is never quiet for so long works by the clock, which both lengths have alike.
const QUIET_TIME_MAX: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 256 * 1024;
const SEALANE: [&str; 9] = [
    "serve",
    "--lanes",
    "2",
    "--listen",
    "127.0.0.1:{port}",
    "--backend",
    "{backend}",
    "--certificates",
    "{cert}",
];
/// How many times the work of the second thread the first may do.
const THREAD_SHARE_MAX: u64 = 12;
