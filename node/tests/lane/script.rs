//! JavaScript's end of a lane's rings.

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use bytering::region::{Consumer, Producer};
use sealane_lanes::cause::Cause;
use sealane_node::RING;
use sealane_node::message::{
    CREDIT, DESTROY, END, FLAG_END, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, TAKEN, WINDOW_OUT,
    WRITE,
};

use crate::rig::PATIENCE;

/// An event of a lane.
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
    /// Descriptors of connections that come by them.
    descriptors: Receiver<OwnedFd>,
    /// Bytes that were read of the ring, and not understood yet.
    ahead: VecDeque<u8>,
}

impl Script {
    pub(crate) fn new(
        events: Consumer,
        commands: Producer,
        bell: Arc<OwnedFd>,
        woken: Receiver<()>,
        descriptors: Receiver<OwnedFd>,
    ) -> Self {
        Self {
            events,
            commands,
            bell,
            woken,
            open: HashMap::new(),
            descriptors,
            ahead: VecDeque::new(),
        }
    }

    /// The next event, for which it sleeps as JavaScript does. Ids are checked: no event is about a
    /// connection that is not open.
    pub(crate) fn next(&mut self) -> Said {
        let mut bytes = [0; HEADER_BYTES];
        while self.read(&mut bytes) == 0 {
            if self.events.may_sleep() {
                self.woken.recv_timeout(PATIENCE).expect("the lane wakes JavaScript");
                self.events.mark_awake();
            }
        }
        let header = Header::decode(bytes).unwrap();
        let mut payload = vec![0; header.padded_len()];
        assert_eq!(self.read(&mut payload), payload.len(), "a whole message");
        payload.truncate(header.payload_len);
        if self.events.wakes() {
            self.ring();
        }
        self.understood(header, payload)
    }

    /// Takes all that is in the ring, without a sign to the lane.
    pub(crate) fn read_ahead(&mut self) {
        let mut bytes = vec![0; self.events.unread().unwrap()];
        self.events.read(&mut bytes).unwrap();
        self.ahead.extend(bytes);
    }

    /// Bytes that are left of the ring.
    pub(crate) fn room(&self) -> usize {
        RING.bytes_max() - self.events.unread().unwrap()
    }

    fn read(&mut self, into: &mut [u8]) -> usize {
        match self.ahead.len() {
            0 => self.events.read(into).unwrap(),
            _ => self.ahead.read(into).unwrap(),
        }
    }

    fn understood(&mut self, header: Header, payload: Vec<u8>) -> Said {
        let number = || u32::from_le_bytes(payload[..4].try_into().unwrap());
        let id = header.id;
        if (2..=5).contains(&header.kind) {
            assert!(self.open.contains_key(&id), "stale id {id:x} in {header:?}");
        }
        match header.kind {
            1 => {
                let slot = |id: u64| id & u64::from(u32::MAX);
                let is_vacant = self.open.keys().all(|open| slot(*open) != slot(id));
                assert!(is_vacant, "the slot of {id:x} is open already");
                self.open.insert(id, 0);
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

    /// Sends a command as soon as there is room: the lane may be slow to take earlier ones.
    pub(crate) fn say(&mut self, kind: u8, flags: u32, id: u64, payload: &[u8]) {
        let header = Header { payload_len: payload.len(), kind, flags, id };
        let padding = vec![0; header.padded_len() - payload.len()];
        let until = Instant::now() + PATIENCE;
        while !self.commands.write_whole(&[&header.encode(), payload, &padding]) {
            assert!(Instant::now() < until, "the lane takes no commands");
            thread::sleep(Duration::from_millis(1));
        }
        if self.commands.wakes() {
            self.ring();
        }
    }

    /// The rest of a connection's window.
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
        self.descriptors.try_recv().unwrap()
    }

    /// Gives every connection its bytes back, until none is open any more.
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

    /// Reads and writes no more, and marks its end as gone.
    pub(crate) fn leave(self) {
        let Self { events, commands, bell, .. } = self;
        drop((events, commands));
        rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
    }

    pub(crate) fn ring(&self) {
        rustix::io::write(&self.bell, &1u64.to_ne_bytes()).unwrap();
    }
}
