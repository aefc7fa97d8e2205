//! The command `servers`: real terminators side by side on this machine, in interleaved rounds.
//!
//! The figure that counts is the server's own CPU per operation, of all its processes: it needs no
//! second machine. It depends on the load, more than on most changes of a server: it is measured at
//! full load and at half of what the same server can do, and every figure says at which. Rate and
//! latency are refused a verdict where the client was the bottleneck, or anything else but the
//! server; the rules stand at `Bench::bound`. Beside the figures stands the floor: the primitives'
//! CPU on AWS-LC plus what a proxy without TLS takes for the same connections.

pub mod answers;
pub mod backend;
pub mod case;
pub(crate) mod configuration;
mod floor;
pub mod key_files;
mod listen;
pub mod measure;
mod names;
pub mod placement;
pub mod programs;
pub mod relay;
mod results;
mod round;
pub mod running;
mod storm;
mod summary;
mod table;

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

use sealane_lab_harness::{
    interrupt::Interrupt,
    journal,
    options::{Json, Resume, Rounds},
};
use sealane_lab_model::error::Error;

use crate::servers::{
    case::{Amount, Level},
    placement::Placement,
    programs::Choice,
    round::{Laboratory, Round, Settings},
    storm::settings::Storm,
};

pub use case::Case;

/// The arguments of `servers`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The binary of sealane, a release build
    #[arg(long, value_name = "PATH", default_value = "target/release/sealane")]
    sealane: PathBuf,
    /// Another binary of HAProxy, with the same configuration as Debian's; may be repeated
    #[arg(long, value_name = "PATH")]
    haproxy: Vec<PathBuf>,
    /// Another server, as a shell's command line that stays in the foreground; may be repeated
    ///
    /// {port} is where it listens on 127.0.0.1, {backend} the ADDRESS:PORT behind it, {workers} its
    /// threads, {cert} a PEM file with certificate and key, {folder} a folder for its files.
    #[arg(long, value_name = "NAME=COMMAND", value_parser = named)]
    peer: Vec<(String, String)>,
    /// Only these servers, by the names of the table
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these cases
    #[arg(long, value_name = "CASE,..", value_delimiter = ',')]
    cases: Vec<Case>,
    /// Workers, threads or lanes of every server; as many as the servers have processors without it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Servers on the first half of the processors, client and backend on the rest: for rates and
    /// latencies that a shared processor does not blur
    #[arg(long)]
    apart: bool,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    storm: Storm,
    /// How much is asked of a server, in all cases but bulk, idle and names
    ///
    /// `full` is a closed loop. `half` is an open loop at half of the rate that the same server did
    /// in the closed loop just before, and 1% to 99% are other shares of that. What an operation
    /// costs depends on it: a server that finds much to do each time it wakes pays less for each.
    #[arg(long, value_name = "LOAD,..", value_delimiter = ',', value_parser = Level::parse,
        default_values = ["full", "half"])]
    load: Vec<Level>,
    /// Open loops of so many operations per second, the same for every server, instead of at shares
    /// of what each can do
    #[arg(long, value_name = "R,..", value_delimiter = ',', value_parser = rate)]
    rate: Vec<f64>,
    /// Tiny amounts, once without --rounds: shows that everything runs and passes its checks; the
    /// figures mean nothing
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    json: Json,
    #[command(flatten)]
    resume: Resume,
    /// Starts nothing, and prints the tables of the run in that document, as SERVERS.md has them
    #[arg(long, value_name = "FILE.json", exclusive = true)]
    from: Option<PathBuf>,
}

/// Whether every server that is installed passed every check.
///
/// # Errors
/// What kept the lab from measuring at all.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    if let Some(path) = &arguments.from {
        return show(path).map(|()| true);
    }
    let interrupt = Interrupt::catch()?;
    let path = arguments.resume.path().or(arguments.json.path());
    let (mut journal, begun) = arguments.resume.journal("servers", arguments, &arguments.json)?;
    let mut rounds = match arguments.resume.path() {
        Some(path) => rounds_kept(path)?,
        None => Vec::new(),
    };
    let processors = &journal.run.machine.pin_order;
    let storms = begun.cases.iter().filter(|case| case.is_storm()).count();
    if storms > 0 && storms < begun.cases.len() {
        let why = "--cases: a storm has a processor for the server, so that other cases go apart";
        return Err(Error::Unsupported(why.into()));
    }
    let placement = match begun.apart {
        _ if storms > 0 => Placement::divided(processors, 1)?,
        true => Placement::apart(processors)?,
        false => Placement::together(processors),
    };
    let settings = settings(&begun, placement);
    let folder = tempfile::tempdir().map_err(Error::io("temporary folder"))?;
    let (folder, done) = (folder.path(), rounds.len());
    let mut laboratory = Laboratory::new(settings.clone(), folder, interrupt, done)?;
    laboratory.recall(&rounds);
    let mut complete = true;
    for number in rounds.len()..settings.rounds {
        match laboratory.round(number) {
            Ok(round) => rounds.push(round),
            Err(Error::Interrupted) if !rounds.is_empty() => {
                let _ = writeln!(io::stderr(), "stopped; {number} whole rounds are kept");
                complete = false;
                break;
            }
            Err(error) => return Err(error),
        }
        keep(path, &rounds)?;
        let (servers, comparisons) = results::of(&settings, &laboratory.rows, &rounds)?;
        (journal.run.servers, journal.run.comparisons) = (Some(servers), comparisons);
        journal.save(false)?;
    }
    let (servers, comparisons) = results::of(&settings, &laboratory.rows, &rounds)?;
    (journal.run.servers, journal.run.comparisons) = (Some(servers), comparisons);
    journal.save(complete)?;
    if let Some(path) = path.filter(|_| complete) {
        let _ = fs::remove_file(rounds_beside(path));
    }
    print(&table::text(&settings, &laboratory.rows, &journal.run))?;
    if !complete {
        return Err(Error::Interrupted);
    }
    Ok(laboratory.rows.iter().all(|row| row.failure.as_ref().is_none_or(|failed| failed.absent)))
}

