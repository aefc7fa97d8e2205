//! The other end of a server that is counted: a [`Client`] that connects as often as it is told,
//! and a backend.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
    StreamOwned,
    client::Resumption,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use sealane_lab_harness::credentials::{Credentials, Side};
use sealane_lab_model::{
    error::Error,
    scenario::{Group, Kind, Scenario, Version},
};

/// What is done so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Load {
    /// A piece of 32 KiB to the backend and back, on connections that stay
    Bulk,
    /// A connection: its handshake, one byte to the backend and back, the end
    Echo,
    /// A connection: its handshake and the end
    Handshake,
    /// A request of 100 bytes to the backend and as many back, on connections that stay
    Request,
}

impl Load {
    /// What the figures are per, and how much of it one operation is.
    pub(crate) fn unit(self) -> (&'static str, f64) {
        match self {
            Self::Bulk => ("MiB relayed", (2 * PIECE_BYTES) as f64 / MIB),
            Self::Echo | Self::Handshake => ("connection", 1.0),
            Self::Request => ("request", 1.0),
        }
    }

    /// How many bytes go to the backend and back, on connections that stay.
    pub(super) fn on_kept(self) -> Option<usize> {
        match self {
            Self::Bulk => Some(PIECE_BYTES),
            Self::Echo | Self::Handshake => None,
            Self::Request => Some(REQUEST_BYTES),
        }
    }
}

/// With which PROXY header a connection begins, as of a balancer that has a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProxyHeader {
    /// None.
    Off,
    V1,
    V2,
}

impl ProxyHeader {
    /// All of it; who is announced is the same each time, so that all threads count that client.
    fn bytes(self) -> &'static [u8] {
        match self {
            Self::Off => b"",
            Self::V1 => b"PROXY TCP4 192.0.2.7 198.51.100.9 4000 443\r\n",
            // The same, and in a value what tells this connection from others.
            Self::V2 => {
                b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13\xc0\0\x02\x07\xc6\x33\x64\x09\
                  \x0f\xa0\x01\xbb\x05\0\x04gate"
            }
        }
    }
}

/// What each connection is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connections {
    pub(crate) load: Load,
    pub(crate) proxy_header: ProxyHeader,
    /// Open at the same time; of those that stay, all.
    pub(crate) at_once: u64,
}

/// A client of one server.
pub(super) struct Client {
    server: String,
    address: SocketAddr,
    /// The names that connections ask for, in turn.
    names: Vec<ServerName<'static>>,
    /// Connections so far.
    asked: AtomicUsize,
    connections: Connections,
    config: Arc<ClientConfig>,
    /// Whether each connection but the first ones must resume.
    resumes: bool,
    /// Whether one has ended, and so brought tickets.
    has_ended: AtomicBool,
    /// Operations of the round that is under way.
    finished: AtomicU64,
    /// Connections that stay.
    kept: Mutex<Vec<Tls>>,
}

