//! Counts of a running TLS server, [`Server`]: any program that listens, driven over loopback by
//! the lab's own client. The figures are the slope over N, 2N and 3N connections, so that what
//! happens once, or by the clock, does not count.
//!
//! ```text
//! locks         at its own speed, the interposer's tables read after each round
//! instructions  under lackey, one start for each length, the sum at its end
//! shared writes under lackey, one start, the memory trace of each process as it comes
//! ```

mod load;
mod names;
mod running;
mod traces;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use sealane_lab_harness::{
    child::Child,
    credentials::{Credentials, Side},
    programs, reserve,
};
use sealane_lab_model::{
    document::{BySide, CountResult, LockCounts},
    error::Error,
    scenario::Scenario,
};

pub(crate) use load::{Connections, Load, ProxyHeader};

use crate::count::{
    Tools,
    locks::{self, Interposer},
    plain::{self, Counts},
    run::Program,
    serve::{
        load::Client,
        running::{Placed, Running},
        traces::{Taken, Traces},
    },
    slope::{self, Grown, LENGTHS, Length, Writer},
    tables::Tables,
    threads::Work,
};

/// A server, how it is started and what is asked of it.
pub(crate) struct Server {
    /// In messages.
    pub(crate) name: String,
    /// The program and its arguments, in the foreground, with [placeholders](PLACEHOLDERS).
    pub(crate) command: Vec<String>,
    /// The configuration files by name, with placeholders.
    pub(crate) files: BTreeMap<String, String>,
    /// A program and its arguments, with placeholders, that runs before each start; may be empty.
    pub(crate) prepare: Vec<String>,
    /// How many names, each with a certificate, the client asks for in turn; 0 for `localhost`.
    pub(crate) names: u64,
    /// What the client asks for.
    pub(crate) scenario: Scenario,
    /// In the warm-up and in the shortest length; the others have twice and three times as many.
    pub(crate) connections: u64,
    pub(crate) each: Connections,
}

/// What is done with a server that runs: its first process, and what connects so often.
pub(crate) type AtWork<'a> =
    &'a mut dyn FnMut(u32, &mut dyn FnMut(u64) -> Result<(), Error>) -> Result<(), Error>;

/// What is counted of a server; the fewer, the faster.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub(crate) instructions: bool,
    pub(crate) locks: bool,
    pub(crate) writes: bool,
}

/// Counts shared writes of the binary `sealane`, with two lanes, in `scenario`; `with_tls` to a
/// backend in TLS too.
///
/// # Errors
/// Those of [`Server::count`].
pub(super) fn sealane(
    binary: &Path,
    scenario: &Scenario,
    (load, with_tls): (Load, bool),
    tools: &Tools,
) -> Result<CountResult, Error> {
    let binary = binary.canonicalize().map_err(|_| Error::Missing {
        program: format!("sealane ({})", binary.display()),
        remedy: "lab/build-for-counting".into(),
    })?;
    let config = [
        SEALANE,
        if with_tls { TLS_BACKEND } else { BACKEND },
        if scenario.client_certificate { CLIENTS } else { "" },
    ];
    let (connections, at_once) = match load.on_kept() {
        Some(_) => (OPERATIONS_KEPT, KEPT),
        None => (CONNECTIONS, 1),
    };
    let words = [&*binary.display().to_string(), "serve", "--config", "{folder}/sealane.toml"];
    let server = Server {
        name: "sealane serve".into(),
        command: words.map(str::to_owned).into(),
        files: [("sealane.toml".to_owned(), config.concat())].into(),
        prepare: Vec::new(),
        names: 0,
        scenario: scenario.clone(),
        connections,
        each: Connections { load, proxy_header: ProxyHeader::Off, at_once },
    };
    let counts = server.count(Wanted { writes: true, ..Wanted::default() }, tools)?;
    Ok(CountResult {
        stack: server.name,
        scenario: scenario.clone(),
        unit: Some(load.unit().0.to_owned()),
        repeats: 1,
        instructions: Some(BySide { server: counts.instructions, client: 0.0 }),
        shared_writes: Some(counts.writes),
        ..CountResult::default()
    })
}

