//! The command `report`.

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
