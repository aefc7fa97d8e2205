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
//! [`ClientOptions`] have the trusted roots, the client's certificate, and versions and protocols.
//! Equal options have equal digests. A process has one [`ClientContexts`], which builds one
//! [`ClientContext`] for equal options, so that roots are parsed only once. A [`ContextSlot`] holds
//! the current context of one destination, and any thread publishes the next one in it. Each lane
//! connects through its own [`LaneClient`], a replica with its own session store, decoded key and
//! reference counts. So a handshake writes no cache line that another lane writes. The name of the
//! server belongs to the connection, never to the context.
//!
//! A context lives as long as it is in use: by a slot, by a lane that has not looked at its slot
//! since, or by a connection. The table holds none.
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
