//! One checked TLS [`Connection`]: blocking, with time limits, verifying the certificate, what was
//! negotiated, and every byte.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, NamedGroup, ProtocolVersion,
    RootCertStore,
    client::Resumption,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName},
};

use crate::{
    error::Error,
    request::{Action, PATTERN_CHUNK_BYTES, Pattern, REQUEST_BYTES, Request},
};

/// The name in the server's certificate.
pub(crate) const SERVER_NAME: &str = "localhost";

/// Client settings that offer one version, one suite and one group. With `resumes`, tickets are
/// kept in these settings alone.
pub(crate) fn config(
    authority: &CertificateDer<'static>,
    resumes: bool,
) -> Result<Arc<ClientConfig>, Error> {
    let provider = CryptoProvider {
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    };
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).map_err(tls_error)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls_error)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = match resumes {
        true => Resumption::in_memory_sessions(SESSIONS_MAX),
        false => Resumption::disabled(),
    };
    Ok(Arc::new(config))
}

/// An established connection, with the agreed settings verified.
pub(crate) struct Connection {
    tls: ClientConnection,
    tcp: TcpStream,
}

impl Connection {
    /// Connects, shakes hands and checks what came out of it.
    pub(crate) fn open(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        kind: HandshakeKind,
        buffer: &mut [u8],
    ) -> Result<Self, Error> {
        let limit = Duration::from_millis(WAIT_MAX_MS);
        let tcp = TcpStream::connect_timeout(&address, limit).map_err(Error::io("connect"))?;
        tcp.set_nodelay(true).map_err(Error::io("set TCP_NODELAY"))?;
        tcp.set_read_timeout(Some(limit)).map_err(Error::io("set a read timeout"))?;
        tcp.set_write_timeout(Some(limit)).map_err(Error::io("set a write timeout"))?;
        let name = ServerName::try_from(SERVER_NAME)
            .map_err(|error| Error::Check(format!("server name: {error}")))?;
        let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(tls_error)?;
        tls.set_buffer_limit(Some(SEND_BYTES_MAX));
        let mut connection = Self { tls, tcp };
        while connection.tls.is_handshaking() {
            connection.flush()?;
            if connection.tls.is_handshaking() && connection.receive(buffer, &mut |_| Ok(()))? == 0
            {
                return Err(Error::Check("the server closed during the handshake".into()));
            }
        }
        connection.flush()?;
        connection.check_handshake(kind)?;
        Ok(connection)
    }

    /// Different for every connection that is open at the same time.
    pub(crate) fn local_port(&self) -> Result<u16, Error> {
        Ok(self.tcp.local_addr().map_err(Error::io("local address"))?.port())
    }

    fn check_handshake(&self, kind: HandshakeKind) -> Result<(), Error> {
        let version = self.tls.protocol_version();
        let suite = self.tls.negotiated_cipher_suite().map(|suite| suite.suite());
        let group =
            self.tls.negotiated_key_exchange_group().map(rustls::crypto::SupportedKxGroup::name);
        let found = (version, suite, group, self.tls.handshake_kind());
        let expected = (
            Some(ProtocolVersion::TLSv1_3),
            Some(CipherSuite::TLS13_AES_128_GCM_SHA256),
            Some(NamedGroup::X25519),
            Some(kind),
        );
        if found == expected {
            return Ok(());
        }
        Err(Error::Check(format!("negotiated {found:?}, expected {expected:?}")))
    }

    /// Sends a request and reads it back.
    pub(crate) fn echo(&mut self, nonce: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let request = Request { action: Action::Echo, nonce }.encode();
        self.send(&request)?;
        self.expect_block(&request, buffer)
    }

    /// Has the backend send this many bytes of the pattern.
    pub(crate) fn download(
        &mut self,
        bytes: u64,
        pattern: &Pattern,
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        self.send(&Request { action: Action::Download(bytes), nonce: 0 }.encode())?;
        let mut at = 0;
        while at < bytes {
            let read = self.receive(buffer, &mut |plain| {
                if at + plain.len() as u64 > bytes || !pattern.matches(at, plain) {
                    return Err(Error::Check(format!("a download differs after byte {at}")));
                }
                at += plain.len() as u64;
                Ok(())
            })?;
            if read == 0 && at < bytes {
                return Err(Error::Check(format!("a download ended after {at} of {bytes} bytes")));
            }
        }
        Ok(())
    }

    /// Sends the backend this many bytes of the pattern and waits until it found them right.
    pub(crate) fn upload(
        &mut self,
        bytes: u64,
        pattern: &Pattern,
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        let request = Request { action: Action::Upload(bytes), nonce: 0 }.encode();
        self.send(&request)?;
        let mut at = 0;
        while at < bytes {
            let chunk = pattern.at(at, bytes);
            let chunk = &chunk[..chunk.len().min(SEND_BYTES_MAX / 2)];
            self.send(chunk)?;
            at += chunk.len() as u64;
        }
        self.expect_block(&request, buffer)
    }

