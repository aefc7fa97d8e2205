//! What a client, and a backend, see of a terminator: [`see`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, SignatureScheme, SupportedProtocolVersion,
};
use sealane_engine::policy::Suite;
use sealane_traffic::proxy_header::Facts;

use super::site::{ASKED, Site};
use crate::client_certificates::authority::Shown;
use crate::harness::PATIENCE;

/// What comes before TLS, if that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// No TLS at all.
    Plain,
    /// PostgreSQL's request for TLS.
    Postgres,
    /// A PROXY header of version 1.
    Proxy,
    Tls,
}

/// What was seen, by aspect, in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen(pub(super) BTreeMap<&'static str, String>);

/// Looks at everything that a configuration may say.
pub(super) fn see(site: &Site, address: SocketAddr, opening: Opening) -> Seen {
    let mut seen = BTreeMap::new();
    let client = Client { address, opening, site };
    if opening == Opening::Plain {
        seen.insert("plain", client.plain().unwrap_or_else(|error| error.kind().to_string()));
        return Seen(seen);
    }
    let [known, ..] = site.shown();
    // Where everybody must show a certificate, all else is seen by whoever does.
    let offer = Offer { shown: Some(known.1.clone()), ..Offer::default() };
    for (aspect, versions) in [("1.2", &TLS12), ("1.3", &TLS13)] {
        let offer = Offer { versions: vec![versions], ..offer.clone() };
        seen.insert(if aspect == "1.2" { "TLS 1.2" } else { "TLS 1.3" }, client.try_it(&offer).0);
    }
    let mut suites = BTreeSet::new();
    for suite in aws_lc_rs::ALL_CIPHER_SUITES {
        let mut offer = offer.clone();
        offer.provider.cipher_suites = vec![*suite];
        offer.versions = vec![if suite.tls13().is_some() { &TLS13 } else { &TLS12 }];
        if client.try_it(&offer).1 {
            suites.insert(format!("{:?}", suite.suite()));
        }
    }
    seen.insert("suites", joined(&suites));
    let mut groups = BTreeSet::new();
    for group in [
        aws_lc_rs::kx_group::X25519,
        aws_lc_rs::kx_group::SECP256R1,
        aws_lc_rs::kx_group::SECP384R1,
    ] {
        let mut offer = offer.clone();
        offer.provider.kx_groups = vec![group];
        if client.try_it(&offer).1 {
            groups.insert(format!("{:?}", group.name()));
        }
    }
    seen.insert("groups", joined(&groups));
    let names = NAMES.map(|name| {
        let offer = Offer { name: Some(name), ..offer.clone() };
        format!("{name}: {}", client.try_it(&offer).0)
    });
    let nobody = client.try_it(&Offer { name: None, ..offer.clone() }).0;
    seen.insert("names", format!("{}; no name: {nobody}", names.join("; ")));
    let alpn = [&["h2", "http/1.1"][..], &["http/1.1"], &["other"]].map(|protocols| {
        let offer = Offer { alpn: protocols.to_vec(), ..offer.clone() };
        format!("{protocols:?}: {}", client.try_it(&offer).0)
    });
    seen.insert("ALPN", alpn.join("; "));
    let nothing = ("nothing", Offer { shown: None, ..offer.clone() });
    let shown =
        site.shown().map(|(name, shown)| (name, Offer { shown: Some(shown), ..offer.clone() }));
    let each = [nothing].into_iter().chain(shown);
    let clients: Vec<_> =
        each.map(|(name, offer)| format!("{name}: {}", client.try_it(&offer).0)).collect();
    seen.insert("clients", clients.join("; "));
    let two = Offer { name: Some(NAMES[1]), alpn: vec!["http/1.1"], ..offer.clone() };
    let headers = [offer, two].map(|offer| {
        let answer = client.answer(&offer, &Arc::default());
        answer.map_or_else(|_| "refused".to_owned(), |(_, header)| header)
    });
    seen.insert("header", headers.join("; "));
    Seen(seen)
}

/// The answer to an HTTP client that negotiates `alpn`: all of it in version 1.1, or the beginning
/// in version 2, a SETTINGS frame.
pub(super) fn requested(site: &Site, address: SocketAddr, alpn: &'static str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let offer = Offer { alpn: vec![alpn], ..Offer::default() };
    let name = ServerName::try_from(NAMES[0]).unwrap();
    let mut tls = ClientConnection::new(config(site, &offer, &Arc::default()), name).unwrap();
    let request: &[u8] = match alpn {
        "h2" => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        _ => b"GET / HTTP/1.1\r\nHost: one.example\r\nConnection: close\r\n\r\n",
    };
    tls.writer().write_all(request).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut stream);
    let mut answer = vec![0; 10];
    stream.read_exact(&mut answer).unwrap();
    if alpn != "h2" {
        let _ = stream.read_to_end(&mut answer);
    }
    answer.escape_ascii().to_string()
}

fn joined(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// What a client offers.
#[derive(Clone)]
struct Offer {
    alpn: Vec<&'static str>,
    name: Option<&'static str>,
    provider: CryptoProvider,
    shown: Option<Shown>,
    versions: Vec<&'static SupportedProtocolVersion>,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            alpn: Vec::new(),
            name: Some(NAMES[0]),
            provider: aws_lc_rs::default_provider(),
            shown: None,
            versions: vec![&TLS12, &TLS13],
        }
    }
}

struct Client<'s> {
    address: SocketAddr,
    opening: Opening,
    site: &'s Site,
}

