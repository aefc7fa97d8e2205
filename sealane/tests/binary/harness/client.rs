//! A TLS client of a test's own, for what no program does on demand.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, SupportedCipherSuite,
    SupportedProtocolVersion,
};

/// How a test's clients connect; clones share their tickets.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Connector {
    /// Trusts `authority` and speaks `version` only.
    pub fn new(
        authority: CertificateDer<'static>,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        Self::of_provider(aws_lc_rs::default_provider(), authority, version)
    }

    /// The same with X25519 for every key exchange.
    pub fn with_x25519(
        authority: CertificateDer<'static>,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        let groups = vec![aws_lc_rs::kx_group::X25519];
        let provider = CryptoProvider { kx_groups: groups, ..aws_lc_rs::default_provider() };
        Self::of_provider(provider, authority, version)
    }

    /// Speaks one suite only, in its version.
    pub fn with_suite(authority: CertificateDer<'static>, suite: SupportedCipherSuite) -> Self {
        let provider =
            CryptoProvider { cipher_suites: vec![suite], ..aws_lc_rs::default_provider() };
        let version = if suite.tls13().is_some() { &TLS13 } else { &TLS12 };
        Self::of_provider(provider, authority, version)
    }

    fn of_provider(
        provider: CryptoProvider,
        authority: CertificateDer<'static>,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority).unwrap();
        let config = ClientConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { config: Arc::new(config), name: ServerName::try_from("sealane.test").unwrap() }
    }

    /// The same, asking for the server `name`.
    pub fn with_name(mut self, name: &str) -> Self {
        self.name = ServerName::try_from(name.to_owned()).unwrap();
        self
    }

    /// The same, offering these protocols.
    pub fn with_alpn(mut self, protocols: &[&str]) -> Self {
        let protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec());
        Arc::make_mut(&mut self.config).alpn_protocols = protocols.collect();
        self
    }

    /// The first bytes of a connection.
    pub fn hello(&self) -> Vec<u8> {
        let config = Arc::clone(&self.config);
        let mut tls = ClientConnection::new(config, self.name.clone()).unwrap();
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).unwrap();
        hello
    }

    /// The same without any resumption.
    pub fn without_tickets(mut self) -> Self {
        Arc::make_mut(&mut self.config).resumption = Resumption::disabled();
        self
    }

    /// The same with tickets of its own.
    pub fn with_own_tickets(mut self) -> Self {
        Arc::make_mut(&mut self.config).resumption = Resumption::in_memory_sessions(8);
        self
    }

    /// The same, showing the chain and key of a PEM text to whoever asks.
    pub fn showing(mut self, pem: &str) -> Self {
        let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        let key = aws_lc_rs::sign::any_supported_type(&key).unwrap();
        let certified = CertifiedKey::new(chain.unwrap(), key);
        Arc::make_mut(&mut self.config).client_auth_cert_resolver =
            Arc::new(SingleCertAndKey::from(certified));
        self
    }

    /// A connection whose handshake is complete.
    pub fn connect(&self, address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(super::PATIENCE))?;
        stream.set_write_timeout(Some(super::PATIENCE))?;
        stream.set_nodelay(true)?;
        self.over(stream, b"")
    }

    /// The same over a TCP connection that stands; `first` leaves with the handshake's last bytes.
    pub fn over(&self, stream: TcpStream, first: &[u8]) -> io::Result<Client> {
        self.behind(b"", stream, first)
    }

    /// The same behind a PROXY header, in one segment with the hello.
    pub fn behind(&self, header: &[u8], mut stream: TcpStream, first: &[u8]) -> io::Result<Client> {
        let mut tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(io::Error::other)?;
        tls.writer().write_all(first)?;
        let mut hello = header.to_vec();
        tls.write_tls(&mut hello)?;
        stream.write_all(&hello)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        Ok(Client { tls, stream })
    }
}

/// An established connection.
pub struct Client {
    pub tls: ClientConnection,
    pub stream: TcpStream,
}

impl Client {
    /// Whether it resumed a session.
    pub fn resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Ends this direction: close_notify and, if `fin`, FIN behind it.
    pub fn end(&mut self, fin: bool) -> io::Result<()> {
        self.tls.send_close_notify();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.stream)?;
        }
        if fin {
            self.stream.shutdown(std::net::Shutdown::Write)?;
        }
        Ok(())
    }

    /// Sends `bytes` and reads as many back, which must be the same.
    pub fn echo(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)?;
        self.flush()?;
        let mut back = vec![0; bytes.len()];
        self.read_exact(&mut back)?;
        if back == bytes { Ok(()) } else { Err(io::Error::other("the echo differs")) }
    }

    /// Reads to the clean end.
    pub fn read_rest(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for Client {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        rustls::Stream::new(&mut self.tls, &mut self.stream).read(into)
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        rustls::Stream::new(&mut self.tls, &mut self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        rustls::Stream::new(&mut self.tls, &mut self.stream).flush()
    }
}