impl Client {
    pub(super) fn new(
        server: &str,
        (address, names): (SocketAddr, Vec<ServerName<'static>>),
        (config, kind): (Arc<ClientConfig>, Kind),
        connections: Connections,
    ) -> Self {
        Self {
            server: server.to_owned(),
            address,
            names,
            asked: AtomicUsize::new(0),
            connections,
            config,
            resumes: kind == Kind::Ticket,
            has_ended: AtomicBool::new(false),
            finished: AtomicU64::new(0),
            kept: Mutex::default(),
        }
    }

    /// Does so many operations.
    ///
    /// # Errors
    /// What went wrong with one.
    pub(super) fn work(&self, operations: u64) -> Result<(), Error> {
        self.finished.store(0, Ordering::Relaxed);
        if let Some(bytes) = self.connections.load.on_kept() {
            return self.on_kept(operations, bytes);
        }
        let mut left = operations;
        while left > 0 {
            let now = left.min(self.connections.at_once);
            self.together(now)?;
            self.finished.fetch_add(now, Ordering::Relaxed);
            left -= now;
        }
        Ok(())
    }

    /// Operations that have ended of those that were asked for last.
    pub(super) fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    /// Ends the connections that stay: the next ones may go to other threads.
    pub(super) fn begin_anew(&self) -> Result<(), Error> {
        let kept = std::mem::take(&mut *self.kept());
        kept.into_iter().try_for_each(|tls| self.finish(tls))
    }

    /// So many operations in turn on the connections that stay, one after the other.
    fn on_kept(&self, operations: u64, bytes: usize) -> Result<(), Error> {
        let mut kept = self.kept();
        while (kept.len() as u64) < self.connections.at_once {
            kept.push(self.open()?);
        }
        let piece: Vec<u8> = (0..=u8::MAX).cycle().take(bytes).collect();
        let in_turn = (0..kept.len()).cycle();
        for (_, at) in (0..operations).zip(in_turn) {
            self.there_and_back(&mut kept[at], &piece)?;
            self.finished.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Tls>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn there_and_back(&self, tls: &mut Tls, piece: &[u8]) -> Result<(), Error> {
        tls.write_all(piece).and_then(|()| tls.flush()).map_err(self.failed("send to"))?;
        let mut back = vec![0; piece.len()];
        tls.read_exact(&mut back).map_err(self.failed("read from"))?;
        if back != piece {
            let name = &self.server;
            return Err(Error::Check(format!("{name} brought back other bytes than were sent")));
        }
        Ok(())
    }

    /// So many connections, all of them open before the first one ends.
    fn together(&self, connections: u64) -> Result<(), Error> {
        let open = each((0..connections).map(|_| || self.open()).collect())?;
        each(open.into_iter().map(|tls| || self.finish(tls)).collect())?;
        Ok(())
    }

    fn open(&self) -> Result<Tls, Error> {
        let mut tcp = TcpStream::connect(self.address).map_err(self.failed("connect to"))?;
        tcp.set_read_timeout(Some(ANSWER_TIME_MAX)).map_err(self.failed("limit the time of"))?;
        let at = self.asked.fetch_add(1, Ordering::Relaxed) % self.names.len().max(1);
        let name = self.names.get(at).ok_or_else(|| Error::Check("no name to ask for".into()))?;
        let mut tls = ClientConnection::new(Arc::clone(&self.config), name.clone())
            .map_err(|error| Error::Check(error.to_string()))?;
        // Header and hello in one segment, as they come from a balancer.
        let mut first = self.connections.proxy_header.bytes().to_vec();
        tls.write_tls(&mut first)
            .and_then(|_| tcp.write_all(&first))
            .map_err(self.failed("begin a handshake with"))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp).map_err(self.failed("do a handshake with"))?;
        }
        let must_resume = self.resumes && self.has_ended.load(Ordering::Relaxed);
        if must_resume && tls.handshake_kind() != Some(HandshakeKind::Resumed) {
            let name = &self.server;
            return Err(Error::Check(format!(
                "{name} resumed no session, as kind = \"ticket\" asks for: does it send tickets?"
            )));
        }
        Ok(StreamOwned::new(tls, tcp))
    }

    fn finish(&self, mut tls: Tls) -> Result<(), Error> {
        if self.connections.load == Load::Echo {
            self.there_and_back(&mut tls, b"?")?;
        }
        tls.conn.send_close_notify();
        let _ = tls.flush();
        // Its work is done when it has ended the connection too; whether it does so is its affair.
        let _ = tls.sock.set_read_timeout(Some(END_TIME_MAX));
        let _ = tls.take(END_BYTES_MAX).read_to_end(&mut Vec::new());
        self.has_ended.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn failed(&self, what: &str) -> impl FnOnce(std::io::Error) -> Error {
        Error::io(format!(
            "{what} {} (on a busy machine its own time limits may end a connection that valgrind \
             slows down)",
            self.server
        ))
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// All of them at the same time.
fn each<T: Send>(work: Vec<impl FnOnce() -> Result<T, Error> + Send>) -> Result<Vec<T>, Error> {
    thread::scope(|scope| {
        let threads: Vec<_> = work.into_iter().map(|work| scope.spawn(work)).collect();
        let gone = || Error::Check("a thread of the client panicked".into());
        threads.into_iter().map(|thread| thread.join().map_err(|_| gone())?).collect()
    })
}

/// Sends back what it gets, for as long as this process lives; if `tls` is given, in TLS.
///
/// # Errors
/// The system refuses.
pub(super) fn backend(tls: Option<Arc<ServerConfig>>) -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("listen"))?;
    let address = listener.local_addr().map_err(Error::io("listen"))?;
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(connection) = connection else { continue };
            let tls = tls.clone();
            thread::spawn(move || match tls.map(ServerConnection::new) {
                None => echo(connection),
                Some(Ok(tls)) => echo(StreamOwned::new(tls, connection)),
                Some(Err(_)) => {}
            });
        }
    });
    Ok(address)
}

