//! Errors as C gets them: a [`Status`], and words in an [`Error`] that the caller owns.

use std::ffi::c_char;

use sealane_engine::client::ClientOptionsError;
use sealane_engine::session::SessionError;

/// The result of a call: `sealane_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The call succeeded.
    Ok = 0,
    /// This end has been closed: nothing can be written any more.
    Closed = 1,
    /// Nothing was taken: waiting bytes have to be fetched first.
    Full = 2,
    /// A fault of this library's, or of the machine.
    Internal = 3,
    /// The caller's fault: a null pointer, or a value that makes no sense.
    InvalidArgument = 4,
    /// The handshake is not complete.
    NotEstablished = 5,
    /// One of the options is wrong.
    Options = 6,
    /// The peer, or a message of it, was refused, or it refused us: the session is over.
    Refused = 7,
    /// The stream ended without close_notify: its data may be incomplete.
    Truncated = 8,
}

/// Room for words, which the caller owns: `sealane_error`.
#[repr(C)]
pub struct Error {
    /// The result of the call.
    pub status: Status,
    /// The reason, in UTF-8, ended by a zero.
    pub text: [c_char; ERROR_TEXT_BYTES],
}

/// The reason why a call failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    pub(crate) fn null(argument: &str) -> Self {
        Self::new(Status::InvalidArgument, format!("{argument} is a null pointer"))
    }

    /// The failure after a panic. Its message has been printed on standard error.
    pub(crate) fn panicked() -> Self {
        Self::new(Status::Internal, "a fault of the Sealane library: it panicked; report it")
    }

    pub(crate) fn to_error(&self) -> Error {
        let mut error = Error { status: self.status, text: [0; ERROR_TEXT_BYTES] };
        let end = self.text.floor_char_boundary(ERROR_TEXT_BYTES - 1);
        let bytes = &self.text.as_bytes()[..end];
        for (to, from) in error.text.iter_mut().zip(bytes) {
            // A zero inside would hide the text behind it.
            *to = if *from == 0 { b'?' } else { *from }.cast_signed() as c_char;
        }
        error
    }
}

impl From<ClientOptionsError> for Failure {
    fn from(error: ClientOptionsError) -> Self {
        Self::new(Status::Options, error.to_string())
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let status = match error {
            SessionError::NotEstablished
            | SessionError::PlainTooSmall
            | SessionError::WireTooSmall(_) => Status::Internal,
            _ => Status::Refused,
        };
        Self::new(status, error.to_string())
    }
}

/// Bytes of an error's text, the zero at its end among them.
pub const ERROR_TEXT_BYTES: usize = 512;
