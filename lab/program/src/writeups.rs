//! The command `writeups`: all six faults beside their remedies in a short form, and the page
//! "Six ways TLS stops scaling".

pub(crate) mod plan;

use std::env;

use sealane_lab_harness::{machine, options::Json, strategies::Strict};
use sealane_lab_model::error::Error;
use sealane_lab_report::page;

use crate::steps;

/// The arguments of `writeups`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: steps::Output,
    #[command(flatten)]
    strict: Strict,
    #[command(flatten)]
    json: Json,
}

/// `true` if every step went well and the checks are as well as was asked: none fails, or all hold.
///
/// # Errors
/// What kept every step from giving figures, or the page from being written; Ctrl-C.
pub(crate) fn run(arguments: &Arguments) -> Result<bool, Error> {
    let binary = env::current_exe().map_err(Error::io("find this program's file"))?;
    let steps = plan::steps(&binary, machine::describe().processors);
    let draw = page::writeups::write;
    let (judgement, is_well) = steps::run(&steps, plan::BUDGET_SECONDS, &arguments.output, draw)?;
    arguments.json.write(&judgement)?;
    Ok(is_well && arguments.strict.allows(&judgement))
}
