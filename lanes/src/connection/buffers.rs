//! A lane's own buffers, which whoever is at work borrows, each apart from the others.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use sealane_engine::buffer::Buffer;
use sealane_engine::session::PARTIAL_BYTES_MAX;

use crate::connection::outbox::Outbox;
use crate::connection::pool::{Pool, READ_BYTES_MAX};
use crate::connection::socket::Socket;
use crate::kernel::Kernel;

/// The buffers of one lane. A connection that has nothing pending needs no other.
pub(crate) struct Buffers {
    /// Bytes as they come from a socket; whoever reads empties it first.
    pub(crate) received: Buffer,
    /// Plaintext from a client, or ciphertext from a backend: never both at a time.
    pub(crate) plain: Buffer,
    pub(crate) outbox: Outbox,
}

/// Room for what the attached socket brings, lent for a call.
pub struct Arrivals<'a> {
    pub(crate) plain: &'a mut Buffer,
    /// Ciphertext, under TLS.
    pub(crate) sealed: &'a mut Buffer,
}

/// Reads that are thrown away at most before a socket is closed.
const DISCARDED_READS_MAX: usize = 16;
/// Room for a full read in records, a server flight, tickets and alerts.
const BUFFER_BYTES: usize = READ_BYTES_MAX + 32 * 1024;

impl Buffers {
    pub(crate) fn new() -> Self {
        Self {
            received: Buffer::with_capacity(READ_BYTES_MAX + PARTIAL_BYTES_MAX),
            plain: Buffer::with_capacity(BUFFER_BYTES),
            outbox: Outbox {
                wire: Buffer::with_capacity(BUFFER_BYTES),
                pool: Pool::new(BUFFER_BYTES),
            },
        }
    }

    /// Throws away what has arrived on a socket that is about to be closed without a reset: the
    /// kernel would send one because of it, and drop what it has not delivered yet.
    pub(crate) fn discard_arrivals<K: Kernel>(&mut self, kernel: &mut K, socket: &Socket) {
        if socket.ended {
            return;
        }
        self.received.clear();
        let spare = &mut self.received.spare_mut()[..READ_BYTES_MAX];
        for _ in 0..DISCARDED_READS_MAX {
            match kernel.recv(socket.fd.as_fd(), spare) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Drops what a handler that failed has left, and replaces what it took with it: a service is
    /// lent the plaintext.
    pub(crate) fn recover(&mut self) {
        if self.plain.capacity() == 0 {
            self.plain = Buffer::with_capacity(BUFFER_BYTES);
        }
        self.plain.clear();
        self.outbox.wire.clear();
    }
}

impl Arrivals<'_> {
    /// What the last read brought.
    pub fn filled(&self) -> &[u8] {
        self.plain.filled()
    }
}
