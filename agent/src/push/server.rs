//! Settings of TLS of the listener: [`config`].

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use sealane_certificate_files::read_at_most;
use sealane_operator::{Priority, say_at};
use x509_parser::prelude::{ASN1Time, CertificateRevocationList, FromDer as _};

use crate::settings::{PushSettings, RootSource};
use crate::trust::{TrustError, our_provider, read_identity, read_roots};

/// TLS 1.3 for clients that show a certificate, and no others.
///
/// # Errors
/// Files cannot be read, or do not hold what they should.
pub(super) fn config(settings: &PushSettings) -> Result<Arc<ServerConfig>, TrustError> {
    let provider = Arc::new(our_provider()?);
    let roots: Vec<_> = settings.client_roots.iter().cloned().map(RootSource::File).collect();
    let mut lists = Vec::new();
    for path in &settings.revocation_lists {
        lists.extend(read_revocation_lists(path)?);
    }
    let roots = Arc::new(read_roots(&roots)?);
    // As lanes do: a list that has ended says nothing of whom it does not name.
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .with_crls(lists)
        .enforce_revocation_expiration();
    let verifier = verifier.build().map_err(|error| TrustError::Verifier(error.to_string()))?;
    let (chain, key) = read_identity(&settings.identity)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    // A client is looked at whenever it comes: what was revoked since holds.
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn read_revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TrustError> {
    let broken = |what: String| TrustError::Lists { path: path.to_owned(), what };
    let mut text = Vec::new();
    read_at_most(path, LISTS_BYTES_MAX, &mut text)?;
    if text.len() > LISTS_BYTES_MAX {
        return Err(broken(format!("is larger than {LISTS_BYTES_MAX} bytes")));
    }
    let lists = CertificateRevocationListDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    match lists.map_err(|error| broken(error.to_string()))? {
        lists if lists.is_empty() => Err(broken("no revocation list in it".into())),
        lists => {
            lists.iter().for_each(|list| warn_of_end(path, list));
            Ok(lists)
        }
    }
}

/// Orders and renewals go on with a list that has ended: its clients are refused, and that is said.
fn warn_of_end(path: &Path, list: &CertificateRevocationListDer<'_>) {
    let Ok((_, list)) = CertificateRevocationList::from_der(list) else { return };
    let now = ASN1Time::now();
    if let Some(next) = list.next_update().filter(|next| *next < now) {
        let (path, issuer) = (path.display(), list.issuer().to_string());
        let text = format!(
            "push.revocation_lists: {path}: the list of {issuer:?} ended on {next}; whoever it \
             issued is refused; fetch a newer one, and reload"
        );
        say_at(Priority::Warning, &text);
    }
}

/// Bytes of a file with revocation lists.
const LISTS_BYTES_MAX: usize = 16 << 20;
