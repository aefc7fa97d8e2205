//! One check of one backend: connected to, told who asks, spoken to in TLS, asked and heard.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustls::{ClientConfig, ClientConnection};
use sealane_config::{CheckKind, value};
use sealane_engine::session::SessionError;
use sealane_lanes::kernel::Address;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::backends::Target;

/// A check under way. It never blocks.
pub(super) struct Probe {
    pub(super) socket: Socket,
    /// When it has failed at the latest.
    pub(super) deadline: Instant,
    /// What came back.
    heard: Vec<u8>,
    /// Bytes of TLS that came back.
    heard_tls: usize,
    is_connected: bool,
    /// Whether what is asked has been handed over to `tls` or `unsent`.
    has_asked: bool,
    target: Arc<Target>,
    tls: Option<Box<ClientConnection>>,
    /// Bytes in the clear that are left to send.
    unsent: Vec<u8>,
}

/// Why a check cannot begin.
pub(super) enum NotBegun {
    /// The backend is not there.
    ByBackend(String),
    /// This process lacks something, which says nothing of the backend.
    ByUs(String),
}

/// What is still needed before a check is over.
enum Step {
    Again,
    Passed,
    /// The socket has to become readable or writable.
    Wait,
}

impl Probe {
    /// Begins a check of `target`; what is spoken to it in TLS, `config` says.
    ///
    /// # Errors
    /// It cannot even begin.
    pub(super) fn begin(
        target: &Arc<Target>,
        config: Option<&Arc<ClientConfig>>,
        now: Instant,
    ) -> Result<Self, NotBegun> {
        let tls = match (&target.tls, config) {
            (Some(tls), Some(config)) if target.speaks_tls() => {
                let client = ClientConnection::new(Arc::clone(config), tls.name.clone());
                Some(Box::new(client.map_err(|error| NotBegun::ByUs(error.to_string()))?))
            }
            _ => None,
        };
        let socket = connect(&target.address).map_err(|error| match is_want_of_ours(&error) {
            true => NotBegun::ByUs(error.to_string()),
            false => NotBegun::ByBackend(cannot_connect(&error)),
        })?;
        Ok(Self {
            socket,
            deadline: now + target.check.timeout,
            heard: Vec::new(),
            heard_tls: 0,
            is_connected: false,
            has_asked: false,
            target: Arc::clone(target),
            tls,
            unsent: target.header.to_vec(),
        })
    }

