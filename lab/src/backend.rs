//! The plain backend behind every server under test: one thread, one epoll, level-triggered.
//!
//! It runs as a process of its own, so that its CPU is nobody's, says on its first line where it
//! listens, and ends when its standard input does.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use slab::Slab;

use crate::{
    error::Error,
    request::{Action, PATTERN_CHUNK_BYTES, Pattern, REQUEST_BYTES, Request},
};

/// Serves until standard input ends.
pub(crate) fn run() -> Result<(), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("backend: bind"))?;
    let address = listener.local_addr().map_err(Error::io("backend: address"))?;
    let mut backend = Backend::new(listener).map_err(Error::io("backend: epoll"))?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{address}")
        .and_then(|()| stdout.flush())
        .map_err(Error::io("backend: standard output"))?;
    backend.serve().map_err(Error::io("backend: epoll"))
}

struct Backend {
    epoll: OwnedFd,
    listener: TcpListener,
    connections: Slab<Connection>,
    pattern: Pattern,
    buffer: Vec<u8>,
}

impl Backend {
    fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        // A file or /dev/null cannot be waited for: then only a signal ends the backend.
        let _ = epoll::add(&epoll, io::stdin(), EventData::new_u64(STDIN), EventFlags::IN);
        let (connections, pattern) = (Slab::new(), Pattern::new());
        Ok(Self { epoll, listener, connections, pattern, buffer: vec![0; PATTERN_CHUNK_BYTES] })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    STDIN if io::stdin().read(&mut self.buffer)? == 0 => return Ok(()),
                    STDIN => {}
                    key => self.turn(key),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let Ok((stream, _)) = self.listener.accept() else {
            return Ok(()); // Whoever connected is gone again.
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let entry = self.connections.vacant_entry();
        let data = EventData::new_u64(entry.key() as u64);
        epoll::add(&self.epoll, &stream, data, EventFlags::IN)?;
        entry.insert(Connection::new(stream));
        Ok(())
    }

    fn turn(&mut self, key: u64) {
        let Some((key, connection)) = usize::try_from(key)
            .ok()
            .and_then(|key| self.connections.get_mut(key).map(|connection| (key, connection)))
        else {
            return;
        };
        match connection.advance(&self.pattern, &mut self.buffer) {
            Ok(wanted) if wanted == connection.wanted => {}
            Ok(wanted) => {
                connection.wanted = wanted;
                let data = EventData::new_u64(key as u64);
                if epoll::modify(&self.epoll, &connection.stream, data, wanted).is_err() {
                    self.connections.remove(key);
                }
            }
            // Its end or its failure: the client behind the server sees it and counts it.
            Err(_) => drop(self.connections.remove(key)),
        }
    }
}

struct Connection {
    stream: TcpStream,
    state: State,
    block: [u8; REQUEST_BYTES],
    wanted: EventFlags,
}

#[derive(Clone, Copy)]
enum State {
    Download { at: u64, end: u64 },
    Reply { sent: usize },
    Request { filled: usize },
    Upload { at: u64, end: u64 },
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        let (state, block) = (State::Request { filled: 0 }, [0; REQUEST_BYTES]);
        Self { stream, state, block, wanted: EventFlags::IN }
    }

    /// Goes on for a bounded number of steps and says what to wait for. An error ends the
    /// connection, be it the peer's orderly end.
    fn advance(&mut self, pattern: &Pattern, buffer: &mut [u8]) -> io::Result<EventFlags> {
        for _ in 0..STEPS_MAX {
            match self.step(pattern, buffer) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(match self.state {
            State::Download { .. } | State::Reply { .. } => EventFlags::OUT,
            State::Request { .. } | State::Upload { .. } => EventFlags::IN,
        })
    }

    /// One read or write; false if there is surely nothing more to do at once.
    fn step(&mut self, pattern: &Pattern, buffer: &mut [u8]) -> io::Result<bool> {
        match self.state {
            State::Download { at, end } => {
                let at = at + self.stream.write(pattern.at(at, end))? as u64;
                self.state = match at == end {
                    true => State::Request { filled: 0 },
                    false => State::Download { at, end },
                };
                Ok(at != end)
            }
            State::Reply { sent } => {
                let sent = sent + self.stream.write(&self.block[sent..])?;
                self.state = match sent == REQUEST_BYTES {
                    true => State::Request { filled: 0 },
                    false => State::Reply { sent },
                };
                Ok(false)
            }
            State::Request { filled } => {
                let filled = filled + some(self.stream.read(&mut self.block[filled..])?)?;
                self.state = match filled == REQUEST_BYTES {
                    true => self.answer()?,
                    false => State::Request { filled },
                };
                Ok(true)
            }
            State::Upload { at, end } => {
                let space = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
                let read = some(self.stream.read(&mut buffer[..space])?)?;
                if !pattern.matches(at, &buffer[..read]) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let at = at + read as u64;
                self.state = match at == end {
                    true => State::Reply { sent: 0 },
                    false => State::Upload { at, end },
                };
                Ok(true)
            }
        }
    }

    fn answer(&self) -> io::Result<State> {
        let request = Request::decode(&self.block).ok_or(io::ErrorKind::InvalidData)?;
        Ok(match request.action {
            Action::Download(end) => State::Download { at: 0, end },
            Action::Echo => State::Reply { sent: 0 },
            Action::Upload(end) => State::Upload { at: 0, end },
        })
    }
}

/// The end of the stream as an error.
fn some(read: usize) -> io::Result<usize> {
    if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(read) }
}

const LISTENER: u64 = u64::MAX;
const STDIN: u64 = u64::MAX - 1;
const EVENTS_MAX: usize = 256;
const STEPS_MAX: usize = 8;
