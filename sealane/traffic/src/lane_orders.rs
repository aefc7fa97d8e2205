//! Orders of the control plane to a lane: drain a backend and end that, list and close connections,
//! give the names that clients asked for.
//!
//! [`LaneDesk`] is the sender, [`OrderReceiver`] the lane's end. An order goes through a queue of
//! its own, and the lane's mailbox wakes the lane; nothing of it is on the path of a byte.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::mpsc::{Receiver, Sender, channel};

use sealane_lanes::mailbox::Mailbox;
use sealane_lanes::orders::ConnectionId;
use serde::Serialize;

use crate::access_log::LaneLog;
use crate::admission::RefusedClients;
use crate::backends::{BackendCounters, RelaySettings};
use crate::connection_events::LaneEvents;
use crate::connection_number::{ConnectionNumber, NumberGiver};
use crate::notices::Notices;

/// Where orders to a lane are given.
#[derive(Clone)]
pub struct LaneDesk {
    orders: OrderSender,
    mailbox: Mailbox<RelaySettings>,
}

/// The sending end of a queue of orders.
#[derive(Clone)]
pub struct OrderSender {
    orders: Sender<LaneOrder>,
    are_there: Arc<Flag>,
}

/// Whether there may be orders: asked in each turn of the lane, where the queue would take a fence.
/// On lines of its own, two because the neighbour line is prefetched along.
#[derive(Default)]
#[repr(align(128))]
struct Flag(AtomicBool);

impl LaneDesk {
    /// A desk of the lane with this mailbox, which has the other end of `orders`.
    pub fn new(orders: OrderSender, mailbox: Mailbox<RelaySettings>) -> Self {
        Self { orders, mailbox }
    }

    /// Gives an order. A lane that has ended drops it, and with it the way for the answer.
    pub fn give(&self, order: LaneOrder) {
        if self.orders.orders.send(order).is_ok() {
            self.orders.are_there.0.store(true, Release);
            self.mailbox.ring();
        }
    }
}

/// The lane's end of a queue of orders.
pub struct OrderReceiver {
    orders: Receiver<LaneOrder>,
    are_there: Arc<Flag>,
}

/// A queue of orders to one lane.
pub fn order_queue() -> (OrderSender, OrderReceiver) {
    let ((sender, orders), are_there) = (channel(), Arc::<Flag>::default());
    let sender = OrderSender { orders: sender, are_there: Arc::clone(&are_there) };
    (sender, OrderReceiver { orders, are_there })
}

impl OrderReceiver {
    /// The next order, if there is one.
    pub fn next_order(&self) -> Option<LaneOrder> {
        if !self.are_there.0.load(Relaxed) {
            return None;
        }
        // Before the queue is asked: a later sender sets it again. An order whose flag this takes
        // back is in the queue already.
        self.are_there.0.swap(false, Acquire);
        let order = self.orders.try_recv().ok()?;
        // There may be more. It reads the value that it replaces: a plain store could hide the flag
        // of a sender with which this lane has not synchronized.
        self.are_there.0.swap(true, AcqRel);
        Some(order)
    }
}

/// The parts of a lane that the control plane makes and the lane's service owns.
pub struct LaneParts {
    /// Gives the lane's connections their numbers.
    pub giver: NumberGiver,
    /// The lane's end of the queue of orders.
    pub orders: OrderReceiver,
    /// The lane's end of the access log, if there is one.
    pub log: Option<LaneLog>,
    /// The log of connection events, at level debug.
    pub events: Option<LaneEvents>,
    /// Lines for the operational log.
    pub notices: Notices,
    /// Counts the clients that it refuses.
    pub refused: Arc<RefusedClients>,
}

/// An order, with the way for the lane's answer.
pub enum LaneOrder {
    /// Gives a backend no new connections, or some again.
    Backend {
        /// What the lane knows of it.
        backend: Arc<BackendCounters>,
        /// Whether it shall get none.
        is_drained: bool,
        /// Reports that it is done.
        done: Sender<(usize, ())>,
    },
    /// Resets a connection.
    Close {
        /// Which one.
        id: ConnectionId,
        /// Whether there was one.
        closed: Sender<(usize, bool)>,
    },
    /// Lists open connections.
    List {
        /// Which ones.
        wanted: Wanted,
        /// What was found.
        listed: Sender<(usize, Listed)>,
    },
    /// Takes the names that clients asked for since the last such order.
    Names {
        /// Which ones.
        kind: NameKind,
        /// What was noted; none if no listener has `on_demand`.
        told: Sender<(usize, Option<NotedNames>)>,
    },
}

/// Which connections are listed.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Those of this client.
    pub client: Option<IpAddr>,
    /// At most so many.
    pub limit: usize,
    /// Those that asked for this server name.
    pub server_name: Option<String>,
}

/// Open connections of one lane.
#[derive(Debug, Default)]
pub struct Listed {
    /// Those that were wanted.
    pub connections: Vec<OpenConnection>,
    /// Whether there may be more of them.
    pub has_more: bool,
}

/// An open connection, as it is listed.
#[derive(Debug, Serialize)]
pub struct OpenConnection {
    /// What it is closed by.
    pub connection: ConnectionNumber,
    /// The connection's lane.
    pub lane: usize,
    /// The name of its listener.
    pub listener: String,
    /// The client's address.
    pub client: Option<SocketAddr>,
    /// The server name that it asked for.
    pub server_name: Option<String>,
    /// Whether its handshake is complete.
    pub established: bool,
    /// The backend that it is relayed to.
    pub backend: Option<String>,
    /// From accept until now.
    pub age_ms: u64,
    /// Plaintext bytes received from the client.
    pub received_bytes: u64,
    /// Plaintext bytes sent to the client.
    pub sent_bytes: u64,
}

/// Which names are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// Those with a certificate.
    Served,
    /// Those without one.
    Wanted,
}

/// Names that clients asked for, and how many could not be kept.
#[derive(Debug, Default, Serialize)]
pub struct NotedNames {
    /// The names, each once.
    pub names: Vec<NotedName>,
    /// How often a name had to make room for another, or found none.
    pub dropped: u64,
}

/// A name that clients asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotedName {
    /// In lower case, without a dot at its end.
    pub name: Box<str>,
    /// How often it was asked for.
    pub asked: u32,
    /// The clients who asked for it first if there is no certificate for it, at most four:
    /// addresses, of IPv6 the first half, which is what a house gets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<IpAddr>,
}

impl NotedName {
    /// Notes that this client asked for it too.
    pub fn add_client(&mut self, client: IpAddr) {
        if self.from.len() < CLIENTS_MAX && !self.from.contains(&client) {
            self.from.push(client);
        }
    }
}

/// Clients that are kept of a name.
const CLIENTS_MAX: usize = 4;
