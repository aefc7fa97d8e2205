//! What the arguments of `contexts` come to on this machine: the servers that are started, the rows
//! that are measured, and the trials that the checks rest on.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use sealane_lab_harness::{
    credentials::Credentials,
    interrupt::Interrupt,
    strategies::{Cell, Plan, counted, measured},
    trial::{Fixed, Task, launch},
};
use sealane_lab_model::{document::Strategies, error::Error, scenario::Key};
use sealane_lab_sharing::count;

use crate::contexts::{
    Arguments,
    checks::{EACH, Judge, SHARED},
    connects::CONNECTING_THREADS,
    library,
    mongoc::{self, Driver},
    servers::{self, Server},
    target::{Choice, Protocol, Target},
    task::{
        ClientTask, Connects, ContextsTask, Files, Libmongoc, Pings, Refusals, STRATEGIES,
        Strategy, Swaps,
    },
};

/// What the arguments come to on this machine, with the servers that were started for it.
pub(super) struct Setting<'a> {
    arguments: &'a Arguments,
    stacks: Vec<String>,
    /// MongoDB's drivers that take part.
    libmongoc: Vec<Driver>,
    lanes: usize,
    targets: Vec<(Target, Files)>,
    /// Two Redis servers, the roots of either of which do not lead to the other.
    rivals: Option<Rivals>,
    /// The lab's own root, without a bundle.
    root: PathBuf,
    _folder: tempfile::TempDir,
    _servers: Vec<Server>,
}

/// Two servers, and the roots that lead to either.
struct Rivals {
    targets: [Target; 2],
    roots: [PathBuf; 2],
    _servers: [Server; 2],
}

impl<'a> Setting<'a> {
    /// Starts what must be started.
    ///
    /// # Errors
    /// What is missing, or does not start.
    pub(super) fn new(arguments: &'a Arguments) -> Result<Self, Error> {
        let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
        let credentials = Credentials::make(&folder.path().join("own"), Key::P256)?;
        let mut choices = arguments.target.clone();
        if choices.is_empty() {
            choices.push(Choice::Own(Protocol::Redis));
            choices.extend(servers::mongodb_is_built().then_some(Choice::Own(Protocol::Mongodb)));
        }
        let identification = arguments.cert.clone().zip(arguments.key.clone());
        let bundle = arguments.ca.clone().or_else(systems_bundle);
        let (mut targets, mut servers) = (Vec::new(), Vec::new());
        for choice in choices {
            let (target, ca) = match choice {
                Choice::There(target) => (target, bundle.clone().ok_or_else(no_bundle)?),
                Choice::Own(protocol) => {
                    let server = Server::start(protocol, folder.path(), &credentials)?;
                    let target = server.target.clone();
                    servers.push(server);
                    (target, with_root(bundle.as_deref(), &credentials, folder.path())?)
                }
            };
            targets.push((target, Files { ca, identification: identification.clone() }));
        }
        let speaks = |(target, _): &(Target, Files)| target.protocol == Protocol::Mongodb;
        let (stacks, libmongoc) = chosen(&arguments.stack, targets.iter().any(speaks))?;
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let lanes = arguments.lanes.map_or(processors, |lanes| lanes as usize);
        let rivals = Rivals::start(folder.path(), &credentials)?;
        Ok(Self {
            arguments,
            stacks,
            libmongoc,
            lanes,
            targets,
            rivals,
            root: credentials.root(),
            _folder: folder,
            _servers: servers,
        })
    }

    /// The names of the stacks, MongoDB's driver not among them.
    pub(super) fn stacks(&self) -> &[String] {
        &self.stacks
    }

    /// All rows.
    ///
    /// # Errors
    /// The roots cannot be read; a path has no words in JSON.
    pub(super) fn plan(&self) -> Result<Plan, Error> {
        let arguments = self.arguments;
        let mut cells = Vec::new();
        for (target, files) in &self.targets {
            for stack in &self.stacks {
                cells.extend(self.cells(target, files, stack)?);
            }
        }
        let mut settings = BTreeMap::from([
            ("clients".to_owned(), arguments.clients.to_string()),
            ("lanes".to_owned(), self.lanes.to_string()),
            ("pools".to_owned(), arguments.pools.to_string()),
            ("sockets".to_owned(), arguments.sockets.to_string()),
        ]);
        if let Some((_, files)) = self.targets.first() {
            let roots = library::certificates_in(&files.ca)?;
            settings.insert("roots".to_owned(), roots.to_string());
        }
        Ok(Plan {
            command: "contexts",
            settings,
            figures: vec![
                counted("contexts_built", "contexts"),
                counted("contexts_freed", "freed"),
                counted("certificates_parsed", "certificates"),
                counted("sockets", "sockets"),
                counted("pings", "pings"),
                measured("build_cpu_ms", "CPU in contexts", "ms", "less"),
                measured("total_cpu_ms", "CPU", "ms", "less"),
                measured("build_share", "share in contexts", "%", "less"),
                measured("rebuild_share", "after the first", "%", "less"),
                measured("wall_ms", "time", "ms", "less"),
                measured("rate", "sockets", "per second", "more"),
            ],
            cells,
            rounds: arguments.shuffled.number(),
            seed: arguments.shuffled.seed(),
            time_max: self.time_max(),
        })
    }