    /// Closes as it should be: close_notify, FIN, then the server's end is waited for.
    pub(crate) fn close(mut self, buffer: &mut [u8]) -> Result<(), Error> {
        self.tls.send_close_notify();
        self.flush()?;
        self.tcp.shutdown(Shutdown::Write).map_err(Error::io("shutdown"))?;
        loop {
            let unasked =
                |_: &[u8]| Err(Error::Check("more bytes came than were asked for".into()));
            match self.receive(buffer, &mut { unasked }) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // All bytes were there before: a reset now only ends the wait.
                Err(Error::Io { source, .. })
                    if source.kind() == io::ErrorKind::ConnectionReset =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn expect_block(&mut self, block: &[u8], buffer: &mut [u8]) -> Result<(), Error> {
        let mut got = Vec::with_capacity(REQUEST_BYTES);
        while got.len() < block.len() {
            let read = self.receive(buffer, &mut |plain| {
                got.extend_from_slice(plain);
                Ok(())
            })?;
            if read == 0 && got.len() < block.len() {
                return Err(Error::Check("the server closed before it answered".into()));
            }
        }
        if got == block {
            return Ok(());
        }
        Err(Error::Check("an answer differs from what the backend sent".into()))
    }

    fn send(&mut self, plain: &[u8]) -> Result<(), Error> {
        self.tls.writer().write_all(plain).map_err(Error::io("encrypt"))?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.tcp).map_err(Error::io("send"))?;
        }
        Ok(())
    }

    /// One read from the socket, as large as the buffer allows; its plaintext goes to `take`.
    /// 0 at the server's end, before which plaintext may have come.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        take: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<usize, Error> {
        let read = self.tcp.read(buffer).map_err(Error::io("receive"))?;
        let mut left = &buffer[..read];
        while !left.is_empty() {
            self.tls.read_tls(&mut left).map_err(Error::io("deframe"))?;
            self.tls.process_new_packets().map_err(tls_error)?;
            loop {
                let mut plain = [0; PLAIN_BYTES];
                match self.tls.reader().read(&mut plain) {
                    Ok(0) => return Ok(0), // close_notify
                    Ok(length) => take(&plain[..length])?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(Error::io("decrypt")(error)),
                }
            }
        }
        Ok(read)
    }
}

/// A receive buffer for one thread.
pub(crate) fn buffer() -> Vec<u8> {
    vec![0; PATTERN_CHUNK_BYTES]
}

/// For `map_err`: what the server did wrong.
#[allow(clippy::needless_pass_by_value)] // `map_err` hands over a value
fn tls_error(error: rustls::Error) -> Error {
    Error::Check(format!("TLS: {error}"))
}

/// A wait longer than this is a failure of the server: the machine may be busy, but not so busy.
const WAIT_MAX_MS: u64 = 20_000;
const SESSIONS_MAX: usize = 16;
const SEND_BYTES_MAX: usize = 256 * 1024;
const PLAIN_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use rustls::{
        ServerConfig, ServerConnection, Stream,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    };

    use super::*;

    /// A server that turns every byte of a request over with `mask`, on one connection after the
    /// other; and the authority of its certificate.
    fn server(tickets: usize, mask: u8) -> (SocketAddr, CertificateDer<'static>) {
        let signed = rcgen::generate_simple_self_signed(vec![SERVER_NAME.to_owned()]).unwrap();
        let certificate = signed.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.clone()], PrivateKeyDer::from(key))
                .unwrap();
        config.send_tls13_tickets = tickets;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = Arc::new(config);
        thread::spawn(move || {
            for tcp in listener.incoming() {
                let (mut tcp, mut tls) =
                    (tcp.unwrap(), ServerConnection::new(Arc::clone(&config)).unwrap());
                let mut stream = Stream::new(&mut tls, &mut tcp);
                let mut block = [0; REQUEST_BYTES];
                // What a client that gives up does to this server is not the matter here.
                if stream.read_exact(&mut block).is_ok() {
                    let _ = stream.write_all(&block.map(|byte| byte ^ mask));
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                    let _ = stream.read(&mut block); // the client's end
                }
            }
        });
        (address, certificate)
    }

    fn echo_twice(tickets: usize, mask: u8, second: HandshakeKind) -> Result<(), Error> {
        let (address, authority) = server(tickets, mask);
        let (config, mut buffer) = (config(&authority, true)?, buffer());
        for kind in [HandshakeKind::Full, second] {
            let mut connection = Connection::open(address, &config, kind, &mut buffer)?;
            connection.echo(7, &mut buffer)?;
            connection.close(&mut buffer)?;
        }
        Ok(())
    }

    fn refusal(result: Result<(), Error>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_handshake_of_the_other_kind_is_no_success() {
        echo_twice(2, 0, HandshakeKind::Resumed).unwrap();
        let text = refusal(echo_twice(0, 0, HandshakeKind::Resumed));
        assert!(text.contains("Some(Full)"), "{text}");
        let text = refusal(echo_twice(2, 0, HandshakeKind::Full));
        assert!(text.contains("Some(Resumed)"), "{text}");
    }

    #[test]
    fn a_changed_answer_is_no_success() {
        let text = refusal(echo_twice(2, 1, HandshakeKind::Resumed));
        assert!(text.contains("an answer differs"), "{text}");
    }

    #[test]
    fn a_certificate_of_another_authority_is_no_success() {
        let (address, _) = server(2, 0);
        let (_, other) = server(2, 0);
        let (config, mut buffer) = (config(&other, false).unwrap(), buffer());
        let result = Connection::open(address, &config, HandshakeKind::Full, &mut buffer);
        let text = refusal(result.map(drop));
        assert!(text.contains("certificate"), "{text}");
    }
}
