//! The parts of a lane that connections borrow: kernel, poll, buffers, timers, counters, time.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::time::Timespec;
use sealane_engine::buffer::Buffer;
use sealane_engine::session::PARTIAL_BYTES_MAX;

use crate::attached::Attached;
use crate::connection::{Connection, Socket};
use crate::counters::Counters;
use crate::kernel::Kernel;
use crate::pool::{Pending, Pool};
use crate::token::Token;
use crate::unfinished::Unfinished;
use crate::wheel::Wheel;

/// What one lane owns beside its connections and its service.
pub(crate) struct Core<K: Kernel> {
    pub(crate) number: usize,
    pub(crate) kernel: K,
    pub(crate) poll: OwnedFd,
    /// Bytes as they come from a socket.
    pub(crate) received: Buffer,
    /// Plaintext from a client, or ciphertext from a backend: never both at a time.
    pub(crate) plain: Buffer,
    /// Ciphertext for a client or a backend.
    pub(crate) wire: Buffer,
    pub(crate) pool: Pool,
    pub(crate) wheel: Wheel,
    /// Connections that hold tickets back, in the order in which patience ends. A wait of fixed
    /// length needs no wheel, and most entries are stale before their time.
    pub(crate) tickets: VecDeque<(u64, u64)>,
    pub(crate) unfinished: Unfinished,
    pub(crate) counters: Arc<Counters>,
    started_at: Instant,
    /// The time of this turn, since the lane started.
    pub(crate) now_ms: u64,
}

/// Where bytes leave a lane: a socket, and what it has not taken yet.
pub(crate) struct Outlet<'c> {
    pub(crate) socket: &'c mut Socket,
    pub(crate) outgoing: &'c mut Option<Pending>,
    /// When a byte of the connection last moved.
    pub(crate) active_ms: &'c mut u64,
    pub(crate) token: Token,
    /// FIN follows as soon as all is gone.
    pub(crate) end_follows: bool,
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
/// Most bytes taken from a socket in one read, and so most work that one connection gets in a turn.
pub(crate) const READ_BYTES_MAX: usize = 256 * 1024;
/// The same when many peers are slow and large buffers are scarce.
pub(crate) const READ_BYTES_SCARCE: usize = 16 * 1024;
/// Reads that are thrown away at most before a socket is closed.
const DISCARDED_READS_MAX: usize = 16;
/// Room for a full read in records, a server flight, tickets and alerts.
const BUFFER_BYTES: usize = READ_BYTES_MAX + 32 * 1024;

impl<K: Kernel> Core<K> {
    pub(crate) fn new(number: usize, kernel: K, counters: Arc<Counters>) -> io::Result<Self> {
        Ok(Self {
            number,
            kernel,
            poll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            received: Buffer::with_capacity(READ_BYTES_MAX + PARTIAL_BYTES_MAX),
            plain: Buffer::with_capacity(BUFFER_BYTES),
            wire: Buffer::with_capacity(BUFFER_BYTES),
            pool: Pool::new(BUFFER_BYTES),
            wheel: Wheel::new(),
            tickets: VecDeque::new(),
            unfinished: Unfinished::default(),
            counters,
            started_at: Instant::now(),
            now_ms: 0,
        })
    }

    /// Reads the clock, once per turn.
    pub(crate) fn read_clock(&mut self) {
        self.now_ms = to_ms(self.started_at.elapsed());
    }

    /// How much to read behind `carried_len` bytes that are there already.
    pub(crate) fn read_len(&self, carried_len: usize) -> usize {
        let whole = if self.pool.is_scarce() { READ_BYTES_SCARCE } else { READ_BYTES_MAX };
        whole.saturating_sub(carried_len).max(READ_BYTES_SCARCE)
    }

