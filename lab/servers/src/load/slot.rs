//! One checked connection, [`Slot`], as a state machine that never blocks: what was negotiated, the
//! certificate and every byte are verified.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::Arc,
    time::Instant,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection,
    crypto::SupportedKxGroup,
    pki_types::{CertificateDer, ServerName},
};
use sealane_lab_model::scenario::{Group, Version};

use crate::load::{
    Negotiation, Pattern, Request,
    exchange::Answer,
    offer::{named, numbered},
    tally::is_resumed,
};

/// What a handshake must come to. What is `None` is not looked at.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// The protocol version.
    pub version: Option<Version>,
    /// The key-exchange group.
    pub group: Option<Group>,
    /// The IANA name.
    pub suite: Option<String>,
    /// Whether a session is resumed.
    pub resumed: Option<bool>,
    /// The certificate that the server must show in a full handshake.
    pub leaf: Option<CertificateDer<'static>>,
}

/// One connection to the server under load.
pub(crate) struct Slot {
    tcp: TcpStream,
    tls: Option<Box<ClientConnection>>,
    phase: Phase,
    head: Vec<u8>,
    /// Bytes of the head that were sent, or handed to TLS.
    head_sent: usize,
    body_sent: u64,
    body_bytes: u64,
    answer: Option<Answer>,
    shut: bool,
    /// The server has said that it sends no more.
    ended: bool,
    pub(crate) timing: Timing,
    /// Whether its hello offered a ticket.
    pub(crate) offers_ticket: bool,
}

/// When the current operation was to begin, began, and must be over.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    /// When it was to begin.
    pub(crate) intended: Instant,
    /// When it began.
    pub(crate) started: Instant,
    /// When it must be over.
    pub deadline: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshaking,
    Ready,
    Exchanging,
    Closing,
}

/// How far a slot came.
#[derive(Debug, PartialEq)]
pub(crate) enum Turn {
    /// There is more to do at once, but others shall have their turn.
    Again,
    /// The last byte of the answer came: so many bytes of its body.
    Answered(u64),
    /// The server has closed as it was asked to.
    Closed,
    /// The handshake is over; nothing is agreed on without TLS.
    Established(Option<Negotiation>),
    /// The peer has to do something first.
    Waits,
}

/// Why an operation failed.
#[derive(Debug)]
pub struct Failure {
    /// What it is counted with.
    pub kind: Kind,
    /// What happened, in words.
    pub text: String,
}

/// Failures of one kind are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Alert,
    Answer,
    Certificate,
    Closed,
    Negotiated,
    Refused,
    Reset,
    System,
    TimedOut,
    Tls,
}

/// What all slots of a thread use in turn.
pub(crate) struct Scratch {
    received: Vec<u8>,
    plain: Vec<u8>,
    /// What bodies of answers hold.
    pub pattern: Pattern,
}

impl Slot {
    /// Begins to connect.
    pub(crate) fn connect(
        address: SocketAddr,
        tls: Option<(&Arc<ClientConfig>, &ServerName<'static>)>,
        timing: Timing,
    ) -> Result<Self, Failure> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
            .map_err(|error| Failure::system("socket", &error.into()))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(Failure::system("connect", &error.into())),
        }
        let tcp = TcpStream::from(socket);
        tcp.set_nodelay(true).map_err(|error| Failure::system("set TCP_NODELAY", &error))?;
        let tls = match tls {
            Some((config, name)) => {
                let mut tls = ClientConnection::new(Arc::clone(config), name.clone())
                    .map_err(|error| Failure::tls(&error))?;
                tls.set_buffer_limit(Some(SEND_BYTES_MAX));
                Some(Box::new(tls))
            }
            None => None,
        };
        Ok(Self {
            tcp,
            tls,
            phase: Phase::Handshaking,
            head: Vec::new(),
            head_sent: 0,
            body_sent: 0,
            body_bytes: 0,
            answer: None,
            shut: false,
            ended: false,
            timing,
            offers_ticket: false,
        })
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Whether it stands, with nothing under way.
    pub(crate) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Begins an exchange on a connection that is ready.
    pub(crate) fn ask(&mut self, request: &Request, host: &str, nonce: u64) {
        self.head.clear();
        request.write_head(host, nonce, &mut self.head);
        (self.head_sent, self.body_sent) = (0, 0);
        self.body_bytes = request.body_bytes();
        self.answer = Some(request.answer(nonce));
        self.phase = Phase::Exchanging;
    }

