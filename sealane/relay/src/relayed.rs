//! What the relay keeps for one connection, and how far that has come with its backend.

use std::io::{self, ErrorKind};

use sealane_config::BACKENDS_MAX;
use sealane_engine::client_certificates::Distrust;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::Link;
use sealane_traffic::backends::{Destination, RelaySettings};
use sealane_traffic::proxy_header::Source;

use super::cancel::CancelRequest;

/// What the relay keeps for one connection.
#[derive(Default)]
pub struct Relayed {
    /// Why the last handshake with a backend failed.
    pub(super) cause: Option<Cause>,
    /// The position of where its plaintext goes.
    pub(super) destination: u32,
    /// The index of its backend there, which [`BACKENDS_MAX`] keeps small.
    pub(super) backend: Option<u8>,
    /// Backends that were tried, by bit.
    pub(super) tried: u64,
    pub(super) stage: Stage,
    /// The client has asked for encryption by Kerberos.
    pub(super) asked_gss: bool,
    /// The backend has said yes to TLS, where it has to be asked.
    pub(super) has_consent: bool,
    /// The client has sent something behind its handshake, as far as that is of interest.
    pub(super) has_spoken: bool,
    /// The client's end came before the backend was connected.
    pub(super) client_ended: bool,
    /// Bytes of the client that came when the backend had left.
    pub(super) discarded: u32,
    /// Apart, so that most connections are without the room for it.
    seldom: Option<Box<Seldom>>,
}

/// What few connections have, or not for long: what stays is here, what does not is in boxes.
#[derive(Default)]
struct Seldom {
    /// Why the client's certificate, which was only asked for, is not believed.
    doubted: Option<Box<Distrust>>,
    /// What it has only until it is open to its backend.
    opening: Option<Box<Opening>>,
    /// What a PROXY header announced of it.
    source: Option<Source>,
}

/// State of a connection until it is open to its backend.
#[derive(Default)]
struct Opening {
    /// Bytes left to send before all others, such as a PROXY header.
    header: Vec<u8>,
    /// Bytes of a request in the clear that were searched for its end.
    searched: usize,
    /// The request to cancel a query, if the connection is nothing else.
    cancel: Option<CancelRequest>,
}

// With data of a PROXY header, an idle connection takes 96 bytes more, with the allocator's.
const _: () = assert!(size_of::<Seldom>() == 88);

impl Relayed {
    /// Why the client's certificate is not believed.
    pub(super) fn doubted(&self) -> Option<&Distrust> {
        self.seldom.as_ref()?.doubted.as_deref()
    }

    pub(super) fn doubt(&mut self, distrust: Distrust) {
        self.seldom.get_or_insert_default().doubted = Some(Box::new(distrust));
    }

    /// What a PROXY header announced.
    pub(super) fn source(&self) -> Option<&Source> {
        self.seldom.as_ref()?.source.as_ref()
    }

    pub(super) fn announce(&mut self, source: Source) {
        self.seldom.get_or_insert_default().source = Some(source);
    }

    /// Bytes of a request in the clear that were searched for its end.
    pub(super) fn searched(&self) -> usize {
        self.opening().map_or(0, |opening| opening.searched)
    }

    pub(super) fn note_searched(&mut self, len: usize) {
        let seldom = self.seldom.get_or_insert_default();
        seldom.opening.get_or_insert_default().searched = len;
    }

    /// Whether something is left to send before everything else.
    pub(super) fn has_header(&self) -> bool {
        self.opening().is_some_and(|opening| !opening.header.is_empty())
    }

    /// Takes what is left of that.
    pub(super) fn take_header(&mut self) -> Vec<u8> {
        let Some(opening) = self.opening_mut() else { return Vec::new() };
        opening.searched = 0;
        let header = std::mem::take(&mut opening.header);
        self.free_empty();
        header
    }

    pub(super) fn set_header(&mut self, header: Vec<u8>) {
        if !header.is_empty() || self.seldom.is_some() {
            let opening = self.seldom.get_or_insert_default().opening.get_or_insert_default();
            (opening.header, opening.searched) = (header, 0);
        }
        self.free_empty();
    }

    /// The request to cancel a query that it is, if it is one.
    pub(super) fn cancel(&self) -> Option<&CancelRequest> {
        self.opening()?.cancel.as_ref()
    }

    pub(super) fn cancel_mut(&mut self) -> Option<&mut CancelRequest> {
        self.opening_mut()?.cancel.as_mut()
    }

    pub(super) fn set_cancel(&mut self, request: CancelRequest) {
        let seldom = self.seldom.get_or_insert_default();
        seldom.opening.get_or_insert_default().cancel = Some(request);
    }

    fn free_empty(&mut self) {
        let Some(seldom) = &mut self.seldom else { return };
        seldom.opening.take_if(|opening| opening.header.is_empty() && opening.cancel.is_none());
        let is_empty = |seldom: &mut Box<Seldom>| {
            seldom.opening.is_none() && seldom.doubted.is_none() && seldom.source.is_none()
        };
        self.seldom.take_if(is_empty);
    }

    fn opening_mut(&mut self) -> Option<&mut Opening> {
        self.seldom.as_mut()?.opening.as_deref_mut()
    }

    fn opening(&self) -> Option<&Opening> {
        self.seldom.as_ref()?.opening.as_deref()
    }

    /// The backend that it is with, as it was written.
    pub(super) fn backend_label<'s>(&self, settings: &'s RelaySettings) -> Option<&'s str> {
        let index = usize::from(self.backend?);
        Some(&self.destination(settings).backends[index].label)
    }

    /// Where its plaintext goes.
    pub(super) fn destination<'s>(&self, settings: &'s RelaySettings) -> &'s Destination {
        &settings.destinations[self.destination as usize]
    }

    /// Whether `error` only says that the backend has left behind a whole answer.
    pub(super) fn outlives<K: Kernel>(&mut self, error: &io::Error, link: &Link<'_, K>) -> bool {
        // The kernel says "broken pipe" for a reset behind FIN, and "connection reset" for one
        // without: the answer is whole, and what is left of it can still be read.
        let has_left = self.stage == Stage::Connected
            && (error.kind() == ErrorKind::BrokenPipe || link.has_finished());
        if has_left {
            self.stage = Stage::Left;
        }
        has_left
    }

    /// Throws away what nobody is there to take, so that the client gets the rest of its answer.
    pub(super) fn discard(&mut self, bytes: &[u8]) -> Result<usize, Cause> {
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

/// How far a connection has come with its backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    Connected,
    #[default]
    Connecting,
    /// The backend ended its answer and then closed altogether, as it may.
    Left,
    /// Connected, but the TLS handshake with it is not complete.
    Securing,
}

impl Stage {
    pub(super) fn is_beginning(self) -> bool {
        matches!(self, Self::Connecting | Self::Securing)
    }
}

// An index of a backend has to fit what a connection keeps of it.
const _: () = assert!(BACKENDS_MAX <= 1 << u8::BITS);
