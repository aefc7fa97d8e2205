//! The command line: one subcommand per module.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use crate::{
    bulk, connect, count,
    error::Error,
    handshake, memory, page, quick,
    servers::{self, backend, relay},
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
    /// Real TLS servers side by side on this machine: CPU, memory, rate, latency, and the floor
    Servers(Box<servers::Arguments>),
    /// The TLS stacks that can be measured here; builds more
    Stacks(stacks::Arguments),

    /// One process, one stack: what the measuring commands start, and what instruments run
    #[command(hide = true)]
    Trial(trial::Arguments),
    /// The plain backend behind the servers under test; `servers` starts it
    #[command(hide = true)]
    Backend,
    /// A proxy without TLS, part of the floor under the servers' figures; `servers` starts it
    #[command(hide = true)]
    Relay(relay::Arguments),
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
        Subject::Servers(arguments) => servers::run(&arguments),
        Subject::Stacks(arguments) => stacks::run(&arguments),
        Subject::Trial(arguments) => trial::run(&arguments),
        Subject::Backend => backend::run().map(|()| true),
        Subject::Relay(arguments) => relay::run(&arguments).map(|()| true),
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

/// As a shell tells that SIGINT ended a program.
const INTERRUPTED_STATUS: u8 = 130;
