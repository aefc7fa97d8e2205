//! Two services: one relays to a backend, one gives the client back what it sends.

use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use rustls::ClientConfig;
use sealane_engine::buffer::Buffer;
use sealane_engine::session::ClientSession;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::{Address, Kernel};
use sealane_lanes::link::{Arrivals, Link, Received};
use sealane_lanes::service::{EndedConnection, Preamble, Service};

/// What the tests want of a connection.
#[derive(Debug)]
pub(crate) enum Behaviour {
    /// Sends back what comes.
    Echo,
    /// Panics in the call of this name, once a client says so; otherwise an echo.
    Panic(&'static str),
    /// Relays to the first of these that takes the connection.
    Relay(Vec<Address>),
    /// Tells the client what the lane knows of it when it is established; then an echo.
    Tell,
}

/// A listener's settings.
#[derive(Debug)]
pub(crate) struct Settings {
    /// How backends are spoken to, unless in the clear; they must prove to be [`BACKEND_NAME`].
    pub(crate) backend_tls: Option<Arc<ClientConfig>>,
    pub(crate) behaviour: Behaviour,
    pub(crate) connect_timeout: Duration,
    pub(crate) ends: Arc<Mutex<Vec<Cause>>>,
    pub(crate) gate: Arc<Barrier>,
    /// Whether the lane waits at the gate before it connects to a first backend.
    pub(crate) wait_to_connect: bool,
}

/// The service of every test.
pub(crate) struct Tested;

#[derive(Default)]
pub(crate) struct Pumped {
    /// Lines of its preamble.
    lines: usize,
    tried: usize,
    connected: bool,
    client_ended: bool,
    cause: Option<Cause>,
}

/// The name that backends under TLS must prove.
pub(crate) const BACKEND_NAME: &str = "backend.test";
/// The word that a client says to make the service panic.
pub(crate) const PANIC_WORD: &[u8] = b"panic!";
/// The word that holds the lane up between two waits of the test at the gate.
pub(crate) const WAIT_WORD: &[u8] = b"wait!";

impl Pumped {
    fn connect<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        let Behaviour::Relay(backends) = &settings.behaviour else { return Ok(()) };
        while let Some(address) = backends.get(self.tried) {
            self.tried += 1;
            if link.attach(address).is_ok() {
                link.set_deadline(settings.connect_timeout);
                return Ok(());
            }
        }
        Err(self.cause.unwrap_or(Cause::BackendRefused))
    }

