//! Measures Sealane and its peers as real processes, with every result checked: a server that
//! fails one check gets no figure.
#![forbid(unsafe_code)]

mod backend;
mod client;
mod compare;
mod error;
mod load;
mod process;
mod report;
mod request;
mod servers;
mod statistics;

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};

use compare::Settings;
use error::Error;
use load::Amount;

#[derive(Parser)]
#[command(name = "sealane-lab", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Subject,
}

#[derive(Subcommand)]
enum Subject {
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

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Subject::Backend => backend::run().map(|()| true),
        Subject::Compare(arguments) => compare(arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "sealane-lab: {error}");
            ExitCode::FAILURE
        }
    }
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
