//! Who takes the plaintext: the relay of the terminator, or the Node addon.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use sealane_engine::buffer::Buffer;
use sealane_engine::hello::{Hello, Offered};
use sealane_engine::tickets::LaneClock;

use crate::cause::Cause;
use crate::connection::link::{Arrivals, Link};
use crate::failure::Failure;
use crate::kernel::Kernel;
use crate::shared::generation::Generation;
use crate::shared::orders::{Choice, ConnectionId, Order, Seen};

/// What a lane does with the plaintext of its connections.
///
/// One value per lane, on the lane's thread; nothing in it is shared with another lane. `settings`
/// are those of the connection's listener and generation: shared by all lanes, so they are lent
/// and never cloned. A method that returns an error ends that connection with that cause, and only
/// that one.
///
/// # Driven from elsewhere
/// A service whose decisions are made on another thread is told of them by orders. The other side
/// puts them into a queue of the service's own and rings the [`bell`](Service::bell). A turn of the
/// lane calls, in this order:
///
/// 1. [`may_sleep`](Service::may_sleep), only if the wait would block; then the lane waits;
/// 2. [`after_wait`](Service::after_wait), after every wait;
/// 3. what events, timers and deadlines bring: [`hello`](Service::hello),
///    [`established`](Service::established), [`plaintext`](Service::plaintext) and so on;
/// 4. [`next_order`](Service::next_order) until there is none, at most [`ORDERS_MAX`] times (more
///    of them are taken in the next turn, which then does not wait), and for each order to a
///    connection [`command`](Service::command), with [`plaintext`](Service::plaintext) behind it if
///    some was left;
/// 5. [`accepts`](Service::accepts);
/// 6. [`turn_ended`](Service::turn_ended);
/// 7. [`stopped`](Service::stopped), once, if this was the last turn.
///
/// A panic in a call that is about one connection costs that connection. In another it ends the
/// lane: the service is dropped, without `stopped`.
///
/// [`ORDERS_MAX`]: crate::shared::orders::ORDERS_MAX
pub trait Service {
    /// What the service keeps for one connection.
    type Connection;
    /// What it can be told about one connection from elsewhere; `Infallible` if nothing.
    type Command;
    /// What a new generation brings for one listener, beside its TLS context.
    type Settings: Send + Sync;

    /// Whether a stream that the client cuts short goes on until the service has taken all that
    /// came of it. If not, what the service has left is dropped, and whoever is attached hears of
    /// the cut at once.
    const AWAITS_LAST_BYTES: bool = false;

    /// Whether an established connection that a lane has to leave when it stops is closed as the
    /// kernel closes it when a process ends: what was sent still arrives, and what is missing shows
    /// by the missing close_notify. If not, it is reset.
    const STOPS_PLAINLY: bool = false;

    /// Whether a client that took too long for its handshake, or speaks something else than TLS,
    /// sees the end of its stream, which nobody can take for the end of anything that was sent. If
    /// not, it is reset, and the kernel keeps nothing of it.
    const TURNS_AWAY_PLAINLY: bool = false;

    /// Prepares to serve `generation`, whose connections come after this call; those of earlier
    /// ones may go on. `clock` is the lane's own. Returns whether the lane can serve it: if not,
    /// it goes on with the one before.
    fn prepare(
        &mut self,
        _generation: &Generation<Self::Settings>,
        _clock: &Arc<LaneClock>,
    ) -> bool {
        true
    }

    /// What becomes readable when orders may be there. It is asked for once, when the lane starts,
    /// and watched for as long as the lane runs; the service empties it in [`Service::after_wait`],
    /// without blocking, or the lane never sleeps again.
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The lane is about to wait. Orders that come after this must ring the bell; if some have come
    /// already the answer is no, and the lane looks for events without waiting.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// The lane has looked for events, whether it waited for them or not.
    fn after_wait(&mut self) {}

    /// The next order from elsewhere, if there is one.
    fn next_order(&mut self) -> Option<Order<Self::Command>> {
        None
    }

    /// An order for this connection has come. Plaintext that the service left is offered again
    /// afterwards, so a service pauses a client by leaving bytes, and lets it go on by a command.
    ///
    /// # Errors
    /// The connection cannot go on, or is to end: [`Cause::ServiceClosed`],
    /// [`Cause::ServiceReset`].
    fn command<K: Kernel>(
        &mut self,
        _connection: &mut Self::Connection,
        _link: &mut Link<'_, K>,
        _command: Self::Command,
        _settings: &Self::Settings,
    ) -> Result<(), Cause> {
        Ok(())
    }

