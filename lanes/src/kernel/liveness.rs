//! How the kernel finds out that a peer is gone without a word.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// What the kernel does about peers that answer no more. Accepted sockets inherit it from the one
/// that listens, at no call for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Liveness {
    /// How a silent peer is asked for a sign of life; not at all without it.
    pub keep_alive: Option<KeepAlive>,
    /// How long sent bytes may stay unacknowledged before the connection is given up; as long as
    /// the system's retries take without it.
    pub user_timeout: Option<Duration>,
}

/// How a silent peer is asked for a sign of life. Whole seconds count, and at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// After so long without a byte.
    pub idle: Duration,
    /// Again after so long without an answer.
    pub every: Duration,
    /// So many times before the connection is given up.
    pub count: u32,
}

impl Liveness {
    /// Makes `socket` behave so in place of `before`, if that is known: without a difference there
    /// is no call.
    ///
    /// # Errors
    /// It is no TCP socket, or the kernel does not take the value.
    pub(crate) fn apply(self, socket: impl AsFd, before: Option<Self>) -> io::Result<()> {
        let socket = socket.as_fd();
        if before.is_none_or(|before| self.keep_alive != before.keep_alive) {
            sockopt::set_socket_keepalive(socket, self.keep_alive.is_some())?;
            if let Some(KeepAlive { idle, every, count }) = self.keep_alive {
                sockopt::set_tcp_keepidle(socket, idle)?;
                sockopt::set_tcp_keepintvl(socket, every)?;
                sockopt::set_tcp_keepcnt(socket, count)?;
            }
        }
        if before.is_none_or(|before| self.user_timeout != before.user_timeout) {
            let timeout_ms = self.user_timeout.unwrap_or_default().as_millis();
            let timeout_ms = u32::try_from(timeout_ms).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(socket, timeout_ms)?;
        }
        Ok(())
    }
}