    /// What it waits for.
    pub(super) fn interest(&self) -> PollFlags {
        let has_more =
            !self.unsent.is_empty() || self.tls.as_ref().is_some_and(|t| t.wants_write());
        if !self.is_connected || has_more { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Goes on as far as the socket lets it; returns the outcome when there is one.
    pub(super) fn advance(&mut self) -> Option<Result<(), String>> {
        // Others have their turn beside one that talks without end, and its time runs out.
        for _ in 0..STEPS_MAX {
            match self.step() {
                Ok(Step::Again) => {}
                Ok(Step::Passed) => return Some(Ok(())),
                Ok(Step::Wait) => return None,
                Err(problem) => return Some(Err(problem)),
            }
        }
        None
    }

    fn step(&mut self) -> Result<Step, String> {
        if !self.is_connected {
            if let Some(error) = self.socket.take_error().map_err(|error| error.to_string())? {
                return Err(cannot_connect(&error));
            }
            self.is_connected = true;
        }
        if !self.unsent.is_empty() {
            return match (&self.socket).write(&self.unsent) {
                Ok(sent) => {
                    self.unsent.drain(..sent);
                    Ok(Step::Again)
                }
                Err(error) => wait_or(&error),
            };
        }
        let target = Arc::clone(&self.target);
        match &target.check.kind {
            CheckKind::Connect => Ok(Step::Passed),
            CheckKind::Proxy => self.see_whether_it_stays(),
            CheckKind::Tls => self.shake_hands().map(|step| step.unwrap_or(Step::Passed)),
            CheckKind::Ask { send, expect } => self.ask(send, expect),
        }
    }

    /// Whoever does not take the header resets the connection.
    fn see_whether_it_stays(&mut self) -> Result<Step, String> {
        if !self.has_asked {
            self.has_asked = true;
            self.socket.shutdown(Shutdown::Write).map_err(|error| error.to_string())?;
        }
        // An answer is as good as an end.
        match (&self.socket).read(&mut [0; 64]).map(drop) {
            Ok(()) => Ok(Step::Passed),
            Err(error) => wait_or(&error),
        }
    }

    /// None once the handshake is complete.
    fn shake_hands(&mut self) -> Result<Option<Step>, String> {
        let Some(tls) = &mut self.tls else { return Ok(None) };
        if tls.wants_write() {
            return match tls.write_tls(&mut &self.socket) {
                Ok(_) => Ok(Some(Step::Again)),
                Err(error) => wait_or(&error).map(Some),
            };
        }
        if !tls.is_handshaking() {
            return Ok(None);
        }
        self.hear_tls().map(Some)
    }

    fn hear_tls(&mut self) -> Result<Step, String> {
        let Some(tls) = &mut self.tls else { return Ok(Step::Wait) };
        match tls.read_tls(&mut &self.socket) {
            Ok(0) => return Err("it ended the connection".into()),
            Ok(read) => self.heard_tls += read,
            Err(error) => return wait_or(&error),
        }
        if self.heard_tls > TLS_BYTES_MAX {
            return Err(format!("it sent more than {TLS_BYTES_MAX} bytes of TLS"));
        }
        if let Err(error) = tls.process_new_packets() {
            // It is told why, if it takes that.
            let _ = tls.write_tls(&mut &self.socket);
            return Err(format!("TLS: {}", SessionError::Tls(error)));
        }
        Ok(Step::Again)
    }

    fn ask(&mut self, send: &[u8], expect: &[u8]) -> Result<Step, String> {
        if let Some(step) = self.shake_hands()? {
            return Ok(step);
        }
        if !self.has_asked {
            self.has_asked = true;
            match &mut self.tls {
                Some(tls) => tls.writer().write_all(send).map_err(|error| error.to_string())?,
                None => self.unsent.extend_from_slice(send),
            }
            return Ok(Step::Again);
        }
        let mut piece = [0; HEARD_BYTES_MAX];
        let read = match &mut self.tls {
            Some(tls) => tls.reader().read(&mut piece),
            None => (&self.socket).read(&mut piece),
        };
        match read {
            Ok(0) => return Err(self.not_as(expect, "and ended the connection")),
            Ok(len) => self.heard.extend_from_slice(&piece[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock && self.tls.is_some() => {
                return self.hear_tls();
            }
            Err(error) => return wait_or(&error),
        }
        if self.heard.windows(expect.len()).any(|window| window == expect) {
            return Ok(Step::Passed);
        }
        match self.heard.len() < HEARD_BYTES_MAX {
            true => Ok(Step::Again),
            false => Err(self.not_as(expect, "and more")),
        }
    }

    /// What is said of it at its deadline.
    pub(super) fn late(&self) -> String {
        match &self.target.check.kind {
            CheckKind::Ask { expect, .. } if !self.heard.is_empty() => {
                self.not_as(expect, "and no more")
            }
            _ => {
                let timeout = value::duration_text(self.target.check.timeout);
                format!("it does not answer within {timeout}")
            }
        }
    }

    fn not_as(&self, expect: &[u8], and: &str) -> String {
        let shown = self.heard[..self.heard.len().min(SHOWN_BYTES_MAX)].escape_ascii();
        format!("it said \"{shown}\" {and}, instead of \"{}\"", expect.escape_ascii())
    }
}

fn connect(address: &Address) -> io::Result<Socket> {
    let (address, domain) = match address {
        Address::Tcp(address) => (SockAddr::from(*address), Domain::for_address(*address)),
        Address::Unix(path) => (SockAddr::unix(path)?, Domain::UNIX),
    };
    let socket = Socket::new(domain, Type::STREAM.cloexec().nonblocking(), None)?;
    match socket.connect(&address) {
        Err(error) if error.raw_os_error() != Some(IN_PROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

/// Whether descriptors, memory or ports of this machine are used up.
fn is_want_of_ours(error: &io::Error) -> bool {
    let wants = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::ADDRNOTAVAIL];
    wants.iter().any(|want| error.raw_os_error() == Some(want.raw_os_error()))
}

fn cannot_connect(error: &io::Error) -> String {
    format!("it cannot be connected to: {error}")
}

fn wait_or(error: &io::Error) -> Result<Step, String> {
    match error.kind() {
        ErrorKind::WouldBlock => Ok(Step::Wait),
        ErrorKind::Interrupted => Ok(Step::Again),
        _ => Err(error.to_string()),
    }
}

const IN_PROGRESS: i32 = Errno::INPROGRESS.raw_os_error();
/// Steps of a check before others have their turn.
const STEPS_MAX: usize = 64;
/// Bytes of an answer that are searched for what is expected.
const HEARD_BYTES_MAX: usize = 4096;
/// Bytes of TLS that a check takes: a chain of 64 KiB, what is around it, and an answer.
const TLS_BYTES_MAX: usize = 128 * 1024;
/// Bytes of an answer that are shown to an operator.
const SHOWN_BYTES_MAX: usize = 64;
