//! The lane's end of the ring from JavaScript: [`Commands`].

use bytering::region::Consumer;

use crate::message::{Broken, Command, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, Then, WINDOW_OUT};

/// Reads messages, each byte of which may be anything.
pub struct Commands {
    consumer: Consumer,
    /// The header of a message with its payload still in the ring.
    ahead: Option<Header>,
    /// Plaintext of the last [`Command::Write`].
    plain: Box<[u8]>,
    plain_len: usize,
    /// Whether something was read since JavaScript was last looked after.
    read: bool,
}

impl Commands {
    /// Messages out of an empty ring.
    pub fn new(consumer: Consumer) -> Self {
        let plain = vec![0; JOINED_BYTES_MAX].into_boxed_slice();
        Self { consumer, ahead: None, plain, plain_len: 0, read: false }
    }

    /// The next command, with the connection it is for, if there is one.
    ///
    /// Writes of one connection that follow each other are one, of at most [`JOINED_BYTES_MAX`].
    ///
    /// # Errors
    /// The bytes in the ring are no message. It is not read any further.
    pub fn take(&mut self) -> Result<Option<(u64, Command)>, Broken> {
        let Some(header) = self.header()? else { return Ok(None) };
        if header.is_write() {
            return self.join_writes(header).map(|then| Some((header.id, Command::Write(then))));
        }
        if header.payload_len > SMALL_PAYLOAD_BYTES_MAX {
            return Err(Broken);
        }
        let mut payload = [0; SMALL_PAYLOAD_BYTES_MAX];
        self.fill(&mut payload[..header.padded_len()])?;
        let command = Command::decode(header, &payload[..header.payload_len])?;
        Ok(Some((header.id, command)))
    }

    /// The plaintext of the last [`Command::Write`].
    pub fn plain(&self) -> &[u8] {
        &self.plain[..self.plain_len]
    }

    /// Whether the lane may sleep: nothing is there, and JavaScript will ring when there is.
    pub fn may_sleep(&self) -> bool {
        self.ahead.is_none() && self.consumer.may_sleep()
    }

    /// The lane sleeps no more.
    pub fn mark_awake(&self) {
        self.consumer.mark_awake();
    }

    /// Whether JavaScript waits for room and must be woken; to be asked at the end of a turn.
    pub fn wakes(&mut self) -> bool {
        std::mem::take(&mut self.read) && self.consumer.wakes()
    }

    fn header(&mut self) -> Result<Option<Header>, Broken> {
        if let Some(header) = self.ahead.take() {
            return Ok(Some(header));
        }
        let mut bytes = [0; HEADER_BYTES];
        match self.consumer.read(&mut bytes) {
            Ok(0) => Ok(None),
            Ok(HEADER_BYTES) => {
                self.read = true;
                Header::decode(bytes).map(Some)
            }
            Ok(_) | Err(_) => Err(Broken),
        }
    }

    /// Reads the payload of a write, and of those behind it that go on where it ended. Bytes behind
    /// an end are recognized, and then dropped.
    fn join_writes(&mut self, first: Header) -> Result<Option<Then>, Broken> {
        self.plain_len = 0;
        let mut header = first;
        for joined in 1.. {
            let start = self.plain_len;
            let end = start + header.payload_len;
            let plain = self.plain.get_mut(start..end).ok_or(Broken)?;
            let mut padding = [0; HEADER_BYTES];
            let padding = &mut padding[..header.padded_len() - header.payload_len];
            fill(&mut self.consumer, plain)?;
            fill(&mut self.consumer, padding)?;
            self.plain_len = end;
            let then = match Command::decode(header, &[])? {
                Command::Write(then) => then,
                _ => return Err(Broken),
            };
            if then.is_some() {
                return Ok(then);
            }
            let Some(next) = self.header()? else { return Ok(None) };
            let room = JOINED_BYTES_MAX - end;
            let is_full = next.payload_len > room || joined == JOINED_MAX;
            if is_full || !next.is_write() || next.id != first.id {
                self.ahead = Some(next);
                return Ok(None);
            }
            header = next;
        }
        Ok(None)
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<(), Broken> {
        fill(&mut self.consumer, into)
    }
}

/// Messages become visible whole, so all of it is there.
fn fill(consumer: &mut Consumer, into: &mut [u8]) -> Result<(), Broken> {
    let len = into.len();
    if consumer.read(into).is_ok_and(|read| read == len) { Ok(()) } else { Err(Broken) }
}

/// Bytes of writes that are joined into one: the size of a connection's window.
pub const JOINED_BYTES_MAX: usize = WINDOW_OUT as usize;
/// Writes that are joined into one, however short they are.
const JOINED_MAX: usize = 1024;
/// Bytes of the payload of any other command.
const SMALL_PAYLOAD_BYTES_MAX: usize = HEADER_BYTES;

const _: () = assert!(PAYLOAD_BYTES_MAX <= JOINED_BYTES_MAX);

#[cfg(test)]
mod tests;