impl Server {
    /// Starts it, loads it and ends it, once for each thing that is wanted.
    ///
    /// # Errors
    /// What stopped it, or that its threads cannot be compared.
    pub(crate) fn count(&self, wanted: Wanted, tools: &Tools) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        // What takes seconds comes first, and fails first.
        if wanted.locks {
            counts.locks = Some(self.locks(tools)?);
        }
        // Rust's own locks are seen in a trace alone.
        let is_traced = wanted.writes || (wanted.locks && self.is_of_rust()?);
        if wanted.instructions && !is_traced {
            counts.instructions = self.instructions(tools)?;
        }
        if is_traced {
            let (grown, instructions) = self.traced(wanted.writes, tools)?;
            counts.instructions = instructions;
            counts.locks = counts.locks.map(|locks| plain::together(locks, &grown));
            counts.writes = grown.writes;
        }
        Ok(counts)
    }

    /// Starts it at its own speed and has `work` done: with its first process, and with what makes
    /// so many connections and waits until the server is done with them.
    ///
    /// # Errors
    /// What stopped it, or those of `work`.
    pub(crate) fn at_work(&self, tools: &Tools, work: AtWork<'_>) -> Result<(), Error> {
        let placed = self.placed(tools)?;
        let look = &mut || Ok(0);
        let mut running = Running::start(placed, (&[], "at its own speed"), tools, look)?;
        let first = running.id();
        work(first, &mut |connections| running.round((connections, "counting"), &mut || Ok(0)))
    }

    fn lengths(&self) -> [u64; LENGTHS] {
        [1, 2, 3].map(|times| times * self.connections)
    }

    /// By how much lengths differ, in what figures are per.
    fn step(&self) -> f64 {
        self.connections as f64 * self.each.load.unit().1
    }

    /// Lock calls per connection, of one run at its own speed.
    fn locks(&self, tools: &Tools) -> Result<LockCounts, Error> {
        let mut placed = self.placed(tools)?;
        let folder = placed.folder.join("tables");
        open_to_all(&folder)?;
        let interposer = Interposer::new(&placed.folder)?;
        placed.program = interposer.with_tables(placed.program, &folder);
        let mut tables = Tables::new(folder);
        let look = &mut || Ok(0);
        let mut running = Running::start(placed, (&[], "locks"), tools, look)?;
        for connections in [&[self.connections], &self.lengths()[..]].concat() {
            running.round((connections, "native"), look)?;
            tables.read()?;
        }
        if tables.are_empty() {
            return Err(Error::Check(format!(
                "no lock call of {} was seen: a program that is linked statically, set-user-id, or \
                 that has the C library's locks in it, loads nothing that counts them; limit its \
                 shared writes or instructions",
                self.name
            )));
        }
        let (steps, shared) = tables.steps();
        Ok(locks::slope(&steps, shared, self.step()))
    }

    /// Per connection, of all processes, of three runs.
    fn instructions(&self, tools: &Tools) -> Result<f64, Error> {
        let mut sums = [0; LENGTHS];
        for (sum, connections) in sums.iter_mut().zip(self.lengths()) {
            let placed = self.placed(tools)?;
            let folder = placed.folder.join("counts");
            open_to_all(&folder)?;
            let instrument = counting(&folder)?;
            let look = &mut || Ok(0);
            let how = (&instrument[..], "instructions");
            let mut running = Running::start(placed, how, tools, look)?;
            running.round((connections, "counting"), look)?;
            running.end()?;
            *sum = counted_in(&folder).map_err(|reason| running.with_words(&reason))?;
        }
        let step = slope::smaller_step(sums) as f64 / self.step();
        match step > 0.0 {
            true => Ok(step),
            false => Err(Error::Check(format!(
                "{} executes no more instructions for more connections: {sums:?}. Does another \
                 program do the work, which it starts by a script?",
                self.name
            ))),
        }
    }

    /// Shared writes and instructions per connection, of one run.
    fn traced(&self, must_share: bool, tools: &Tools) -> Result<(Grown, f64), Error> {
        let placed = self.placed(tools)?;
        let folder = placed.folder.join("traces");
        open_to_all(&folder)?;
        let mut traces = Traces::new(folder.clone());
        let instrument = traces::instrument(&folder)?;
        let lengths = self.lengths_of(placed, &instrument, &mut traces, (must_share, tools));
        let lengths = lengths.map_err(|error| match (error, traces.words()) {
            (Error::Check(reason), words) if !words.is_empty() => {
                Error::Check(format!("{reason}\nthe last words of valgrind:\n{words}"))
            }
            (error, _) => error,
        })?;
        let step = self.step();
        let shared = lengths.each_ref().map(|length| &length.shared[..]);
        let grown = slope::grown(shared, step, Writer::Instruction, &traces.symbols());
        let instructions = slope::smaller_step(lengths.map(|length| length.instructions));
        Ok((grown, instructions as f64 / step))
    }

    fn lengths_of(
        &self,
        placed: Placed,
        instrument: &[OsString],
        traces: &mut Traces,
        (must_share, tools): (bool, &Tools),
    ) -> Result<[Length; LENGTHS], Error> {
        let how = (instrument, "memory trace");
        let mut running = Running::start(placed, how, tools, &mut || traces.look())?;
        for _ in 0..TRIES_MAX {
            running.round((self.connections, "warming up"), &mut || traces.look())?;
            let Taken { works, .. } = traces.take();
            // Connections that stay, stay where the kernel dealt them.
            if self.each.load.on_kept().is_none() || self.must_share(&works).is_ok() {
                break;
            }
            running.begin_anew()?;
        }
        let mut lengths = Vec::new();
        for (at, connections) in self.lengths().into_iter().enumerate() {
            let which = format!("round {} of {LENGTHS}", at + 1);
            let mut tries = 0;
            loop {
                running.round((connections, &which), &mut || traces.look())?;
                let Taken { length, works } = traces.take();
                tries += 1;
                match self.must_share(&works) {
                    // The kernel chose: it may choose otherwise.
                    Err(_) if must_share && tries < TRIES_MAX => {}
                    Err(error) if must_share => return Err(error),
                    _ => break lengths.push(length),
                }
            }
        }
        let missing = |_| Error::Check("a round of connections is missing".into());
        lengths.try_into().map_err(missing)
    }

    /// No line is shared if one thread gets all connections, or each one after the other has ended.
    fn must_share(&self, works: &[Vec<Work>]) -> Result<(), Error> {
        let most = works.iter().flatten().map(|work| work.instructions).max().unwrap_or_default();
        let is_busy = |work: &&Work| work.instructions * THREAD_SHARE_MAX >= most;
        let of_process =
            |works: &Vec<Work>| -> Vec<Work> { works.iter().filter(is_busy).copied().collect() };
        let busy: Vec<Vec<Work>> =
            works.iter().map(of_process).filter(|works| !works.is_empty()).collect();
        let meet = |(a, b): (&Work, &Work)| {
            let ends_before = |a: &Work, b: &Work| a.until.is_some_and(|until| until <= b.from);
            !ends_before(a, b) && !ends_before(b, a)
        };
        let pairs = |works: &[Work]| -> bool {
            let behind = |at: usize| works[at + 1..].iter().map(move |other| (&works[at], other));
            (0..works.len()).flat_map(behind).any(meet)
        };
        if busy.len() > 1 || busy.iter().any(|works| pairs(works)) {
            return Ok(());
        }
        let name = &self.name;
        Err(Error::Check(match busy.first().map_or(0, Vec::len) {
            0 | 1 => format!(
                "nearly all connections of {name} went to one thread, so that nothing can be told \
                 of what threads share. Give it two threads, workers or lanes; if it has them, the \
                 kernel chose: give it more connections. Of a server that has only one, limit \
                 instructions_max and mutexes_max instead of writes_max"
            ),
            _ => format!(
                "{name} had a thread for each connection, each after the one before, so that \
                 nothing can be told of what they share: at_once = 2"
            ),
        }))
    }

    /// Whether Rust's standard library is in it.
    fn is_of_rust(&self) -> Result<bool, Error> {
        let path = found(self.command.first().map_or("", String::as_str))?;
        let bytes = fs::read(&path).map_err(Error::file(&path))?;
        Ok(bytes.windows(RUST.len()).any(|window| window == RUST))
    }

    /// The program with its files written and its ports chosen, and its client.
    fn placed(&self, tools: &Tools) -> Result<Placed, Error> {
        let folder = tools.folder.path().join("serve");
        if folder.exists() {
            // Of the run before.
            fs::remove_dir_all(&folder).map_err(Error::file(&folder))?;
        }
        let credentials = Credentials::make(&folder, self.scenario.key)?;
        for folder in [tools.folder.path(), &folder] {
            // A server that gives up its rights still finds its files; their names are secret.
            let rights = fs::Permissions::from_mode(0o711);
            fs::set_permissions(folder, rights).map_err(Error::file(folder))?;
        }
        let pem_file = folder.join("server.pem");
        let mut pem = Vec::new();
        for file in [credentials.certificate(Side::Server), credentials.key(Side::Server)] {
            pem.extend(fs::read(&file).map_err(Error::file(file))?);
        }
        fs::write(&pem_file, pem).map_err(Error::file(&pem_file))?;
        let names = names::write(&folder, self.names, &credentials)?;
        let reserved = reserve::port()?;
        let address = reserved.address();
        let backend = load::backend(None)?;
        let backend_tls = load::backend(Some(load::backend_config(&credentials)?))?;
        let values = [
            address.port().to_string(),
            backend.to_string(),
            backend.port().to_string(),
            backend_tls.to_string(),
            pem_file.display().to_string(),
            folder.join(names::FOLDER).display().to_string(),
            credentials.root().display().to_string(),
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
        let words = |command: &[String]| -> Vec<String> {
            command.iter().map(|word| filled(word)).collect()
        };
        self.prepare(&words(&self.prepare), &folder)?;
        let config = load::config(&self.scenario, &credentials)?;
        let client =
            Client::new(&self.name, (address, names), (config, self.scenario.kind), self.each);
        let words = words(&self.command);
        let (binary, arguments) = words
            .split_first()
            .ok_or_else(|| Error::Check(format!("{} has no command", self.name)))?;
        let program = Program {
            binary: found(binary)?,
            arguments: arguments.iter().map(Into::into).collect(),
            ..Program::default()
        };
        let (name, client) = (self.name.clone(), Arc::new(client));
        Ok(Placed { name, program, reserved, client, folder })
    }

    /// Runs the program that prepares the server's files, if there is one.
    fn prepare(&self, words: &[String], folder: &Path) -> Result<(), Error> {
        let Some((binary, arguments)) = words.split_first() else { return Ok(()) };
        let log = folder.join("prepare.log");
        let mut command = Command::new(found(binary)?);
        command.args(arguments);
        let mut child = Child::logged(&mut command, &log)?;
        let end = match child.wait(PREPARE_TIME_MAX) {
            Some(status) if status.success() => return Ok(()),
            Some(status) => status.to_string(),
            None => format!("no end within {} s", PREPARE_TIME_MAX.as_secs()),
        };
        let (name, last_words) = (&self.name, child.last_words());
        Err(Error::Check(format!("`prepare` of {name} failed: {binary}: {end}\n{last_words}")))
    }
}

