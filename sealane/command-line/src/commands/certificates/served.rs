//! `sealane certificates served`: what machines serve for a name, asked as clients ask: [`served`].

use std::io::{self, Read as _, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use sealane_engine::session::SessionError;
use sealane_listeners::stores::checking_provider;
use sealane_store_requests::fingerprint;
use serde_json::json;

use super::{Refusal, said};
use crate::args::ServedArguments;
use crate::exit::Exit;

/// Asks each machine, and tells what each serves; fails unless all serve the same.
pub(super) fn served(arguments: &ServedArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let name = ServerName::try_from(arguments.name.clone())
        .map_err(|_| Refusal::Said(format!("{:?} is no host name", arguments.name)))?;
    let provider = Arc::new(checking_provider().map_err(said)?.crypto);
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(said)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Whatever(provider)))
        .with_no_client_auth();
    let config = Arc::new(config);
    let machines: Vec<_> = arguments.addresses.iter().flat_map(|text| resolved(text)).collect();
    let mut answers = Vec::with_capacity(machines.len());
    for some in machines.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let ask = |machine: &Machine| match &machine.address {
                Ok(address) => leaf(&config, &name, *address).map_err(|error| words(&error)),
                Err(problem) => Err(problem.clone()),
            };
            let asked = some.iter().map(|machine| scope.spawn(move || ask(machine)));
            let asked: Vec<_> = asked.collect();
            answers.extend(asked.into_iter().map(|one| {
                one.join().unwrap_or_else(|_| Err("a fault of Sealane's; report it".into()))
            }));
        });
    }
    for (machine, answer) in machines.iter().zip(&answers) {
        write_line(machine, answer, arguments.json, out)?;
    }
    let is_one = answers.iter().all(|answer| answer.is_ok() && *answer == answers[0]);
    Ok(if is_one { Exit::Ok } else { Exit::Failed })
}

/// A machine that is asked.
struct Machine {
    address: Result<SocketAddr, String>,
    /// The host and port as they were typed, and what they lead to.
    called: String,
}

/// Each address of a host is a machine.
fn resolved(text: &str) -> Vec<Machine> {
    let nowhere = |problem: String| vec![Machine { address: Err(problem), called: text.into() }];
    match text.to_socket_addrs().map(Iterator::collect::<Vec<_>>) {
        Ok(addresses) if addresses.is_empty() => nowhere("it has no address".into()),
        Ok(addresses) => {
            let called = |address: &SocketAddr| match address.to_string() {
                same if same == text => same,
                other => format!("{text} ({other})"),
            };
            let machine = |address| Machine { called: called(&address), address: Ok(address) };
            addresses.into_iter().map(machine).collect()
        }
        Err(error) => nowhere(format!("{error}; name HOST:PORT")),
    }
}

/// Why there is no answer; errors of TLS have the engine's words.
fn words(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    tls.map_or_else(|| error.to_string(), |tls| SessionError::Tls(tls.clone()).to_string())
}

/// The fingerprint of the certificate that a client gets there.
fn leaf(
    config: &Arc<ClientConfig>,
    name: &ServerName<'static>,
    address: SocketAddr,
) -> io::Result<String> {
    let until = Instant::now() + TIMEOUT;
    let mut socket = TcpStream::connect_timeout(&address, TIMEOUT)?;
    let mut session =
        ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
    while session.is_handshaking() {
        while session.wants_write() {
            session.write_tls(&mut socket)?;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        // No more than a record at once, so that the time is looked at.
        match session.read_tls(&mut (&socket).take(RECORD_BYTES)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
        session.process_new_packets().map_err(io::Error::other)?;
    }
    // Whoever serves has a whole handshake to note; what cannot be sent changes nothing here.
    session.send_close_notify();
    while session.wants_write() && session.write_tls(&mut socket).is_ok() {}
    let leaf = session.peer_certificates().and_then(<[_]>::first);
    leaf.map(|leaf| fingerprint(leaf)).ok_or_else(|| io::Error::other("it shows no certificate"))
}

fn write_line(
    machine: &Machine,
    answer: &Result<String, String>,
    as_json: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let called = &machine.called;
    match (answer, as_json) {
        (Ok(leaf), true) => writeln!(out, "{}", json!({ "machine": called, "leaf": leaf })),
        (Err(error), true) => writeln!(out, "{}", json!({ "machine": called, "error": error })),
        (Ok(leaf), false) => writeln!(out, "{leaf}  {called}"),
        (Err(error), false) => writeln!(out, "{:<64}  {called}: {error}", "-"),
    }
}

/// Takes whatever is served, of a server that has its key: what is asked is what it serves, not
/// whether it is to be believed.
#[derive(Debug)]
struct Whatever(Arc<CryptoProvider>);

impl ServerCertVerifier for Whatever {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Machines that are asked at the same time.
const AT_ONCE: usize = 16;
/// Bytes of the longest record, with its head.
const RECORD_BYTES: u64 = 16_384 + 256 + 5;
/// How long a machine may take to connect, and again to show its certificate.
const TIMEOUT: Duration = Duration::from_secs(10);
