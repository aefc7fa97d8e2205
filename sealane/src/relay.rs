//! The terminator's service: plaintext goes to a backend over TCP or a unix socket, in the clear or
//! in TLS, and back.

mod clients;
mod relayed;

use std::convert::Infallible;
use std::io::{self, ErrorKind};
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
use crate::proxy_header;

use clients::LaneClients;
use relayed::Stage;

pub use relayed::Relayed;

/// One lane's relay.
pub struct Relay {
    clients: LaneClients,
    lane: usize,
    log: Option<LaneLog>,
}

impl Relay {
    /// The relay of lane number `lane`.
    pub fn new(lane: usize, log: Option<LaneLog>) -> Self {
        Self { clients: LaneClients::default(), lane, log }
    }

    /// Connects to the next backend that has not been tried.
    fn connect<K: Kernel>(
        &self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        // Every round tries one backend for good, so it ends.
        loop {
            let chosen = settings.choose(self.lane, relayed.tried, link.now_ms());
            let Some(index) = chosen else {
                return Err(relayed.fault.unwrap_or(Cause::BackendRefused));
            };
            relayed.tried |= 1 << index;
            let counters = settings.of_lane(index, self.lane);
            match link.attach(&settings.backends[index].address) {
                Ok(()) => {
                    counters.active.add(1);
                    relayed.backend = u8::try_from(index).ok();
                    relayed.stage = Stage::Connecting;
                    if settings.proxy_header {
                        relayed.header = proxy_header::encode(link);
                    }
                    link.set_deadline(settings.connect_timeout);
                    return Ok(());
                }
                // Ours is the want of descriptors, not the backend's.
                Err(error) if is_out_of_descriptors(&error) => return Err(Cause::Internal),
                Err(_) => counters.note_failure(link.now_ms()),
            }
        }
    }

    /// The backend did not take the connection: it rests, and the next one is tried.
    fn fail_over<K: Kernel>(
        &self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        if let Some(index) = relayed.backend.take().map(usize::from) {
            let counters = settings.of_lane(index, self.lane);
            counters.active.subtract(1);
            counters.note_failure(link.now_ms());
            if relayed.stage == Stage::Securing {
                let fault = link.attached_fault().unwrap_or(Cause::BackendHandshakeFailed);
                counters.note_handshake_failure(fault);
                relayed.fault = Some(fault);
            }
        }
        link.detach();
        self.connect(relayed, link, settings)
    }

    /// An error on the backend's socket: before it was connected the next backend is tried; later
    /// the client must see that the answer is cut.
    fn backend_failed<K: Kernel>(
        &self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        match relayed.stage {
            Stage::Connected | Stage::Left => {
                if link.attached_fault().is_none() {
                    link.hear_attached_out();
                }
                let fault = link.attached_fault().unwrap_or(Cause::BackendReset);
                // Under TLS 1.3 a backend refuses our certificate when all seems well to us.
                if let Some(index) = relayed.backend.map(usize::from)
                    && fault == Cause::BackendHandshakeFailed
                {
                    let counters = settings.of_lane(index, self.lane);
                    counters.note_handshake_failure(fault);
                    counters.note_failure(link.now_ms());
                }
                Err(fault)
            }
            Stage::Connecting | Stage::Securing => self.fail_over(relayed, link, settings),
        }
    }

    /// The backend's address took the connection.
    fn note_reached<K: Kernel>(
        &self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        match (relayed.stage, relayed.tls(settings)) {
            (Stage::Connecting, None) => return self.note_connected(relayed, link, settings),
            (Stage::Connecting, Some(_)) => relayed.stage = Stage::Securing,
            (Stage::Connected | Stage::Left | Stage::Securing, _) => {}
        }
        Ok(())
    }

    /// The handshake with the backend may be complete.
    fn note_secured<K: Kernel>(
        &self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        if relayed.stage == Stage::Securing
            && let Some(session) = link.attached_session().filter(|s| s.is_established())
            && let Some(index) = relayed.backend.map(usize::from)
        {
            settings.of_lane(index, self.lane).note_handshake(session.resumed());
            return self.note_connected(relayed, link, settings);
        }
        Ok(())
    }

    fn note_connected<K: Kernel>(
        &self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        relayed.stage = Stage::Connected;
        link.clear_deadline();
        if let Some(index) = relayed.backend.map(usize::from) {
            settings.of_lane(index, self.lane).note_success();
        }
        if relayed.client_ended && relayed.header.is_empty() {
            return self.end(relayed, link, settings);
        }
        Ok(())
    }

