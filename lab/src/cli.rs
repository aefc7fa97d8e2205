//! The command line: one subcommand per module.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::{
    backend, bulk,
    compare::{self, Settings},
    connect, count,
    error::Error,
    handshake,
    load::Amount,
    memory, page, quick,
    stacks::command as stacks,
    trial,
};

#[derive(Parser)]
#[command(name = "sealane-lab", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Subject,
}

#[derive(Subcommand)]
enum Subject {
    /// MB/s of TLS stacks in memory and over loopback sockets, by runtime
    Bulk(bulk::Arguments),
    /// Loads any TLS server: handshakes, keep-alive, resumption, closed or open loop
    Connect(connect::Arguments),
    /// Counts instructions, locks and shared cache-line writes per handshake, exactly
    Count(count::Arguments),
    /// Handshakes per second and thread, in memory, by stack and number of threads
    Handshake(handshake::Arguments),
    /// Bytes per connection, server and client, established and idle
    Memory(memory::Arguments),
    /// Draws runs as one HTML file
    Report(page::Arguments),
    /// A report of this machine in under three minutes
    Quick(quick::Arguments),
    /// The TLS stacks that can be measured here; builds more
    Stacks(stacks::Arguments),

    /// One process, one stack: what the measuring commands start, and what instruments run
    #[command(hide = true)]
    Trial(trial::Arguments),
    /// The plain backend behind the servers under test; `compare` starts it
    #[command(hide = true)]
    Backend,
    /// Server CPU and memory of sealane, nginx, HAProxy and hitch, side by side on this machine
    Compare(Compare),
}

#[derive(Args)]
struct Compare {
    /// The binary of sealane, a release build
    #[arg(long, value_name = "PATH", default_value = "target/release/sealane")]
    sealane: PathBuf,
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// One tiny round: shows that everything runs and passes its checks; its figures mean nothing
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Writes all figures of all rounds there too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Parses the command line, does what it says and tells how it went.
#[must_use]
pub fn run() -> ExitCode {
    let result = match Arguments::parse().command {
        Subject::Bulk(arguments) => bulk::run(&arguments),
        Subject::Connect(arguments) => connect::run(&arguments),
        Subject::Count(arguments) => count::run(&arguments),
        Subject::Handshake(arguments) => handshake::run(&arguments),
        Subject::Memory(arguments) => memory::run(&arguments),
        Subject::Report(arguments) => page::run(&arguments),
        Subject::Quick(arguments) => quick::run(&arguments),
        Subject::Stacks(arguments) => stacks::run(&arguments),
        Subject::Trial(arguments) => trial::run(&arguments),
        Subject::Backend => backend::run().map(|()| true),
        Subject::Compare(arguments) => compare(arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "sealane-lab: {error}");
            match error {
                Error::Interrupted => ExitCode::from(INTERRUPTED_STATUS),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Whether there is a subcommand of that name.
pub(crate) fn has_command(name: &str) -> bool {
    Arguments::command().find_subcommand(name).is_some()
}

/// Whether `arguments`, without the program's name, make a command line.
#[cfg(test)]
pub(crate) fn parses(arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let all = ["sealane-lab".to_owned()].into_iter().chain(arguments);
    Arguments::try_parse_from(all).map(|_| ()).map_err(|error| error.to_string())
}

/// Whether every installed server passed every check.
fn compare(arguments: Compare) -> Result<bool, Error> {
    let Compare { sealane, rounds, quick, json } = arguments;
    let (rounds, amount) = if quick { (1, QUICK) } else { (usize::from(rounds), FULL) };
    let report = compare::run(Settings { sealane, rounds, amount })?;
    if let Some(path) = json {
        fs::write(&path, report.json()?).map_err(Error::file(&path))?;
    }
    io::stdout().write_all(report.text().as_bytes()).map_err(Error::io("standard output"))?;
    Ok(report.is_complete())
}

/// As a shell tells that SIGINT ended a program.
const INTERRUPTED_STATUS: u8 = 130;
const FULL: Amount = Amount {
    handshakes: 2_000,
    handshake_threads: 16,
    transfers: 40,
    transfer_bytes: 10_000_000,
    transfer_threads: 4,
    idle_connections: 5_000,
};
const QUICK: Amount = Amount {
    handshakes: 64,
    handshake_threads: 8,
    transfers: 4,
    transfer_bytes: 1_000_000,
    transfer_threads: 4,
    idle_connections: 100,
};
