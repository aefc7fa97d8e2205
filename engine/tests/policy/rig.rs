//! Handshakes in memory between a listener's context on one lane and clients of rustls.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair, RsaKeySize, SignatureAlgorithm};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CipherSuite as S, ClientConfig, ClientConnection, DigitallySignedStruct,
    Error, RootCertStore, SignatureScheme, SupportedProtocolVersion,
};
use sealane_engine::buffer::Buffer;
use sealane_engine::certificates::{CertificateIndex, DefaultCertificate, IndexBuilder};
use sealane_engine::context::{
    Context, ContextError, ContextId, LaneContext, LaneResources, Refusal,
};
use sealane_engine::hello::{self, Peek};
use sealane_engine::policy::{Group, Policy};
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_engine::session::{Awaited, ServerSession, Session};
use sealane_engine::tickets::{TicketRoot, UnixSeconds};

pub(crate) const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

/// A listener's context on one lane, with certificates of one CA.
pub(crate) struct Server {
    certificates: Arc<CertificateIndex>,
    choice: ProviderChoice,
    pub(crate) context: LaneContext,
    pub(crate) lane: LaneResources,
    roots: RootCertStore,
}

impl Server {
    pub(crate) fn new(
        choice: ProviderChoice,
        policy: Policy,
        names: &[(&str, &'static SignatureAlgorithm)],
    ) -> Self {
        let issuer = Issuer::new();
        let issued = names.iter().map(|(name, algorithm)| issuer.issue(&[*name], algorithm));
        issuer.serve(choice, policy, &issued.collect::<Vec<_>>())
    }

    /// Goes on with another policy, on the same lane.
    pub(crate) fn turn_to(&mut self, policy: Policy) {
        self.context = self.context_of(policy, false).unwrap();
    }

    /// Another context of the same lane.
    pub(crate) fn context_of(
        &self,
        policy: Policy,
        key_log: bool,
    ) -> Result<LaneContext, ContextError> {
        context(policy, &self.certificates, self.choice, &self.lane, key_log)
    }

    /// A whole handshake in memory, with a new client.
    pub(crate) fn accept(
        &self,
        client: &Client,
        name: &'static str,
        version: &'static SupportedProtocolVersion,
    ) -> Result<ServerSession, Failed> {
        self.meet(&self.client(client, version), name)
    }

    /// The configuration of a client that trusts this server.
    pub(crate) fn client(
        &self,
        client: &Client,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        Arc::new(client.config(self.roots.clone(), version))
    }

    /// A whole handshake in memory, after which the client has its tickets.
    pub(crate) fn meet(
        &self,
        config: &Arc<ClientConfig>,
        name: &'static str,
    ) -> Result<ServerSession, Failed> {
        let mut meeting = Meeting::new(config, name);
        for _ in 0..8 {
            meeting.advance(self)?;
        }
        let session = meeting.session.filter(ServerSession::is_established);
        Ok(session.expect("eight flights are enough"))
    }

    fn begin(&self, hello: &[u8]) -> Result<ServerSession, [u8; 7]> {
        let Peek::Hello(hello) = hello::peek(hello, 1 << 14) else { panic!("a whole hello") };
        let config = self.context.admit(&hello).map_err(Refusal::alert)?;
        let awaited = Awaited::new(self.context.asks_certificates(), hello.offers_early_data);
        Ok(ServerSession::new(config).unwrap().awaiting(awaited))
    }
}

/// An authority that issues the certificates of any number of servers.
pub(crate) struct Issuer(CertifiedIssuer<'static, KeyPair>);

impl Issuer {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for `names`, which may be addresses, and its key.
    pub(crate) fn issue(&self, names: &[&str], algorithm: &'static SignatureAlgorithm) -> String {
        let key = if algorithm == &rcgen::PKCS_RSA_SHA256 {
            KeyPair::generate_rsa_for(algorithm, RsaKeySize::_2048).unwrap()
        } else {
            KeyPair::generate_for(algorithm).unwrap()
        };
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        leaf.pem() + &key.serialize_pem()
    }

    /// A machine that serves the issued certificates. The tickets of all machines come from one
    /// root.
    pub(crate) fn serve(
        &self,
        choice: ProviderChoice,
        policy: Policy,
        issued: &[String],
    ) -> Server {
        let crypto = lane_provider(choice, &Group::ALL).unwrap().crypto;
        let mut builder = IndexBuilder::new(&crypto, 1_800_000_000);
        for (number, text) in issued.iter().enumerate() {
            builder.add(&number.to_string(), text.as_bytes());
        }
        let indexed = builder.finish(DefaultCertificate::First);
        assert_eq!(indexed.errors, []);
        let root = TicketRoot::generate(Duration::from_secs(43_200), NOW, |b| b.fill(7)).unwrap();
        let lane = LaneResources::new(root, NOW, NonZeroUsize::new(16).unwrap());
        let certificates = Arc::new(indexed.index);
        let context = context(policy, &certificates, choice, &lane, false).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Server { certificates, choice, context, lane, roots }
    }
}

/// A client and, once its hello has come, a server's session with it.
pub(crate) struct Meeting {
    client: ClientConnection,
    plain: Buffer,
    pub(crate) session: Option<ServerSession>,
    wire: Buffer,
}

impl Meeting {
    pub(crate) fn new(config: &Arc<ClientConfig>, name: &'static str) -> Self {
        let name = name.try_into().unwrap();
        Self {
            client: ClientConnection::new(Arc::clone(config), name).unwrap(),
            plain: Buffer::with_capacity(1 << 16),
            session: None,
            wire: Buffer::with_capacity(1 << 18),
        }
    }

    /// Carries the client's bytes to the server, and the answer back.
    pub(crate) fn advance(&mut self, server: &Server) -> Result<(), Failed> {
        let Self { client, plain, session, wire } = self;
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        if !sent.is_empty() {
            let session = match session {
                Some(session) => session,
                None => match server.begin(&sent) {
                    Ok(begun) => session.insert(begun),
                    Err(alert) => return Err(Failed::received(client, &alert)),
                },
            };
            if session.feed(&mut sent, plain, wire).is_err() {
                return Err(Failed::received(client, wire.filled()));
            }
        }
        client.read_tls(&mut wire.filled()).unwrap();
        wire.clear();
        client.process_new_packets().map_err(Failed::Client)?;
        if let Some(session) = session {
            session.release_held(wire);
        }
        Ok(())
    }
}

fn context(
    policy: Policy,
    certificates: &Arc<CertificateIndex>,
    provider: ProviderChoice,
    lane: &LaneResources,
    key_log: bool,
) -> Result<LaneContext, ContextError> {
    let certificates = Arc::clone(certificates);
    let id = ContextId::fresh();
    let context = Context { id, policy, certificates, key_log, store: None, provider, tickets: 2 };
    LaneContext::new(&Arc::new(context), lane)
}

/// A client's offer. An empty list means everything.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) alpn: Vec<Vec<u8>>,
    pub(crate) groups: Vec<Group>,
    /// The certificate that it shows.
    pub(crate) identity: Option<Arc<dyn ResolvesClientCert>>,
    pub(crate) suites: Vec<S>,
    /// The scheme of the server's signature in its last handshake.
    pub(crate) signed: Arc<Mutex<Option<SignatureScheme>>>,
}

impl Client {
    fn config(
        &self,
        roots: RootCertStore,
        version: &'static SupportedProtocolVersion,
    ) -> ClientConfig {
        let mut provider: CryptoProvider = aws_lc_rs::default_provider();
        if !self.suites.is_empty() {
            let of = |suite: &S| {
                let mut all = aws_lc_rs::ALL_CIPHER_SUITES.iter();
                *all.find(|other| other.suite() == *suite).unwrap()
            };
            provider.cipher_suites = self.suites.iter().map(of).collect();
        }
        if !self.groups.is_empty() {
            let of = |group: &Group| {
                let mut all = aws_lc_rs::ALL_KX_GROUPS.iter();
                *all.find(|other| other.name().as_str() == Some(group.name())).unwrap()
            };
            provider.kx_groups = self.groups.iter().map(of).collect();
        }
        let provider = Arc::new(provider);
        let (roots, for_verifier) = (Arc::new(roots), Arc::clone(&provider));
        let chain = WebPkiServerVerifier::builder_with_provider(roots, for_verifier).build();
        let verifier = Recorder { chain: chain.unwrap(), signed: Arc::clone(&self.signed) };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.identity {
            Some(identity) => builder.with_client_cert_resolver(Arc::clone(identity)),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&self.alpn);
        config
    }
}

/// Verifies as ever, and remembers how the server signed.
#[derive(Debug)]
struct Recorder {
    chain: Arc<WebPkiServerVerifier>,
    signed: Arc<Mutex<Option<SignatureScheme>>>,
}

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.chain.verify_server_cert(end_entity, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        *self.signed.lock().unwrap() = Some(signature.scheme);
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        *self.signed.lock().unwrap() = Some(signature.scheme);
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

#[derive(Debug, PartialEq)]
pub(crate) enum Failed {
    /// The server sent this alert.
    Alert(AlertDescription),
    /// The client was not content.
    Client(Error),
}

impl Failed {
    fn received(client: &mut ClientConnection, wire: &[u8]) -> Self {
        client.read_tls(&mut &*wire).unwrap();
        match client.process_new_packets() {
            Err(Error::AlertReceived(alert)) => Self::Alert(alert),
            other => panic!("the client should have got an alert, not {other:?}"),
        }
    }
}
