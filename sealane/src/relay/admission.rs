//! Whom a listener lets in, and how many.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use sealane_lanes::cause::Cause;
use sealane_lanes::counters::Counter;

use super::client_limits::{Client, ClientTable};
use crate::config::PerClient;
use crate::networks::Access;

/// Whom one listener lets in: shared by all lanes and read-only, but for each lane's own counter.
#[derive(Default)]
pub struct Admission {
    /// From where clients may come.
    pub access: Access,
    /// A lane's share of the connections that the listener may have.
    pub connections_max: Option<usize>,
    /// A lane's share of what one client may have.
    pub per_client: PerClient,
    /// What is counted of the listener; kept across generations.
    pub counted: ListenerCounters,
}

/// What lanes count of a listener.
#[derive(Clone, Default)]
pub struct ListenerCounters {
    /// Tells it from others in tables of lanes; counted from 1, the same in every generation.
    pub number: u32,
    /// By lane: its open connections.
    pub open: Vec<Arc<OpenConnections>>,
}

/// Connections that one lane has open for one listener.
#[derive(Default)]
#[repr(align(128))]
pub struct OpenConnections(pub Counter);

/// What one lane knows of the clients that it has let in.
pub(super) struct Visitors {
    lane: usize,
    started_at: Instant,
    /// Made when a listener first limits what a client may have, and kept: connections that it has
    /// counted will leave.
    table: Option<ClientTable>,
}

impl Admission {
    /// Lets a client in that has come from `address`; every one that is let in has to
    /// [`leave`](Self::leave).
    ///
    /// # Errors
    /// It may not come in, and nothing is counted.
    pub(super) fn admit(&self, address: IpAddr, visitors: &mut Visitors) -> Result<(), Cause> {
        if !self.access.admits(address) {
            return Err(Cause::Denied);
        }
        let open = self.counted.open.get(visitors.lane).map(|open| &open.0);
        let count = open.map_or(0, Counter::value);
        if self.connections_max.is_some_and(|max| count >= max as u64) {
            return Err(Cause::LimitListener);
        }
        visitors.admit(self, address)?;
        if let Some(open) = open {
            open.add(1);
        }
        Ok(())
    }

    /// The connection of a client that was let in from `address` has ended.
    pub(super) fn leave(&self, address: IpAddr, visitors: &mut Visitors) {
        if let Some(open) = self.counted.open.get(visitors.lane) {
            open.0.subtract(1);
        }
        visitors.leave(self, address);
    }
}

impl Visitors {
    pub(super) fn of_lane(lane: usize) -> Self {
        Self { lane, started_at: Instant::now(), table: None }
    }

    /// Prepares to count clients for listeners of which these are the admissions.
    pub(super) fn prepare<'a>(&mut self, mut admissions: impl Iterator<Item = &'a Admission>) {
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
