//! A scenario in rustls's words: one version, one suite, one group, and the certificates.

use std::sync::Arc;

use rustls::{
    CipherSuite, ClientConfig, NamedGroup, RootCertStore, SignatureScheme, SupportedCipherSuite,
    SupportedProtocolVersion,
    client::{ClientSessionMemoryCache, Resumption, Tls12Resumption},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::{TLS12, TLS13},
};
use sealane_lab_harness::credentials::{Credentials, Side};
use sealane_lab_model::{
    error::Error,
    scenario::{Group, Key, Kind, Scenario, Share, Version},
};

use super::store::ThreadStore;

/// `provider` with the one suite and group of `scenario`, which it may not have.
pub(super) fn narrowed(
    provider: &CryptoProvider,
    scenario: &Scenario,
) -> Result<CryptoProvider, Error> {
    let lacks = |what: String| Err(Error::Unsupported(format!("this provider has no {what}")));
    let mut provider = provider.clone();
    provider.cipher_suites.retain(|suite| iana_name(suite.suite()) == scenario.suite());
    provider.kx_groups.retain(|group| group.name() == named_group(scenario.group));
    let Some(suite) = provider.cipher_suites.first() else {
        return lacks(format!("suite {}", scenario.suite()));
    };
    if !signs_for(*suite, scenario.key) {
        return lacks(format!("signature by {:?} keys in {}", scenario.key, scenario.suite()));
    }
    if provider.kx_groups.is_empty() {
        return lacks(format!("group {:?}", scenario.group));
    }
    scenario.exists()?;
    Ok(provider)
}

/// A client that verifies the server's chain against the lab's root.
pub(super) fn client_config(
    provider: CryptoProvider,
    scenario: &Scenario,
    credentials: &Credentials,
) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions(scenario))
        .map_err(|error| refused(&error))?
        .with_root_certificates(roots(credentials)?);
    let mut config = if scenario.client_certificate {
        let (chain, key) = chain_and_key(credentials, Side::Client)?;
        builder.with_client_auth_cert(chain, key).map_err(|error| refused(&error))?
    } else {
        builder.with_no_client_auth()
    };
    let tls12 = match scenario.kind {
        Kind::Full => Tls12Resumption::Disabled,
        Kind::SessionId => Tls12Resumption::SessionIdOnly,
        Kind::Ticket => Tls12Resumption::SessionIdOrTickets,
    };
    let resumption = match (scenario.share, scenario.kind) {
        (Share::Session, Kind::SessionId | Kind::Ticket) => {
            let sessions = ClientSessionMemoryCache::new(SHARED_SESSIONS_MAX);
            Resumption::store(Arc::new(sessions))
        }
        _ => Resumption::store(Arc::new(ThreadStore)),
    };
    config.resumption = resumption.tls12_resumption(tls12);
    Ok(config)
}

/// The lab's root.
pub(super) fn roots(credentials: &Credentials) -> Result<Arc<RootCertStore>, Error> {
    let path = credentials.root();
    let root = CertificateDer::from_pem_file(&path)
        .map_err(|error| Error::Check(format!("{}: {error}", path.display())))?;
    let mut roots = RootCertStore::empty();
    roots.add(root).map_err(|error| refused(&error))?;
    Ok(Arc::new(roots))
}

/// A side's certificates, its own first, and its key.
pub(super) fn chain_and_key(
    credentials: &Credentials,
    side: Side,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let read = || {
        let chain = CertificateDer::pem_file_iter(credentials.certificate(side))?;
        let key = PrivateKeyDer::from_pem_file(credentials.key(side))?;
        Ok((chain.collect::<Result<_, _>>()?, key))
    };
    read().map_err(|error: rustls::pki_types::pem::Error| {
        let path = credentials.certificate(side);
        Error::Check(format!("{} or its key: {error}", path.display()))
    })
}

/// The one version.
pub(super) fn versions(scenario: &Scenario) -> &'static [&'static SupportedProtocolVersion] {
    match scenario.version {
        Version::Tls12 => &ONLY_TLS12,
        Version::Tls13 => &ONLY_TLS13,
    }
}

/// What rustls says of settings that it cannot use.
pub(super) fn refused(error: &dyn std::fmt::Display) -> Error {
    Error::Unsupported(error.to_string())
}

/// rustls writes `TLS13_` where IANA writes `TLS_`.
pub(super) fn iana_name(suite: CipherSuite) -> String {
    suite.as_str().unwrap_or("unknown").replacen("TLS13_", "TLS_", 1)
}

/// The lab's word for a group.
pub(super) fn group(name: NamedGroup) -> Option<Group> {
    ALL_GROUPS.into_iter().find(|group| named_group(*group) == name)
}

fn named_group(group: Group) -> NamedGroup {
    match group {
        Group::P256 => NamedGroup::secp256r1,
        Group::P384 => NamedGroup::secp384r1,
        Group::X25519 => NamedGroup::X25519,
        // By its number: older versions have no name for it.
        Group::X25519MlKem768 => NamedGroup::from(0x11ec),
    }
}

/// In TLS 1.2 the suite says which signatures it takes; providers differ for Ed25519.
fn signs_for(suite: SupportedCipherSuite, key: Key) -> bool {
    let SupportedCipherSuite::Tls12(suite) = suite else { return true };
    let schemes: &[SignatureScheme] = match key {
        Key::Ed25519 => &[SignatureScheme::ED25519],
        Key::P256 => &[SignatureScheme::ECDSA_NISTP256_SHA256],
        Key::P384 => &[SignatureScheme::ECDSA_NISTP384_SHA384],
        Key::Rsa2048 | Key::Rsa4096 => {
            &[SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PKCS1_SHA256]
        }
    };
    suite.sign.iter().any(|scheme| schemes.contains(scheme))
}

/// What rustls's own benchmark gives the store at each end.
pub(super) const SHARED_SESSIONS_MAX: usize = 128;
static ONLY_TLS12: [&SupportedProtocolVersion; 1] = [&TLS12];
static ONLY_TLS13: [&SupportedProtocolVersion; 1] = [&TLS13];
const ALL_GROUPS: [Group; 4] = [Group::P256, Group::P384, Group::X25519, Group::X25519MlKem768];
