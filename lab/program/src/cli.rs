//! The command line: one subcommand per module.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use sealane_lab_exhibits::{
    certificates::{decoding::DecodingTask, task::CertificateTask},
    contexts::ContextsTask,
    offload::{self, OffloadTask},
    references::ReferencesTask,
    ring::trial::RingTask,
    tickets::TicketsTask,
};
use sealane_lab_harness::trial::{self, entry};
use sealane_lab_model::error::Error;
use sealane_lab_report::page;
use sealane_lab_servers::{
    connect,
    node::{self, NodeTask},
    servers::{self, backend, relay},
};
use sealane_lab_sharing::{count, gate, kernel_ledger, tables::TablesTask};
use sealane_lab_stacks::{
    bulk::{self, task::BulkTask},
    handshake::{self, Handshakes},
    inventory, stacks,
};

use crate::{quick, why, writeups};

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
    #[command(after_long_help = kernel_ledger::EXAMPLES)]
    Count(Box<Counting>),
    /// Fails a build that exceeds its shared writes, locks or instructions per operation
    Gate(gate::Arguments),
    /// Handshakes per second and thread, in memory, by stack and number of threads
    Handshake(handshake::Arguments),
    /// The package sealane beside Node's own TLS: one process, hybrid, cluster, plain, nginx
    Node(node::Arguments),
    /// Draws runs as one HTML file
    Report(page::Arguments),
    /// A report of this machine in under three minutes
    Quick(quick::Arguments),
    /// Real TLS servers side by side on this machine: CPU, memory, rate, latency, and the floor
    Servers(Box<servers::Arguments>),
    /// The TLS stacks that can be measured here; builds more
    Stacks(inventory::Arguments),
    /// The waits of a running server, or the shared lines of a stack, with their places
    Why(why::Arguments),
    /// Six faults beside their remedies, in under ten minutes, as one page; or one of them alone
    Writeups(Box<writeups::Arguments>),

    /// One process, one stack: what the measuring commands start, and what instruments run
    #[command(hide = true)]
    Trial(trial::Arguments),
    /// The plain backend behind the servers under test; `servers` starts it
    #[command(hide = true)]
    Backend,
    /// The TLS server with one loop; trials of `offload` start it
    #[command(hide = true)]
    OffloadServer(offload::ServerArguments),
    /// A proxy without TLS, part of the floor under the servers' figures; `servers` starts it
    #[command(hide = true)]
    Relay(relay::Arguments),
}

/// What `count` counts: what a program does itself, or what it shares in the kernel.
#[derive(clap::Args)]
struct Counting {
    #[command(flatten)]
    own: count::Arguments,
    #[command(flatten)]
    kernel: kernel_ledger::Arguments,
}

/// Parses the command line, does what it says and tells how it went.
#[must_use]
pub(crate) fn run() -> ExitCode {
    match outcome(Arguments::parse().command) {
        Ok(status) => status,
        Err(error) => {
            let _ = writeln!(io::stderr(), "sealane-lab: {error}");
            match error {
                Error::Interrupted => ExitCode::from(INTERRUPTED_STATUS),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn outcome(subject: Subject) -> Result<ExitCode, Error> {
    let result = match subject {
        // It has more to say than yes or no.
        Subject::Gate(arguments) => return gate::run(&arguments),
        Subject::Bulk(arguments) => bulk::run(&arguments),
        Subject::Connect(arguments) => connect::run(&arguments),
        Subject::Count(arguments) if arguments.kernel.is_asked() => {
            let (json, repeats) = arguments.own.kept();
            kernel_ledger::run(&arguments.kernel, json, repeats)
        }
        Subject::Count(arguments) => count::run(&arguments.own),
        Subject::Handshake(arguments) => handshake::run(&arguments),
        Subject::Node(arguments) => node::run(&arguments),
        Subject::Report(arguments) => page::run(&arguments),
        Subject::Quick(arguments) => quick::run(&arguments),
        Subject::Servers(arguments) => servers::run(&arguments),
        Subject::Stacks(arguments) => inventory::run(&arguments),
        Subject::Why(arguments) => why::run(&arguments),
        Subject::Writeups(arguments) => writeups::run(&arguments),
        Subject::Trial(arguments) => trial::run(&arguments, &TASKS),
        Subject::Backend => backend::run().map(|()| true),
        Subject::OffloadServer(arguments) => offload::serve(&arguments).map(|()| true),
        Subject::Relay(arguments) => relay::run(&arguments).map(|()| true),
    };
    result.map(|is_well| if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What trials can be told to do.
const TASKS: [trial::Entry; 12] = [
    entry::<BulkTask>(),
    entry::<CertificateTask>(),
    entry::<ContextsTask>(),
    entry::<DecodingTask>(),
    entry::<Handshakes>(),
    entry::<stacks::Asked>(),
    entry::<NodeTask>(),
    entry::<OffloadTask>(),
    entry::<ReferencesTask>(),
    entry::<RingTask>(),
    entry::<TablesTask>(),
    entry::<TicketsTask>(),
];
/// The status by which a shell tells that SIGINT ended a program.
const INTERRUPTED_STATUS: u8 = 130;

#[cfg(test)]
mod tests;
