//! The command `writeups`: all six faults beside their remedies in a short form, and the page
//! "Six ways TLS stops scaling".

pub(crate) mod plan;

use std::env;

use sealane_lab_harness::machine;
use sealane_lab_model::error::Error;
use sealane_lab_report::page;

use crate::steps;

/// The arguments of `writeups`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: steps::Output,
}

/// `true` if every step went well and every check that could be shown holds.
///
/// # Errors
/// What kept every step from giving figures, or the page from being written; Ctrl-C.
pub(crate) fn run(arguments: &Arguments) -> Result<bool, Error> {
    let binary = env::current_exe().map_err(Error::io("find this program's file"))?;
    let steps = plan::steps(&binary, machine::describe().processors);
    steps::run(&steps, plan::BUDGET_SECONDS, &arguments.output, page::writeups::write)
}
