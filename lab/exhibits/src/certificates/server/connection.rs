//! One connection of the server's, [`Connection`], which blocks its thread.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use rustls::ServerConfig;
use sealane_engine::{
    buffer::Buffer,
    session::{FLIGHT_BYTES_MAX, PARTIAL_BYTES_MAX, ServerSession, Session as _},
};
use sealane_lab_model::error::Error;

use crate::certificates::owner::Reference;

/// A socket, its session unless it speaks plainly, and its claim on the owner's entries.
pub(super) struct Connection {
    tcp: TcpStream,
    tls: Option<ServerSession>,
    pub(super) reference: Option<Reference>,
}

/// What a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// The client got an answer.
    Answered,
    /// The client has closed.
    Ended,
    /// The client got an answer, and is to be kept.
    Held,
}

/// A thread's buffers, which it lends to one connection after the other.
pub(super) struct Lent {
    received: Buffer,
    plain: Buffer,
    wire: Buffer,
    request: Vec<u8>,
}

impl Lent {
    pub(super) fn new() -> Self {
        Self {
            received: Buffer::with_capacity(RECEIVED_BYTES),
            plain: Buffer::with_capacity(RECEIVED_BYTES),
            wire: Buffer::with_capacity(FLIGHT_BYTES_MAX),
            request: Vec::new(),
        }
    }
}

impl Connection {
    /// # Errors
    /// The socket is unusable, or the configuration.
    pub(super) fn new(tcp: TcpStream, config: Option<Arc<ServerConfig>>) -> Result<Self, Error> {
        tcp.set_nodelay(true).map_err(Error::io("set TCP_NODELAY"))?;
        tcp.set_read_timeout(Some(WAIT_TIME_MAX)).map_err(Error::io("set a deadline"))?;
        let tls = config.map(ServerSession::new).transpose().map_err(|error| broken(&error))?;
        Ok(Self { tcp, tls, reference: None })
    }

    /// Up to one answer, or to the client's end.
    ///
    /// # Errors
    /// The client breaks the protocol, asks for something else, or goes away.
    pub(super) fn serve(&mut self, lent: &mut Lent) -> Result<Served, Error> {
        lent.request.clear();
        while !lent.request.ends_with(b"\r\n\r\n") {
            if lent.request.len() > REQUEST_BYTES_MAX {
                return Err(broken(&"the request is too long"));
            }
            if self.receive(lent)? {
                self.close(lent);
                return Ok(Served::Ended);
            }
        }
        let request = lent.request.as_slice();
        let echo = request.strip_prefix(b"GET /echo/").and_then(|rest| rest.get(..NONCE_BYTES));
        let (body, served) = match echo {
            Some(nonce) => (nonce, Served::Answered),
            None if request.starts_with(b"GET /hold ") => (HELD.as_slice(), Served::Held),
            None => return Err(broken(&"the client asks for something else")),
        };
        let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n".to_vec();
        answer.extend_from_slice(body);
        match &mut self.tls {
            None => self.tcp.write_all(&answer).map_err(Error::io("send"))?,
            Some(tls) => {
                tls.seal(&answer, &mut lent.wire).map_err(|error| broken(&error))?;
                self.send(lent)?;
            }
        }
        Ok(served)
    }

    /// One read, and what follows from it; `true` if it is the end.
    fn receive(&mut self, lent: &mut Lent) -> Result<bool, Error> {
        lent.received.clear();
        if let Some(tls) = &mut self.tls {
            tls.take_partial(&mut lent.received);
        }
        let read = self.tcp.read(lent.received.spare_mut()).map_err(Error::io("receive"))?;
        if read == 0 {
            return Ok(true);
        }
        lent.received.fill(read);
        let Some(tls) = &mut self.tls else {
            lent.request.extend_from_slice(lent.received.filled());
            return Ok(false);
        };
        let fed = tls.feed(lent.received.filled_mut(), &mut lent.plain, &mut lent.wire);
        lent.request.extend_from_slice(lent.plain.filled());
        lent.plain.clear();
        // Of a failure, the client gets its alert.
        self.send(lent)?;
        Ok(fed.map_err(|error| broken(&error))?.peer_closed)
    }

    fn send(&mut self, lent: &mut Lent) -> Result<(), Error> {
        let sent = match lent.wire.is_empty() {
            true => Ok(()),
            false => self.tcp.write_all(lent.wire.filled()),
        };
        lent.wire.clear();
        sent.map_err(Error::io("send"))
    }

    /// The client has had everything: whether it hears this is its own affair.
    fn close(&mut self, lent: &mut Lent) {
        if let Some(tls) = &mut self.tls {
            let _ = tls.close(&mut lent.wire);
            let _ = self.send(lent);
        }
    }
}

fn broken(error: &dyn std::fmt::Display) -> Error {
    Error::Check(format!("a connection of the server: {error}"))
}

/// What a client is told that asks to be kept.
const HELD: &[u8; NONCE_BYTES] = b"held until later";
const NONCE_BYTES: usize = 16;
const RECEIVED_BYTES: usize = PARTIAL_BYTES_MAX + 16 * 1024;
const REQUEST_BYTES_MAX: usize = 4 * 1024;
/// A client that is silent for longer has gone wrong; held ones are not read meanwhile.
const WAIT_TIME_MAX: Duration = Duration::from_secs(20);