/// A program by its path, or by its name among those that are installed.
pub(crate) fn found(binary: &str) -> Result<PathBuf, Error> {
    if !binary.contains('/') {
        let package = PACKAGES.iter().find(|(program, _)| *program == binary);
        return programs::installed(binary, package.map_or(binary, |(_, package)| package));
    }
    Path::new(binary).canonicalize().map_err(|_| Error::Missing {
        program: binary.to_owned(),
        remedy: "whatever builds it".into(),
    })
}

/// Makes a folder to which a process writes that has given up its rights.
fn open_to_all(folder: &Path) -> Result<(), Error> {
    fs::create_dir(folder).map_err(Error::file(folder))?;
    let rights = fs::Permissions::from_mode(0o1733);
    fs::set_permissions(folder, rights).map_err(Error::file(folder))
}

/// The command line of lackey that writes how many instructions each process has executed.
fn counting(folder: &Path) -> Result<Vec<OsString>, Error> {
    let valgrind = programs::installed("valgrind", "valgrind")?;
    let mut file = OsString::from("--log-file=");
    file.push(folder.join("count.%p"));
    let options = ["--tool=lackey", "--basic-counts=yes", "--trace-children=yes"];
    let options = options.map(OsString::from).into_iter().chain([file]);
    Ok([valgrind.into_os_string()].into_iter().chain(options).collect())
}

