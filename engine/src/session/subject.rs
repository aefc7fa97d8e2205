//! The types and settings that the tests of a session need from one release of rustls, and its
//! differences from another. The peers are rustls 0.23 wherever the tests run.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    AlertDescription, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
};

use crate::policy::Group;
use crate::provider::{ProviderChoice, lane_provider};
use crate::tickets::{LaneClock, UnixSeconds};

/// The settings of our client.
pub(crate) type ClientSettings = ClientConfig;

type Version = &'static SupportedProtocolVersion;

/// The alert for a record of another type amid a handshake message.
pub(crate) const INTERLEAVED: AlertDescription = AlertDescription::UnexpectedMessage;

/// A server's settings for each reader of its records behind a handshake under TLS 1.3: itself, or
/// rustls.
pub(crate) fn by_reader(config: Arc<ServerConfig>) -> Vec<Arc<ServerConfig>> {
    assert!(config.enable_secret_extraction);
    let mut kept = ServerConfig::clone(&config);
    kept.enable_secret_extraction = false;
    vec![config, Arc::new(kept)]
}

/// For clients that trust `roots` and take it for `now`.
pub(crate) fn client_config(
    version: Version,
    roots: &RootCertStore,
    now: UnixSeconds,
) -> ClientSettings {
    let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
    ClientConfig::builder_with_details(provider.into(), Arc::new(LaneClock::new(now)))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth()
}

/// For a server with the certificate `own` that wants one of `authority` from its clients.
pub(crate) fn asking_config(
    version: Version,
    own: &CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    authority: &CertificateDer<'static>,
) -> Arc<ServerConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).unwrap();
    let provider = Arc::new(lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![own.clone()], key)
        .unwrap();
    Arc::new(config)
}