    /// The rows of one stack and target: the write-up's, with a thread per client; and a context
    /// per lane, which has as many threads as lanes, beside a shared one on as many.
    fn cells(&self, target: &Target, files: &Files, stack: &str) -> Result<Vec<Cell>, Error> {
        let wanted = |strategy: &Strategy| {
            let chosen = &self.arguments.strategy;
            chosen.is_empty() || chosen.contains(strategy)
        };
        let mut variant = BTreeMap::from([
            ("stack".to_owned(), stack.to_owned()),
            ("target".to_owned(), target.protocol.name().to_owned()),
        ]);
        let client =
            ClientTask { stack: stack.to_owned(), target: target.clone(), files: files.clone() };
        let mut cells = Vec::new();
        if (stack, target.protocol) == (MONGOCS_STACK, Protocol::Mongodb) {
            for Driver { name, pkg_config } in &self.libmongoc {
                let (target, files) = (target.clone(), files.clone());
                let (clients, pkg_config) = (self.clients(), pkg_config.clone());
                let job = ContextsTask::Libmongoc(Libmongoc { target, files, clients, pkg_config });
                let (strategy, variant) = (name.clone(), variant.clone());
                cells.push(Cell { strategy, variant, task: Task::new(&job)? });
            }
        }
        let cell = |strategy: Strategy, threads, variant: &BTreeMap<_, _>| {
            let job = ContextsTask::Pings(Pings {
                client: client.clone(),
                strategy,
                clients: self.clients(),
                sockets: self.arguments.sockets as usize,
                pools: self.arguments.pools as usize,
                threads,
                fault: self.arguments.fault,
            });
            let (strategy, variant) = (strategy.name().to_owned(), variant.clone());
            Ok::<_, Error>(Cell { strategy, variant, task: Task::new(&job)? })
        };
        let threads = self.clients().min(CLIENT_THREADS_MAX);
        for strategy in STRATEGIES.into_iter().filter(wanted) {
            if strategy != Strategy::PerLane {
                cells.push(cell(strategy, threads, &variant)?);
            }
        }
        if wanted(&Strategy::PerLane) {
            variant.insert("threads".to_owned(), self.lanes.to_string());
            let pair = [Strategy::PerPool, Strategy::PerLane].into_iter().filter(wanted);
            for strategy in pair {
                cells.push(cell(strategy, self.lanes, &variant)?);
            }
        }
        Ok(cells)
    }

    /// Runs the checks' own trials and writes all verdicts down.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; a trial that fails is a verdict.
    pub(super) fn judge(
        &self,
        strategies: &mut Strategies,
        interrupt: &Interrupt,
    ) -> Result<(), Error> {
        let Some((_, files)) = self.targets.first() else { return Ok(()) };
        let mut judge = Judge {
            clients: self.clients() as u64,
            sockets: self.clients() as u64 * u64::from(self.arguments.sockets),
            pools: self.arguments.pools.into(),
            lanes: self.lanes as u64,
            bundle: library::certificates_in(&files.ca)?,
            refusals: (self.clients() as u64).min(REFUSALS_MAX),
            heard: BTreeMap::new(),
        };
        for (check, stack, job) in self.jobs() {
            if interrupt.is_pressed() {
                return Err(Error::Interrupted);
            }
            let result = launch::run(&Task::new(&job)?, self.time_max());
            judge.hear(check, stack, result);
        }
        if self.arguments.shared_writes {
            self.count_shared_writes(&mut judge, interrupt)?;
        }
        for row in &mut strategies.rows {
            judge.label(row);
        }
        strategies.checks = judge.checks(strategies);
        Ok(())
    }

    /// The trials that checks rest on, by check and stack: to Redis servers that count, if this
    /// machine has any.
    fn jobs(&self) -> Vec<(&'static str, &str, ContextsTask)> {
        let mut jobs = Vec::new();
        let Some(Rivals { targets, roots, .. }) = &self.rivals else { return jobs };
        let fault = self.arguments.fault;
        for stack in &self.stacks {
            let files = Files { ca: roots[0].clone(), identification: None };
            let client = ClientTask { stack: stack.clone(), target: targets[0].clone(), files };
            let rounds = (self.clients() as u64).min(REFUSALS_MAX);
            let refusals = Refusals { client, rounds, fault };
            let swaps = Swaps {
                stack: stack.clone(),
                targets: targets.clone(),
                roots: roots.clone(),
                threads: SWAP_THREADS,
                swaps: self.arguments.swaps,
                per_second: SWAPS_PER_SECOND,
                fault,
            };
            jobs.push(("E3", stack.as_str(), ContextsTask::Swaps(swaps)));
            jobs.push(("E5", stack, ContextsTask::Names(refusals.clone())));
            jobs.push(("E6", stack, ContextsTask::BadOptions(refusals)));
        }
        jobs
    }

