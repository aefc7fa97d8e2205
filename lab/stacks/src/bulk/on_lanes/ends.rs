//! Both ends of a data connection on its lane: [`Server`] and [`Client`].

use std::{sync::mpsc, time::Instant};

use sealane_lab_harness::credentials::Side;
use sealane_lab_model::error::Error;
use sealane_lanes::{
    kernel::Kernel,
    link::{Arrivals, Link, Received},
};

use crate::{
    bulk::{
        content::{Harm, Sink, Source, flip_bit},
        sockets::{Event, Threads, of_connection},
    },
    stack::{Endpoint, Progress},
};

/// The server's end.
pub(super) struct Server {
    pub(super) connection: usize,
    /// Until it has told of the last byte.
    pub(super) sink: Option<Sink>,
    pub(super) threads: Threads,
}

impl Server {
    pub(super) fn take(
        &mut self,
        plaintext: &[u8],
        events: &mpsc::Sender<Event>,
    ) -> Result<(), Error> {
        self.threads.note();
        let Some(sink) = &mut self.sink else {
            let wrong = of_connection(self.connection, "the server");
            return Err(wrong(&"more arrived than was sent"));
        };
        if sink.take(plaintext)?
            && let Some(sink) = self.sink.take()
        {
            let (connection, threads) = (self.connection, self.threads.clone());
            let _ = events.send(Event::Received { connection, sink, threads, at: Instant::now() });
        }
        Ok(())
    }
}

/// The client's end: an attached socket.
pub(super) struct Client {
    pub(super) connection: usize,
    pub(super) endpoint: Box<dyn Endpoint>,
    pub(super) outgoing: Vec<u8>,
    /// How much of `outgoing` the kernel has taken.
    pub(super) sent: usize,
    pub(super) source: Source,
    pub(super) stage: Stage,
    pub(super) threads: Threads,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Handshake,
    /// The end is gone, as a test wanted, or it has sent all it had.
    Left,
    Ready,
    Transfer {
        first: Instant,
    },
}

impl Client {
    pub(super) fn begin<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        events: &mpsc::Sender<Event>,
    ) -> Result<(), Error> {
        if self.stage == Stage::Ready {
            self.stage = Stage::Transfer { first: Instant::now() };
        }
        self.transmit(link, events)
    }

    /// Sends until the kernel takes no more: the socket's queue is the limit.
    pub(super) fn transmit<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        events: &mpsc::Sender<Event>,
    ) -> Result<(), Error> {
        while self.flush(link)? {
            let Stage::Transfer { first } = self.stage else { return Ok(()) };
            self.threads.note();
            let Some((piece, harm)) = self.source.next(SEND_BYTES) else {
                self.stage = Stage::Left;
                let (bytes, threads) = (self.source.sent_bytes(), self.threads.clone());
                let connection = self.connection;
                let _ = events.send(Event::Sent { connection, bytes, threads, first });
                return Ok(());
            };
            self.endpoint.send(piece, &mut self.outgoing)?;
            match harm {
                Harm::None => {}
                Harm::Ciphertext => flip_bit(&mut self.outgoing),
                Harm::Reset => {
                    self.stage = Stage::Left;
                    link.detach();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether all of `outgoing` is gone.
    fn flush<K: Kernel>(&mut self, link: &mut Link<'_, K>) -> Result<bool, Error> {
        while self.sent < self.outgoing.len() {
            match link.send_attached(&self.outgoing[self.sent..]) {
                Ok(len) => self.sent += len,
                Err(error) if is_for_now(&error) => return Ok(false),
                Err(error) => return Err(of_connection(self.connection, "write")(&error)),
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(true)
    }

    pub(super) fn receive<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        arrivals: &mut Arrivals<'_>,
        events: &mpsc::Sender<Event>,
    ) -> Result<(), Error> {
        let failed = of_connection(self.connection, "the client");
        match link.receive_attached(arrivals) {
            Ok(Received::Nothing) => return Ok(()),
            Ok(Received::Bytes { last: false }) => {}
            Ok(Received::Bytes { last: true } | Received::End) => {
                return Err(failed(&"the server has left"));
            }
            Err(error) => return Err(failed(&error)),
        }
        if self.stage == Stage::Handshake {
            let progress = self.endpoint.handshake(arrivals.filled(), &mut self.outgoing);
            let progress = progress.map_err(|error| failed(&error))?;
            if progress == Progress::Done {
                self.stage = Stage::Ready;
                let _ = events.send(Event::Shaken(Side::Client, self.endpoint.negotiated()?));
            }
        } else {
            let mut plaintext = Vec::new();
            let taken =
                self.endpoint.receive(arrivals.filled(), &mut plaintext, &mut self.outgoing);
            // Who finds a bad record tells the other end, which may be heard first.
            taken.map_err(|error| failed(&error))?;
            if !plaintext.is_empty() {
                return Err(failed(&"data came back"));
            }
        }
        self.transmit(link, events)
    }
}

fn is_for_now(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, NotConnected, WouldBlock};
    matches!(error.kind(), Interrupted | NotConnected | WouldBlock)
}

/// Plaintext that is encrypted at a time: four full records.
const SEND_BYTES: usize = 64 * 1024;
