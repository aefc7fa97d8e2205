//! How bytes leave a lane: what is to be sent now, and what a socket has not taken yet.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;

use sealane_engine::buffer::Buffer;

use crate::connection::outlet::Outlet;
use crate::connection::pool::{Pending, Pool};
use crate::kernel::Kernel;
use crate::reactor::Reactor;

/// What is to be sent, and the buffers for what must wait.
pub(crate) struct Outbox {
    /// Ciphertext for a client or a backend.
    pub(crate) wire: Buffer,
    pub(crate) pool: Pool,
}

/// Why bytes could not leave.
pub(crate) enum PushError {
    /// More waits than [`OUTGOING_BYTES_MAX`].
    Flooded,
    /// The peer is gone.
    Peer(io::Error),
    /// The kernel cannot say when there is room again.
    Watch(io::Error),
}

/// Most ciphertext that waits for one peer beyond what a single read brings.
const OUTGOING_BYTES_MAX: usize = 1 << 20;

impl Outbox {
    /// Sends the wire buffer, behind what waits already; what the socket does not take waits from
    /// now on. Returns whether nothing does.
    pub(crate) fn push<K: Kernel>(
        &mut self,
        reactor: &mut Reactor<K>,
        mut outlet: Outlet<'_>,
    ) -> Result<bool, PushError> {
        if let Some(waiting) = outlet.outgoing.take() {
            if waiting.len() + self.wire.len() > OUTGOING_BYTES_MAX {
                return Err(PushError::Flooded);
            }
            *outlet.outgoing = Some(if self.wire.is_empty() {
                waiting
            } else {
                let joined = [waiting.filled(), self.wire.filled()].concat();
                self.pool.give_back(waiting);
                self.wire.clear();
                Pending::holding(&joined)
            });
            return Ok(false);
        }
        if !self.wire.is_empty() {
            let taken = outlet.send(reactor, self.wire.filled())?;
            self.wire.consume(taken);
        }
        if !self.wire.is_empty() {
            *outlet.outgoing = Some(self.pool.detach(&mut self.wire));
            reactor.watch_room(outlet.socket, outlet.token).map_err(PushError::Watch)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Sends what waits. Returns whether nothing does any more.
    pub(crate) fn flush<K: Kernel>(
        &mut self,
        reactor: &mut Reactor<K>,
        mut outlet: Outlet<'_>,
    ) -> Result<bool, PushError> {
        let Some(mut waiting) = outlet.outgoing.take() else { return Ok(true) };
        let taken = outlet.send(reactor, waiting.filled())?;
        waiting.consume(taken);
        if !waiting.is_empty() {
            *outlet.outgoing = Some(waiting);
            reactor.watch_room(outlet.socket, outlet.token).map_err(PushError::Watch)?;
            return Ok(false);
        }
        self.pool.give_back(waiting);
        Ok(true)
    }
}

impl Outlet<'_> {
    /// Returns how much of `bytes` the socket takes now.
    fn send<K: Kernel>(
        &mut self,
        reactor: &mut Reactor<K>,
        bytes: &[u8],
    ) -> Result<usize, PushError> {
        self.socket.writable = false;
        match reactor.kernel.send(self.socket.fd.as_fd(), bytes, self.end_follows) {
            Ok(taken) => {
                self.socket.writes = (self.socket.writes + 1).min(2);
                *self.active_ms = reactor.now_ms;
                Ok(taken)
            }
            Err(error) => match error.kind() {
                // An attached socket may still be connecting.
                ErrorKind::NotConnected | ErrorKind::WouldBlock => Ok(0),
                // Nothing was sent and no event will follow: try again in the next turn.
                ErrorKind::Interrupted => {
                    self.socket.writable = true;
                    Ok(0)
                }
                _ => Err(PushError::Peer(error)),
            },
        }
    }
}
