//! TLS as a client: one context for equal options in the whole process, one replica of it per
//! lane, swapped at any time.
//!
//! ```text
//!   control plane                                           a lane's thread
//!   -------------                                           ---------------
//!   ClientOptions -- digest --> ClientContexts
//!                                     | built once
//!                                     v
//!                               ClientContext --> ContextSlot --> LaneClient --> ClientSession
//!                                                 publish         looks at the slot before each
//!                                                                 connection, has its own replica
//! ```
//!
//! [`ClientOptions`] say whom to trust, with which certificate to answer, and what to speak. Equal
//! options have equal digests, and [`ClientContexts`], of which a process has one, builds one
//! [`ClientContext`] for them: roots are parsed there and nowhere else. A [`ContextSlot`] stands
//! for one destination; any thread publishes the next context in it. Each lane connects through its
//! own [`LaneClient`], whose replica has its own session store, decoded key and reference counts:
//! a handshake writes no cache line that another lane writes. The name of the server belongs to the
//! connection, never to the context.
//!
//! A context lives as long as somebody holds it: a slot, a lane that has not looked at its slot
//! since, or a connection. The table holds none.
//!
//! ```
//! use sealane_engine::client::{ClientContexts, ClientOptions, ContextSlot, LaneClient, Roots};
//! use sealane_engine::tickets::{LaneClock, UnixSeconds};
//! # fn example(pem: &[u8], now: UnixSeconds) -> Result<(), Box<dyn std::error::Error>> {
//! let mut contexts = ClientContexts::new();
//! let options = ClientOptions::trusting(Roots::from_pem("ca.pem", pem)?);
//! let slot = ContextSlot::new(contexts.context(&options)?);
//!
//! // On each lane:
//! let clock = std::sync::Arc::new(LaneClock::new(now));
//! let mut lane = LaneClient::new(&slot, clock)?;
//! let session = lane.connect("redis.example".try_into()?)?;
//! # drop(session);
//! # Ok(())
//! # }
//! ```

mod context;
mod error;
mod options;
mod sessions;
mod slot;
mod table;
#[cfg(test)]
mod tests;
mod verifier;

pub use context::{ClientContext, LANE_SESSIONS_MAX};
pub use error::{ClientOptionsError, ConnectError};
pub use options::{
    ALPN_PROTOCOLS_MAX, ClientIdentity, ClientOptions, OptionsDigest, ROOTS_BYTES_MAX, ROOTS_MAX,
    Roots, Verification,
};
pub use slot::{ContextSlot, LaneClient};
pub use table::{CLIENT_CONTEXTS_MAX, ClientContextCounts, ClientContexts};
