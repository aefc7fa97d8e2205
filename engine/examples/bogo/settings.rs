//! The settings of a server that a test asks for.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ProducesTickets, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder, PemContents};
use sealane_engine::context::{Context, ContextId, LaneContext, LaneResources, Refusal};
use sealane_engine::hello::Hello;
use sealane_engine::policy::{Policy, Versions};
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_engine::tickets::{TicketRoot, UnixSeconds};

use crate::Result;
use crate::wanted::Wanted;

/// The settings of the server, in one of two forms.
pub(crate) enum Settings {
    /// Sealane's own context.
    Context(Box<LaneContext>),
    /// For settings that a context rejects, or judges more strictly than a test wants: any
    /// certificate of a client, a stapled response, certificates of the server for no name.
    Plain(Arc<ServerConfig>),
}

impl Settings {
    pub(crate) fn new(wanted: &Wanted) -> Result<Self> {
        let policy = Policy {
            alpn: wanted.protocols.clone(),
            client_order: !wanted.server_preference,
            groups: wanted.groups.clone(),
            schemes: wanted.schemes.clone(),
            versions: wanted.versions,
            ..Policy::default()
        };
        let crypto = lane_provider(ProviderChoice::Auto, &wanted.groups)?.crypto;
        let chain = std::fs::read(&wanted.chain_file)?;
        let key = std::fs::read(&wanted.key_file)?;
        let mut builder = IndexBuilder::new(&crypto, 0);
        builder.add_pair("chain", &chain, "key", &key);
        let indexed = builder.finish(DefaultCertificate::First);
        let asks = wanted.asks_clients || wanted.requires_clients;
        if asks || !wanted.ocsp_response.is_empty() || !indexed.errors.is_empty() {
            return Ok(Self::Plain(plain(wanted, crypto, &chain, &key)?));
        }
        let now = UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs());
        let root = TicketRoot::generate(Duration::from_secs(3_600), now, |bytes| bytes.fill(7))?;
        let lane = LaneResources::new(root, now, NonZeroUsize::MIN);
        let context = Context {
            id: ContextId::fresh(),
            policy,
            certificates: Arc::new(indexed.index),
            key_log: false,
            store: None,
            provider: ProviderChoice::Auto,
            tickets: usize::from(wanted.has_tickets),
        };
        Ok(Self::Context(Box::new(LaneContext::new(&Arc::new(context), &lane)?)))
    }

    pub(crate) fn admit(&self, hello: &Hello) -> std::result::Result<Arc<ServerConfig>, Refusal> {
        match self {
            Self::Context(context) => context.admit(hello),
            Self::Plain(config) => Ok(Arc::clone(config)),
        }
    }

    /// Whether clients are asked for certificates.
    pub(crate) fn asks_clients(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// The same for rustls alone, with its own idea of how much early data is skipped.
    pub(crate) fn bare(&self) -> Result<Arc<ServerConfig>> {
        let admitted = self.admit(&Hello::default());
        let config = admitted.map_err(|refusal| format!("not admitted: {refusal:?}"))?;
        let mut config = ServerConfig::clone(&config);
        config.max_early_data_size = 0;
        config.require_ems = false;
        // Sealane's tickets are bound by its session, which is not there.
        if config.ticketer.enabled() {
            static TICKETER: OnceLock<Arc<dyn ProducesTickets>> = OnceLock::new();
            let made = aws_lc_rs::Ticketer::new()?;
            config.ticketer = Arc::clone(TICKETER.get_or_init(|| made));
        }
        Ok(Arc::new(config))
    }
}

fn plain(
    wanted: &Wanted,
    crypto: CryptoProvider,
    chain: &[u8],
    key: &[u8],
) -> Result<Arc<ServerConfig>> {
    let versions: &[_] = match wanted.versions {
        Versions::Tls12 => &[&TLS12],
        Versions::Tls12AndTls13 => &[&TLS13, &TLS12],
        Versions::Tls13 => &[&TLS13],
    };
    let algorithms = crypto.signature_verification_algorithms;
    let verifier: Arc<dyn ClientCertVerifier> = if wanted.asks_clients || wanted.requires_clients {
        Arc::new(Anybody { algorithms, is_required: wanted.requires_clients })
    } else {
        WebPkiClientVerifier::no_client_auth()
    };
    let chain = PemContents::parse("chain", chain)?.certificates;
    let key = PemContents::parse("key", key)?.key.ok_or("no key")?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto))
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier)
        .with_single_cert_with_ocsp(
            chain.into_iter().map(CertificateDer::from).collect(),
            key.to_rustls(),
            wanted.ocsp_response.clone(),
        )?;
    config.alpn_protocols.clone_from(&wanted.protocols);
    config.ignore_client_order = wanted.server_preference;
    if wanted.has_tickets {
        config.ticketer = aws_lc_rs::Ticketer::new()?;
    }
    Ok(Arc::new(config))
}

/// Accepts any certificate of a client, if its signature is right.
#[derive(Debug)]
struct Anybody {
    algorithms: WebPkiSupportedAlgorithms,
    is_required: bool,
}

impl ClientCertVerifier for Anybody {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> std::result::Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
