//! The Node addon: a service on lanes that hands plaintext to JavaScript. It converts and calls; TLS,
//! certificates, tickets and limits are the engine's and the lanes'.
//!
//! ```text
//!  JavaScript                  this crate                               lanes, engine
//!  new Context(...)    ----->  context::Context                  ----->  engine's Context
//!  new Server(...)     ----->  server::Server, on Node's thread  ----->  mail to each lane
//!  EventRing    <- events ---  events::Events      \\
//!  CommandRing  - commands ->  commands::Commands  -- service::Bridge, on the lane's thread
//! ```
#![deny(unsafe_code)]

use std::sync::Arc;

use bytering::Limits;
use sealane_engine::context::Context;

pub mod authorization;
pub mod bridged;
pub mod commands;
pub mod control;
pub mod events;
pub mod failure;
pub mod memory;
pub mod message;
pub mod opened;
pub mod options;
pub mod service;
pub mod settings;

/// Every ring is one page of this.
pub const RING: Limits = match Limits::new(1 << 20, 1) {
    Ok(limits) => limits,
    Err(_) => unreachable!(),
};

/// Names a context for as long as anyone holds it: where it lies, in units that no two share.
pub fn context_id(context: &Arc<Context>) -> u64 {
    (Arc::as_ptr(context).addr() / 16) as u64
}
