//! The settings of the hand-over in a generation, and each lane's counts of it.

use std::sync::Arc;
use std::time::Duration;

use sealane_lanes::counters::Counter;

use crate::blocked::Blocked;

/// The hand-over of a listener's connections.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Clients that are rejected before the handshake.
    pub blocked: Arc<Blocked>,
    /// By which way.
    pub handover: Handover,
    /// From our end to the client's, without a byte in either direction.
    pub shutdown_timeout: Duration,
    /// Whether small writes leave at once.
    pub no_delay: bool,
    /// The time after which a silent client is probed, if ever.
    pub keep_alive: Option<Duration>,
    /// Whether JavaScript chooses the context of each client.
    pub asks: bool,
}

/// By which way plaintext reaches JavaScript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// HTTP/2 as with [`Self::Socket`], anything else as with [`Self::Ring`].
    Auto,
    /// Through the rings.
    Ring,
    /// Through a pair of sockets, as Node's HTTP/2 wants it.
    Socket,
}

/// One lane's counts of its hand-over, in addition to those of every lane.
#[derive(Debug, Default)]
#[repr(align(128))] // two cache lines, as of sealane_lanes::counters::Counters
pub struct Counts {
    /// Events about handshakes and keys for which there was no room.
    pub dropped: Counter,
    /// Connections that were handed over.
    pub opened: Counter,
    /// Times that a connection found no room in the ring.
    pub stalls: Counter,
    /// Handed over, and not taken yet.
    pub untaken: Counter,
    /// Times that JavaScript had to be woken.
    pub wakes: Counter,
}
