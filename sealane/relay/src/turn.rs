//! One call about a connection: what the relay does with its client, its backend, and what it keeps
//! of both.

mod cancel;

use std::io::{self, ErrorKind};

use sealane_config::Spoken;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::Link;
use sealane_traffic::backends::{BackendTls, Destination, RelaySettings, Unavailable};
use sealane_traffic::connection_events::{ConnectionEvent, LaneEvents};
use sealane_traffic::connection_number::NumberGiver;
use sealane_traffic::proxy_header;

use super::clients::LaneClients;
use super::postgres;
use super::relayed::{Relayed, Stage};

/// A connection with what the relay holds of it for the length of a call.
pub(super) struct RelayTurn<'a, 'l, K: Kernel> {
    pub(super) clients: &'a mut LaneClients,
    /// Where the plaintext goes.
    pub(super) destination: &'a Destination,
    /// By which its life is logged, if it is.
    pub(super) events: Option<&'a mut LaneEvents>,
    /// Who gives the connection its number.
    pub(super) giver: NumberGiver,
    /// The number of the lane.
    pub(super) lane: usize,
    pub(super) link: &'a mut Link<'l, K>,
    pub(super) relayed: &'a mut Relayed,
    pub(super) settings: &'a RelaySettings,
}

impl<'s, K: Kernel> RelayTurn<'s, '_, K> {
    fn note(&mut self, event: ConnectionEvent<'_>) {
        if let Some(events) = &mut self.events {
            events.note(self.giver.number(self.link.id()), event);
        }
    }

    /// Connects to the next backend that has not been tried.
    pub(super) fn connect(&mut self) -> Result<(), Cause> {
        // Every round tries one backend for good, so it ends.
        loop {
            let chosen = self.destination.choose(self.lane, self.relayed.tried, self.link.now_ms());
            let index = chosen.map_err(|none| match none {
                Unavailable::Full => Cause::LimitBackend,
                Unavailable::Nobody => self.relayed.cause.unwrap_or(Cause::BackendRefused),
                Unavailable::Unresolved => Cause::BackendUnresolved,
            })?;
            self.relayed.tried |= 1 << index;
            let backend = &self.destination.backends[index].label;
            self.note(ConnectionEvent::Routed { backend });
            let counters = self.destination.of_lane(index, self.lane);
            match self.link.attach(&self.destination.backends[index].address) {
                Ok(()) => {
                    // A unix socket has no such options, nor any need of them.
                    let _ = self.link.watch_over_attached(self.settings.liveness);
                    counters.active.add(1);
                    self.relayed.backend = u8::try_from(index).ok();
                    self.relayed.stage = Stage::Connecting;
                    let first_words = self.first_words();
                    self.relayed.set_header(first_words);
                    self.relayed.has_consent = false;
                    if let Some(request) = self.relayed.cancel_mut() {
                        request.restart();
                    }
                    self.link.set_deadline(self.settings.connect_timeout);
                    return Ok(());
                }
                // Ours is the want of descriptors, not the backend's.
                Err(error) if is_out_of_descriptors(&error) => return Err(Cause::LimitDescriptors),
                Err(_) => counters.note_failure(self.link.now_ms()),
            }
        }
    }

    /// What a backend is told before everything else.
    fn first_words(&mut self) -> Vec<u8> {
        if self.settings.spoken == Spoken::Redirect {
            // The request, as the preamble has left it.
            return self.relayed.take_header();
        }
        if self.settings.spoken == Spoken::Postgres && self.tls().is_some() {
            return postgres::SSL_REQUEST.to_vec();
        }
        let accepts = self.settings.accept_proxy.as_ref();
        let passed = accepts.map_or(&[][..], |accepts| &accepts.passed_values);
        let announced = self.relayed.source().map(|source| source.announced(self.link, passed));
        let (header, is_verified) =
            (self.destination.proxy_header, self.relayed.doubted().is_none());
        let number = self.giver.number(self.link.id());
        proxy_header::encode(self.link, header, number, announced.as_ref(), is_verified)
    }

    /// Whether the backend was asked whether TLS may begin, and has not said.
    pub(super) fn awaits_consent(&self) -> bool {
        self.settings.spoken == Spoken::Postgres
            && self.relayed.stage == Stage::Securing
            && !self.relayed.has_consent
    }

    /// The backend did not take the connection: it rests, and the next one is tried.
    pub(super) fn fail_over(&mut self) -> Result<(), Cause> {
        if let Some(index) = self.relayed.backend.take().map(usize::from) {
            let counters = self.destination.of_lane(index, self.lane);
            counters.active.subtract(1);
            counters.note_failure(self.link.now_ms());
            if self.relayed.stage == Stage::Securing {
                let cause = self.link.attached_cause().unwrap_or(Cause::BackendHandshakeFailed);
                counters.note_handshake_failure(cause);
                self.relayed.cause = Some(cause);
            }
        }
        if self.relayed.cancel().is_some() {
            return self.cancel_at_next();
        }
        self.link.detach();
        self.connect()
    }

    /// An error on the backend's socket: before it was connected the next backend is tried; later
    /// the client must see that the answer is cut.
    pub(super) fn backend_failed(&mut self) -> Result<(), Cause> {
        match self.relayed.stage {
            Stage::Connected | Stage::Left if self.relayed.cancel().is_some() => {
                self.cancel_at_next()
            }
            Stage::Connected | Stage::Left => {
                if self.link.attached_cause().is_none() {
                    self.link.hear_attached_out();
                }
                let cause = self.link.attached_cause().unwrap_or(Cause::BackendReset);
                // Under TLS 1.3 a backend refuses our certificate when all seems well to us.
                if let Some(index) = self.relayed.backend.map(usize::from)
                    && cause == Cause::BackendHandshakeFailed
                {
                    let counters = self.destination.of_lane(index, self.lane);
                    counters.note_handshake_failure(cause);
                    counters.note_failure(self.link.now_ms());
                }
                Err(cause)
            }
            Stage::Connecting | Stage::Securing => self.fail_over(),
        }
    }

    /// The backend's address took the connection.
    pub(super) fn note_reached(&mut self) -> Result<(), Cause> {
        match (self.relayed.stage, self.tls()) {
            (Stage::Connecting, None) => return self.note_connected(),
            (Stage::Connecting, Some(_)) => self.relayed.stage = Stage::Securing,
            (Stage::Connected | Stage::Left | Stage::Securing, _) => {}
        }
        Ok(())
    }

    /// The handshake with the backend may be complete.
    pub(super) fn note_secured(&mut self) -> Result<(), Cause> {
        if self.relayed.stage == Stage::Securing
            && let Some(session) = self.link.attached_session().filter(|s| s.is_established())
            && let Some(index) = self.relayed.backend.map(usize::from)
        {
            self.destination.of_lane(index, self.lane).note_handshake(session.resumed());
            return self.note_connected();
        }
        Ok(())
    }

    fn note_connected(&mut self) -> Result<(), Cause> {
        self.note(ConnectionEvent::Connected);
        self.relayed.stage = Stage::Connected;
        self.link.clear_deadline();
        if let Some(index) = self.relayed.backend.map(usize::from) {
            self.destination.of_lane(index, self.lane).note_success();
        }
        if self.relayed.client_ended && !self.relayed.has_header() {
            return self.end();
        }
        Ok(())
    }

    /// Passes the client's end on.
    pub(super) fn end(&mut self) -> Result<(), Cause> {
        match self.link.end_attached() {
            Err(error) if !self.relayed.outlives(&error, self.link) => self.backend_failed(),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Says what comes before the client's bytes: the PROXY header, in the clear, and then our end
    /// of the handshake. Returns whether the backend may get the client's bytes.
    pub(super) fn open(&mut self) -> Result<bool, Cause> {
        let is_through = self.send_header()?;
        if is_through
            && self.relayed.stage == Stage::Securing
            && !self.awaits_consent()
            && self.link.attached_session().is_none()
            && let Some(tls) = self.tls()
        {
            let session = self.clients.begin(tls)?;
            if self.link.secure_attached(session).is_err() {
                self.fail_over()?;
            }
        }
        // A plain backend gets them while it is being connected to; under TLS nothing may leave
        // before the handshake is complete, whichever backend it is by now.
        let is_open = is_through && !self.is_unproven();
        if is_open {
            self.send_cancel()?;
        }
        Ok(is_open)
    }

    /// Sends the front of `bytes` to the backend; 0 when it takes nothing for now.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<usize, Cause> {
        if self.relayed.stage == Stage::Left {
            return self.relayed.discard(bytes);
        }
        match self.link.send_attached(bytes) {
            Ok(taken) => {
                self.note_reached()?;
                Ok(taken)
            }
            Err(error) if is_transient(&error) => Ok(0),
            Err(error) if self.relayed.outlives(&error, self.link) => self.relayed.discard(bytes),
            Err(_) => self.backend_failed().map(|()| 0),
        }
    }

    /// How TLS is spoken to the backend that is being tried, if it is.
    fn tls(&self) -> Option<&'s BackendTls> {
        self.destination.backends[usize::from(self.relayed.backend?)].tls.as_ref()
    }

    /// Whether the backend has yet to prove its name: no plaintext may pass in either direction.
    pub(super) fn is_unproven(&self) -> bool {
        self.relayed.stage.is_beginning() && self.tls().is_some()
    }

    /// Sends what is left of the PROXY header; returns whether it is through.
    fn send_header(&mut self) -> Result<bool, Cause> {
        if !self.relayed.has_header() {
            return Ok(true);
        }
        let header = self.relayed.take_header();
        let tried = self.relayed.tried;
        let taken = self.send(&header)?;
        if tried == self.relayed.tried {
            self.relayed.set_header(header[taken..].to_vec());
            let is_through = !self.relayed.has_header() && self.relayed.stage == Stage::Connected;
            if is_through && self.relayed.client_ended {
                self.end()?;
            }
        }
        Ok(!self.relayed.has_header())
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}
