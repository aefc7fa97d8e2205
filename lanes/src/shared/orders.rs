//! Orders: decisions of another thread about a lane's connections, by way of its service.
//!
//! The lane takes them after the events of a turn, so that an order finds its connection as the
//! service last saw it. One for a connection that is gone, or has no service any more, is dropped.

use std::net::SocketAddr;

use sealane_engine::context::ContextId;

pub use crate::connection::token::ConnectionId;

/// What a service wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order<C> {
    /// Resets the connection, however far it has come, and its backend's; it ends as
    /// [`Cause::ServiceReset`](crate::cause::Cause::ServiceReset).
    Close(ConnectionId),
    /// Answers [`Choice::Wait`]; without a hello that waits it is dropped.
    Choose(ConnectionId, Chosen),
    /// Calls the service's `command` for an established connection.
    Command(ConnectionId, C),
    /// Shows the service the open connections of [`VISITS_MAX`] slots, from this one on. It is the
    /// last order of its turn.
    Visit(usize),
}

/// The source of the context under which a client is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The listener: by the server name among its named contexts, else its own.
    Listener,
    /// An [`Order::Choose`] that is still to come.
    Wait,
}

/// The answer to a hello that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The context of this id, which [`Mail::Provide`] has brought. If none has, the client is
    /// refused, and the connection ends as [`crate::cause::Cause::Internal`].
    ///
    /// [`Mail::Provide`]: crate::shared::mailbox::Mail::Provide
    Context(ContextId),
    /// The listener's own certificate, as with [`Choice::Listener`].
    Listener,
    /// None: the client gets the fatal alert `unrecognized_name`.
    Refuse,
}

/// An open connection, as it is shown to a service that asks.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// By which orders name it.
    pub id: ConnectionId,
    /// From accept until now.
    pub age_ms: u64,
    /// Plaintext bytes sent to the client.
    pub sent_bytes: u64,
    /// The client's address, if the kernel or the preamble has one.
    pub client: Option<SocketAddr>,
    /// Plaintext bytes received from the client.
    pub received_bytes: u64,
    /// Whether its handshake is complete, or there is none.
    pub is_established: bool,
    /// The server name that the client asked for.
    pub server_name: Option<&'a str>,
}

/// Slots of connections that are looked at by one [`Order::Visit`].
pub const VISITS_MAX: usize = 1024;
/// Orders that are taken in one turn; what is left waits for the next one.
pub const ORDERS_MAX: usize = 1024;