    /// Shared writes per connection, of two threads with one context and with one each.
    fn count_shared_writes(&self, judge: &mut Judge, interrupt: &Interrupt) -> Result<(), Error> {
        let Some((_, files)) = self.targets.first() else { return Ok(()) };
        // An instrument takes a minute to build a context of a whole bundle, and a connection
        // writes the same lines, however many roots there are.
        let files = Files { ca: self.root.clone(), ..files.clone() };
        for stack in &self.stacks {
            if let Err(lacking) = count::can_be_counted(stack) {
                judge.heard.insert(("E8", stack.clone()), Err(lacking.to_string()));
                continue;
            }
            let mut counted = BTreeMap::new();
            for (name, shared) in [(SHARED, true), (EACH, false)] {
                let (stack, files) = (stack.clone(), files.clone());
                let fault = self.arguments.fault;
                let task = Connects { stack, files, shared, fixed: CONNECTS, fault };
                let task = Task::new(&ContextsTask::Connects(task))?;
                let connections = CONNECTS.count * CONNECTING_THREADS as u64;
                let writes = count::shared_writes(&task, connections, interrupt)?;
                counted.insert(name.to_owned(), writes.total.server);
            }
            judge.heard.insert(("E8", stack.clone()), Ok(counted));
        }
        Ok(())
    }

    fn clients(&self) -> usize {
        self.arguments.clients as usize
    }

    /// A trial takes no longer: a context per socket costs tens of milliseconds.
    fn time_max(&self) -> Duration {
        let Arguments { clients, sockets, swaps, .. } = self.arguments;
        let swaps = u32::try_from(*swaps).unwrap_or(u32::MAX);
        TIME_MAX + TIME_PER_SOCKET_MAX * (clients * sockets + swaps)
    }
}

impl Rivals {
    /// None if this machine has no Redis: there are targets without it.
    fn start(folder: &Path, credentials: &Credentials) -> Result<Option<Self>, Error> {
        let other = Credentials::make(&folder.join("other"), Key::P256)?;
        let redis = |credentials| Server::start(Protocol::Redis, folder, credentials);
        let servers = match (redis(credentials), redis(&other)) {
            (Ok(one), Ok(other)) => [one, other],
            (Err(Error::Missing { .. }), _) => return Ok(None),
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let targets = [servers[0].target.clone(), servers[1].target.clone()];
        Ok(Some(Self { targets, roots: [credentials.root(), other.root()], _servers: servers }))
    }
}

/// The stacks to measure, and MongoDB's drivers if they are among them.
fn chosen(asked: &[String], mongodb: bool) -> Result<(Vec<String>, Vec<Driver>), Error> {
    if asked.is_empty() {
        let stacks = DEFAULT_STACKS.map(str::to_owned).to_vec();
        return Ok((stacks, if mongodb { mongoc::drivers() } else { Vec::new() }));
    }
    let mut stacks = asked.to_vec();
    stacks.retain(|stack| stack != LIBMONGOC);
    let driver = stacks.len() < asked.len();
    if driver && !(mongodb && stacks.iter().any(|stack| stack == MONGOCS_STACK)) {
        let text = "libmongoc stands beside --stack openssl and --target mongodb";
        return Err(Error::Unsupported(text.into()));
    }
    let drivers = if driver { mongoc::drivers() } else { Vec::new() };
    if driver && drivers.is_empty() {
        return Err(mongoc::none());
    }
    Ok((stacks, drivers))
}

/// Where systems keep the roots that they trust.
fn systems_bundle() -> Option<PathBuf> {
    BUNDLES.into_iter().map(PathBuf::from).find(|path| path.exists())
}

fn no_bundle() -> Error {
    Error::Missing {
        program: "the system's bundle of roots".into(),
        remedy: "apt-get install ca-certificates, or name one by --ca".into(),
    }
}

/// A file with `bundle` and the lab's root behind it.
fn with_root(
    bundle: Option<&Path>,
    credentials: &Credentials,
    folder: &Path,
) -> Result<PathBuf, Error> {
    let mut text = Vec::new();
    for file in bundle.into_iter().chain([&*credentials.root()]) {
        text.extend(fs::read(file).map_err(Error::file(file))?);
        text.push(b'\n');
    }
    let path = folder.join("roots.pem");
    fs::write(&path, text).map_err(Error::file(&path))?;
    Ok(path)
}

const DEFAULT_STACKS: [&str; 2] = [MONGOCS_STACK, library::SEALANE];
/// The driver's name as a stack on the command line.
const LIBMONGOC: &str = "libmongoc";
/// What it is linked with, and compared with.
const MONGOCS_STACK: &str = "openssl";
const BUNDLES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
/// Clients that are there at once.
const CLIENT_THREADS_MAX: usize = 256;
/// Pairs of connections to a right and to a wrong name.
const REFUSALS_MAX: u64 = 1_000;
/// Threads that the write-up's check asks for.
const SWAP_THREADS: usize = 8;
const SWAPS_PER_SECOND: u64 = 100;
/// A library makes its first connections before any is counted.
const CONNECTS: Fixed = Fixed { warm_up: 2, count: 10 };
const TIME_MAX: Duration = Duration::from_secs(60);
const TIME_PER_SOCKET_MAX: Duration = Duration::from_millis(200);
