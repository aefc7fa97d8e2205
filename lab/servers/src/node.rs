//! The command `node`: the package `sealane` beside Node's own TLS, as processes, in TLSnappy's
//! modes.
//!
//! ```text
//! load client --TLS--> one process: lanes + main thread       sealane, https, http
//!                      several, each the same                 hybrid, cluster, nginx
//! ```
//! Every mode answers with the same bytes, shows the same certificate and agrees on the same
//! version, suite and group, which the client offers alone and checks in every handshake. Each row
//! is a trial with a server of its own; rows of one variant stand side by side in time, and the
//! bars compare no others.

mod case;
mod h2;
mod judge;
mod mode;
mod running;
mod task;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use sealane_lab_harness::{
    credentials::{Credentials, Side},
    options::Shuffled,
    strategies::{Cell, Plan, Strict, conclude, counted, measure, measured},
    trial::Task,
};
use sealane_lab_model::{
    document::{Figure, NODE_COMMAND},
    error::Error,
    scenario::Key,
};

use crate::load::Pattern;

use case::{Amount, Load};

pub use case::Case;
pub use mode::Mode;
pub use task::NodeTask;

/// The arguments of `node`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Who does TLS, in how many processes [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    mode: Vec<Mode>,
    /// What clients do [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    case: Vec<Case>,
    /// Requests under way at any time, in the sweeps
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "4,16,32,64,128,188",
        value_parser = clap::value_parser!(u16).range(1..=1_024))]
    concurrency: Vec<u16>,
    /// Connections that stand, in the case idle
    #[arg(long, default_value_t = 2_000, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    idle: u64,
    /// Lanes of a process of sealane
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    lanes: u16,
    /// How long requests come, after half as long for warming up
    #[arg(long, default_value_t = 1_500, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(10..=600_000))]
    window_ms: u64,
    /// Node itself; a name is looked for as a shell does
    #[arg(long, default_value = "node", value_name = "PATH")]
    node: PathBuf,
    /// The folder of the package `sealane`, built
    #[arg(long, default_value = "node", value_name = "FOLDER")]
    package: PathBuf,
    /// Tiny amounts: shows that everything runs and passes its checks; the figures mean nothing
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    shuffled: Shuffled,
}

/// `true` if every row was measured and no bar is missed.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let (mut journal, interrupt) = arguments.shuffled.begin()?;
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let plan = arguments.plan(folder.path())?;
    let mut measured = measure(plan, &mut journal, &interrupt)?;
    judge::judge(&mut measured, !cfg!(debug_assertions) && !arguments.quick);
    conclude(&mut journal, measured, Strict::default())
}

impl Arguments {
    fn plan(&self, folder: &Path) -> Result<Plan, Error> {
        let mut settings = BTreeMap::new();
        let mut modes = BTreeSet::new();
        for mode in self.modes() {
            match mode.lacks(&self.package(), &self.node) {
                None => {
                    modes.insert(mode);
                }
                // Without the package there is nothing to compare.
                Some(error) if mode.is_sealane() => return Err(error),
                Some(error) => {
                    settings.insert(format!("no {}", mode.name()), error.to_string());
                }
            }
        }
        let amount = self.amount();
        self.describe(&mut settings, amount)?;
        write_files(folder)?;
        let mut cells = Vec::new();
        for case in self.cases() {
            if let Some(error) = case.lacks() {
                settings.insert(format!("no {}", case.name()), error.to_string());
                continue;
            }
            let credentials = credentials(folder, case.key())?;
            for load in self.loads(case) {
                for mode in modes.iter().filter(|mode| self.takes(**mode, case)) {
                    let task = NodeTask {
                        mode: *mode,
                        case,
                        load: load.clone(),
                        amount,
                        node: self.node.clone(),
                        package: self.package(),
                        processes: processes(*mode),
                        lanes: self.lanes_of(*mode),
                        files: folder.to_owned(),
                        credentials: credentials.clone(),
                    };
                    let (strategy, variant) = (mode.name(), load.variant(case));
                    cells.push(Cell { strategy, variant, task: Task::new(&task)? });
                }
            }
        }
        if cells.is_empty() {
            let what = "no row is left: these modes have none of these cases".to_owned();
            return Err(Error::Unsupported(format!("{what}; {settings:?}")));
        }
        Ok(Plan {
            command: NODE_COMMAND,
            settings,
            figures: figures(),
            cells,
            rounds: self.shuffled.number(),
            seed: self.shuffled.seed(),
            time_max: amount.time_max(),
        })
    }

    fn modes(&self) -> BTreeSet<Mode> {
        if self.mode.is_empty() { Mode::ALL.into() } else { self.mode.iter().copied().collect() }
    }

    fn cases(&self) -> BTreeSet<Case> {
        if self.case.is_empty() { Case::ALL.into() } else { self.case.iter().copied().collect() }
    }

