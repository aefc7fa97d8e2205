//! Messages between lanes and JavaScript: a [`Header`] of four words, a payload, padding.
//!
//! ```text
//! word 0  payload bytes          word 2  connection, low half
//! word 1  kind | flags << 8      word 3  connection, high half
//! ```
//! Words are of 32 bits in the machine's order. A message takes a multiple of 16 bytes, so a header
//! lies in one piece. `lib/message.js` has the same numbers, and a test compares them.
//!
//! Bytes from JavaScript may be anything: they are copied, then read, and a message that cannot be
//! one is [`Broken`].

/// A message from a lane to JavaScript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// A connection: [`crate::opened`] has the payload.
    Open = 1,
    /// Plaintext of the client.
    Data = 2,
    /// The client's clean end.
    End = 3,
    /// The connection is gone; payload: the cause's number.
    Close = 4,
    /// Bytes of [`Command::Write`] that have left the lane.
    Credit = 5,
    /// A question for the client's context. Payload: the server name it asks for, if any.
    Hello = 6,
    /// A handshake failed: cause, family, port, length of the text behind the address. That text is
    /// the fault of the client's certificate in OpenSSL's words. Then the reason in words.
    Failed = 7,
    /// Lines of a key log.
    KeyLog = 8,
    /// The lane has ended; payload: why, if by a fault.
    Down = 9,
}

/// A message from JavaScript to a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// JavaScript has consumed this many bytes of [`Event::Data`].
    Credit(u32),
    /// The answer to [`Event::Hello`].
    Choose(u64),
    /// The connection shall be closed without a reset.
    Destroy,
    /// The clean end of JavaScript's data.
    End(Then),
    /// A socket option.
    Option(SocketOption),
    /// The lane shall panic, in the connection or outside of any.
    #[cfg(feature = "faults")]
    Panic {
        /// Outside of any connection.
        outside: bool,
    },
    /// The connection shall be closed with a reset.
    Reset,
    /// This many [`Event::Open`] have been taken.
    Taken(u32),
    /// The payload is plaintext for the client.
    Write(Option<Then>),
}

/// The command behind the end of JavaScript's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Data that the client still sends is dropped.
    Destroy,
    /// The client's end is waited for.
    Wait,
}

/// The setting of a [`Command::Option`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// Probes after this many seconds without a byte, or off.
    KeepAlive(Option<u32>),
    /// Small writes leave at once.
    NoDelay(bool),
}

/// The front of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes behind the header, padding not counted.
    pub payload_len: usize,
    /// An [`Event`]'s number or a command's.
    pub kind: u8,
    /// Bits with a meaning that depends on the kind.
    pub flags: u32,
    /// The connection, or 0.
    pub id: u64,
}

impl Header {
    /// The header of an event.
    pub fn event(event: Event, id: u64, payload_len: usize) -> Self {
        Self { payload_len, kind: event as u8, flags: 0, id }
    }

    /// The header in its form in a ring.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        // The maker of a header has kept to PAYLOAD_BYTES_MAX.
        let payload_len = u32::try_from(self.payload_len).unwrap_or(u32::MAX);
        let [first, second] = [payload_len, u32::from(self.kind) | self.flags << 8];
        let words = u128::from(first) | u128::from(second) << 32 | u128::from(self.id) << 64;
        words.to_le_bytes()
    }

    /// Reads a header in a ring.
    ///
    /// # Errors
    /// No message has so long a payload.
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, Broken> {
        let payload_len = word(&bytes, 0).and_then(|len| usize::try_from(len).ok());
        let payload_len = payload_len.filter(|len| *len <= PAYLOAD_BYTES_MAX).ok_or(Broken)?;
        let second = word(&bytes, 4).ok_or(Broken)?;
        let id = long(&bytes, 8).ok_or(Broken)?;
        Ok(Self { payload_len, kind: second.to_le_bytes()[0], flags: second >> 8, id })
    }

    /// Bytes that the message takes behind its header.
    pub fn padded_len(self) -> usize {
        self.payload_len.next_multiple_of(HEADER_BYTES)
    }

    /// Whether the payload is plaintext for the client.
    pub fn is_write(self) -> bool {
        self.kind == WRITE
    }
}