    /// Begins to close as it should be: close_notify, FIN, then the server's end is waited for.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.phase = Phase::Closing;
    }

    /// The certificate that the server showed.
    pub(crate) fn leaf(&self) -> Option<&CertificateDer<'static>> {
        self.tls.as_ref()?.peer_certificates()?.first()
    }

    /// Goes on for a bounded number of steps.
    pub(crate) fn advance(
        &mut self,
        expect: &Expect,
        scratch: &mut Scratch,
    ) -> Result<Turn, Failure> {
        for _ in 0..STEPS_MAX {
            if self.ended && self.phase != Phase::Closing {
                return Err(Failure::new(Kind::Closed, "the server closed in the middle"));
            }
            let sent_all = self.send(&scratch.pattern)?;
            if self.phase == Phase::Handshaking && self.is_established(sent_all) {
                self.phase = Phase::Ready;
                return Ok(Turn::Established(self.check(expect)?));
            }
            self.ended |= match self.receive(scratch) {
                Ok(Some(read)) => read == 0,
                Ok(None) => return Ok(Turn::Waits),
                // All bytes were there before: a reset now only ends the wait.
                Err(Failure { kind: Kind::Reset, .. }) if self.phase == Phase::Closing => {
                    return Ok(Turn::Closed);
                }
                Err(failure) => return Err(failure),
            };
            if let Some(answer) = self.answer.as_mut().filter(|_| self.ended) {
                answer.ends_here();
            }
            if let Some(answer) = self.answer.as_ref().filter(|answer| answer.is_done()) {
                let body_bytes = answer.body_bytes();
                if self.body_sent < self.body_bytes {
                    return Err(Failure::answer("the answer came before the request's end"));
                }
                self.answer = None;
                self.phase = Phase::Ready;
                return Ok(Turn::Answered(body_bytes));
            }
            if self.ended && self.phase == Phase::Closing {
                return Ok(Turn::Closed);
            }
        }
        Ok(Turn::Again)
    }

    fn is_established(&self, sent_all: bool) -> bool {
        match &self.tls {
            Some(tls) => !tls.is_handshaking(),
            // A write of nothing tells nothing; the peer's address does.
            None => sent_all && self.tcp.peer_addr().is_ok(),
        }
    }

    fn check(&self, expect: &Expect) -> Result<Option<Negotiation>, Failure> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let (version, suite) = (tls.protocol_version(), tls.negotiated_cipher_suite());
        let group = tls.negotiated_key_exchange_group().map(SupportedKxGroup::name);
        let resumed = is_resumed(tls.handshake_kind());
        let suite = suite.map(|suite| suite.suite());
        let name = suite.map(iana_name).unwrap_or_default();
        // A session of TLS 1.2 is resumed without a key exchange.
        let group_wanted = match expect.version {
            Some(Version::Tls12) if resumed => None,
            _ => expect.group.map(named),
        };
        let leaf = expect.leaf.as_ref().filter(|_| !resumed);
        let differs = |what: &str| Err(Failure::new(Kind::Negotiated, what));
        if expect.resumed.is_some_and(|wanted| resumed != wanted) {
            let is = if resumed { "resumed a session" } else { "did a full handshake" };
            return differs(&format!("the server {is}, which was not asked for"));
        }
        if expect.version.is_some_and(|wanted| version != Some(numbered(wanted))) {
            return differs(&format!("negotiated {version:?}, wanted {:?}", expect.version));
        }
        if expect.suite.as_ref().is_some_and(|wanted| name != *wanted) {
            return differs(&format!("negotiated {name}, wanted {:?}", expect.suite));
        }
        if group_wanted.is_some_and(|wanted| group != Some(wanted)) {
            return differs(&format!("negotiated {group:?}, wanted {group_wanted:?}"));
        }
        if leaf.is_some_and(|wanted| self.leaf() != Some(wanted)) {
            return differs("the server shows another certificate than it was given");
        }
        Ok(Some(Negotiation {
            version: version.map_or(0, u16::from),
            suite: suite.map_or(0, u16::from),
            group: group.map_or(0, u16::from),
            resumed,
            alpn: tls.alpn_protocol().map(<[u8]>::to_vec),
        }))
    }

    /// Moves all that it can; `true` if nothing is left to send.
    fn send(&mut self, pattern: &Pattern) -> Result<bool, Failure> {
        loop {
            if !self.flush()? {
                return Ok(false);
            }
            let (part, is_head) = match self.phase {
                Phase::Exchanging if self.head_sent < self.head.len() => {
                    (&self.head[self.head_sent..], true)
                }
                Phase::Exchanging if self.body_sent < self.body_bytes => {
                    let part = pattern.at(self.body_sent, self.body_bytes);
                    (&part[..part.len().min(SEND_BYTES_MAX / 2)], false)
                }
                Phase::Closing if !self.shut => {
                    self.shut = true;
                    // Whoever has closed already is at the end of it too.
                    let _ = self.tcp.shutdown(Shutdown::Write);
                    return Ok(true);
                }
                _ => return Ok(true),
            };
            let written = match &mut self.tls {
                Some(tls) => tls.writer().write(part),
                None => self.tcp.write(part),
            };
            let Some(written) = blocked(written, "send")? else { return Ok(false) };
            match is_head {
                true => self.head_sent += written,
                false => self.body_sent += written as u64,
            }
        }
    }

    fn flush(&mut self) -> Result<bool, Failure> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.wants_write() {
            if blocked(tls.write_tls(&mut self.tcp), "send")?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One read from the socket, and all that follows from it: how much came, 0 at the server's
    /// end, nothing if nothing is there.
    fn receive(&mut self, scratch: &mut Scratch) -> Result<Option<usize>, Failure> {
        let read = match self.tcp.read(&mut scratch.received) {
            // Not yet connected.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(None),
            result => blocked(result, "receive")?,
        };
        let Some(read) = read else { return Ok(None) };
        let Scratch { received, plain, pattern } = scratch;
        let mut left = &received[..read];
        let Some(tls) = &mut self.tls else {
            take(&mut self.answer, left, pattern)?;
            return Ok(Some(read));
        };
        while !left.is_empty() {
            tls.read_tls(&mut left).map_err(|error| Failure::system("deframe", &error))?;
            let state = tls.process_new_packets().map_err(|error| Failure::tls(&error))?;
            let mut there = state.plaintext_bytes_to_read();
            while there > 0 {
                let length =
                    tls.reader().read(plain).map_err(|error| Failure::system("decrypt", &error))?;
                take(&mut self.answer, &plain[..length], pattern)?;
                there = there.saturating_sub(length);
            }
            if state.peer_has_closed() {
                return Ok(Some(0));
            }
        }
        Ok(Some(read))
    }
}