    /// Sends the wire buffer, behind what waits already; what the socket does not take waits from
    /// now on. Returns whether nothing does.
    pub(crate) fn push(&mut self, mut outlet: Outlet<'_>) -> Result<bool, PushError> {
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
            let taken = outlet.send(&mut self.kernel, self.wire.filled(), self.now_ms)?;
            self.wire.consume(taken);
        }
        if !self.wire.is_empty() {
            *outlet.outgoing = Some(self.pool.detach(&mut self.wire));
            self.watch_room(outlet.socket, outlet.token).map_err(PushError::Watch)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Sends what waits. Returns whether nothing does any more.
    pub(crate) fn flush(&mut self, mut outlet: Outlet<'_>) -> Result<bool, PushError> {
        let Some(mut waiting) = outlet.outgoing.take() else { return Ok(true) };
        let taken = outlet.send(&mut self.kernel, waiting.filled(), self.now_ms)?;
        waiting.consume(taken);
        if !waiting.is_empty() {
            *outlet.outgoing = Some(waiting);
            self.watch_room(outlet.socket, outlet.token).map_err(PushError::Watch)?;
            return Ok(false);
        }
        self.pool.give_back(waiting);
        Ok(true)
    }

    /// From now on reports when `socket` takes bytes again.
    pub(crate) fn watch_room(&mut self, socket: &mut Socket, token: Token) -> io::Result<()> {
        if socket.is_watched && !socket.wants_room {
            self.kernel.watch_writable(self.poll.as_fd(), socket.fd.as_fd(), token.bits())?;
        }
        socket.wants_room = true;
        Ok(())
    }

    /// Begins to report a socket that was attached in this turn. One that has taken bytes is
    /// connected, so room is of interest only if it ran out of it.
    pub(crate) fn watch_attached(&mut self, connection: &mut Connection) -> io::Result<()> {
        let token = connection.attached_token().bits();
        let Some(Attached { socket, .. }) = &mut connection.attached else { return Ok(()) };
        if !socket.is_watched {
            socket.wants_room |= socket.writes == 0;
            let poll = self.poll.as_fd();
            self.kernel.watch(poll, socket.fd.as_fd(), token, socket.wants_room)?;
            socket.is_watched = true;
        }
        Ok(())
    }

    /// Throws away what has arrived on a socket that is about to be closed without a reset: the
    /// kernel would send one because of it, and drop what it has not delivered yet.
    pub(crate) fn discard_arrivals(&mut self, socket: &Socket) {
        if socket.ended {
            return;
        }
        self.received.clear();
        let spare = &mut self.received.spare_mut()[..READ_BYTES_MAX];
        for _ in 0..DISCARDED_READS_MAX {
            match self.kernel.recv(socket.fd.as_fd(), spare) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Reports `source` for as long as it has something to read.
    pub(crate) fn watch_level(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.poll, source, EventData::new_u64(token), EventFlags::IN)?)
    }

    /// Stops reporting `source`.
    pub(crate) fn unwatch(&self, source: impl AsFd) {
        // Only fails for a source that is not watched, which is what was asked for.
        let _ = epoll::delete(&self.poll, source);
    }

    /// Waits for events, at most `timeout_ms`.
    pub(crate) fn wait(&self, events: &mut Vec<Event>, timeout_ms: Option<u64>) {
        let timeout = timeout_ms.map(|ms| {
            // At most a day, so the conversion cannot fail.
            let duration = Duration::from_millis(ms.min(86_400_000));
            Timespec::try_from(duration).unwrap_or_default()
        });
        events.clear();
        // The only error a sound lane can see is an interruption by a signal: an empty turn.
        let _ = epoll::wait(&self.poll, rustix::buffer::spare_capacity(events), timeout.as_ref());
    }

    /// Replaces buffers that a failed handler took with it, and drops what it left in the others.
    pub(crate) fn heal(&mut self) {
        if self.received.capacity() == 0 {
            self.received = Buffer::with_capacity(READ_BYTES_MAX + PARTIAL_BYTES_MAX);
        }
        if self.plain.capacity() == 0 {
            self.plain = Buffer::with_capacity(BUFFER_BYTES);
        }
        self.plain.clear();
        self.wire.clear();
    }
}

impl Outlet<'_> {
    /// Returns how much of `bytes` the socket takes now.
    fn send<K: Kernel>(
        &mut self,
        kernel: &mut K,
        bytes: &[u8],
        now_ms: u64,
    ) -> Result<usize, PushError> {
        self.socket.writable = false;
        match kernel.send(self.socket.fd.as_fd(), bytes, self.end_follows) {
            Ok(taken) => {
                self.socket.writes = (self.socket.writes + 1).min(2);
                *self.active_ms = now_ms;
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

pub(crate) fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
