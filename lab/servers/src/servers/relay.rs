//! The least that a terminator without TLS can be: it relays bytes between client and backend, a
//! thread per worker, one epoll each, edge-triggered, one buffer for all connections of a thread.
//!
//! What it costs per operation is the TCP part of the floor under every server's figure.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    thread,
};

use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    net::{AddressFamily, SocketFlags, SocketType},
};
use sealane_lab_model::error::Error;
use slab::Slab;

use crate::servers::{backend::wait_for_the_end, listen};

/// Relays until standard input ends.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Where it listens
    listen: SocketAddr,
    /// Where it relays to
    backend: SocketAddr,
    /// Threads
    workers: usize,
}

/// Relays until the process is ended.
///
/// # Errors
/// It cannot listen, or a thread cannot start.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let Arguments { listen, backend, workers } = *arguments;
    for listener in listen::share(listen, workers).map_err(Error::io("relay: listen"))? {
        let mut relay = Relay::new(listener, backend).map_err(Error::io("relay: epoll"))?;
        thread::spawn(move || relay.serve());
    }
    wait_for_the_end()
}

struct Relay {
    epoll: OwnedFd,
    listener: TcpListener,
    backend: SocketAddr,
    pairs: Slab<Pair>,
    again: Vec<usize>,
    buffer: Vec<u8>,
}

/// A client and its backend.
struct Pair {
    streams: [TcpStream; 2],
    ways: [Way; 2],
}

/// From one of the two streams to the other.
#[derive(Default)]
struct Way {
    /// What the receiver did not take yet.
    kept: Vec<u8>,
    ended: bool,
    shut: bool,
}

impl Relay {
    fn new(listener: TcpListener, backend: SocketAddr) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let (pairs, again, buffer) = (Slab::new(), Vec::new(), vec![0; BUFFER_BYTES]);
        Ok(Self { epoll, listener, backend, pairs, again, buffer })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            let timeout = (!self.again.is_empty()).then_some(&timeout);
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    key => {
                        let flags = event.flags;
                        let ends = flags.intersects(EventFlags::RDHUP | EventFlags::HUP);
                        self.turn(usize::try_from(key).unwrap_or(usize::MAX), ends);
                    }
                }
            }
            for key in std::mem::take(&mut self.again) {
                self.turn(key, true);
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..ACCEPTS_MAX {
            // Level-triggered: what is left is told again.
            let Ok(client) = rustix::net::accept_with(&self.listener, flags) else { break };
            let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
            let backend = rustix::net::socket_with(family, kind, flags, None)?;
            match rustix::net::connect(&backend, &self.backend) {
                Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
                Err(_) => continue,
            }
            let streams = [TcpStream::from(client), TcpStream::from(backend)];
            let entry = self.pairs.vacant_entry();
            for stream in &streams {
                stream.set_nodelay(true)?;
                let interest =
                    EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
                let data = EventData::new_u64(entry.key() as u64);
                epoll::add(&self.epoll, stream, data, interest)?;
            }
            entry.insert(Pair { streams, ways: Default::default() });
        }
        Ok(())
    }

    /// One pair goes on; with `ends`, one of its peers may have sent its last byte.
    fn turn(&mut self, key: usize, ends: bool) {
        let Some(pair) = self.pairs.get_mut(key) else { return };
        match pair.advance(&mut self.buffer, ends) {
            Ok(Progress::Waits) => {}
            Ok(Progress::Again) => self.again.push(key),
            Ok(Progress::Over) | Err(_) => drop(self.pairs.remove(key)),
        }
    }
}

#[derive(PartialEq)]
enum Progress {
    Again,
    Over,
    Waits,
}

impl Pair {
    fn advance(&mut self, buffer: &mut [u8], ends: bool) -> io::Result<Progress> {
        let mut again = false;
        for (way, [from, to]) in self.ways.iter_mut().zip([[0, 1], [1, 0]]) {
            again |= way.advance(&self.streams[from], &self.streams[to], buffer, ends)?;
        }
        Ok(match self.ways.iter().all(|way| way.shut) {
            true => Progress::Over,
            false if again => Progress::Again,
            false => Progress::Waits,
        })
    }
}

impl Way {
    /// Moves what can be moved; `true` if there may be more at once.
    fn advance(
        &mut self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        buffer: &mut [u8],
        ends: bool,
    ) -> io::Result<bool> {
        for _ in 0..STEPS_MAX {
            if !self.kept.is_empty() {
                let written = unless_blocked(to.write(&self.kept))?;
                self.kept.drain(..written.unwrap_or(0));
                if !self.kept.is_empty() {
                    return Ok(false);
                }
            }
            if self.ended {
                if !self.shut {
                    self.shut = true;
                    let _ = to.shutdown(Shutdown::Write);
                }
                return Ok(false);
            }
            match unless_blocked(from.read(buffer))? {
                None => return Ok(false),
                Some(0) => self.ended = true,
                Some(read) => {
                    let written = unless_blocked(to.write(&buffer[..read]))?.unwrap_or(0);
                    self.kept.extend_from_slice(&buffer[written..read]);
                    // A short read has emptied the socket, unless its end is there already.
                    if !ends && read < buffer.len() && self.kept.is_empty() {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

const LISTENER: u64 = u64::MAX;
const ACCEPTS_MAX: usize = 64;
const BUFFER_BYTES: usize = 256 * 1024;
const EVENTS_MAX: usize = 256;
const STEPS_MAX: usize = 8;
