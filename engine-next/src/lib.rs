//! [`Session`](session::Session) on the interface of rustls 0.24, which is not released yet.
//!
//! Nothing uses it: Sealane is built of `sealane-engine`, on rustls 0.23. It shows that the session
//! can be ported, keeps the port compiling, and is measured beside 0.23; `engine/RUSTLS-0.24.md`
//! says what came of it. What both have in common, the tests above all, are the engine's files,
//! included here by their paths.
#![forbid(unsafe_code)]

pub mod buffer;
#[path = "../../engine/src/days.rs"]
mod days;
#[path = "../../engine/src/record.rs"]
#[expect(dead_code, unreachable_pub, reason = "the engine's file: here less of it is needed")]
mod record;
pub mod session;

// What the shared tests take of the engine, by the same paths.
#[cfg(test)]
mod context;
#[cfg(test)]
mod hello;
#[cfg(test)]
use sealane_engine::{alert, certificates, policy, provider, tickets};
