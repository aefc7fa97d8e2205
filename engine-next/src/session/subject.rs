//! What the tests of a session are about, in the words of one release of rustls: its settings, and
//! what it does otherwise than another. The peers are rustls 0.23 wherever the tests run.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::version::TLS12;
use rustls::{RootCertStore, SupportedProtocolVersion};
use rustls_next::crypto::{CryptoProvider, Identity};
use rustls_next::server::WebPkiClientVerifier;
use rustls_next::time_provider::TimeProvider;
use rustls_next::{ClientConfig, ServerConfig};

use crate::alert::AlertDescription;
use crate::tickets::UnixSeconds;

/// What our client is made with.
pub(crate) type ClientSettings = ClientConfig;

type Version = &'static SupportedProtocolVersion;

/// The alert for a record of another type amid a handshake message.
pub(crate) const INTERLEAVED: AlertDescription = AlertDescription::IllegalParameter;

/// Whether a server under TLS 1.3 has sent keys before it looks whether it can sign.
pub(crate) const SPEAKS_BEFORE_IT_SIGNS: bool = false;

/// A server's settings, by whoever reads its records behind a handshake under TLS 1.3: rustls.
pub(crate) fn by_reader(config: Arc<ServerConfig>) -> Vec<Arc<ServerConfig>> {
    vec![config]
}

/// For clients that trust `roots` and take it for `now`.
pub(crate) fn client_config(
    version: Version,
    roots: &RootCertStore,
    now: UnixSeconds,
) -> ClientSettings {
    let mut own = rustls_next::RootCertStore::empty();
    own.roots.clone_from(&roots.roots);
    ClientConfig::builder_with_details(provider(version), Arc::new(Stopped(now)))
        .with_root_certificates(own)
        .with_no_client_auth()
        .unwrap()
}

/// For a server with the certificate `own` that wants one of `authority` from its clients.
pub(crate) fn asking_config(
    version: Version,
    own: &CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    authority: &CertificateDer<'static>,
) -> Arc<ServerConfig> {
    let mut roots = rustls_next::RootCertStore::empty();
    roots.add(authority.clone()).unwrap();
    let provider = provider(version);
    let verifier = WebPkiClientVerifier::builder(roots.into(), &provider).build().unwrap();
    let identity = Identity::from_cert_chain(vec![own.clone()]).unwrap();
    let config = ServerConfig::builder(provider)
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(Arc::new(identity), key)
        .unwrap();
    Arc::new(config)
}

/// A provider says by its suites which versions are spoken.
fn provider(version: Version) -> Arc<CryptoProvider> {
    Arc::new(if version.version == TLS12.version {
        rustls_aws_lc_rs::DEFAULT_TLS12_PROVIDER
    } else {
        rustls_aws_lc_rs::DEFAULT_TLS13_PROVIDER
    })
}

/// A clock that stands still.
#[derive(Debug)]
pub(crate) struct Stopped(pub(crate) UnixSeconds);

impl TimeProvider for Stopped {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.0)))
    }
}
