//! The command `count`.
#![allow(dead_code)]

mod class;
mod instructions;
mod lines;
mod locks;
mod progress;
mod run;
mod symbols;
mod table;
#[cfg(test)]
mod tests;
mod trace;

use crate::error::Error;

/// Its arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {}

/// `true` if all went well.
///
/// # Errors
/// What stopped it.
pub fn run(_arguments: &Arguments) -> Result<bool, Error> {
    Err(Error::Unsupported("this command is on its way".into()))
}
