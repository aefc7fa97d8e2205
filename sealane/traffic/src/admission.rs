//! The clients that a listener lets in, by address and by number, and counts of them.

mod client_limits;
mod listener_counters;
mod refused;

use std::net::IpAddr;
use std::time::Instant;

use sealane_config::PerClient;
use sealane_config::networks::Access;
use sealane_lanes::cause::Cause;

use client_limits::{Client, ClientTable};

pub use client_limits::CLIENT_TABLE_BYTES;
pub use listener_counters::{LaneListenerCounters, ListenerCounters};
pub use refused::RefusedClients;

/// Whom one listener lets in: shared by all lanes and read-only, but for each lane's own counter.
#[derive(Default)]
pub struct Admission {
    /// From where clients may come.
    pub access: Access,
    /// A lane's share of the connections that the listener may have.
    pub connections_max: Option<usize>,
    /// A lane's share of what one client may have.
    pub per_client: PerClient,
    /// What is counted of the listener.
    pub counted: ListenerCounters,
}

/// What one lane knows of the clients that it has let in.
pub struct Visitors {
    lane: usize,
    started_at: Instant,
    /// Made when a listener first limits what a client may have, and kept: connections that it has
    /// counted will leave.
    table: Option<ClientTable>,
}

impl Admission {
    /// Lets a client in that has come from `address`, if it has one that is known; every one that
    /// is let in has to [`leave`](Self::leave).
    ///
    /// # Errors
    /// It may not come in, and nothing is counted.
    pub fn admit(&self, address: Option<IpAddr>, visitors: &mut Visitors) -> Result<(), Cause> {
        if address.is_some_and(|address| !self.access.admits(address)) {
            return Err(Cause::Denied);
        }
        let counters = self.counters(visitors.lane);
        let open = counters.map_or(0, |counters| counters.open.value());
        if self.connections_max.is_some_and(|max| open >= max as u64) {
            return Err(Cause::LimitListener);
        }
        if let Some(address) = address {
            visitors.admit(self, address)?;
        }
        if let Some(counters) = counters {
            counters.open.add(1);
        }
        Ok(())
    }

    /// The connection of a client that was let in from `address` has ended.
    pub fn leave(&self, address: Option<IpAddr>, visitors: &mut Visitors) {
        if let Some(counters) = self.counters(visitors.lane) {
            counters.open.subtract(1);
        }
        if let Some(address) = address {
            visitors.leave(self, address);
        }
    }

    /// What lane number `lane` counts of the listener.
    pub fn counters(&self, lane: usize) -> Option<&LaneListenerCounters> {
        self.counted.lanes.get(lane).map(|counters| &**counters)
    }
}

impl Visitors {
    /// Nothing is known yet on `lane`.
    pub fn of_lane(lane: usize) -> Self {
        Self { lane, started_at: Instant::now(), table: None }
    }

    /// Prepares to count clients for listeners of which these are the admissions.
    pub fn prepare<'a>(&mut self, mut admissions: impl Iterator<Item = &'a Admission>) {
        if self.table.is_none() && admissions.any(|admission| admission.per_client.is_limited()) {
            self.table = Some(ClientTable::new());
        }
    }

    fn admit(&mut self, admission: &Admission, address: IpAddr) -> Result<(), Cause> {
        let share = admission.per_client;
        let Some(table) = self.table.as_mut().filter(|_| share.is_limited()) else {
            return Ok(());
        };
        let now_ms = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        table.admit(Client::of(admission.counted.number, address), share, now_ms)
    }

    fn leave(&mut self, admission: &Admission, address: IpAddr) {
        let counts = admission.per_client.is_limited();
        if let Some(table) = self.table.as_mut().filter(|_| counts) {
            table.leave(Client::of(admission.counted.number, address));
        }
    }
}