    fn failed<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        if self.connected {
            return Err(link.attached_cause().unwrap_or(Cause::BackendReset));
        }
        let shaking = link.attached_session().map(|_| Cause::BackendHandshakeFailed);
        self.cause = link.attached_cause().or(shaking);
        link.detach();
        self.connect(link, settings)
    }

    /// Turns TLS on where it is wanted; returns whether the backend takes the client's bytes.
    fn open<K: Kernel>(link: &mut Link<'_, K>, settings: &Settings) -> std::io::Result<bool> {
        let Some(config) = &settings.backend_tls else { return Ok(true) };
        if link.attached_session().is_none() {
            let name = BACKEND_NAME.try_into().unwrap();
            link.secure_attached(ClientSession::new(Arc::clone(config), name).unwrap())?;
        } else {
            link.flush_attached()?;
        }
        Ok(link.attached_session().is_some_and(ClientSession::is_established))
    }

    fn note_connected<K: Kernel>(&mut self, link: &mut Link<'_, K>) -> Result<(), Cause> {
        self.connected = true;
        link.clear_deadline();
        if self.client_ended { Self::end(link) } else { Ok(()) }
    }

    fn end<K: Kernel>(link: &mut Link<'_, K>) -> Result<(), Cause> {
        match link.end_attached() {
            Err(_) if !link.has_finished() => Err(Cause::BackendReset),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

pub(crate) fn panic_if_told(settings: &Settings, place: &str) {
    assert!(!is_told(settings, place), "as told");
}

fn is_told(settings: &Settings, place: &str) -> bool {
    matches!(settings.behaviour, Behaviour::Panic(chosen) if chosen == place)
}

impl Service for Tested {
    type Connection = Pumped;
    type Command = std::convert::Infallible;
    type Settings = Settings;

    fn established<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        pumped: &mut Option<Pumped>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        panic_if_told(settings, "established");
        if settings.wait_to_connect {
            settings.gate.wait();
            settings.gate.wait();
        }
        let pumped = pumped.get_or_insert_default();
        if matches!(settings.behaviour, Behaviour::Tell) {
            let (client, name) = (link.client_address().unwrap(), link.server_name().is_some());
            let line = format!(
                "lines {} client {client} number {} name {name} session {}\n",
                pumped.lines,
                link.name_number(),
                link.session().is_some(),
            );
            link.send(line.as_bytes())?;
        }
        pumped.connect(link, settings)
    }

    /// A preamble of lines: `from ADDRESS` ends it, and so does `probe`; `more` is answered, and
    /// `no` refused with a word.
    fn preamble(
        &mut self,
        client: &mut Option<SocketAddr>,
        pumped: &mut Option<Pumped>,
        bytes: &[u8],
        _settings: &Settings,
    ) -> Preamble {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            return Preamble::Unfinished;
        };
        let line = std::str::from_utf8(&bytes[..end]).unwrap();
        pumped.get_or_insert_default().lines += 1;
        let read = |answer: &'static [u8], is_through, is_probe| Preamble::Read {
            len: end + 1,
            answer: answer.into(),
            is_through,
            is_probe,
        };
        match line.split_once(' ') {
            Some(("from", address)) => {
                *client = Some(address.parse().unwrap());
                Preamble::through(end + 1)
            }
            None if line == "more" => read(b"+", false, false),
            None if line == "no" => {
                Preamble::Refused { cause: Cause::ProxyUntrusted, answer: b"no\n".into() }
            }
            None if line == "probe" => read(b"", true, true),
            _ => Preamble::refused(Cause::ProxyMalformed),
        }
    }

    fn plaintext<K: Kernel>(
        &mut self,
        pumped: &mut Pumped,
        link: &mut Link<'_, K>,
        plain: &mut Buffer,
        settings: &Settings,
    ) -> Result<(), Cause> {
        if plain.filled() == WAIT_WORD {
            settings.gate.wait();
            settings.gate.wait();
            plain.clear();
            return Ok(());
        }
        if plain.filled() == PANIC_WORD && is_told(settings, "plaintext") {
            // The worst that it can do with what it is lent.
            std::mem::take(plain);
            panic_if_told(settings, "plaintext");
        }
        if plain.filled() == PANIC_WORD && is_told(settings, "attached_readable") {
            if link.attached_status().is_err() {
                let (ours, mut theirs) = UnixStream::pair().unwrap();
                theirs.write_all(PANIC_WORD).unwrap();
                link.attach_socket(OwnedFd::from(ours).into()).unwrap();
            }
            // What is left keeps the client's end back until that has been read.
            return Ok(());
        }
        if !matches!(settings.behaviour, Behaviour::Relay(_)) {
            link.send(plain.filled())?;
            plain.clear();
            return Ok(());
        }
        let opened = if pumped.connected { Ok(true) } else { Pumped::open(link, settings) };
        match opened.and_then(|_| link.send_attached(plain.filled())) {
            Ok(taken) => {
                if !pumped.connected {
                    pumped.note_connected(link)?;
                }
                plain.consume(taken);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(_) => pumped.failed(link, settings),
        }
    }

    fn client_ended<K: Kernel>(
        &mut self,
        pumped: &mut Pumped,
        link: &mut Link<'_, K>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        panic_if_told(settings, "client_ended");
        pumped.client_ended = true;
        if !matches!(settings.behaviour, Behaviour::Relay(_)) {
            return link.finish(&[]);
        }
        if pumped.connected { Pumped::end(link) } else { Ok(()) }
    }

    fn attached_writable<K: Kernel>(
        &mut self,
        pumped: &mut Pumped,
        link: &mut Link<'_, K>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        if !pumped.connected && link.attached_status().is_err() {
            return pumped.failed(link, settings);
        }
        match Pumped::open(link, settings) {
            Ok(true) if !pumped.connected => pumped.note_connected(link),
            Ok(_) => Ok(()),
            Err(_) => pumped.failed(link, settings),
        }
    }

    fn attached_readable<K: Kernel>(
        &mut self,
        pumped: &mut Pumped,
        link: &mut Link<'_, K>,
        arrivals: &mut Arrivals<'_>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        assert_eq!(arrivals.filled(), b"", "what another connection left is nobody's");
        let received = link.receive_attached(arrivals);
        panic_if_told(settings, "attached_readable");
        match received {
            Ok(Received::Bytes { last: false }) => link.send(arrivals.filled()),
            Ok(Received::Bytes { last: true }) => link.finish(arrivals.filled()),
            Ok(Received::End) => link.finish(&[]),
            Ok(Received::Nothing) => Ok(()),
            Err(_) => pumped.failed(link, settings),
        }
    }

    fn deadline<K: Kernel>(
        &mut self,
        pumped: &mut Pumped,
        link: &mut Link<'_, K>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        pumped.failed(link, settings)
    }

    fn ended(&mut self, _pumped: Option<Pumped>, settings: &Settings, end: &EndedConnection<'_>) {
        settings.ends.lock().unwrap().push(end.cause);
        panic_if_told(settings, "ended");
    }
}
