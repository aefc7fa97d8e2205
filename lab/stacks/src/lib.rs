//! TLS libraries in memory: what one is, [`stack`], those that there are, [`stacks`], and what is
//! measured of them.
#![forbid(unsafe_code)]

pub mod bulk;
mod compat;
pub mod handshake;
pub mod inventory;
#[cfg(test)]
mod pair;
pub mod stack;
pub mod stacks;
