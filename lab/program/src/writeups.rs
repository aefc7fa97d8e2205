//! The command `writeups`: all six faults beside their remedies in a short form, and the page
//! "Six ways TLS stops scaling"; or one of them alone, with all that can be asked of it.

pub(crate) mod plan;

use std::env;

use clap::Subcommand;
use sealane_lab_exhibits::{certificates, contexts, offload, references, ring, tickets};
use sealane_lab_harness::{machine, options::Json, strategies::Strict};
use sealane_lab_model::error::Error;
use sealane_lab_report::page;
use sealane_lab_sharing::tables;

use crate::steps;

/// The arguments of `writeups`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: steps::Output,
    #[command(flatten)]
    strict: Strict,
    #[command(flatten)]
    json: Json,
    #[command(subcommand)]
    one: Option<Exhibit>,
}

/// One fault beside its remedy.
#[derive(Clone, Debug, Subcommand)]
enum Exhibit {
    /// Certificates of many names: one owner for all, every connection for itself, or a lane's own
    Certificates(certificates::Arguments),
    /// The cost of TLS client contexts, against Redis and MongoDB's protocol
    Contexts(contexts::Arguments),
    /// TLS in one I/O loop, or on worker threads behind it: locked queues, or rings
    Offload(offload::Arguments),
    /// One object's references, counted behind a lock, by an atomic, or by each lane for itself
    References(references::Arguments),
    /// The same bytes through a lock, TLSnappy's ring, rtrb and bytering
    Ring(ring::Arguments),
    /// One file table for all threads, one for each, and a process each
    Tables(tables::Arguments),
    /// Ticket keys under a mutex, under a read-write lock, and derived by each lane for itself
    Tickets(tickets::Arguments),
}

/// `true` if every step went well and the checks are as well as was asked: none fails, or all hold.
///
/// # Errors
/// What kept every step from giving figures, or the page from being written; Ctrl-C.
pub(crate) fn run(arguments: &Arguments) -> Result<bool, Error> {
    match &arguments.one {
        Some(Exhibit::Certificates(arguments)) => return certificates::run(arguments),
        Some(Exhibit::Contexts(arguments)) => return contexts::run(arguments),
        Some(Exhibit::Offload(arguments)) => return offload::run(arguments),
        Some(Exhibit::References(arguments)) => return references::run(arguments),
        Some(Exhibit::Ring(arguments)) => return ring::run(arguments),
        Some(Exhibit::Tables(arguments)) => return tables::run(arguments),
        Some(Exhibit::Tickets(arguments)) => return tickets::run(arguments),
        None => {}
    }
    let binary = env::current_exe().map_err(Error::io("find this program's file"))?;
    let steps = plan::steps(&binary, machine::describe().processors);
    let draw = page::writeups::write;
    let (judgement, is_well) = steps::run(&steps, plan::BUDGET_SECONDS, &arguments.output, draw)?;
    arguments.json.write(&judgement)?;
    Ok(is_well && arguments.strict.allows(&judgement))
}