/// What lab/SERVERS.md has of a run that was kept.
fn show(path: &Path) -> Result<(), Error> {
    let run = journal::read(path)?;
    let Some(servers) = &run.servers else {
        return Err(Error::Check(format!("{} is no run of `servers`", path.display())));
    };
    print(&table::digest(&run, servers))
}

fn print(text: &str) -> Result<(), Error> {
    io::stdout().write_all(text.as_bytes()).map_err(Error::io("standard output"))
}

/// The rounds of a run to go on with.
fn rounds_kept(path: &Path) -> Result<Vec<Round>, Error> {
    let beside = rounds_beside(path);
    let file = fs::File::open(&beside).map_err(Error::file(&beside))?;
    let mut rounds = Vec::new();
    for line in BufReader::new(file).lines() {
        let line = line.map_err(Error::file(&beside))?;
        rounds.push(
            serde_json::from_str(&line)
                .map_err(|error| Error::Check(format!("{}: {error}", beside.display())))?,
        );
    }
    Ok(rounds)
}

/// Writes all rounds beside the document, a line each, for `--resume`: whole or not at all.
fn keep(path: Option<&Path>, rounds: &[Round]) -> Result<(), Error> {
    let Some(path) = path else { return Ok(()) };
    let mut text = String::new();
    for round in rounds {
        text +=
            &serde_json::to_string(round).map_err(|error| Error::io("write JSON")(error.into()))?;
        text.push('\n');
    }
    let (beside, next) = (rounds_beside(path), path.with_extension("next"));
    fs::write(&next, text).map_err(Error::file(&next))?;
    fs::rename(&next, &beside).map_err(Error::file(&beside))
}

fn rounds_beside(path: &Path) -> PathBuf {
    path.with_extension("rounds")
}

fn settings(arguments: &Arguments, placement: Placement) -> Settings {
    let Arguments { sealane, haproxy, peer, only, cases, workers, storm, .. } = arguments.clone();
    let rounds = match arguments.quick {
        true => arguments.rounds.number_or(1),
        false if cases.iter().any(|case| case.is_storm()) => arguments.rounds.number_or(3),
        false => arguments.rounds.number(),
    };
    let usual = || Case::ALL.into_iter().filter(|case| !case.is_storm()).collect();
    let cases = if cases.is_empty() { usual() } else { cases };
    Settings {
        choice: Choice { sealane, haproxies: haproxy, peers: peer, only, cases },
        rounds: rounds as usize,
        amount: if arguments.quick { Amount::QUICK } else { Amount::FULL },
        workers: workers.map_or(placement.server(), usize::from),
        placement,
        levels: levels(&arguments.load, &arguments.rate),
        storm,
    }
}

/// Each once, the full load first, as they are measured.
fn levels(load: &[Level], rates: &[f64]) -> Vec<Level> {
    let is_full = |level: &&Level| **level == Level::Full;
    let mut levels: Vec<Level> = load.iter().find(is_full).copied().into_iter().collect();
    let rates: Vec<Level> = rates.iter().copied().map(Level::Rate).collect();
    for level in if rates.is_empty() { load } else { &rates } {
        if !levels.contains(level) {
            levels.push(*level);
        }
    }
    levels
}

/// A name and a command line, from `NAME=COMMAND`.
///
/// # Errors
/// What is wanted instead.
pub fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, line)) if !name.is_empty() && line.contains("{port}") => {
            Ok((name.into(), line.into()))
        }
        _ => Err("want NAME=COMMAND, and {port} in COMMAND".into()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "want operations per second".to_owned())?;
    if (1.0..=10_000_000.0).contains(&rate) { Ok(rate) } else { Err("want 1 to 10000000".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_load_comes_first_and_every_level_once() {
        let half_first = [Level::HALF, Level::Full, Level::Share(50)];
        assert_eq!(levels(&half_first, &[]), [Level::Full, Level::HALF]);
        let rates = [Level::Full, Level::Rate(100.0)];
        assert_eq!(levels(&half_first, &[100.0, 100.0]), rates, "rates instead of shares");
        assert_eq!(levels(&[Level::HALF], &[100.0]), rates[1..]);
    }
}
