//! Who takes the plaintext: the relay of the terminator, or the Node addon.

use std::sync::Arc;

use sealane_engine::buffer::Buffer;
use sealane_engine::tickets::LaneClock;

use crate::cause::Cause;
use crate::generation::Generation;
use crate::kernel::Kernel;
use crate::link::Link;

/// What a lane does with the plaintext of its connections.
///
/// One value per lane, on the lane's thread; nothing in it is shared with another lane. `settings`
/// are those of the connection's listener and generation: shared by all lanes, so they are lent
/// and never cloned. A method that returns an error ends that connection with that cause, and only
/// that one.
pub trait Service {
    /// What the service keeps for one connection.
    type Connection;
    /// What a new generation brings for one listener, beside its TLS context.
    type Settings: Send + Sync;

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

    /// A handshake is complete.
    ///
    /// # Errors
    /// The connection cannot be served.
    fn established<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        settings: &Self::Settings,
    ) -> Result<Self::Connection, Cause>;

    /// The client sent `plain`. Whatever is left in it comes back when the attached socket can take
    /// more; until then nothing is read from the client.
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

    /// The attached socket has something to read, and the client can take more. One read per call.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn attached_readable<K: Kernel>(
        &mut self,
        connection: &mut Self::Connection,
        link: &mut Link<'_, K>,
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

    /// A connection has ended; `connection` is there if its handshake was completed.
    fn ended(
        &mut self,
        connection: Option<Self::Connection>,
        settings: &Self::Settings,
        end: &End<'_>,
    );
}

/// Facts about an ended connection, for a log.
#[derive(Debug)]
pub struct End<'a> {
    /// Why it ended.
    pub cause: Cause,
    /// The client's address, if the kernel told.
    pub client: Option<std::net::SocketAddr>,
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
    /// From accept to the end of the handshake, if it was completed.
    pub handshake_us: Option<u64>,
    /// From accept to the end.
    pub duration_ms: u64,
    /// Plaintext bytes received from the client.
    pub client_bytes: u64,
    /// Plaintext bytes sent to the client.
    pub backend_bytes: u64,
}
