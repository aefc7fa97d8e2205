//! What threads share, counted and forecast: [`count`] and the kernel's ledger, the [`gate`], and
//! from recordings the [`replay`], the [`forecast`] and the [`findings`].
#![forbid(unsafe_code)]

pub mod count;
pub mod findings;
pub mod forecast;
pub mod gate;
pub mod kernel_ledger;
pub mod replay;
pub mod tables;
pub mod transfer;
pub mod validate;

use std::io::{self, Write};

use sealane_lab_model::error::Error;

/// Says it to whoever ran the command.
fn show(text: &str) -> Result<(), Error> {
    io::stdout().write_all(text.as_bytes()).map_err(Error::io("standard output"))
}
