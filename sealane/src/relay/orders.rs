//! What an operator orders of a lane: backends drained and put back, connections listed and closed,
//! names told that clients asked for.
//!
//! [`LaneDesk`] is the end of whoever orders, [`Attendant`] the lane's. An order goes through a
//! queue of its own, and the lane's mailbox wakes the lane; nothing of it is on the path of a byte.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::mpsc::{Receiver, Sender, channel};

use sealane_lanes::mailbox::Mailbox;
use sealane_lanes::orders::{ConnectionId, Order, Seen};
use serde::Serialize;

use crate::backends::{BackendCounters, RelaySettings};
use crate::connection_number::{ConnectionNumber, NumberGiver};

use super::Relayed;
use super::asked_names::{AskedNames, NameKind, NotedNames};

/// Where orders to a lane are given.
#[derive(Clone)]
pub struct LaneDesk {
    orders: OrderSender,
    mailbox: Mailbox<RelaySettings>,
}

/// What an attendant's orders are put into.
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
    /// A desk of the lane with this mailbox, whose attendant takes what comes out of `orders`.
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

/// An order, with the way for the lane's answer.
pub enum LaneOrder {
    /// Gives a backend no new connections, or some again.
    Backend {
        /// What the lane knows of it.
        backend: Arc<BackendCounters>,
        /// Whether it shall get none.
        is_drained: bool,
        /// Told when it is so.
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
    /// Tells names that clients asked for since the last such order.
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

/// A lane's end.
pub struct Attendant {
    orders: Receiver<LaneOrder>,
    are_there: Arc<Flag>,
    giver: NumberGiver,
    closing: Option<(ConnectionId, Sender<(usize, bool)>)>,
    listing: Option<Listing>,
    pub(super) names: AskedNames,
}

/// A list that is being made.
struct Listing {
    wanted: Wanted,
    listed: Listed,
    tell: Sender<(usize, Listed)>,
    /// The slot where it goes on.
    next: usize,
}

impl Attendant {
    /// An attendant of the lane that gives such numbers, and what its orders are put into.
    pub fn new(giver: NumberGiver) -> (Self, OrderSender) {
        let ((sender, orders), are_there) = (channel(), Arc::<Flag>::default());
        let sender = OrderSender { orders: sender, are_there: Arc::clone(&are_there) };
        let names = AskedNames::default();
        (Self { orders, are_there, giver, closing: None, listing: None, names }, sender)
    }

    /// What the lane is to do.
    pub(super) fn next(&mut self) -> Option<Order<Infallible>> {
        // It was taken before this call, and no connection has ended by it.
        if let Some((_, closed)) = self.closing.take() {
            self.tell(&closed, false);
        }
        if let Some(listing) = &self.listing {
            return Some(Order::Visit(listing.next));
        }
        while self.are_there.0.load(Relaxed) {
            // Before the queue is asked: who gives one later says so again. What it takes back was
            // said behind an order, which is seen then.
            self.are_there.0.swap(false, Acquire);
            let Ok(order) = self.orders.try_recv() else { break };
            // There may be more. It reads what it replaces: else an order that was given meanwhile
            // would be said by this lane, with whom nobody synchronizes.
            self.are_there.0.swap(true, AcqRel);
            match order {
                LaneOrder::Backend { backend, is_drained, done } => {
                    backend.drain(is_drained);
                    self.tell(&done, ());
                }
                LaneOrder::Close { id, closed } => {
                    self.closing = Some((id, closed));
                    return Some(Order::Close(id));
                }
                LaneOrder::List { wanted, listed: tell } => {
                    self.listing =
                        Some(Listing { wanted, listed: Listed::default(), tell, next: 0 });
                    return Some(Order::Visit(0));
                }
                LaneOrder::Names { kind, told } => {
                    let noted = self.names.take(kind);
                    self.tell(&told, noted);
                }
            }
        }
        None
    }

    /// A connection of the lane has ended.
    pub(super) fn note_ended(&mut self, id: ConnectionId) {
        if let Some((_, closed)) = self.closing.take_if(|(closing, _)| *closing == id) {
            self.tell(&closed, true);
        }
    }

    pub(super) fn note_seen(
        &mut self,
        relayed: Option<&Relayed>,
        settings: &RelaySettings,
        seen: &Seen<'_>,
    ) {
        let Some(Listing { wanted, listed, .. }) = &mut self.listing else { return };
        let ip = seen.client.map(|client| client.ip().to_canonical());
        if wanted.client.is_some_and(|client| Some(client) != ip)
            || wanted.server_name.as_deref().is_some_and(|name| Some(name) != seen.server_name)
        {
            return;
        }
        if listed.connections.len() >= wanted.limit {
            listed.has_more = true;
            return;
        }
        listed.connections.push(OpenConnection {
            connection: self.giver.number(seen.id),
            lane: self.giver.lane,
            listener: settings.listener.clone(),
            client: seen.client,
            server_name: seen.server_name.map(ToOwned::to_owned),
            established: seen.is_established,
            backend: relayed.and_then(|relayed| relayed.backend_label(settings)).map(Into::into),
            age_ms: seen.age_ms,
            received_bytes: seen.received_bytes,
            sent_bytes: seen.sent_bytes,
        });
    }

    /// All slots of a visit have been seen.
    pub(super) fn note_visited(&mut self, next: Option<usize>) {
        match (next, &mut self.listing) {
            (Some(next), Some(listing)) if !listing.listed.has_more => listing.next = next,
            _ => {
                if let Some(Listing { listed, tell, .. }) = self.listing.take() {
                    self.tell(&tell, listed);
                }
            }
        }
    }

    fn tell<T>(&self, to: &Sender<(usize, T)>, what: T) {
        // Whoever waited may have given up.
        let _ = to.send((self.giver.lane, what));
    }
}
