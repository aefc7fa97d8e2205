//! Orders of the control plane, carried out on the lane.

use std::convert::Infallible;
use std::sync::mpsc::Sender;

use sealane_lanes::orders::{ConnectionId, Order, Seen};
use sealane_traffic::backends::RelaySettings;
use sealane_traffic::connection_number::NumberGiver;
use sealane_traffic::lane_orders::{LaneOrder, Listed, OpenConnection, OrderReceiver, Wanted};

use super::Relayed;
use super::asked_names::AskedNames;

/// The lane's end of [`sealane_traffic::lane_orders`].
pub(super) struct Attendant {
    orders: OrderReceiver,
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
    /// An attendant of the lane that gives such numbers, whose orders come by `orders`.
    pub(super) fn new(giver: NumberGiver, orders: OrderReceiver) -> Self {
        Self { orders, giver, closing: None, listing: None, names: AskedNames::default() }
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
        while let Some(order) = self.orders.next_order() {
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