impl Client<'_> {
    /// What comes of an offer in words, and whether a backend answered.
    fn try_it(&self, offer: &Offer) -> (String, bool) {
        let asked = Arc::new(AtomicBool::new(false));
        match self.answer(offer, &asked) {
            Ok((answer, _)) => {
                let asked = if asked.load(Ordering::Relaxed) { ", asked" } else { "" };
                (format!("{answer}{asked}"), true)
            }
            Err(_) => ("refused".into(), false),
        }
    }

    /// What comes of an offer, and the header that the backend got.
    fn answer(&self, offer: &Offer, asked: &Arc<AtomicBool>) -> io::Result<(String, String)> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        self.open(&mut stream)?;
        let name = offer.name.map_or_else(
            || ServerName::try_from("127.0.0.1").unwrap(),
            |name| ServerName::try_from(name).unwrap(),
        );
        let config = config(self.site, offer, asked);
        let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        tls.writer().write_all(ASKED)?;
        let mut answer = String::new();
        let whole = rustls::Stream::new(&mut tls, &mut stream).read_to_string(&mut answer);
        // stunnel ends without a close_notify where its backend's end comes first.
        if !answer.ends_with('\n') {
            whole?;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let served = tls.peer_certificates().and_then(|chain| chain.first());
        let served = served.map(|leaf| self.site.name_of(leaf)).unwrap_or_default();
        let alpn = String::from_utf8_lossy(tls.alpn_protocol().unwrap_or(b"none")).into_owned();
        let suite = tls.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
        let told = self.told(&answer, stream.local_addr()?, &suite.unwrap_or_default());
        Ok((format!("{served}, {alpn}, {}", told.0), told.1))
    }

    fn plain(&self) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(ASKED)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn open(&self, stream: &mut TcpStream) -> io::Result<()> {
        match self.opening {
            Opening::Postgres => {
                stream.write_all(&SSL_REQUEST)?;
                let mut answer = [0];
                stream.read_exact(&mut answer)?;
                if answer == *b"S" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
            }
            Opening::Proxy => stream.write_all(ANNOUNCED),
            Opening::Plain | Opening::Tls => Ok(()),
        }
    }

    /// Which backend answered, and what it was told of the client.
    fn told(&self, answer: &str, own: SocketAddr, suite: &str) -> (String, String) {
        let mut words = answer.trim_end().split(' ');
        let name = words.next().unwrap_or_default();
        let hex = words.clone().map(|byte| u8::from_str_radix(byte, 16));
        let Ok(header) = hex.collect::<Result<Vec<u8>, _>>() else {
            return (answer.to_owned(), String::new());
        };
        let told = match Facts::decode(&header) {
            _ if header.is_empty() => return (name.to_owned(), "none".into()),
            Ok(Some((facts, len))) if len == header.len() => facts,
            other => return (name.to_owned(), format!("{other:?}")),
        };
        let version = if header.starts_with(b"P") { "v1" } else { "v2" };
        let address = match told.addresses {
            Some((client, local)) if client == own && local == self.address => "itself",
            Some((client, _)) if client.ip().to_string() == "192.0.2.7" => "the announced",
            _ => "somebody",
        };
        let alpn = told.alpn.map(String::from_utf8_lossy);
        let tls = told.tls.map(|tls| {
            let client = tls.client.map(|shown| (shown.common_name, shown.is_verified));
            // Which of those that both have is the server's choice.
            let named = |each: &Suite| {
                suite == each.name().replacen("TLS_A", "TLS13_A", 1).replacen("TLS_C", "TLS13_C", 1)
            };
            let negotiated = Suite::ALL.into_iter().find(named).map(Suite::openssl_name);
            (tls.version, tls.suite.is_none() || tls.suite == negotiated, client)
        });
        let header = format!("{version} {address} {alpn:?} {:?} {tls:?}", told.server_name);
        (name.to_owned(), header)
    }
}

fn config(site: &Site, offer: &Offer, asked: &Arc<AtomicBool>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(site.authority()).unwrap();
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::new(aws_lc_rs::default_provider()),
    );
    let builder = ClientConfig::builder_with_provider(Arc::new(offer.provider.clone()))
        .with_protocol_versions(&offer.versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyName(verifier.build().unwrap())));
    let own = offer.shown.as_ref().map(|shown| {
        let pem = shown.pem();
        let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        let key = aws_lc_rs::sign::any_supported_type(&key).unwrap();
        Arc::new(CertifiedKey::new(chain.unwrap(), key))
    });
    let resolver = Asked { asked: Arc::clone(asked), own };
    let mut config = builder.with_client_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = offer.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.resumption = Resumption::disabled();
    config.enable_sni = offer.name.is_some();
    Arc::new(config)
}

/// Notices that the server asks for a certificate.
#[derive(Debug)]
struct Asked {
    asked: Arc<AtomicBool>,
    own: Option<Arc<CertifiedKey>>,
}

impl ResolvesClientCert for Asked {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.asked.store(true, Ordering::Relaxed);
        self.own.clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Verifies that the site's authority has issued a certificate, for whatever name.
#[derive(Debug)]
struct AnyName(Arc<rustls::client::WebPkiServerVerifier>);

impl rustls::client::danger::ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        use rustls::CertificateError as E;
        match self.0.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                E::NotValidForName | E::NotValidForNameContext { .. },
            )) => Ok(rustls::client::danger::ServerCertVerified::assertion()),
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Names that clients ask for; the first by default.
const NAMES: [&str; 6] =
    ["one.example", "two.example", "www.two.example", "api.example", "a.b.example", "other.test"];
const ANNOUNCED: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.9 4000 443\r\n";
/// PostgreSQL's.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
