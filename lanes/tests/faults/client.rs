//! A blocking peer: rustls' own, over a real socket. A client of the lane, or its backend.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::DerefMut;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, DigitallySignedStruct, ServerConnection,
    SideData, SignatureScheme, SupportedProtocolVersion,
};

use crate::rig::{NAME, Rig, Served, provider, roots};

/// The versions that every end is tested in.
pub(crate) const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// How a stream ended for whoever read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// close_notify and FIN under TLS, FIN for a plain backend.
    Clean,
    /// A fatal alert.
    Alert(rustls::AlertDescription),
    /// A reset, or something else than an end.
    Failed(ErrorKind),
    /// FIN without close_notify.
    Truncated,
}

/// One end of TLS.
pub(crate) struct Peer<C> {
    pub(crate) tls: C,
    pub(crate) socket: TcpStream,
}

/// A client of the lane.
pub(crate) type Client = Peer<ClientConnection>;
/// A backend's end.
pub(crate) type Server = Peer<ServerConnection>;

impl Client {
    /// A client that has not spoken yet.
    pub(crate) fn begin<S: Served>(
        rig: &Rig<S>,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        Self::with(rig, config(version))
    }

    pub(crate) fn with<S: Served>(rig: &Rig<S>, config: ClientConfig) -> Self {
        Self::named(rig, config, NAME)
    }

    /// A client that asks for `name`; for an address it asks for none.
    pub(crate) fn named<S: Served>(rig: &Rig<S>, config: ClientConfig, name: &'static str) -> Self {
        let name = ServerName::try_from(name).unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        Self { tls, socket: rig.connect() }
    }

    /// A client whose handshake is complete.
    pub(crate) fn connect<S: Served>(
        rig: &Rig<S>,
        version: &'static SupportedProtocolVersion,
    ) -> io::Result<Self> {
        let mut client = Self::begin(rig, version);
        client.handshake()?;
        Ok(client)
    }
}

impl<C, S> Peer<C>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    pub(crate) fn handshake(&mut self) -> io::Result<()> {
        while self.tls.is_handshaking() || self.tls.wants_write() {
            self.tls.complete_io(&mut self.socket)?;
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut stream = rustls::Stream::new(&mut self.tls, &mut self.socket);
        stream.write_all(bytes)?;
        stream.flush()
    }

    /// Reads exactly `len` bytes.
    pub(crate) fn receive(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        rustls::Stream::new(&mut self.tls, &mut self.socket).read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// close_notify, but no FIN.
    pub(crate) fn close_notify(&mut self) -> io::Result<()> {
        self.tls.send_close_notify();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    /// The clean end of what this client sends.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.close_notify()?;
        self.socket.shutdown(Shutdown::Write)
    }

    /// Reads whatever still comes, and how it ends.
    pub(crate) fn read_to_end(&mut self) -> (Vec<u8>, Seen) {
        let mut bytes = Vec::new();
        let mut stream = rustls::Stream::new(&mut self.tls, &mut self.socket);
        let seen = match stream.read_to_end(&mut bytes) {
            // Behind close_notify there must be FIN.
            Ok(_) => match self.socket.read(&mut [0; 1]) {
                Ok(0) => Seen::Clean,
                Ok(_) => Seen::Failed(ErrorKind::InvalidData),
                Err(error) => Seen::Failed(error.kind()),
            },
            Err(error) => seen(&error),
        };
        (bytes, seen)
    }
}

/// What an error of a TLS stream stands for.
pub(crate) fn seen(error: &io::Error) -> Seen {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match (tls, error.kind()) {
        (Some(rustls::Error::AlertReceived(alert)), _) => Seen::Alert(*alert),
        (_, ErrorKind::UnexpectedEof) => Seen::Truncated,
        (_, kind) => Seen::Failed(kind),
    }
}

pub(crate) fn config(version: &'static SupportedProtocolVersion) -> ClientConfig {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots())
        .with_no_client_auth()
}

/// Bytes that differ from place to place, so that none can be lost, doubled or swapped unseen.
pub(crate) fn pattern(seed: u32, len: usize) -> Vec<u8> {
    let mut word = seed | 1;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        word.to_le_bytes()[1]
    };
    (0..len).map(|_| next()).collect()
}

/// Believes every server, so that a test can look at the certificate of one with another name.
#[derive(Debug)]
pub(crate) struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
