//! The progress of a connection, and of each of its directions.

use sealane_engine::hello::Gathering;

use crate::cause::Cause;

/// What a client has sent before its session exists.
pub(crate) enum Early {
    /// A ClientHello whose end has not arrived.
    Gathering(Gathering),
    /// Bytes as they came: a whole ClientHello that waits, and what came with it; or a preamble
    /// whose end has not arrived.
    Whole(Box<[u8]>),
}

impl Early {
    /// `bytes`, if there are any.
    pub(crate) fn whole(bytes: &[u8]) -> Option<Box<Self>> {
        (!bytes.is_empty()).then(|| Box::new(Self::Whole(bytes.into())))
    }

    /// Bytes of room that they take in front of the next ones.
    pub(crate) fn room_len(&self) -> usize {
        match self {
            Self::Gathering(gathering) => gathering.room_len(),
            Self::Whole(bytes) => bytes.len(),
        }
    }
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Established,
    Handshake,
    /// Waiting for a whole ClientHello; no session exists yet.
    Hello,
    /// Refused with a last message, which a close with unread bytes would destroy: what still
    /// arrives is thrown away until the client closes, or until the deadline.
    Lingering {
        cause: Cause,
        until_ms: u64,
        bytes_left: u32,
    },
    /// Waiting for what stands before the rest, and the service reads.
    Preamble,
    /// The whole ClientHello is there, and somebody else decides about it; no session exists yet,
    /// and nothing is read.
    Waiting,
}

/// One direction of the relayed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Open,
    /// The end has arrived, but not everything before it has been passed on.
    Ending,
    /// The end has been passed on.
    Ended,
    /// The connection broke off, but not everything before that has been passed on.
    Cut,
}
