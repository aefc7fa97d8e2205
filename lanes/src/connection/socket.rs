//! A socket of a connection, with the events that its poll has reported.

use rustix::event::epoll::EventFlags;
use rustix::net::sockopt::{set_tcp_nodelay, set_tcp_quickack, socket_error};
use sealane_file_table::Descriptor;

/// A socket with the state of its last events.
pub(crate) struct Socket {
    pub(crate) fd: Descriptor,
    pub(crate) readable: bool,
    /// An event reported that it is writable again.
    pub(crate) writable: bool,
    /// FIN has arrived: whatever can be read already lies in the socket's queue, so a short read
    /// means the end.
    pub(crate) hangup: bool,
    /// An error has arrived, which a read will tell; or an urgent mark, at which reads end short.
    pub(crate) failed: bool,
    /// The end has been read.
    pub(crate) ended: bool,
    /// Successful writes so far; more than two are not told apart.
    pub(crate) writes: u8,
    /// Whether the lane's poll reports it. An attached socket is not, in its first turn.
    pub(crate) is_watched: bool,
    /// Whether the poll reports, or will, that it takes bytes again.
    pub(crate) wants_room: bool,
}

impl Socket {
    pub(crate) fn new(fd: Descriptor) -> Self {
        Self {
            fd,
            readable: false,
            writable: false,
            hangup: false,
            failed: false,
            ended: false,
            writes: 0,
            is_watched: false,
            wants_room: false,
        }
    }

    /// A socket whose connection stands: it is reported for what arrives, and for room only once it
    /// ran out of it.
    pub(crate) fn connected(fd: Descriptor) -> Self {
        Self { writes: 2, ..Self::new(fd) }
    }

    /// Whether the peer has reset the connection, asked only after an event that hints at it.
    pub(crate) fn is_reset(&self) -> bool {
        self.failed && !matches!(socket_error(&self.fd), Ok(Ok(())))
    }

    /// Makes later writes leave at once: the first bytes never wait for others.
    pub(crate) fn do_not_gather(&self) {
        if self.writes == 1 {
            // It fails on a unix socket, which does not gather small writes.
            let _ = set_tcp_nodelay(&self.fd, true);
        }
    }

    /// Acknowledges received bytes at once. A client that gathers small writes sends no request
    /// before its Finished is acknowledged, and a delayed acknowledgement takes 40 ms.
    pub(crate) fn acknowledge(&self) {
        // It fails on a unix socket, which acknowledges nothing.
        let _ = set_tcp_quickack(&self.fd, true);
    }

    /// Notes an event.
    pub(crate) fn note(&mut self, flags: EventFlags) {
        self.hangup |= flags.contains(EventFlags::RDHUP);
        self.failed |= flags.intersects(EventFlags::ERR | EventFlags::PRI);
        self.readable |= flags
            .intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        self.writable |= flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
    }
}
