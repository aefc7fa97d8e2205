//! The service's state of one connection: [`Bridged`].

use std::os::fd::OwnedFd;

use sealane_engine::session::ServerSession;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::Link;

use crate::message::{Then, WINDOW_IN, WINDOW_OUT};
use crate::settings::{Handover, Settings};

/// One connection's state between two calls.
pub struct Bridged {
    pub(crate) id: u64,
    pub(crate) way: Way,
    /// JavaScript knows of it.
    pub(crate) is_open: bool,
    /// Whether the connection is in the queue of those that wait for room.
    pub(crate) is_stalled: bool,
    /// The client's end has come, and JavaScript does not know.
    pub(crate) end_due: bool,
    /// JavaScript knows of it.
    pub(crate) end_told: bool,
    /// The command that JavaScript wants behind the end of its data.
    pub(crate) finishing: Option<Then>,
    /// JavaScript's end of the socket, before it is handed over.
    pub(crate) theirs: Option<OwnedFd>,
    /// Bytes of data that JavaScript has not consumed.
    unconsumed: u32,
    /// Bytes of writes that JavaScript has not been credited for.
    uncredited: u32,
    /// Bytes of data so far, to find out whether any come.
    received: u32,
    /// The counts that had not changed at the last deadline, if there are any.
    mark: (u32, u32),
}

/// The way of its plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Ring,
    Socket,
}

impl Way {
    pub(crate) fn of(settings: &Settings, session: Option<&ServerSession>) -> Self {
        let is_http2 = session.and_then(ServerSession::alpn) == Some(b"h2");
        match settings.handover {
            Handover::Auto if is_http2 => Self::Socket,
            Handover::Auto | Handover::Ring => Self::Ring,
            Handover::Socket => Self::Socket,
        }
    }
}

impl Bridged {
    pub(crate) fn new(id: u64, way: Way) -> Self {
        Self {
            id,
            way,
            is_open: false,
            is_stalled: false,
            end_due: false,
            end_told: false,
            finishing: None,
            theirs: None,
            unconsumed: 0,
            uncredited: 0,
            received: 0,
            mark: (0, 0),
        }
    }

    /// Bytes of data that JavaScript still takes.
    pub(crate) fn window(&self) -> usize {
        WINDOW_IN.saturating_sub(self.unconsumed) as usize
    }

    /// Data was handed over.
    pub(crate) fn note_data(&mut self, len: usize) {
        // A window is far below 2^32.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.unconsumed = self.unconsumed.saturating_add(len);
        self.received = self.received.wrapping_add(len);
    }

    /// Data went through the socket.
    pub(crate) fn note_sent(&mut self, len: usize) {
        self.received = self.received.wrapping_add(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// JavaScript has consumed data; more than there was counts as all.
    pub(crate) fn note_consumed(&mut self, len: u32) {
        self.unconsumed = self.unconsumed.saturating_sub(len);
    }

    /// JavaScript has sent `len` bytes.
    ///
    /// # Errors
    /// More than its window: a fault of ours.
    pub(crate) fn note_write(&mut self, len: usize) -> Result<(), Cause> {
        let len = u32::try_from(len).map_err(|_| Cause::Internal)?;
        self.uncredited = self.uncredited.saturating_add(len);
        if self.uncredited > WINDOW_OUT { Err(Cause::Internal) } else { Ok(()) }
    }

    /// Bytes to credit now that `pending_len` bytes of ciphertext are still here: none, if they
    /// would not be worth a message.
    pub(crate) fn credit(&self, pending_len: usize) -> u32 {
        let pending = u32::try_from(pending_len).unwrap_or(u32::MAX);
        let left = self.uncredited.saturating_sub(pending);
        if left < CREDIT_MIN || !self.is_open || self.finishing.is_some() { 0 } else { left }
    }

    /// Notes a credit that was sent to JavaScript.
    pub(crate) fn note_credit(&mut self, len: u32) {
        self.uncredited = self.uncredited.saturating_sub(len);
    }

    /// Whether JavaScript must get the client's end before it gets the close. A lane does not
    /// mention an end that comes behind ours.
    pub(crate) fn owes_end(&self, cause: Cause) -> bool {
        let came = cause == Cause::Clean && self.finishing != Some(Then::Destroy);
        self.way == Way::Ring && !self.end_told && (self.end_due || came)
    }

    /// Whether a byte moved since the last call.
    pub(crate) fn has_moved<K: Kernel>(&mut self, link: &Link<'_, K>) -> bool {
        let pending = u32::try_from(link.pending_len()).unwrap_or(u32::MAX);
        let mark = (self.received, pending);
        std::mem::replace(&mut self.mark, mark) != mark
    }
}

/// JavaScript is credited in lumps of at least this.
const CREDIT_MIN: u32 = WINDOW_OUT / 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_given_in_lumps_for_what_has_left() {
        let mut bridged = Bridged::new(1, Way::Ring);
        bridged.is_open = true;
        bridged.note_write(CREDIT_MIN as usize - 1).unwrap();
        assert_eq!(bridged.credit(0), 0, "a small one waits for more");
        bridged.note_write(100_001).unwrap();
        assert_eq!(bridged.credit(100_000), CREDIT_MIN, "what is pending has not left");
        bridged.note_credit(CREDIT_MIN);
        assert_eq!(bridged.credit(100_000), 0);
        assert_eq!(bridged.credit(0), 100_000);
    }

    #[test]
    fn a_window_is_never_passed() {
        let mut bridged = Bridged::new(1, Way::Ring);
        bridged.note_write(WINDOW_OUT as usize).unwrap();
        assert_eq!(bridged.note_write(1), Err(Cause::Internal));

        bridged.note_data(WINDOW_IN as usize);
        assert_eq!(bridged.window(), 0);
        bridged.note_consumed(u32::MAX);
        assert_eq!(bridged.window(), WINDOW_IN as usize, "hostile credit opens no wider window");
    }
}
