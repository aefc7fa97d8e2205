//! The terminator's service: plaintext goes to a backend over TCP or a unix socket, and back.

use std::io::{self, ErrorKind};

use sealane_engine::buffer::Buffer;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::{Link, Received};
use sealane_lanes::service::{End, Service};

use crate::access_log::LaneLog;
use crate::backends::{BACKENDS_MAX, RelaySettings};
use crate::proxy_header;

/// One lane's relay.
pub struct Relay {
    lane: usize,
    log: Option<LaneLog>,
}

impl Relay {
    /// The relay of lane number `lane`.
    pub fn new(lane: usize, log: Option<LaneLog>) -> Self {
        Self { lane, log }
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
            let Some(index) = chosen else { return Err(Cause::BackendRefused) };
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
            Stage::Connected | Stage::Left => Err(Cause::BackendReset),
            Stage::Connecting => self.fail_over(relayed, link, settings),
        }
    }

    fn note_connected<K: Kernel>(
        &self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) {
        if relayed.stage != Stage::Connecting {
            return;
        }
        relayed.stage = Stage::Connected;
        link.clear_deadline();
        if let Some(index) = relayed.backend.map(usize::from) {
            settings.of_lane(index, self.lane).note_success();
        }
        if relayed.client_ended && relayed.header.is_empty() {
            link.end_attached();
        }
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
                self.note_connected(relayed, link, settings);
                Ok(taken)
            }
            Err(error) if is_transient(&error) => Ok(0),
            // The kernel says "broken pipe" for a reset behind FIN, and "connection reset" for one
            // without: the answer is whole, and what is left of it can still be read.
            Err(error)
                if relayed.stage == Stage::Connected
                    && (error.kind() == ErrorKind::BrokenPipe || link.has_finished()) =>
            {
                relayed.stage = Stage::Left;
                relayed.discard(bytes)
            }
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
            if relayed.header.is_empty() && relayed.client_ended {
                link.end_attached();
            }
        }
        Ok(relayed.header.is_empty())
    }
}

/// What the relay keeps for one connection.
#[derive(Default)]
pub struct Relayed {
    /// Its index, which [`BACKENDS_MAX`] keeps small.
    backend: Option<u8>,
    /// Backends that were tried, by bit.
    tried: u64,
    stage: Stage,
    /// The client's end came before the backend was connected.
    client_ended: bool,
    /// Bytes of the client that came when the backend had left.
    discarded: u32,
    /// What is left to send of the PROXY header.
    header: Vec<u8>,
}

impl Relayed {
    /// Throws away what nobody is there to take, so that the client gets the rest of its answer.
    fn discard(&mut self, bytes: &[u8]) -> Result<usize, Cause> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.discarded = self.discarded.saturating_add(len);
        if self.discarded > DISCARDED_BYTES_MAX {
            Err(Cause::BackendReset)
        } else {
            Ok(bytes.len())
        }
    }
}

/// What a client may still send to a backend that has answered whole and left.
const DISCARDED_BYTES_MAX: u32 = 16 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    Connected,
    #[default]
    Connecting,
    /// The backend ended its answer and then closed altogether, as it may.
    Left,
}

impl Service for Relay {
    type Connection = Relayed;
    type Settings = RelaySettings;

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
        if self.send_header(relayed, link, settings)? {
            let taken = self.send(relayed, link, settings, plain.filled())?;
            plain.consume(taken);
        }
        Ok(())
    }

    fn client_ended<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        _settings: &RelaySettings,
    ) -> Result<(), Cause> {
        relayed.client_ended = true;
        if relayed.stage == Stage::Connected && relayed.header.is_empty() {
            link.end_attached();
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
            self.note_connected(relayed, link, settings);
        }
        self.send_header(relayed, link, settings).map(|_| ())
    }

    fn attached_readable<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let mut buffer = link.lend_buffer();
        let outcome = match link.receive_attached(&mut buffer) {
            Ok(Received::Bytes { last: false }) => link.send(buffer.filled()),
            Ok(Received::Bytes { last: true }) => link.finish(buffer.filled()),
            Ok(Received::End) => link.finish(&[]),
            Ok(Received::Nothing) => Ok(()),
            Err(_) => self.backend_failed(relayed, link, settings),
        };
        link.return_buffer(buffer);
        outcome
    }

    fn deadline<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        match relayed.stage {
            Stage::Connected | Stage::Left => Ok(()),
            Stage::Connecting => self.fail_over(relayed, link, settings),
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

// An index of a backend has to fit what a connection keeps of it.
const _: () = assert!(BACKENDS_MAX <= 1 << u8::BITS);

fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}