    /// An open connection, after an [`Order::Visit`]; `connection` is there if it is established,
    /// or if its preamble left it. A panic here ends the lane.
    fn seen(
        &mut self,
        _connection: Option<&Self::Connection>,
        _settings: &Self::Settings,
        _seen: &Seen<'_>,
    ) {
    }

    /// All of an [`Order::Visit`] has been seen; `next` is the slot where the next goes on, if
    /// there is more.
    fn visited(&mut self, _next: Option<usize>) {}

    /// All work of a turn is done: here the service wakes whom it has told something.
    fn turn_ended(&mut self) {}

    /// Whether more clients may be accepted; asked before the first turn and at the end of each.
    /// While it is false the listeners rest, and clients wait in the kernel's queue.
    fn accepts(&self) -> bool {
        true
    }

    /// A client has been accepted: whether it may go on.
    ///
    /// # Errors
    /// It may not: it is reset, and the connection ends with this cause without having begun, so
    /// that [`Service::ended`] does not hear of it.
    fn admits(
        &mut self,
        _client: Option<SocketAddr>,
        _settings: &Self::Settings,
    ) -> Result<(), Cause> {
        Ok(())
    }

    /// A client was reset as soon as it was accepted: because the service does not admit it, or by
    /// a limit of the lane. [`Service::ended`] does not hear of it.
    fn rejected(&mut self, _settings: &Self::Settings, _end: &EndedConnection<'_>) {}

    /// The process has no descriptor left for a client: the client waits in the kernel's queue.
    fn out_of_descriptors(&mut self) {}

    /// `bytes` have come at the beginning of a connection to a listener with a preamble: all that
    /// came and was not read yet. `client` is the connection's address until the service puts
    /// another there; what it puts into `connection` comes back in [`Service::established`] or
    /// [`Service::ended`].
    fn preamble(
        &mut self,
        _client: &mut Option<SocketAddr>,
        _connection: &mut Option<Self::Connection>,
        _bytes: &[u8],
        _settings: &Self::Settings,
    ) -> Preamble {
        Preamble::through(0)
    }

    /// Whether every hello's JA4 is told in [`EndedConnection::ja4`]. It takes a digest of a few
    /// hundred bytes.
    fn wants_ja4(&self) -> bool {
        false
    }

    /// A client that the service has admitted has a connection.
    fn accepted(
        &mut self,
        _id: ConnectionId,
        _client: Option<SocketAddr>,
        _settings: &Self::Settings,
    ) {
    }

    /// A ClientHello has arrived: who decides under which context the client is admitted? With
    /// [`Choice::Wait`] nothing more is read from it until an [`Order::Choose`] comes; meanwhile
    /// the handshake's timeout goes on.
    fn hello(&mut self, _id: ConnectionId, _hello: &Hello, _settings: &Self::Settings) -> Choice {
        Choice::Listener
    }

    /// The client at an address asks for `server_name`, and whether there is a certificate for
    /// that: of contexts with [`ListenerStore::on_demand`] alone, before the client is answered.
    ///
    /// [`ListenerStore::on_demand`]: sealane_engine::certificates::ListenerStore::on_demand
    fn asked_for(&mut self, _server_name: &str, _has_own: bool, _client: Option<SocketAddr>) {}

    /// The lane is about to end.
    fn stopped(&mut self, _end: LaneEnd) {}

    /// A handshake is complete, or there is none to wait for: puts down what the service keeps for
    /// the connection. What a preamble left is there; it stays if this fails.
    ///
    /// # Errors
    /// The connection cannot be served.
    fn established<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        connection: &mut Option<Self::Connection>,
        settings: &Self::Settings,
    ) -> Result<(), Cause>;

