//! The terminator's service: plaintext goes to a backend over TCP or a unix socket, in the clear or
//! in TLS, and back.

mod admission;
mod client_limits;
mod clients;
mod relayed;
mod turn;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use sealane_engine::buffer::Buffer;
use sealane_engine::tickets::LaneClock;
use sealane_lanes::cause::Cause;
use sealane_lanes::generation::Generation;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::{Arrivals, Link, Received};
use sealane_lanes::service::{End, Service};

use crate::access_log::LaneLog;
use crate::backends::RelaySettings;

use admission::Visitors;
use clients::LaneClients;
use relayed::Stage;
use turn::RelayTurn;

pub use admission::{Admission, ListenerCounters, OpenConnections};
pub use relayed::Relayed;

/// One lane's relay.
pub struct Relay {
    clients: LaneClients,
    lane: usize,
    log: Option<LaneLog>,
    visitors: Visitors,
}

impl Relay {
    /// The relay of lane number `lane`.
    pub fn new(lane: usize, log: Option<LaneLog>) -> Self {
        Self { clients: LaneClients::default(), lane, log, visitors: Visitors::of_lane(lane) }
    }

    fn turn<'a, 'l, K: Kernel>(
        &'a mut self,
        relayed: &'a mut Relayed,
        link: &'a mut Link<'l, K>,
        settings: &'a RelaySettings,
    ) -> RelayTurn<'a, 'l, K> {
        RelayTurn { lane: self.lane, clients: &mut self.clients, relayed, link, settings }
    }
}

impl Service for Relay {
    type Connection = Relayed;
    type Command = Infallible;
    type Settings = RelaySettings;

    fn prepare(&mut self, generation: &Generation<RelaySettings>, clock: &Arc<LaneClock>) -> bool {
        self.visitors.prepare(generation.listeners.iter().map(|each| &each.settings.admission));
        self.clients.prepare(generation, clock).is_ok()
    }

    fn admits(
        &mut self,
        client: Option<SocketAddr>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        match client {
            Some(client) => settings.admission.admit(client.ip(), &mut self.visitors),
            None => Ok(()),
        }
    }

    fn established<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<Relayed, Cause> {
        let mut relayed = Relayed::default();
        self.turn(&mut relayed, link, settings).connect()?;
        Ok(relayed)
    }

    fn plaintext<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        plain: &mut Buffer,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let mut turn = self.turn(relayed, link, settings);
        // On loopback, and wherever the backend is near, the connection is there already: trying
        // to send at once saves a wake-up.
        if turn.open()? {
            plain.consume(turn.send(plain.filled())?);
        }
        Ok(())
    }

    fn client_ended<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let mut turn = self.turn(relayed, link, settings);
        turn.relayed.client_ended = true;
        if turn.relayed.stage == Stage::Connected && turn.relayed.header.is_empty() {
            return turn.end();
        }
        Ok(())
    }

    fn attached_writable<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let mut turn = self.turn(relayed, link, settings);
        if turn.relayed.stage == Stage::Connecting {
            if turn.link.attached_status().is_err() {
                return turn.fail_over();
            }
            turn.note_reached()?;
        }
        if let Err(error) = turn.link.flush_attached()
            && !turn.relayed.outlives(&error, turn.link)
        {
            return turn.backend_failed();
        }
        turn.open().map(|_| ())
    }

    fn attached_readable<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        arrivals: &mut Arrivals<'_>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let mut turn = self.turn(relayed, link, settings);
        let received = turn.link.receive_attached(arrivals);
        turn.note_secured()?;
        match received {
            // It speaks before TLS has begun, so anybody may be there.
            Ok(Received::Bytes { .. } | Received::End) if turn.relayed.is_unproven(settings) => {
                turn.backend_failed()
            }
            Ok(Received::Bytes { last: false }) => turn.link.send(arrivals.filled()),
            Ok(Received::Bytes { last: true }) => turn.link.finish(arrivals.filled()),
            Ok(Received::End) => turn.link.finish(&[]),
            Ok(Received::Nothing) => Ok(()),
            Err(_) => turn.backend_failed(),
        }
    }

    fn deadline<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let mut turn = self.turn(relayed, link, settings);
        match turn.relayed.stage {
            Stage::Connected | Stage::Left => Ok(()),
            Stage::Connecting | Stage::Securing => turn.fail_over(),
        }
    }

    fn ended(&mut self, relayed: Option<Relayed>, settings: &RelaySettings, end: &End<'_>) {
        if let Some(client) = end.client {
            settings.admission.leave(client.ip(), &mut self.visitors);
        }
        let backend = relayed.and_then(|relayed| relayed.backend).map(usize::from);
        if let Some(index) = backend {
            settings.of_lane(index, self.lane).active.subtract(1);
        }
        if let Some(log) = &mut self.log {
            let label = backend.map(|index| settings.backends[index].label.as_str());
            log.write(end, label, &settings.listener);
        }
    }
}

#[cfg(test)]
mod tests;
