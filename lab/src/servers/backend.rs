//! The plain HTTP backend behind every server under test: a thread per processor, each with one
//! epoll, level-triggered.
//!
//! It runs as a process of its own, so that its CPU is nobody's, says on its first line where it
//! listens, and ends when its standard input does. `GET /bytes/N` gives N bytes of the pattern,
//! `GET /echo/X` gives X, `POST /upload` takes the pattern and gives its length.

use std::{
    io::{self, IoSlice, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    thread,
};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use slab::Slab;

use crate::{
    error::Error,
    load::{PATTERN_CHUNK_BYTES, Pattern},
    servers::listen,
};

/// Serves until standard input ends.
pub(crate) fn run() -> Result<(), Error> {
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
    /// The head of a request that is not whole yet.
    request: Vec<u8>,
    wanted: EventFlags,
}

enum State {
    /// Sends what is left of the head, then the pattern.
    Answer {
        head: Vec<u8>,
        sent: usize,
        at: u64,
        end: u64,
    },
    Request,
    Upload {
        at: u64,
        end: u64,
    },
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, state: State::Request, request: Vec::new(), wanted: EventFlags::IN }
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
            State::Answer { .. } => EventFlags::OUT,
            State::Request | State::Upload { .. } => EventFlags::IN,
        })
    }

    /// One read or write; false if there is surely nothing more to do at once.
    fn step(&mut self, pattern: &Pattern, buffer: &mut [u8]) -> io::Result<bool> {
        match &mut self.state {
            State::Answer { head, sent, at, end } => {
                let parts = [IoSlice::new(&head[*sent..]), IoSlice::new(pattern.at(*at, *end))];
                let written = self.stream.write_vectored(&parts)?;
                let of_head = written.min(head.len() - *sent);
                *sent += of_head;
                *at += (written - of_head) as u64;
                let over = *sent == head.len() && at == end;
                if over {
                    self.state = State::Request;
                }
                Ok(!over)
            }
            State::Request => {
                let space = HEAD_BYTES_MAX.min(buffer.len());
                let read = some(self.stream.read(&mut buffer[..space])?)?;
                self.request.extend_from_slice(&buffer[..read]);
                self.answer(pattern)
            }
            State::Upload { at, end } => {
                let space = usize::try_from(*end - *at).unwrap_or(usize::MAX).min(buffer.len());
                let read = some(self.stream.read(&mut buffer[..space])?)?;
                if !pattern.matches(*at, &buffer[..read]) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                *at += read as u64;
                if at == end {
                    self.state = text(&end.to_string());
                }
                Ok(true)
            }
        }
    }

    /// Looks at what came of a request; `true` if there is an answer to it, or a body to read.
    fn answer(&mut self, pattern: &Pattern) -> io::Result<bool> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&self.request).map_err(|_| io::ErrorKind::InvalidData)?;
        let httparse::Status::Complete(length) = parsed else {
            let fits = self.request.len() < HEAD_BYTES_MAX;
            return if fits { Ok(true) } else { Err(io::ErrorKind::InvalidData.into()) };
        };
        let path = request.path.unwrap_or_default();
        let number = |text: &str| text.parse().map_err(|_| io::ErrorKind::InvalidData);
        let body = &self.request[length..];
        if let Some(bytes) = path.strip_prefix("/bytes/") {
            let end: u64 = number(bytes)?;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {end}\r\n\r\n").into_bytes();
            self.state = State::Answer { head, sent: 0, at: 0, end };
        } else if let Some(echo) = path.strip_prefix("/echo/") {
            self.state = text(echo);
        } else if path == "/upload" {
            let header = request
                .headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case("content-length"))
                .and_then(|header| std::str::from_utf8(header.value).ok());
            let (at, end) = (body.len() as u64, number(header.unwrap_or_default())?);
            if at > end || !pattern.matches(0, body) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.state = if at == end { text(&end.to_string()) } else { State::Upload { at, end } };
        } else {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.request.clear();
        Ok(true)
    }
}

fn text(body: &str) -> State {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes();
    State::Answer { head, sent: 0, at: 0, end: 0 }
}

/// The end of the stream as an error.
fn some(read: usize) -> io::Result<usize> {
    if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(read) }
}

const LISTENER: u64 = u64::MAX;
const EVENTS_MAX: usize = 256;
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 32;
const STEPS_MAX: usize = 8;
