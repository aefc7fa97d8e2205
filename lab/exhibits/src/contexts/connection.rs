//! One connection of a client: opened, shaken hands on and pinged over, no wait without a limit.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use sealane_lab_model::error::Error;
use sealane_lab_stacks::stack::{Endpoint, Progress};

use crate::contexts::{
    ping,
    target::{CONNECT_TIME_MAX, Peer, Protocol},
};

/// A connection after its handshake.
pub(super) struct Connection {
    socket: TcpStream,
    tls: Box<dyn Endpoint>,
    protocol: Protocol,
}

impl Connection {
    /// Connects to `peer` and shakes hands by `tls`, a client at its start.
    ///
    /// # Errors
    /// What the system or the library tells.
    pub(super) fn open(mut tls: Box<dyn Endpoint>, peer: &Peer) -> Result<Self, Error> {
        let failed = || Error::io(format!("connect to {}", peer.address));
        let mut socket =
            TcpStream::connect_timeout(&peer.address, CONNECT_TIME_MAX).map_err(failed())?;
        socket.set_nodelay(true).map_err(failed())?;
        socket.set_read_timeout(Some(ANSWER_TIME_MAX)).map_err(failed())?;
        socket.set_write_timeout(Some(ANSWER_TIME_MAX)).map_err(failed())?;
        let (mut incoming, mut outgoing) = ([0; READ_BYTES], Vec::new());
        let mut progress = tls.handshake(&[], &mut outgoing);
        loop {
            // Also after a failure: what is left tells the server why.
            let sent = socket.write_all(&outgoing);
            if progress? == Progress::Done {
                sent.map_err(failed())?;
                return Ok(Self { socket, tls, protocol: peer.protocol });
            }
            sent.map_err(failed())?;
            outgoing.clear();
            let length = read(&mut socket, &mut incoming)?;
            progress = tls.handshake(&incoming[..length], &mut outgoing);
        }
    }

    /// Sends a ping and waits for its answer, if the protocol has one.
    ///
    /// # Errors
    /// There is none, or another one.
    pub(super) fn ping(&mut self) -> Result<(), Error> {
        let (request, protocol) = (ping::request(self.protocol), self.protocol);
        if request.is_empty() {
            return Ok(());
        }
        self.ask(&request, |answer| ping::is_answered(protocol, answer)).map(|_| ())
    }

    /// Sends `request` and waits until its answer is whole.
    ///
    /// # Errors
    /// What `is_whole` finds wrong with it, or there is none.
    pub(super) fn ask(
        &mut self,
        request: &[u8],
        is_whole: impl Fn(&[u8]) -> Result<bool, Error>,
    ) -> Result<Vec<u8>, Error> {
        let (mut outgoing, mut answer) = (Vec::new(), Vec::new());
        self.tls.send(request, &mut outgoing)?;
        let mut incoming = [0; READ_BYTES];
        // The answer may come behind tickets, in pieces.
        while !is_whole(&answer)? {
            self.socket.write_all(&outgoing).map_err(Error::io("ask the server"))?;
            outgoing.clear();
            let length = read(&mut self.socket, &mut incoming)?;
            self.tls.receive(&incoming[..length], &mut answer, &mut outgoing)?;
        }
        Ok(answer)
    }
}

/// At least one byte.
fn read(socket: &mut TcpStream, into: &mut [u8]) -> Result<usize, Error> {
    match socket.read(into).map_err(Error::io("wait for the server"))? {
        0 => Err(Error::Check("the server closed the connection".into())),
        length => Ok(length),
    }
}

/// A server that 250 clients connect to at once is slow, but not that slow.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// A record and its overhead.
const READ_BYTES: usize = 17 * 1024;