    /// The client sent `plain`. Whatever is left in it comes back when the attached socket can take
    /// more, and after each command; until then nothing is read from the client.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn plaintext<K: Kernel>(
        &mut self,
        connection: &mut Self::Connection,
        link: &mut Link<'_, K>,
        plain: &mut Buffer,
        settings: &Self::Settings,
    ) -> Result<(), Cause>;

    /// The client ended its direction cleanly; all it sent has been taken.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn client_ended<K: Kernel>(
        &mut self,
        connection: &mut Self::Connection,
        link: &mut Link<'_, K>,
        settings: &Self::Settings,
    ) -> Result<(), Cause>;

    /// What waited for the client has left.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn client_drained<K: Kernel>(
        &mut self,
        _connection: &mut Self::Connection,
        _link: &mut Link<'_, K>,
        _settings: &Self::Settings,
    ) -> Result<(), Cause> {
        Ok(())
    }

    /// The attached socket became writable, or was connected.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn attached_writable<K: Kernel>(
        &mut self,
        connection: &mut Self::Connection,
        link: &mut Link<'_, K>,
        settings: &Self::Settings,
    ) -> Result<(), Cause>;

    /// The attached socket has something to read, and the client can take more. One read per call,
    /// into `arrivals`: see [`Link::receive_attached`].
    ///
    /// # Errors
    /// The connection cannot go on.
    fn attached_readable<K: Kernel>(
        &mut self,
        connection: &mut Self::Connection,
        link: &mut Link<'_, K>,
        arrivals: &mut Arrivals<'_>,
        settings: &Self::Settings,
    ) -> Result<(), Cause>;

    /// The deadline that the service set has passed.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn deadline<K: Kernel>(
        &mut self,
        connection: &mut Self::Connection,
        link: &mut Link<'_, K>,
        settings: &Self::Settings,
    ) -> Result<(), Cause>;

    /// A handshake has failed. The connection ends when the client has taken the alert, or after
    /// a moment. A value left in `connection` comes back with [`Self::ended`]. Without one, this
    /// may be called again.
    fn refused(
        &mut self,
        _connection: &mut Option<Self::Connection>,
        _settings: &Self::Settings,
        _end: &EndedConnection<'_>,
    ) {
    }

    /// A connection has ended; `connection` is there if it was established, or if its preamble or
    /// [`Self::refused`] left it.
    fn ended(
        &mut self,
        connection: Option<Self::Connection>,
        settings: &Self::Settings,
        end: &EndedConnection<'_>,
    );
}

/// What a service makes of the first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preamble {
    /// The service has taken all of the bytes, and the connection goes on in the clear, also where
    /// clients are expected to speak TLS.
    Clear,
    /// Some of it has been read.
    Read {
        /// So many of the bytes.
        len: usize,
        /// What the client is told.
        answer: Cow<'static, [u8]>,
        /// Whether the preamble ends there. If not, more of it follows.
        is_through: bool,
        /// Whether the peer may leave now without having said anything, as who only looks whether
        /// somebody answers.
        is_probe: bool,
    },
    /// The connection ends, behind `answer` if there is one; else it is reset.
    Refused {
        /// Why.
        cause: Cause,
        /// What the client is told.
        answer: Cow<'static, [u8]>,
    },
    /// More bytes are needed. A preamble of which [`PREAMBLE_BYTES_MAX`] have come and none could
    /// be read has ended the connection as [`Cause::ProtocolError`] by then.
    Unfinished,
}

/// Bytes of a preamble that may wait for the rest of it.
pub const PREAMBLE_BYTES_MAX: usize = 8192;

impl Preamble {
    /// The preamble ends behind `len` bytes, and nothing is answered.
    pub fn through(len: usize) -> Self {
        Self::Read { len, answer: Cow::Borrowed(&[]), is_through: true, is_probe: false }
    }

    /// The connection is reset.
    pub fn refused(cause: Cause) -> Self {
        Self::Refused { cause, answer: Cow::Borrowed(&[]) }
    }
}

/// Facts about an ended connection, for a log.
#[derive(Debug)]
pub struct EndedConnection<'a> {
    /// By which orders named it.
    pub id: ConnectionId,
    /// Why it ended.
    pub cause: Cause,
    /// The client's address, if the kernel told, or the preamble.
    pub client: Option<SocketAddr>,
    /// The listener's number in the configuration.
    pub listener: u32,
    /// The generation that it lived under.
    pub generation: u64,
    /// The lane's number.
    pub lane: usize,
    /// The server name that the client asked for.
    pub server_name: Option<&'a str>,
    /// The session, if the client got as far as a ClientHello.
    pub session: Option<&'a sealane_engine::session::ServerSession>,
    /// Why the client's certificate ended the connection, if it did.
    pub distrust: Option<&'a sealane_engine::client_certificates::Distrust>,
    /// That certificate, if it was refused in the handshake: the session has none then.
    pub refused_certificate: Option<&'a [u8]>,
    /// What the client's hello offered, if it could be read.
    pub offered: Option<Offered>,
    /// The JA4 of that, if the service wants it.
    pub ja4: Option<&'a str>,
    /// What is known of the failure, if its session has failed.
    pub failure: Option<Failure>,
    /// From accept to the end of the handshake, if it was completed.
    pub handshake_us: Option<u64>,
    /// From accept to the end.
    pub duration_ms: u64,
    /// Plaintext bytes received from the client.
    pub received_bytes: u64,
    /// Plaintext bytes sent to the client.
    pub sent_bytes: u64,
}

/// How a lane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneEnd {
    /// Connections that were still moving bytes, or still in their handshake, and had to be cut.
    pub cut: usize,
}