fn echo(mut stream: impl Read + Write) {
    let mut bytes = vec![0; PIECE_BYTES];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(some) => {
                if stream.write_all(&bytes[..some]).and_then(|()| stream.flush()).is_err() {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
}

/// How a backend answers in TLS, with the server's own certificate.
///
/// # Errors
/// The library refuses it.
pub(super) fn backend_config(credentials: &Credentials) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let (chain, key) = identity(credentials, Side::Server)?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| wrong(&error))?;
    Ok(Arc::new(config))
}

fn identity(credentials: &Credentials, side: Side) -> Result<Identity, Error> {
    let chain = CertificateDer::from_pem_file(credentials.certificate(side));
    let key = PrivateKeyDer::from_pem_file(credentials.key(side));
    Ok((vec![chain.map_err(|error| wrong(&error))?], key.map_err(|error| wrong(&error))?))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn wrong(error: &dyn std::fmt::Display) -> Error {
    Error::Check(error.to_string())
}

/// What the client of `scenario` offers and whom it trusts.
///
/// # Errors
/// [`Error::Unsupported`] if a running server cannot be asked for it.
pub(super) fn config(
    scenario: &Scenario,
    credentials: &Credentials,
) -> Result<Arc<ClientConfig>, Error> {
    if scenario.version != Version::Tls13 || scenario.kind == Kind::SessionId {
        let what = "a server is counted in TLS 1.3, full or with tickets";
        return Err(Error::Unsupported(what.into()));
    }
    let group = match scenario.group {
        Group::P256 => aws_lc_rs::kx_group::SECP256R1,
        Group::P384 => aws_lc_rs::kx_group::SECP384R1,
        Group::X25519 => aws_lc_rs::kx_group::X25519,
        Group::X25519MlKem768 => aws_lc_rs::kx_group::X25519MLKEM768,
    };
    let provider = CryptoProvider { kx_groups: vec![group], ..aws_lc_rs::default_provider() };
    let mut roots = RootCertStore::empty();
    let files = CertificateDer::pem_file_iter(credentials.root()).map_err(|error| wrong(&error))?;
    for root in files {
        let root = root.map_err(|error| wrong(&error))?;
        roots.add(root).map_err(|error| wrong(&error))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| wrong(&error))?
        .with_root_certificates(roots);
    let mut config = if scenario.client_certificate {
        let (chain, key) = identity(credentials, Side::Client)?;
        builder.with_client_auth_cert(chain, key).map_err(|error| wrong(&error))?
    } else {
        builder.with_no_client_auth()
    };
    if scenario.kind == Kind::Full {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);
const END_BYTES_MAX: u64 = 64 * 1024;
const END_TIME_MAX: Duration = Duration::from_secs(10);
const MIB: f64 = 1_048_576.0;
/// Little enough to lie in the buffers of sockets while nobody reads it.
const PIECE_BYTES: usize = 32 * 1024;
const REQUEST_BYTES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_per_what_a_load_says() {
        let (unit, much) = Load::Bulk.unit();
        assert_eq!(unit, "MiB relayed");
        // 32 KiB there and as much back.
        assert!((much * 16.0 - 1.0).abs() < f64::EPSILON, "{much}");
        assert_eq!(Load::Request.unit(), ("request", 1.0));
        assert_eq!(Load::Echo.unit(), ("connection", 1.0));
        assert_eq!([Load::Request, Load::Echo].map(Load::on_kept), [Some(REQUEST_BYTES), None]);
    }

    #[test]
    fn headers_are_as_long_as_they_say() {
        let line = ProxyHeader::V1.bytes();
        assert!(line.starts_with(b"PROXY TCP4 ") && line.ends_with(b"\r\n"));
        let header = ProxyHeader::V2.bytes();
        let (fixed, rest) = header.split_at(16);
        assert!(fixed.starts_with(b"\r\n\r\n\0\r\nQUIT\n\x21\x11"));
        assert_eq!(usize::from(u16::from_be_bytes([fixed[14], fixed[15]])), rest.len());
        // Addresses and ports, and one value.
        assert_eq!(usize::from(u16::from_be_bytes([rest[13], rest[14]])), rest[15..].len());
    }
}