    /// Passes the client's end on.
    fn end<K: Kernel>(
        &self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        match link.end_attached() {
            Err(error) if !relayed.outlives(&error, link) => {
                self.backend_failed(relayed, link, settings)
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Says what comes before the client's bytes: the PROXY header, in the clear, and then our end
    /// of the handshake. Returns whether the backend may get the client's bytes.
    fn open<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<bool, Cause> {
        let is_through = self.send_header(relayed, link, settings)?;
        if is_through
            && relayed.stage == Stage::Securing
            && link.attached_session().is_none()
            && let Some(tls) = relayed.tls(settings)
        {
            let session = self.clients.begin(tls)?;
            if link.secure_attached(session).is_err() {
                self.fail_over(relayed, link, settings)?;
            }
        }
        // A plain backend gets them while it is being connected to; under TLS nothing may leave
        // before the handshake is complete, whichever backend it is by now.
        Ok(is_through && !relayed.is_unproven(settings))
    }

    /// Sends the front of `bytes` to the backend; 0 when it takes nothing for now.
    fn send<K: Kernel>(
        &self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
        bytes: &[u8],
    ) -> Result<usize, Cause> {
        if relayed.stage == Stage::Left {
            return relayed.discard(bytes);
        }
        match link.send_attached(bytes) {
            Ok(taken) => {
                self.note_reached(relayed, link, settings)?;
                Ok(taken)
            }
            Err(error) if is_transient(&error) => Ok(0),
            Err(error) if relayed.outlives(&error, link) => relayed.discard(bytes),
            Err(_) => self.backend_failed(relayed, link, settings).map(|()| 0),
        }
    }

    /// Sends what is left of the PROXY header; returns whether it is through.
    fn send_header<K: Kernel>(
        &self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<bool, Cause> {
        if relayed.header.is_empty() {
            return Ok(true);
        }
        let header = std::mem::take(&mut relayed.header);
        let tried = relayed.tried;
        let taken = self.send(relayed, link, settings, &header)?;
        if tried == relayed.tried {
            relayed.header = header[taken..].to_vec();
            let is_through = relayed.header.is_empty() && relayed.stage == Stage::Connected;
            if is_through && relayed.client_ended {
                self.end(relayed, link, settings)?;
            }
        }
        Ok(relayed.header.is_empty())
    }
}

impl Service for Relay {
    type Connection = Relayed;
    type Command = Infallible;
    type Settings = RelaySettings;

    fn prepare(&mut self, generation: &Generation<RelaySettings>, clock: &Arc<LaneClock>) -> bool {
        self.clients.prepare(generation, clock).is_ok()
    }

    fn established<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<Relayed, Cause> {
        let mut relayed = Relayed::default();
        self.connect(&mut relayed, link, settings)?;
        Ok(relayed)
    }

    fn plaintext<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        plain: &mut Buffer,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        // On loopback, and wherever the backend is near, the connection is there already: trying
        // to send at once saves a wake-up.
        if self.open(relayed, link, settings)? {
            let taken = self.send(relayed, link, settings, plain.filled())?;
            plain.consume(taken);
        }
        Ok(())
    }

    fn client_ended<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        relayed.client_ended = true;
        if relayed.stage == Stage::Connected && relayed.header.is_empty() {
            return self.end(relayed, link, settings);
        }
        Ok(())
    }

    fn attached_writable<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        if relayed.stage == Stage::Connecting {
            if link.attached_status().is_err() {
                return self.fail_over(relayed, link, settings);
            }
            self.note_reached(relayed, link, settings)?;
        }
        if let Err(error) = link.flush_attached()
            && !relayed.outlives(&error, link)
        {
            return self.backend_failed(relayed, link, settings);
        }
        self.open(relayed, link, settings).map(|_| ())
    }

    fn attached_readable<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        arrivals: &mut Arrivals<'_>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let received = link.receive_attached(arrivals);
        self.note_secured(relayed, link, settings)?;
        match received {
            // It speaks before TLS has begun, so anybody may be there.
            Ok(Received::Bytes { .. } | Received::End) if relayed.is_unproven(settings) => {
                self.backend_failed(relayed, link, settings)
            }
            Ok(Received::Bytes { last: false }) => link.send(arrivals.filled()),
            Ok(Received::Bytes { last: true }) => link.finish(arrivals.filled()),
            Ok(Received::End) => link.finish(&[]),
            Ok(Received::Nothing) => Ok(()),
            Err(_) => self.backend_failed(relayed, link, settings),
        }
    }

    fn deadline<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        match relayed.stage {
            Stage::Connected | Stage::Left => Ok(()),
            Stage::Connecting | Stage::Securing => self.fail_over(relayed, link, settings),
        }
    }

    fn ended(&mut self, relayed: Option<Relayed>, settings: &RelaySettings, end: &End<'_>) {
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

fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}

#[cfg(test)]
mod tests;
