//! JavaScript's end of a lane's rings.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use bytering::region::{Consumer, Producer};
use sealane_lanes::cause::Cause;
use sealane_node::message::{
    CREDIT, DESTROY, END, FLAG_END, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, TAKEN, WINDOW_OUT,
    WRITE,
};

use crate::rig::PATIENCE;

/// What a lane said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Open(u64),
    Data(u64, Vec<u8>),
    End(u64),
    Close(u64, Cause),
    Credit(u64, u32),
    Down(String),
    Other(u8),
}

pub(crate) struct Script {
    events: Consumer,
    pub(crate) commands: Producer,
    bell: Arc<OwnedFd>,
    woken: Receiver<()>,
    /// Bytes written and not credited, of each connection that is open.
    open: HashMap<u64, u32>,
    /// Of the last connection.
    descriptor: i32,
}

impl Script {
    pub(crate) fn new(
        events: Consumer,
        commands: Producer,
        bell: Arc<OwnedFd>,
        woken: Receiver<()>,
    ) -> Self {
        Self { events, commands, bell, woken, open: HashMap::new(), descriptor: -1 }
    }

    /// The next event, for which it sleeps as JavaScript does. Ids are checked: nothing is said of
    /// a connection that is not open.
    pub(crate) fn next(&mut self) -> Said {
        while self.events.unread().unwrap() == 0 {
            if self.events.may_sleep() {
                self.woken.recv_timeout(PATIENCE).expect("the lane wakes JavaScript");
                self.events.awoke();
            }
        }
        let (header, payload) = self.take();
        if self.events.wakes() {
            self.ring();
        }
        self.understood(header, payload)
    }

    /// Reads all that is there, and leaves it to something else to wake the lane.
    pub(crate) fn drop_all(&mut self) {
        while self.events.unread().unwrap() > 0 {
            self.take();
        }
    }

    fn take(&mut self) -> (Header, Vec<u8>) {
        let mut bytes = [0; HEADER_BYTES];
        assert_eq!(self.events.read(&mut bytes).unwrap(), HEADER_BYTES);
        let header = Header::decode(bytes).unwrap();
        let mut payload = vec![0; header.padded_len()];
        assert_eq!(self.events.read(&mut payload).unwrap(), payload.len(), "a whole message");
        payload.truncate(header.payload_len);
        (header, payload)
    }

    fn understood(&mut self, header: Header, payload: Vec<u8>) -> Said {
        let number = || u32::from_le_bytes(payload[..4].try_into().unwrap());
        let id = header.id;
        if (2..=5).contains(&header.kind) {
            assert!(self.open.contains_key(&id), "stale id {id:x} in {header:?}");
        }
        match header.kind {
            1 => {
                assert!(self.open.insert(id, 0).is_none(), "{id:x} is open already");
                self.descriptor = i32::from_le_bytes(payload[16..20].try_into().unwrap());
                self.say(TAKEN, 0, 0, &1u32.to_le_bytes());
                Said::Open(id)
            }
            2 => Said::Data(id, payload),
            3 => Said::End(id),
            4 => {
                self.open.remove(&id);
                Said::Close(id, Cause::ALL[number() as usize])
            }
            5 => {
                let credit = number();
                let used = self.open.get_mut(&id).unwrap();
                *used = used.checked_sub(credit).expect("no more is credited than was written");
                Said::Credit(id, credit)
            }
            9 => Said::Down(String::from_utf8(payload).unwrap()),
            kind => Said::Other(kind),
        }
    }

    /// Says something, if there is room; there must be.
    pub(crate) fn say(&mut self, kind: u8, flags: u32, id: u64, payload: &[u8]) {
        let header = Header { payload_len: payload.len(), kind, flags, id };
        let padding = vec![0; header.padded_len() - payload.len()];
        assert!(self.commands.write_whole(&[&header.encode(), payload, &padding]), "room");
        if self.commands.wakes() {
            self.ring();
        }
    }

    /// How much of a connection's window is left.
    pub(crate) fn window(&self, id: u64) -> usize {
        self.open.get(&id).map_or(0, |used| (WINDOW_OUT - used) as usize)
    }

    pub(crate) fn write(&mut self, id: u64, bytes: &[u8]) {
        assert!(bytes.len() <= self.window(id), "a window is kept");
        for part in bytes.chunks(PAYLOAD_BYTES_MAX) {
            *self.open.get_mut(&id).unwrap() += u32::try_from(part.len()).unwrap();
            self.say(WRITE, 0, id, part);
        }
    }

    pub(crate) fn finish(&mut self, id: u64, last: &[u8]) {
        self.say(WRITE, FLAG_END, id, last);
    }

    pub(crate) fn end(&mut self, id: u64) {
        self.say(END, 0, id, &[]);
    }

    pub(crate) fn destroy(&mut self, id: u64) {
        self.say(DESTROY, 0, id, &[]);
    }

    pub(crate) fn credit(&mut self, id: u64, consumed: usize) {
        let consumed = u32::try_from(consumed).unwrap();
        self.say(CREDIT, 0, id, &consumed.to_le_bytes());
    }

    pub(crate) fn is_open(&self, id: u64) -> bool {
        self.open.contains_key(&id)
    }

    pub(crate) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Waits for a connection, and sees nothing else before it.
    pub(crate) fn opened(&mut self) -> u64 {
        match self.next() {
            Said::Open(id) => id,
            other => panic!("{other:?} before a connection"),
        }
    }

    /// Waits for a connection that comes by a socket.
    pub(crate) fn opened_descriptor(&mut self) -> OwnedFd {
        self.opened();
        // A copy: the number itself stays open until the test ends.
        sealane_node::memory::borrowed(self.descriptor).unwrap()
    }

    /// Gives every connection back what it sends, until none is open any more.
    pub(crate) fn echo(&mut self, connections: usize) {
        let mut waiting: HashMap<u64, (Vec<u8>, bool)> = HashMap::new();
        let mut closed = 0;
        while closed < connections {
            let id = match self.next() {
                Said::Data(id, bytes) => {
                    waiting.entry(id).or_default().0.extend_from_slice(&bytes);
                    id
                }
                Said::End(id) => {
                    waiting.entry(id).or_default().1 = true;
                    id
                }
                Said::Open(id) | Said::Credit(id, _) => id,
                Said::Close(id, cause) => {
                    assert_eq!(cause, Cause::Clean);
                    waiting.remove(&id);
                    closed += 1;
                    continue;
                }
                other => panic!("{other:?}"),
            };
            let (bytes, ended) = waiting.entry(id).or_default();
            let len = bytes.len().min(self.window(id));
            let part: Vec<u8> = bytes.drain(..len).collect();
            let is_last = *ended && bytes.is_empty();
            if is_last {
                *ended = false;
            }
            self.write(id, &part);
            self.credit(id, part.len());
            if is_last {
                self.end(id);
            }
        }
    }

    pub(crate) fn ring(&self) {
        rustix::io::write(&self.bell, &1u64.to_ne_bytes()).unwrap();
    }
}
