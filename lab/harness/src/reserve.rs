//! A free address of this machine for a server that must be told one: [`port`].

use sealane_lab_model::error::Error;
use sealane_reserved_port::ReservedPort;

/// A port of 127.0.0.1 that nobody else gets as long as it is held.
///
/// # Errors
/// [`Error::Io`]: no descriptor or no port is left.
pub fn port() -> Result<ReservedPort, Error> {
    ReservedPort::on_loopback().map_err(Error::io("reserve a port"))
}
