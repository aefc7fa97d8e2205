//! Counts of the memory and of the kernel's objects that threads share: [`count`], the kernel's
//! ledger, and the [`gate`].
#![forbid(unsafe_code)]

pub mod count;
pub mod gate;
pub mod kernel_ledger;
pub mod tables;

use std::io::{self, Write};

use sealane_lab_model::error::Error;

/// Says it to whoever ran the command.
fn show(text: &str) -> Result<(), Error> {
    io::stdout().write_all(text.as_bytes()).map_err(Error::io("standard output"))
}