    /// A mode that was asked for by name takes all that it can.
    fn takes(&self, mode: Mode, case: Case) -> bool {
        if self.mode.is_empty() { mode.usually_takes(case) } else { mode.can_take(case) }
    }

    fn loads(&self, case: Case) -> Vec<Load> {
        let sweep: BTreeSet<usize> = self.concurrency.iter().copied().map(usize::from).collect();
        case.loads(&sweep, self.amount().connections)
    }

    fn amount(&self) -> Amount {
        match self.quick {
            true => Amount::QUICK,
            false => Amount { window_ms: self.window_ms, connections: self.idle },
        }
    }

    /// Absolute: the server runs elsewhere.
    fn package(&self) -> PathBuf {
        self.package.canonicalize().unwrap_or_else(|_| self.package.clone())
    }

    fn lanes_of(&self, mode: Mode) -> u16 {
        match mode {
            Mode::Hybrid => u16::try_from(square_root(processors())).unwrap_or(1),
            _ => self.lanes,
        }
    }

    /// What all rows have in common.
    fn describe(
        &self,
        settings: &mut BTreeMap<String, String>,
        amount: Amount,
    ) -> Result<(), Error> {
        let mut set = |name: &str, value: String| drop(settings.insert(name.to_owned(), value));
        let version = "`${process.version}, OpenSSL ${process.versions.openssl}`";
        set("Node", said(Command::new(&self.node).args(["-p", version]))?);
        set("lanes", self.lanes.to_string());
        set("window", format!("{} ms", amount.window_ms));
        let (hybrid, cluster) = (Mode::Hybrid, Mode::Cluster);
        let text = format!("{} processes x {} lanes", processes(hybrid), self.lanes_of(hybrid));
        set("hybrid", text);
        set("cluster", format!("{} processes", processes(cluster)));
        Ok(())
    }
}

/// How many processes serve in that mode on this machine.
fn processes(mode: Mode) -> u16 {
    let count = match mode {
        // As TLSnappy has it: the square root of the processors, in processes and in threads.
        Mode::Hybrid => square_root(processors()).max(2),
        Mode::Cluster | Mode::Nginx => processors(),
        _ => 1,
    };
    u16::try_from(count).unwrap_or(u16::MAX)
}

fn square_root(processors: usize) -> usize {
    processors.isqrt().max(1)
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The server's script, and the bodies that all modes answer with.
fn write_files(folder: &Path) -> Result<(), Error> {
    let bodies = folder.join(running::BODIES).join("bytes");
    fs::create_dir_all(&bodies).map_err(Error::file(&bodies))?;
    let pattern = Pattern::default();
    for bytes in case::BODIES {
        let file = bodies.join(bytes.to_string());
        fs::write(&file, pattern.at(0, bytes)).map_err(Error::file(&file))?;
    }
    let script = folder.join(running::SCRIPT);
    fs::write(&script, include_str!("../../node/server.js")).map_err(Error::file(&script))
}

/// Key and certificate of that type, made when they are first asked for; nginx has both in a file.
fn credentials(folder: &Path, key: Key) -> Result<PathBuf, Error> {
    let folder = folder.join(format!("{key:?}"));
    if !folder.exists() {
        let made = Credentials::make(&folder, key)?;
        let read = |path: PathBuf| fs::read_to_string(&path).map_err(Error::file(path));
        let both = read(made.certificate(Side::Server))? + &read(made.key(Side::Server))?;
        let file = folder.join(running::BOTH);
        fs::write(&file, both).map_err(Error::file(&file))?;
    }
    Ok(folder)
}

/// What a command prints.
fn said(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().map_err(Error::io(format!("run {program}")))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let mut lines = errors.lines().filter(|line| !line.trim().is_empty());
            let why = lines.clone().find(|line| line.contains("Error")).or(lines.next());
            let why = why.unwrap_or("it failed without a word");
            Err(Error::Check(format!("{program}: {}", why.trim())))
        }
    }
}

fn figures() -> Vec<Figure> {
    let neither = |figure| Figure { better: None, ..figure };
    vec![
        measured("rate", "answers", "per second", "more"),
        measured("cpu_us", "server CPU per answer", "us", "less"),
        measured("main_us", "of main threads", "us", "less"),
        neither(measured("lanes_us", "of lanes", "us", "less")),
        neither(measured("other_us", "of other threads", "us", "less")),
        neither(measured("p50_ms", "p50", "ms", "less")),
        neither(measured("p95_ms", "p95", "ms", "less")),
        measured("handshake_p50_ms", "handshake p50", "ms", "less"),
        measured("handshake_p95_ms", "handshake p95", "ms", "less"),
        measured("memory_kb", "memory of a connection", "kB", "less"),
        neither(measured("client_percent", "client busy", "%", "less")),
        counted("operations", "answers, all checked"),
        counted("resumed", "sessions resumed, by both sides' count"),
    ]
}
