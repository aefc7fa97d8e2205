//! The plain HTTP backend behind every server under test: a thread per processor, each with one
//! epoll, level-triggered.
//!
//! It runs as a process of its own, so that its CPU is nobody's, says on its first line where it
//! listens, and ends when its standard input does. What it gives is said in [`Answers`].

use std::{
    io::{self, IoSlice, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    thread,
};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use sealane_lab_model::error::Error;
use slab::Slab;

use crate::{
    load::{PATTERN_CHUNK_BYTES, Pattern},
    servers::{answers::Answers, listen},
};

/// Serves until standard input ends.
pub fn run() -> Result<(), Error> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let listeners = listen::share(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), threads)
        .map_err(Error::io("backend: listen"))?;
    let address = listeners.first().map(TcpListener::local_addr);
    for listener in listeners {
        let mut backend = Backend::new(listener).map_err(Error::io("backend: epoll"))?;
        thread::spawn(move || backend.serve());
    }
    if let Some(address) = address {
        let address = address.map_err(Error::io("backend: address"))?;
        writeln!(io::stdout(), "{address}").map_err(Error::io("backend: standard output"))?;
    }
    wait_for_the_end()
}

/// Returns when standard input ends.
pub(crate) fn wait_for_the_end() -> Result<(), Error> {
    let mut byte = [0];
    while io::stdin().read(&mut byte).map_err(Error::io("standard input"))? > 0 {}
    Ok(())
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
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let (connections, pattern) = (Slab::new(), Pattern::default());
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
    answers: Answers,
    wanted: EventFlags,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, answers: Answers::default(), wanted: EventFlags::IN }
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
        Ok(if self.answers.room() == 0 { EventFlags::OUT } else { EventFlags::IN })
    }

    /// One read or write; false if there is surely nothing more to do at once.
    fn step(&mut self, pattern: &Pattern, buffer: &mut [u8]) -> io::Result<bool> {
        let room = self.answers.room().min(buffer.len());
        if room == 0 {
            let parts = self.answers.pending(pattern).map(IoSlice::new);
            let written = self.stream.write_vectored(&parts)?;
            self.answers.sent(written);
            return Ok(self.answers.room() == 0);
        }
        match self.stream.read(&mut buffer[..room])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => self.answers.take(&buffer[..read], pattern).map(|_| true),
        }
    }
}

const LISTENER: u64 = u64::MAX;
const EVENTS_MAX: usize = 256;
const STEPS_MAX: usize = 8;
