//! The command `quick`: what is on this machine, measured in under three minutes and drawn as one
//! page.

pub(crate) mod plan;

use std::env;

use sealane_lab_model::error::Error;
use sealane_lab_report::page;

use crate::steps;

/// The arguments of `quick`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: steps::Output,
}

/// `true` if every step went well.
///
/// # Errors
/// What kept every step from giving figures, or the page from being written; Ctrl-C.
pub(crate) fn run(arguments: &Arguments) -> Result<bool, Error> {
    let binary = env::current_exe().map_err(Error::io("find this program's file"))?;
    let steps = plan::steps(&binary);
    let (_, is_well) =
        steps::run(&steps, plan::BUDGET_SECONDS, &arguments.output, |runs, steps, output| {
            Ok((page::write(runs, steps.notes(), output)?, ()))
        })?;
    Ok(is_well)
}