impl Command {
    /// The command that `header` announces. `payload` is all of it, except for [`Command::Write`],
    /// which is read elsewhere.
    ///
    /// # Errors
    /// There is no such command.
    pub fn decode(header: Header, payload: &[u8]) -> Result<Self, Broken> {
        let number = || word(payload, 0).filter(|_| payload.len() == 4).ok_or(Broken);
        let then = || if header.flags & FLAG_DESTROY == 0 { Then::Wait } else { Then::Destroy };
        match header.kind {
            WRITE if header.flags & FLAG_END != 0 => Ok(Self::Write(Some(then()))),
            WRITE => Ok(Self::Write(None)),
            END => Ok(Self::End(then())),
            DESTROY => Ok(Self::Destroy),
            CREDIT => number().map(Self::Credit),
            CHOOSE if payload.len() == 8 => long(payload, 0).map(Self::Choose).ok_or(Broken),
            OPTION if payload.len() == 8 => option(payload).map(Self::Option),
            RESET => Ok(Self::Reset),
            TAKEN => number().map(Self::Taken),
            #[cfg(feature = "faults")]
            PANIC => Ok(Self::Panic { outside: payload.first() == Some(&1) }),
            _ => Err(Broken),
        }
    }
}

/// Bytes in a ring that are no message: JavaScript, or another user of the memory, broke the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// Bytes of a header. A message's length is a multiple of it.
pub const HEADER_BYTES: usize = 16;
/// Bytes of one payload.
pub const PAYLOAD_BYTES_MAX: usize = 131_072;
/// Bytes of [`Command::Write`] that a connection may have sent and not been credited for.
pub const WINDOW_OUT: u32 = 262_144;
/// Bytes of [`Event::Data`] that a connection may have been sent and not been credited for.
pub const WINDOW_IN: u32 = 262_144;
/// The [`Command::Choose`] that refuses the client.
pub const CHOICE_REFUSE: u64 = u64::MAX;
/// The [`Command::Choose`] that takes the listener's own context.
pub const CHOICE_LISTENER: u64 = 0;

/// The number of [`Command::Write`].
pub const WRITE: u8 = 1;
/// The number of [`Command::End`].
pub const END: u8 = 2;
/// The number of [`Command::Destroy`].
pub const DESTROY: u8 = 3;
/// The number of [`Command::Credit`].
pub const CREDIT: u8 = 4;
/// The number of [`Command::Choose`].
pub const CHOOSE: u8 = 5;
/// The number of [`Command::Option`].
pub const OPTION: u8 = 6;
/// The number of [`Command::Reset`].
pub const RESET: u8 = 7;
/// The number of [`Command::Taken`].
pub const TAKEN: u8 = 8;
/// The number of the command that panics.
pub const PANIC: u8 = 255;
/// [`Command::Write`]: the end follows the payload.
pub const FLAG_END: u32 = 1;
/// [`Command::Write`] and [`Command::End`]: nothing more is read.
pub const FLAG_DESTROY: u32 = 2;
/// The option [`SocketOption::NoDelay`].
pub const OPTION_NO_DELAY: u32 = 1;
/// The option [`SocketOption::KeepAlive`].
pub const OPTION_KEEP_ALIVE: u32 = 2;

fn option(payload: &[u8]) -> Result<SocketOption, Broken> {
    match (word(payload, 0), word(payload, 4)) {
        (Some(OPTION_NO_DELAY), Some(on)) => Ok(SocketOption::NoDelay(on != 0)),
        (Some(OPTION_KEEP_ALIVE), Some(after)) => Ok(SocketOption::KeepAlive(after.checked_sub(1))),
        _ => Err(Broken),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