/// The sum of what all processes wrote.
fn counted_in(folder: &Path) -> Result<u64, String> {
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut sum = 0;
    for entry in entries.flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let Some(instructions) = instructions_in(&text) else {
            return Err(format!(
                "a process ended before it could be counted ({}): a server must end its processes \
                 in order when it gets SIGTERM. It wrote:\n{text}",
                entry.file_name().to_string_lossy()
            ));
        };
        sum += instructions;
    }
    Ok(sum)
}

/// `==123==   guest instrs:  24,567,489`.
fn instructions_in(text: &str) -> Option<u64> {
    let (_, after) = text.split_once("guest instrs:")?;
    after.lines().next()?.replace(',', "").trim().parse().ok()
}

/// What the figures leave out.
pub(super) const NOTE: &str =
    "  The kernel's work, and what it shares, is not visible to valgrind.\n";
/// What stands in a command or a file for: the port to listen at, the address of a backend at
/// 127.0.0.1 that sends back what it gets, its port, the address of one that does so in TLS 1.3 as
/// `localhost`, a file with a certificate and its key, a folder with one for each of `names`, a
/// file with the authorities that sign those of servers and clients, the folder of the files.
pub(crate) const PLACEHOLDERS: [&str; 8] = [
    "{port}",
    "{backend}",
    "{backend_port}",
    "{backend_tls}",
    "{cert}",
    "{certs}",
    "{root}",
    "{folder}",
];
const CONNECTIONS: u64 = 8;
/// Connections that stay: that all go to one of two lanes has a chance of 1 in 128.
const KEPT: u64 = 8;
const OPERATIONS_KEPT: u64 = 16;
/// Debian's, where they are not called as the program.
const PACKAGES: [(&str, &str); 2] = [("nginx", "nginx-light"), ("stunnel", "stunnel4")];
/// A name that its standard library asks for in the environment.
const RUST: &[u8] = b"RUST_BACKTRACE";
/// Without what is done by the clock, which grows with the time of the trace.
const SEALANE: &str = "\
lanes = 2
watch = false
# Valgrind does not know the calls of Landlock.
process.sandbox = false
# Under valgrind a handshake takes long, and waits for others.
limits = { connect_timeout = \"300s\", handshake_timeout = \"300s\" }
[[listener]]
address = \"127.0.0.1:{port}\"
certificates = [\"{cert}\"]
";
const BACKEND: &str = "backends = [\"{backend}\"]\n";
const CLIENTS: &str = "\
[listener.clients]
certificates = \"required\"
roots = [\"{root}\"]
";
const TLS_BACKEND: &str = "\
backends = [\"tls://{backend_tls}\"]
[listener.backend_tls]
roots = [\"{root}\"]
server_name = \"localhost\"
";
/// How many times the work of the second thread the first may do.
const THREAD_SHARE_MAX: u64 = 12;
/// Tries of a round whose connections all went to one thread.
const TRIES_MAX: u32 = 16;
/// The time that `prepare` of a server may take.
const PREPARE_TIME_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server {
            name: "x".into(),
            command: vec!["x".into()],
            files: BTreeMap::new(),
            prepare: Vec::new(),
            names: 0,
            scenario: Scenario::default(),
            connections: 2,
            each: Connections { load: Load::Handshake, proxy_header: ProxyHeader::Off, at_once: 1 },
        }
    }

    #[test]
    fn threads_share_only_while_they_live() {
        let work = |instructions, from, until| Work { instructions, from, until };
        let reason = |works: &[Vec<Work>]| match server().must_share(works) {
            Ok(()) => "",
            Err(error) if error.to_string().contains("at_once = 2") => "one after the other",
            Err(_) => "one thread",
        };
        let (main, first) = (work(10, 0, None), work(1000, 1, Some(50)));
        assert_eq!(reason(&[vec![work(1000, 0, None), work(900, 1, None)]]), "");
        assert_eq!(reason(&[vec![first, work(900, 40, Some(90)), main]]), "");
        assert_eq!(reason(&[vec![first, work(900, 50, Some(90)), main]]), "one after the other");
        assert_eq!(reason(&[vec![work(1000, 0, None), main]]), "one thread");
        assert_eq!(reason(&[vec![main], vec![first], vec![work(900, 60, None)]]), "");
        assert_eq!(reason(&[]), "one thread");
    }

    #[test]
    fn the_sum_of_instructions_is_found() {
        let text = "==1== Executed:\n==1==   guest instrs:  24,567,489\n==1==   IRStmts: 1\n\
                    ==1==   guest instrs : SB entered  = 48 : 10\n";
        assert_eq!(instructions_in(text), Some(24_567_489));
        assert_eq!(instructions_in("==1== Lackey\n"), None);
    }

    #[test]
    fn a_server_that_is_not_installed_is_told_with_its_package() {
        for (program, package) in
            [("nginx", "nginx-light"), ("stunnel", "stunnel4"), ("hitch", "hitch")]
        {
            if let Err(error) = found(program) {
                let wanted = format!("{program} is missing; run: apt-get install {package}");
                assert_eq!(error.to_string(), wanted);
            }
        }
        let told = found("no-such-server").unwrap_err().to_string();
        assert_eq!(told, "no-such-server is missing; run: apt-get install no-such-server");
    }
}
