//! A blocking TLS client of the main thread, [`Control`], that tells a lane when to start.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use sealane_lab_model::error::Error;

use crate::stack::{Endpoint, Progress, Worker};

/// One control connection, open until it is dropped.
pub(crate) struct Control {
    socket: TcpStream,
    endpoint: Box<dyn Endpoint>,
}

impl Control {
    /// Connects and shakes hands.
    pub(crate) fn connect(address: SocketAddr, worker: &mut dyn Worker) -> Result<Self, Error> {
        let mut socket = TcpStream::connect(address).map_err(Error::io("connect to a lane"))?;
        let setting = socket.set_nodelay(true).and_then(|()| socket.set_read_timeout(PATIENCE));
        setting.map_err(Error::io("connect to a lane"))?;
        let mut endpoint = worker.client(None)?;
        let mut outgoing = Vec::new();
        let mut progress = endpoint.handshake(&[], &mut outgoing)?;
        let mut incoming = [0; 4096];
        loop {
            socket.write_all(&outgoing).map_err(Error::io("shake hands with a lane"))?;
            outgoing.clear();
            if progress == Progress::Done {
                return Ok(Self { socket, endpoint });
            }
            let len = socket.read(&mut incoming).map_err(Error::io("shake hands with a lane"))?;
            if len == 0 {
                return Err(Error::Check("a lane closed its control connection".into()));
            }
            progress = endpoint.handshake(&incoming[..len], &mut outgoing)?;
        }
    }

    /// Sends a word.
    pub(crate) fn say(&mut self, word: &[u8]) -> Result<(), Error> {
        let mut outgoing = Vec::new();
        self.endpoint.send(word, &mut outgoing)?;
        self.socket.write_all(&outgoing).map_err(Error::io("speak to a lane"))
    }
}

/// A lane that says nothing for as long is stuck.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));
