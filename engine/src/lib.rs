//! TLS without I/O: bytes in, bytes out. No socket, no clock, no lock.
#![forbid(unsafe_code)]

pub mod policy;
pub mod tickets;
