//! Why bytes are no header.

use thiserror::Error;

use super::{LINE_BYTES_MAX, REST_BYTES_MAX};

/// Why bytes are no header. The fault is the sender's.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Malformed {
    /// The header is not what its sender computed the checksum of.
    #[error("the checksum (CRC32C) in the PROXY header is wrong: bytes changed on their way")]
    Checksum,
    /// Neither LOCAL nor PROXY, or another version.
    #[error("version and command {command:#04x} of the PROXY header are not known")]
    Command {
        /// The byte for both.
        command: u8,
    },
    /// An address or a value is longer than what holds it.
    #[error("the PROXY header ends within an address or a value")]
    CutShort,
    /// No combination of family and transport that the specification has.
    #[error("the address family {family:#04x} of the PROXY header is not known")]
    Family {
        /// The byte for family and transport.
        family: u8,
    },
    /// The line of version 1 is not as it must be.
    #[error(
        "the line behind PROXY is neither UNKNOWN nor TCP4 or TCP6 with two addresses and two ports"
    )]
    Line,
    /// The line of version 1 has no end.
    #[error("the line behind PROXY does not end within {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// The bytes begin as neither version does.
    #[error("no PROXY header comes first; is whoever connects set to send one?")]
    NotProxy,
    /// A name that is not UTF-8, or has control characters.
    #[error("a name in the PROXY header is not plain text in UTF-8")]
    NotText,
    /// The header announces more than [`REST_BYTES_MAX`].
    #[error("the PROXY header announces {len} bytes, at most {REST_BYTES_MAX} are taken")]
    TooLong {
        /// Bytes announced.
        len: usize,
    },
    /// A value that stands for the whole connection comes twice.
    #[error("the PROXY header has two values of type {kind:#04x}")]
    Twice {
        /// The value's type.
        kind: u8,
    },
    /// A value is longer than what its type allows.
    #[error("a value of type {kind:#04x} in the PROXY header has {len} bytes, at most {max}")]
    ValueTooLong {
        /// The value's type.
        kind: u8,
        /// Bytes that it has.
        len: usize,
        /// Bytes that it may have.
        max: usize,
    },
}
