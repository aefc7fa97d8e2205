//! Settings of TLS of the listener: [`config`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use sealane_certificate_files::read_at_most;
use sealane_engine::certificates::PemContents;
use sealane_engine::client::ROOTS_BYTES_MAX;
use sealane_engine::client_certificates::{CRL_BYTES_MAX, ClientRoots};
use sealane_engine::pem::{SectionKind, sections};
use tracing::warn;
use x509_parser::prelude::{ASN1Time, CertificateRevocationList, FromDer as _};

use crate::settings::PushSettings;
use crate::trust::{IdentityTexts, TrustError, our_provider, read_identity};

/// TLS 1.3 for clients that show a certificate, and no others. The engine judges certificates.
///
/// # Errors
/// Files cannot be read, or do not hold what they should.
pub(super) fn config(settings: &PushSettings) -> Result<Arc<ServerConfig>, TrustError> {
    let provider = Arc::new(our_provider()?);
    let authorities = read_texts(&settings.client_roots, ROOTS_BYTES_MAX)?;
    let lists = read_texts(&settings.revocation_lists, CRL_BYTES_MAX)?;
    let roots = ClientRoots::from_labelled_pem(&labelled(&authorities), &labelled(&lists))?;
    lists.iter().for_each(warn_of_ended_lists);
    let (chain, key) = identity(settings)?;
    let verifier = roots.verifier(&provider);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    // Each connection verifies the client again, so a revocation counts at once.
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The chain and the key of the listener.
fn identity(
    settings: &PushSettings,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TrustError> {
    let files = &settings.identity;
    let IdentityTexts { chain, key } = read_identity(files)?;
    let broken = |path: &Path, what: String| TrustError::Identity { path: path.to_owned(), what };
    let read = |path: &Path, text: &[u8]| PemContents::parse(&path.to_string_lossy(), text);
    let chain = read(&files.certificate, &chain)?.certificates;
    if chain.is_empty() {
        return Err(broken(&files.certificate, "no certificate in it".into()));
    }
    let key = read(&files.key, &key)?.key;
    let key = key.ok_or_else(|| broken(&files.key, "no private key in it".into()))?;
    Ok((chain.into_iter().map(CertificateDer::from).collect(), key.to_rustls()))
}

/// A file's text with its path.
struct LabelledText {
    label: String,
    text: Vec<u8>,
}

fn read_texts(paths: &[PathBuf], bytes_max: usize) -> Result<Vec<LabelledText>, TrustError> {
    let read = |path: &PathBuf| {
        let mut text = Vec::new();
        read_at_most(path, bytes_max, &mut text)?;
        Ok(LabelledText { label: path.display().to_string(), text })
    };
    paths.iter().map(read).collect()
}

fn labelled(texts: &[LabelledText]) -> Vec<(&str, &[u8])> {
    texts.iter().map(|each| (each.label.as_str(), each.text.as_slice())).collect()
}

/// Warns of lists that have ended: the listener refuses the clients of their issuers, and
/// everything else goes on.
fn warn_of_ended_lists(LabelledText { label, text }: &LabelledText) {
    // The listener itself reports a text that cannot be read.
    let found = sections(text).unwrap_or_default();
    for list in found.iter().filter(|each| each.kind == SectionKind::RevocationList) {
        let Ok((_, list)) = CertificateRevocationList::from_der(&list.der) else { continue };
        let now = ASN1Time::now();
        if let Some(next) = list.next_update().filter(|next| *next < now) {
            let issuer = list.issuer().to_string();
            let text = format!(
                "push.revocation_lists: {label}: the list of {issuer:?} ended on {next}; clients \
                 of that issuer are refused; fetch a newer list, and reload"
            );
            warn!("{text}");
        }
    }
}
