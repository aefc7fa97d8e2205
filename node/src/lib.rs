//! The Node addon: a service on lanes that hands plaintext to JavaScript. It converts and calls;
//! TLS, certificates, tickets and limits are the engine's and the lanes'.
//!
//! ```text
//!  JavaScript                  this crate                               lanes, engine
//!  new Context(...)    ----->  context::Context                  ----->  engine's Context
//!  new Server(...)     ----->  server::Server, on Node's thread  ----->  mail to each lane
//!  EventRing    <- events ---  events::Events      \\
//!  CommandRing  - commands ->  commands::Commands  -- service::Bridge, on the lane's thread
//! ```
#![deny(unsafe_code)]

use bytering::Limits;
use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;
use sealane_lanes::cause::Cause;

pub mod authorization;
pub mod blocked;
pub mod bridged;
pub mod commands;
pub mod context;
pub mod control;
pub mod events;
mod failing;
pub mod failure;
pub mod listen;
pub mod memory;
pub mod message;
pub mod opened;
pub mod options;
pub mod server;
pub mod service;
pub mod settings;
mod wake;

pub use bytering;

/// Bytes that a ring needs, with its header.
#[napi]
#[expect(non_upper_case_globals, reason = "it is JavaScript's name too")]
pub const regionBytes: u32 = {
    let bytes = bytering::region::bytes(RING);
    assert!(bytes <= u32::MAX as usize);
    #[expect(clippy::cast_possible_truncation, reason = "compared above")]
    let bytes = bytes as u32;
    bytes
};

/// The first place in `bytes` at which a ring can begin.
#[napi]
pub fn region(mut bytes: Uint8Array) -> u32 {
    // At most 127.
    u32::try_from(memory::first_aligned(&mut bytes)).unwrap_or(u32::MAX)
}

/// The labels of why connections end, by number.
#[napi]
pub fn causes() -> Vec<&'static str> {
    Cause::ALL.iter().map(|cause| cause.label()).collect()
}

/// Grows the process's table of open files before there are lanes. Node has threads already, so
/// this waits some milliseconds while the addon is loaded; without it lanes would, while they
/// serve.
#[napi_derive::module_init]
fn grow_table() {
    // It can only fail for want of memory or descriptors; then lanes grow the table as they go.
    let _ = sealane_file_table::grow(DESCRIPTORS_AT_LOAD);
}

/// Descriptors that the table has room for from then on: half a megabyte of the kernel's memory.
const DESCRIPTORS_AT_LOAD: u64 = 65_536;

/// Every ring is one page of this.
pub const RING: Limits = match Limits::new(1 << 20, 1) {
    Ok(limits) => limits,
    Err(_) => unreachable!(),
};
