//! The server's end of one connection: Sealane's, or rustls' alone.

use std::io::{ErrorKind, Read, Write};

use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};
use sealane_engine::buffer::Buffer;
use sealane_engine::hello::{Gathering, Peek};
use sealane_engine::session::{Awaited, ServerSession, Session};

use crate::Result;
use crate::settings::Settings;

/// One connection.
pub(crate) enum End {
    /// rustls' own server.
    Bare(Box<ServerConnection>),
    /// Sealane's session, behind its look at the hello.
    Sealane(Box<Sealane>),
}

/// A session with the buffers that a lane keeps for it.
pub(crate) struct Sealane {
    gathering: Gathering,
    session: Option<ServerSession>,
    received: Buffer,
    plain: Buffer,
    wire: Buffer,
}

impl End {
    pub(crate) fn bare(settings: &Settings) -> Result<Self> {
        let server = ServerConnection::new(settings.bare()?)?;
        Ok(Self::Bare(Box::new(server)))
    }

    pub(crate) fn waiting() -> Self {
        Self::Sealane(Box::new(Sealane {
            gathering: Gathering::default(),
            session: None,
            received: Buffer::with_capacity(BUFFER_BYTES),
            plain: Buffer::with_capacity(BUFFER_BYTES),
            wire: Buffer::with_capacity(BUFFER_BYTES),
        }))
    }

    /// Takes bytes of the client and returns whether it has closed its side.
    pub(crate) fn feed(
        &mut self,
        settings: &Settings,
        mut bytes: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool> {
        match self {
            Self::Bare(server) => {
                let mut is_closed = false;
                while !bytes.is_empty() && !is_closed {
                    server.read_tls(&mut bytes)?;
                    is_closed = server.process_new_packets()?.peer_has_closed();
                    match server.reader().read_to_end(plain) {
                        Ok(_) => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(is_closed)
            }
            Self::Sealane(sealane) => sealane.feed(settings, bytes, plain),
        }
    }

    pub(crate) fn is_established(&self) -> bool {
        match self {
            Self::Bare(server) => !server.is_handshaking(),
            Self::Sealane(sealane) => {
                sealane.session.as_ref().is_some_and(ServerSession::is_established)
            }
        }
    }

    pub(crate) fn is_resumed(&self) -> bool {
        match self {
            Self::Bare(server) => server.handshake_kind() == Some(HandshakeKind::Resumed),
            Self::Sealane(sealane) => sealane.session.as_ref().is_some_and(ServerSession::resumed),
        }
    }

    /// Whether TLS 1.3 is spoken.
    pub(crate) fn is_tls13(&self) -> bool {
        match self {
            Self::Bare(server) => server.protocol_version() == Some(ProtocolVersion::TLSv1_3),
            Self::Sealane(sealane) => {
                sealane.session.as_ref().and_then(ServerSession::version) == Some("TLSv1.3")
            }
        }
    }

    pub(crate) fn send(&mut self, plain: &[u8]) -> Result<()> {
        match self {
            Self::Bare(server) => Ok(server.writer().write_all(plain)?),
            Self::Sealane(sealane) => {
                let session = sealane.session.as_mut().ok_or("no session")?;
                let taken = session.seal(plain, &mut sealane.wire)?;
                if taken < plain.len() { Err("the buffer is too small".into()) } else { Ok(()) }
            }
        }
    }

    pub(crate) fn close(&mut self) -> Result<()> {
        match self {
            Self::Bare(server) => {
                server.send_close_notify();
                Ok(())
            }
            Self::Sealane(sealane) => {
                let session = sealane.session.as_mut().ok_or("no session")?;
                Ok(session.close(&mut sealane.wire)?)
            }
        }
    }

    /// Takes the bytes to send.
    pub(crate) fn take_wire(&mut self) -> Vec<u8> {
        match self {
            Self::Bare(server) => {
                let mut bytes = Vec::new();
                while server.wants_write() && server.write_tls(&mut bytes).is_ok() {}
                bytes
            }
            Self::Sealane(sealane) => {
                if let Some(session) = &mut sealane.session {
                    session.release_held(&mut sealane.wire);
                }
                let bytes = sealane.wire.filled().to_vec();
                sealane.wire.clear();
                bytes
            }
        }
    }
}

impl Sealane {
    fn feed(&mut self, settings: &Settings, bytes: &[u8], plain: &mut Vec<u8>) -> Result<bool> {
        self.received.clear();
        let session = match &mut self.session {
            Some(session) => {
                session.take_partial(&mut self.received);
                self.received.append(bytes);
                session
            }
            None => {
                let (taken, peeked) = self.gathering.take(bytes, HELLO_BYTES_MAX);
                let hello = match peeked {
                    Peek::Hello(hello) => hello,
                    Peek::NeedMore => return Ok(false),
                    Peek::PlainHttp => return Err("plain HTTP".into()),
                    Peek::Refused(fault) => {
                        self.wire.append(&fault.alert());
                        return Err(format!("refused at first sight: {fault:?}").into());
                    }
                };
                let config = match settings.admit(&hello) {
                    Ok(config) => config,
                    Err(refusal) => {
                        self.wire.append(&refusal.alert());
                        return Err(format!("not admitted: {refusal:?}").into());
                    }
                };
                self.received.fill(self.gathering.framed_len());
                self.gathering.frame(self.received.filled_mut());
                self.received.append(&bytes[taken..]);
                let awaited = Awaited::new(settings.asks_clients(), hello.offers_early_data);
                self.session.insert(ServerSession::new(config)?.awaiting(awaited))
            }
        };
        let fed = session.feed(self.received.filled_mut(), &mut self.plain, &mut self.wire)?;
        plain.extend_from_slice(self.plain.filled());
        self.plain.clear();
        Ok(fed.peer_closed)
    }
}

const BUFFER_BYTES: usize = 1 << 20;
/// Bytes of a hello, as many as rustls takes; the default of lanes is less.
const HELLO_BYTES_MAX: usize = 64 * 1024;
