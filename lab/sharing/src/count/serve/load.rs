//! The other end of a server that is counted: a [`Client`] that connects as often as it is told,
//! and a backend.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    client::Resumption,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use sealane_lab_harness::credentials::{Credentials, SERVER_NAME, Side};
use sealane_lab_model::{
    error::Error,
    scenario::{Group, Kind, Scenario, Version},
};

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Load {
    /// A handshake, one byte to the backend and back, and the end.
    Echo,
    /// A handshake and the end.
    Handshake,
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
    /// Open at the same time.
    pub(crate) at_once: u64,
}

/// A client of one server.
pub(super) struct Client {
    server: String,
    address: SocketAddr,
    connections: Connections,
    config: Arc<ClientConfig>,
    /// Whether each connection but the first ones must resume.
    resumes: bool,
    /// Whether one has ended, and so brought tickets.
    has_ended: AtomicBool,
    /// Connections of the round that is under way.
    finished: AtomicU64,
}

impl Client {
    pub(super) fn new(
        server: &str,
        address: SocketAddr,
        (config, kind): (Arc<ClientConfig>, Kind),
        connections: Connections,
    ) -> Self {
        Self {
            server: server.to_owned(),
            address,
            connections,
            config,
            resumes: kind == Kind::Ticket,
            has_ended: AtomicBool::new(false),
            finished: AtomicU64::new(0),
        }
    }

    /// Does so many connections.
    ///
    /// # Errors
    /// What went wrong with one.
    pub(super) fn connect(&self, connections: u64) -> Result<(), Error> {
        self.finished.store(0, Ordering::Relaxed);
        let mut left = connections;
        while left > 0 {
            let now = left.min(self.connections.at_once);
            self.together(now)?;
            self.finished.fetch_add(now, Ordering::Relaxed);
            left -= now;
        }
        Ok(())
    }

    /// Connections that have ended of those that were asked for last.
    pub(super) fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
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
        let name = ServerName::try_from(SERVER_NAME)
            .map_err(|error| Error::Check(format!("server name: {error}")))?;
        let mut tls = ClientConnection::new(Arc::clone(&self.config), name)
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
            tls.write_all(b"?").map_err(self.failed("send to"))?;
            let mut byte = [0];
            tls.read_exact(&mut byte).map_err(self.failed("read from"))?;
            if byte != *b"?" {
                let name = &self.server;
                return Err(Error::Check(format!(
                    "{name} brought back another byte than was sent"
                )));
            }
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

/// Sends back what it gets, for as long as this process lives.
///
/// # Errors
/// The system refuses.
pub(super) fn backend() -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("listen"))?;
    let address = listener.local_addr().map_err(Error::io("listen"))?;
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { continue };
            thread::spawn(move || {
                let mut bytes = [0; 16];
                loop {
                    match connection.read(&mut bytes) {
                        Ok(0) => break,
                        Ok(some) if connection.write_all(&bytes[..some]).is_ok() => {}
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        _ => break,
                    }
                }
            });
        }
    });
    Ok(address)
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
    let wrong = |error: &dyn std::fmt::Display| Error::Check(error.to_string());
    let root = CertificateDer::from_pem_file(credentials.root()).map_err(|error| wrong(&error))?;
    let mut roots = RootCertStore::empty();
    roots.add(root).map_err(|error| wrong(&error))?;
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| wrong(&error))?
        .with_root_certificates(roots);
    let mut config = if scenario.client_certificate {
        let chain = CertificateDer::from_pem_file(credentials.certificate(Side::Client));
        let key = PrivateKeyDer::from_pem_file(credentials.key(Side::Client));
        let chain = vec![chain.map_err(|error| wrong(&error))?];
        builder
            .with_client_auth_cert(chain, key.map_err(|error| wrong(&error))?)
            .map_err(|error| wrong(&error))?
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

#[cfg(test)]
mod tests {
    use super::*;

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
