//! The loop's side of a connection: its [`Socket`], what the application answers, and its TLS, here
//! or on a worker.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    sync::Arc,
};

use rustix::event::epoll::EventFlags;
use sealane_lab_servers::{load::Pattern, servers::answers::Answers};

use crate::offload::{
    pipe::{CHUNK_BYTES, Inlet, Outlet},
    tls::Tls,
    worker::Signals,
};

/// What the loop's connections use in turn.
pub(super) struct Tools {
    pub(super) scratch: Vec<u8>,
    pub(super) pattern: Pattern,
}

/// How far a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There is more to do at once, but others shall have their turn.
    Again,
    /// The connection is at its end.
    Over,
    /// Somebody else has to do something first.
    Waits,
}

/// A stream and what epoll has told of it: reported once, remembered until it blocks.
pub(super) struct Socket {
    stream: TcpStream,
    readable: bool,
    writable: bool,
    /// The client's end is there, maybe behind more bytes.
    ends: bool,
}

impl Socket {
    /// A connection on a stream that does not block.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, readable: false, writable: true, ends: false }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Remembers what epoll reported.
    pub(super) fn note(&mut self, flags: EventFlags) {
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        self.ends |= flags.intersects(ends);
        self.readable |= self.ends || flags.contains(EventFlags::IN);
        self.writable |= flags.contains(EventFlags::OUT);
    }

    /// Sends what the kernel takes of `bytes`; nothing once it blocks.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.writable {
            return Ok(0);
        }
        match self.stream.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.writable = false;
                Ok(0)
            }
            written => written,
        }
    }

    /// Reads what is there into `room`; nothing once it blocks.
    ///
    /// # Errors
    /// The kind is `UnexpectedEof` at the client's end.
    fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if !self.readable {
            return Ok(0);
        }
        match self.stream.read(room) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                // A short read has emptied the socket, unless its end is there already.
                self.readable = read == room.len() || self.ends;
                Ok(read)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

/// TLS in the loop itself.
pub(super) struct Here {
    tls: Tls,
    plaintext: Vec<u8>,
    outgoing: Vec<u8>,
    closes: bool,
}

impl Here {
    pub(super) fn new(tls: Tls) -> Self {
        Self { tls, plaintext: Vec::new(), outgoing: Vec::new(), closes: false }
    }

    /// Goes on for a bounded number of steps.
    ///
    /// # Errors
    /// What ends the connection, as it should be or not.
    pub(super) fn advance(
        &mut self,
        socket: &mut Socket,
        answers: &mut Answers,
        tools: &mut Tools,
    ) -> io::Result<Turn> {
        for _ in 0..STEPS_MAX {
            if !self.flush(socket)? {
                return Ok(Turn::Waits);
            }
            if self.closes {
                return Ok(Turn::Over);
            }
            let Self { tls, plaintext, outgoing, closes } = self;
            let taken = answers.take(plaintext, &tools.pattern)?;
            plaintext.drain(..taken);
            let mut sealed = 0;
            for part in answers.pending(&tools.pattern) {
                let part = &part[..part.len().min(CHUNK_BYTES - sealed)];
                if !part.is_empty() {
                    tls.seal(part, outgoing).map_err(io::Error::other)?;
                    sealed += part.len();
                }
            }
            answers.sent(sealed);
            if taken + sealed > 0 {
                continue;
            }
            let received = socket.receive(&mut tools.scratch)?;
            if received == 0 {
                return Ok(Turn::Waits);
            }
            match tls.open(&tools.scratch[..received], plaintext, outgoing) {
                Ok(closing) => *closes |= closing,
                Err(error) => {
                    // An alert may be among what is to go.
                    self.flush(socket)?;
                    return Err(io::Error::other(error));
                }
            }
        }
        Ok(Turn::Again)
    }

    /// Sends what it can; whether that was all.
    fn flush(&mut self, socket: &mut Socket) -> io::Result<bool> {
        while !self.outgoing.is_empty() {
            match socket.send(&self.outgoing)? {
                0 => return Ok(false),
                sent => drop(self.outgoing.drain(..sent)),
            }
        }
        Ok(true)
    }
}

/// TLS on a worker: the loop's ends of the four pipes.
pub(super) struct There {
    pub(super) worker: usize,
    pub(super) shared: Arc<Signals>,
    pub(super) enc_in: Inlet,
    pub(super) clear_in: Inlet,
    pub(super) enc_out: Outlet,
    pub(super) clear_out: Outlet,
}

impl There {
    /// Goes on for a bounded number of steps; `work`: there is a job for the worker.
    ///
    /// # Errors
    /// What ends the connection, as it should be or not.
    pub(super) fn advance(
        &mut self,
        socket: &mut Socket,
        answers: &mut Answers,
        tools: &mut Tools,
        work: &mut bool,
    ) -> io::Result<Turn> {
        // Asked first: what the worker put into its pipes before is then seen below.
        let has_ended = self.shared.has_ended();
        let (mut sent, mut taken, mut given) = (0, 0, 0);
        let mut turn = Turn::Again;
        for _ in 0..STEPS_MAX {
            let before = sent + taken + given;
            sent += self.enc_out.drain(&mut tools.scratch, |bytes| socket.send(bytes))?;
            taken += self
                .clear_out
                .drain(&mut tools.scratch, |bytes| answers.take(bytes, &tools.pattern))?;
            given += self.answer(answers, &tools.pattern);
            let read = self.enc_in.fill(&mut tools.scratch, |room| socket.receive(room))?;
            given += read.unwrap_or(0);
            if sent + taken + given == before {
                turn = Turn::Waits;
                break;
            }
        }
        if has_ended && self.enc_out.is_empty() {
            return Ok(Turn::Over);
        }
        let relieved = self.enc_out.relieves(sent) | self.clear_out.relieves(taken);
        *work = given > 0 || relieved;
        Ok(turn)
    }

    /// Hands over what there is room for.
    fn answer(&mut self, answers: &mut Answers, pattern: &Pattern) -> usize {
        let mut given = 0;
        for part in answers.pending(pattern) {
            let written = self.clear_in.write(part);
            given += written;
            if written < part.len() {
                break;
            }
        }
        answers.sent(given);
        given
    }
}

/// Chunks of one connection before others have their turn.
const STEPS_MAX: usize = 8;
