//! Challenges that a running `sealane serve` answers out of the store that the agent fills, and
//! what it then serves.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_reserved_port::ReservedPort;

use super::harness::agent::Home;
use super::harness::authority::{Authority, Behaviour};
use super::harness::process::Process;
use super::harness::{serve, wait_for};

/// A `sealane serve` that answers and serves from the store of a home.
struct Serve {
    http: ReservedPort,
    tls: ReservedPort,
}

impl Serve {
    fn ports() -> Self {
        let port = || ReservedPort::on_loopback().unwrap();
        Self { http: port(), tls: port() }
    }

    fn behaviour(&self) -> Behaviour {
        let ports = (self.http.address().port(), self.tls.address().port());
        Behaviour { ports, ..Behaviour::default() }
    }

    fn start(&self, home: &Home) -> Option<Process> {
        // There has to be a store before it is served.
        assert!(home.store().is_some());
        let backend = TcpListener::bind("127.0.0.1:0").unwrap();
        let (store, key) = (home.path("store"), home.path("key"));
        let text = format!(
            "lanes = 1\nstore_key = {{ file = {key:?} }}\n\
             [[listener]]\naddress = \"{}\"\nbackends = [\"{}\"]\n\
             certificates = [\"store:{}\"]\n\
             [[listener]]\naddress = \"{}\"\nplain = \"redirect\"\n\
             acme_responder = \"store:{}\"\n",
            self.tls.address(),
            backend.local_addr().unwrap(),
            store.display(),
            self.http.address(),
            store.display(),
        );
        let process = serve::start(home.folder.path(), &text)?;
        for port in [&self.http, &self.tls] {
            wait_for("sealane serve", || TcpStream::connect(port.address()).ok());
        }
        Some(process)
    }
}

/// A look at the settings makes the store; then one serves from it, and an agent fills it.
#[test]
fn both_challenges_are_answered_by_a_running_serve_which_serves_what_comes_of_them() {
    let ports = Serve::ports();
    let Some(authority) = Authority::start(ports.behaviour()) else { return };
    let home = Home::new(&authority);
    let by = |name: &str, challenge: &str| {
        format!("[[certificate]]\nnames = [\"{name}\"]\nchallenge = \"{challenge}\"\n")
    };
    home.configure(&[home.authority(authority.address, ""), by("http.test", "http-01")]);
    let Some(binary) = serve::program() else { return };
    let mut check = Command::new(binary);
    check.args(["agent", "check", "--config"]).arg(home.path("agent.toml"));
    let told = check.output().unwrap();
    let text = String::from_utf8(told.stderr).unwrap();
    assert!(told.status.success() && text.contains("agent.toml: in order, 1 "), "{text}");
    let Some(_serving) = ports.start(&home) else { return };
    home.configure(&[
        home.authority(authority.address, ""),
        by("http.test", "http-01"),
        by("tls.test", "tls-alpn-01"),
    ]);
    let agent = home.start();
    for name in ["http.test", "tls.test"] {
        let held = home.wait_until_held(name);
        assert_eq!(held.names, [name]);
        assert_eq!(served_names(ports.tls.address(), name), [name], "at the next hello");
    }
    assert!(agent.stop().success());
    assert_eq!(home.entries("challenge/"), Vec::<String>::new());
    assert_eq!(authority.issued(), 2);
}

/// The names in the certificate that is shown to whoever asks for `name`.
pub fn served_names(address: SocketAddr, name: &str) -> Vec<String> {
    let provider = lane_provider(ProviderChoice::Auto, &Group::ALL).unwrap().crypto;
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    // Whose it is, is seen in its names; who vouches for it is Pebble's to choose at each start.
    config.dangerous().set_certificate_verifier(Arc::new(AnyCertificate));
    let server = ServerName::try_from(name.to_owned()).unwrap();
    let mut session = ClientConnection::new(Arc::new(config), server).unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut socket).unwrap();
    }
    names_of(&session.peer_certificates().unwrap()[0])
}

fn names_of(der: &[u8]) -> Vec<String> {
    use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

    let (_, certificate) = X509Certificate::from_der(der).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    let names = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    names.collect()
}

#[derive(Debug)]
struct AnyCertificate;

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.verify_tls12_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![
            rustls::SignatureScheme::ECDSA_NISTP256_SHA256,
            rustls::SignatureScheme::RSA_PSS_SHA256,
        ]
    }
}
