//! The lane's end of the ring to JavaScript: [`Events`].

use bytering::region::Producer;

use crate::message::{Event, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX};

/// Writes messages whole, or not at all.
pub struct Events {
    producer: Producer,
    /// Bytes that there is room for at least.
    room: usize,
    /// Whether something was written since JavaScript was last looked after.
    written: bool,
}

impl Events {
    /// Messages into an empty ring.
    pub fn new(producer: Producer) -> Self {
        Self { producer, room: 0, written: false }
    }

    /// Whether a message with so long a payload finds room now.
    pub fn has_room_for(&mut self, payload_len: usize) -> bool {
        let padded_len = payload_len.next_multiple_of(HEADER_BYTES);
        payload_len <= PAYLOAD_BYTES_MAX && self.has_room(HEADER_BYTES + padded_len + DOWN_BYTES)
    }

    /// Writes a message; false: there is no room for it now.
    pub fn write(&mut self, event: Event, id: u64, payload: &[u8]) -> bool {
        let header = Header::event(event, id, payload.len());
        let needed = HEADER_BYTES + header.padded_len();
        // The last words of a lane must always fit.
        let reserved = if event == Event::Down { 0 } else { DOWN_BYTES };
        if payload.len() > PAYLOAD_BYTES_MAX || !self.has_room(needed + reserved) {
            return false;
        }
        let padding = &[0; HEADER_BYTES][..header.padded_len() - payload.len()];
        let written = self.producer.write_whole(&[&header.encode(), payload, padding]);
        self.room = if written { self.room - needed } else { 0 };
        self.written |= written;
        written
    }

    /// Writes the front of `plain` as data; how many bytes. Fewer than all: there is no room now.
    pub fn write_data(&mut self, id: u64, plain: &[u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = plain.get(done..).filter(|rest| !rest.is_empty()) {
            let part = &rest[..rest.len().min(PAYLOAD_BYTES_MAX)];
            if !self.write(Event::Data, id, part) {
                break;
            }
            done += part.len();
        }
        done
    }

    /// Whether a connection that waited for room has enough of it now.
    pub fn has_room_again(&mut self) -> bool {
        self.has_room(ROOM_AGAIN_BYTES)
    }

    /// Whether the lane may wait for that: JavaScript will ring when it has read enough.
    pub fn may_wait(&mut self) -> bool {
        self.producer.may_wait(ROOM_AGAIN_BYTES)
    }

    /// Whether JavaScript sleeps and must be woken; to be asked at the end of a turn.
    pub fn wakes(&mut self) -> bool {
        std::mem::take(&mut self.written) && self.producer.wakes()
    }

    /// Whether JavaScript reads no more.
    pub fn is_abandoned(&self) -> bool {
        self.producer.is_abandoned()
    }

    fn has_room(&mut self, needed: usize) -> bool {
        if self.room < needed {
            self.room = self.producer.room();
        }
        self.room >= needed
    }
}

/// Bytes that are kept free for [`Event::Down`].
const DOWN_BYTES: usize = 1_024;
/// The longest text of [`Event::Down`].
pub const DOWN_TEXT_BYTES_MAX: usize = DOWN_BYTES - HEADER_BYTES;
/// A connection that found no room waits until there is so much: any message fits then, and a slow
/// reader is not asked for room byte by byte.
const ROOM_AGAIN_BYTES: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX + DOWN_BYTES;
