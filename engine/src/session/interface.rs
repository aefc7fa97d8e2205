//! The interface of a session for its caller: bytes in, bytes out.

use super::{RECORD_PLAIN_MAX, SessionError};
use crate::buffer::Buffer;
use crate::record::RECORD_HEADER_LEN;

/// A TLS connection without a socket.
pub trait Session {
    /// Takes ciphertext, appends plaintext to `plain` and answers for the peer to `wire`.
    ///
    /// `incoming` must begin with the bytes that [`Session::take_partial`] gave back. Bytes beyond
    /// whole records are kept inside.
    ///
    /// # Errors
    /// The peer broke the protocol, or something else ends the session. `wire` then holds the alert
    /// with the reason, and the session must not be fed again.
    fn feed(
        &mut self,
        incoming: &mut [u8],
        plain: &mut Buffer,
        wire: &mut Buffer,
    ) -> Result<Fed, SessionError>;

    /// Bytes of an incomplete record that the last call left over.
    fn partial_len(&self) -> usize;

    /// Moves the incomplete record that the last call left over to the front of `into`, where the
    /// next bytes of the peer are to follow.
    fn take_partial(&mut self, into: &mut Buffer);

    /// Appends `more` to the incomplete record that the last call left over. It does so if `more`
    /// neither completes the record nor may end the session. Otherwise `more` must be fed. Returns
    /// whether it was appended. So bytes that come one by one cost no copy of all bytes before
    /// them.
    fn append_partial(&mut self, more: &[u8]) -> bool;

    /// Encrypts the front of `plain` into `wire`, behind anything held back, and returns how many
    /// bytes of `plain` that took: all, unless `wire` is too small.
    ///
    /// # Errors
    /// The session has not been established, has failed or been closed, or its keys are used up.
    fn seal(&mut self, plain: &[u8], wire: &mut Buffer) -> Result<usize, SessionError>;

    /// Writes a close_notify alert, behind anything held back.
    ///
    /// # Errors
    /// `wire` is too small, or the session cannot encrypt.
    fn close(&mut self, wire: &mut Buffer) -> Result<(), SessionError>;

    /// Bytes of session tickets that wait to leave together with the first response.
    fn held_len(&self) -> usize;

    /// Gives up waiting for a response: writes the held records.
    fn release_held(&mut self, wire: &mut Buffer);
}

/// The result of one call to [`Session::feed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fed {
    /// The handshake ended with this call.
    pub established: bool,
    /// The peer sent close_notify: all its data has arrived.
    pub peer_closed: bool,
    /// Whole records came, of any content, and no message waits for more of them.
    pub records: bool,
}

/// Bytes that header, explicit nonce, content type and tag add to a record, rounded up.
pub const RECORD_OVERHEAD_MAX: usize = 64;
/// Ciphertext bytes of one full record, as sent by us or accepted from a peer (RFC 5246 allows it
/// 2,048 bytes more than the plaintext).
pub const RECORD_WIRE_MAX: usize = RECORD_HEADER_LEN + RECORD_PLAIN_MAX + 2048;
/// Room that a lent `wire` buffer needs in addition to data: a whole server flight with a long
/// chain.
pub const FLIGHT_BYTES_MAX: usize = 128 * 1024;