/// The registered name of a suite.
pub(crate) fn iana_name(suite: CipherSuite) -> String {
    suite.as_str().unwrap_or("unknown suite").replacen("TLS13_", "TLS_", 1)
}

fn take(answer: &mut Option<Answer>, bytes: &[u8], pattern: &Pattern) -> Result<(), Failure> {
    match answer {
        _ if bytes.is_empty() => Ok(()),
        Some(answer) => answer.take(bytes, pattern),
        None => Err(Failure::answer("more bytes came than were asked for")),
    }
}

/// What a call on a socket gave; nothing if it would have to wait.
fn blocked(result: io::Result<usize>, what: &str) -> Result<Option<usize>, Failure> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(Failure::system(what, &error)),
    }
}

impl Scratch {
    /// Buffers with nothing in them yet.
    pub(crate) fn new() -> Self {
        let (received, plain) = (vec![0; RECEIVE_BYTES], vec![0; PLAIN_BYTES]);
        Self { received, plain, pattern: Pattern::default() }
    }
}

impl Failure {
    /// A failure of that kind.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// An answer that differs from what was asked.
    pub fn answer(text: impl Into<String>) -> Self {
        Self::new(Kind::Answer, text)
    }

    /// What the system says of a call.
    pub(crate) fn system(what: &str, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Kind::Reset,
            io::ErrorKind::ConnectionRefused => Kind::Refused,
            io::ErrorKind::TimedOut => Kind::TimedOut,
            _ => Kind::System,
        };
        Self::new(kind, format!("{what}: {error}"))
    }

    fn tls(error: &rustls::Error) -> Self {
        let kind = match error {
            rustls::Error::AlertReceived(_) => Kind::Alert,
            rustls::Error::InvalidCertificate(_) => Kind::Certificate,
            _ => Kind::Tls,
        };
        Self::new(kind, format!("TLS: {error}"))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alert => "alert from the server",
            Self::Answer => "wrong answer",
            Self::Certificate => "certificate",
            Self::Closed => "closed in the middle",
            Self::Negotiated => "negotiated something else",
            Self::Refused => "connection refused",
            Self::Reset => "connection reset",
            Self::System => "this machine",
            Self::TimedOut => "timed out",
            Self::Tls => "TLS",
        })
    }
}

const STEPS_MAX: usize = 16;
const SEND_BYTES_MAX: usize = 256 * 1024;
const RECEIVE_BYTES: usize = 64 * 1024;
const PLAIN_BYTES: usize = 16 * 1024;
