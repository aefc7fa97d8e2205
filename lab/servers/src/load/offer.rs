//! What the client offers to a server, [`Offer`], and the rustls settings made of it, [`Configs`].

use std::{
    collections::VecDeque,
    fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, NamedGroup, ProtocolVersion, RootCertStore,
    SignatureScheme,
    client::{
        ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use sealane_lab_model::{
    error::Error,
    scenario::{Cipher, Group, Version},
};

/// What a client hello holds. What is `None` is everything that the client knows.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The only protocol version.
    pub version: Option<Version>,
    /// The only cipher.
    pub cipher: Option<Cipher>,
    /// The only key-exchange group.
    pub group: Option<Group>,
    /// Protocols of ALPN, in the order of preference.
    pub alpn: Vec<String>,
    /// Whose certificates are believed.
    pub roots: Roots,
    /// Connections that shall not resume keep their tickets for those that shall.
    pub hoards_tickets: bool,
}

/// Whose certificates the client believes.
#[derive(Clone, Debug)]
pub enum Roots {
    /// Everybody's.
    Anyone,
    /// Those that this one accepts, which may note what it saw.
    Examined(Arc<dyn ServerCertVerifier>),
    /// Those that chain up to one of these.
    Store(Arc<RootCertStore>),
}

impl Roots {
    /// The roots in a file of PEM certificates.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::store(path).map(Self::Store)
    }

    /// The same, for one who asks more of a certificate.
    pub fn store(path: &Path) -> Result<Arc<RootCertStore>, Error> {
        let bytes = fs::read(path).map_err(Error::file(path))?;
        let mut store = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&bytes) {
            let certificate = certificate
                .map_err(|error| Error::Check(format!("{}: {error}", path.display())))?;
            // A store of many may hold one that is of no use; all being so is told below.
            let _ = store.add(certificate);
        }
        if store.is_empty() {
            return Err(Error::Check(format!("{} has no root certificate", path.display())));
        }
        Ok(Arc::new(store))
    }
}

/// The settings of one thread's connections.
pub(crate) struct Configs {
    /// For connections that shall not resume.
    pub(crate) fresh: Arc<ClientConfig>,
    /// For connections that shall, if there is a ticket.
    pub(crate) resuming: Arc<ClientConfig>,
    /// The tickets of the latter.
    pub tickets: Arc<Tickets>,
}

impl Offer {
    /// Settings that share nothing with those of another call.
    pub(crate) fn configs(&self) -> Result<Configs, Error> {
        let tickets = Arc::new(Tickets::default());
        let store: Arc<dyn ClientSessionStore> = Arc::<Tickets>::clone(&tickets);
        let fresh = match self.hoards_tickets {
            true => Resumption::store(Arc::new(Hoard(Arc::clone(&tickets)))),
            false => Resumption::disabled(),
        };
        // Clones: rustls resumes under the very verifier that saw the certificate.
        let config = self.config()?;
        let with = |resumption| {
            let mut config = config.clone();
            config.resumption = resumption;
            Arc::new(config)
        };
        Ok(Configs { fresh: with(fresh), resuming: with(Resumption::store(store)), tickets })
    }

    fn config(&self) -> Result<ClientConfig, Error> {
        let mut provider = aws_lc_rs::default_provider();
        if let Some(cipher) = self.cipher {
            provider.cipher_suites.retain(|suite| is_of(suite.suite(), cipher));
        }
        if let Some(group) = self.group {
            // In TLS 1.2 the curve of an ECDSA key must be among the groups. The first one counts.
            let older = self.version == Some(Version::Tls12);
            let is_offered = |name| name == named(group) || older && name == NamedGroup::secp256r1;
            provider.kx_groups.retain(|offered| is_offered(offered.name()));
            provider.kx_groups.sort_by_key(|offered| offered.name() != named(group));
        }
        let versions = match self.version {
            Some(Version::Tls12) => &[&rustls::version::TLS12][..],
            Some(Version::Tls13) => &[&rustls::version::TLS13][..],
            None => rustls::ALL_VERSIONS,
        };
        let provider = Arc::new(provider);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| Error::Check(format!("client settings: {error}")))?;
        let mut config = match &self.roots {
            Roots::Store(store) => builder.with_root_certificates(Arc::clone(store)),
            Roots::Anyone => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            }
            Roots::Examined(examiner) => {
                let examiner = Arc::clone(examiner);
                builder.dangerous().with_custom_certificate_verifier(examiner)
            }
        }
        .with_no_client_auth();
        config.alpn_protocols = self.alpn.iter().map(|name| name.clone().into_bytes()).collect();
        Ok(config)
    }
}

/// The group in the words of TLS.
pub(crate) fn named(group: Group) -> NamedGroup {
    match group {
        Group::X25519 => NamedGroup::X25519,
        Group::X25519MlKem768 => NamedGroup::X25519MLKEM768,
        Group::P256 => NamedGroup::secp256r1,
        Group::P384 => NamedGroup::secp384r1,
    }
}

/// The version in the words of TLS.
pub(crate) fn numbered(version: Version) -> ProtocolVersion {
    match version {
        Version::Tls12 => ProtocolVersion::TLSv1_2,
        Version::Tls13 => ProtocolVersion::TLSv1_3,
    }
}

fn is_of(suite: CipherSuite, cipher: Cipher) -> bool {
    let name = suite.as_str().unwrap_or_default();
    name.contains(match cipher {
        Cipher::Aes128Gcm => "AES_128_GCM",
        Cipher::Aes256Gcm => "AES_256_GCM",
        Cipher::Chacha20Poly1305 => "CHACHA20",
    })
}

/// A thread's tickets, oldest out first. Each is used once. The lock is never waited for: one
/// thread alone has these settings; rustls asks for `Sync` all the same.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    newer: VecDeque<Tls13ClientSessionValue>,
    older: VecDeque<Tls12ClientSessionValue>,
    hint: Option<NamedGroup>,
}

impl Tickets {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        let shelf = self.shelf();
        shelf.newer.len() + shelf.older.len()
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.shelf().hint = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.shelf().hint
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        keep(&mut self.shelf().older, value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.shelf().older.back().cloned()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.shelf().older.pop_back();
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        keep(&mut self.shelf().newer, value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.shelf().newer.pop_front()
    }
}

/// Takes tickets of TLS 1.3 in and gives none out.
#[derive(Debug)]
struct Hoard(Arc<Tickets>);

impl ClientSessionStore for Hoard {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(name, value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}

fn keep<T>(shelf: &mut VecDeque<T>, value: T) {
    if shelf.len() == TICKETS_MAX {
        shelf.pop_front();
    }
    shelf.push_back(value);
}

/// Believes every certificate, but not a wrong signature.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

const TICKETS_MAX: usize = 4_096;
