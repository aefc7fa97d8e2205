//! The way out of a lane for the bytes of one socket.

use crate::connection::pool::Pending;
use crate::connection::socket::Socket;
use crate::connection::token::Token;

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
