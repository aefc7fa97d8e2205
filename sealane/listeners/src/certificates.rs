//! The certificates of a listener that come from files.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use sealane_certificate_files::{
    Bound, Bounds, CertificateFault, CertificateFileError, CertificateFileWarning,
    LoadedCertificates,
};
use sealane_config::{self as config, CertificateSource, ClientTrust, Limits, Route};
use sealane_engine::certificates::{
    Certificate, CertificateError, CertificateIndex, CertificateWarning, DefaultCertificate,
    IndexBuilder,
};

use super::{Found, Material, Reading, Survey, said_of_route};

pub(super) const MATERIAL: Material = Material { files, read };

fn files(listener: &config::Listener) -> Vec<PathBuf> {
    listener.certificates.iter().flat_map(CertificateSource::files).collect()
}

fn read(survey: &mut Survey<'_>, reading: &mut Reading<'_, '_>) {
    if !survey.listener.ends_tls() {
        return;
    }
    let provider = match reading.provider(survey.listener) {
        Ok(provider) => provider,
        Err(error) => return survey.errors.push(error),
    };
    let limits = &reading.config.limits;
    let before = reading.around.last_good.certificates.clone();
    let now_s = reading.now_s();
    let loaded = load(survey.listener, limits, (&provider.crypto, now_s), &before);
    for fault in loaded.faults {
        note(survey, reading, fault);
    }
    let (notes, warnings): (Vec<_>, Vec<_>) = loaded.warnings.iter().partition(|w| is_note(w));
    survey.notes.extend(notes.iter().map(ToString::to_string));
    survey.warn(warnings.iter().map(ToString::to_string));
    let index = Arc::new(keep_signing(survey, reading, &provider.crypto, loaded.index, &before));
    for certificate in index.iter() {
        let (label, not_after_s) = (certificate.label(), certificate.not_after_s());
        survey.warn_if_soon(label, not_after_s, reading.around.now);
    }
    survey.warn(uncovered(survey.listener, &index));
    survey.warn(shared_by_demands(survey.listener, &index));
    survey.certificates = Some(index);
}

/// Whether a warning is about something that may be meant. Private authorities publish no
/// certificate of an issuer, and their clients often trust the issuer as a root.
fn is_note(warning: &CertificateFileWarning) -> bool {
    matches!(
        warning,
        CertificateFileWarning::Certificate(CertificateWarning::IssuerMissing {
            is_published: false,
            ..
        })
    )
}

/// Notes the fault of a file or a folder.
fn note(survey: &mut Survey<'_>, reading: &Reading<'_, '_>, fault: CertificateFault) {
    let CertificateFault { error, is_kept, path, source } = fault;
    let listener = survey.listener;
    let is_mistake = match &error {
        CertificateFileError::Certificate(CertificateError::NoneGiven) => true,
        CertificateFileError::Certificate(CertificateError::DefaultMissing { wanted }) => {
            listener.certificates.is_empty() || reading.is_new_default(&listener.name, wanted)
        }
        // To leave certificates out would end names that are served.
        CertificateFileError::TooManyCertificates { .. }
        | CertificateFileError::TooManyNames { .. } => reading.around.last_good.has_served(),
        _ => false,
    };
    let text = match &error {
        CertificateFileError::Denied { .. } => format!("{error}{HOOK}"),
        _ => error.to_string(),
    };
    if is_mistake {
        return survey.errors.push(text);
    }
    let path = if path.as_os_str().is_empty() { source.clone() } else { path };
    let without = match &error {
        CertificateFileError::Certificate(CertificateError::DefaultMissing { .. }) => {
            "clients that ask for an unknown name are refused"
        }
        _ => WITHOUT,
    };
    survey.note(reading, Found { is_kept, path, source, text, without });
}

/// Puts the last good state in the place of certificates that `schemes` has nothing for.
fn keep_signing(
    survey: &mut Survey<'_>,
    reading: &Reading<'_, '_>,
    provider: &CryptoProvider,
    index: CertificateIndex,
    before: &[Arc<CertificateIndex>],
) -> CertificateIndex {
    let policy = &survey.listener.policy;
    let signs = |certificate: &Certificate| policy.signs_with(certificate.key_type());
    if index.iter().all(|each| signs(each)) {
        return index;
    }
    let is_useless = !index.iter().any(|each| signs(each));
    let known = || before.iter().flat_map(|index| index.iter());
    let mut builder = IndexBuilder::new(provider, reading.now_s());
    for certificate in index.iter() {
        let label = certificate.label();
        let is_it = |known: &&Arc<Certificate>| known.label() == label && signs(known);
        let kept = if signs(certificate) { None } else { known().find(is_it) };
        builder.add_known(Arc::clone(kept.unwrap_or(certificate)));
        if signs(certificate) {
            continue;
        }
        let text = format!(
            "{label}: schemes has none that its key of type {} signs with, so no client gets it; \
             add one, or remove it",
            certificate.key_type()
        );
        if is_useless || kept.is_some() {
            let (path, source, is_kept) = (label.into(), label.into(), kept.is_some());
            let found = Found { is_kept, path, source, text, without: WITHOUT };
            survey.note(reading, found);
        } else {
            survey.warn([text]);
        }
    }
    builder.finish(default_of(survey.listener)).index
}

/// Names of routes that no certificate is for, and none can come to be in a store.
fn uncovered(listener: &config::Listener, index: &CertificateIndex) -> Vec<String> {
    let ends_tls = |route: &&Route| route.policy.is_some() && listener.store.is_none();
    let routes = listener.routes.iter().filter(ends_tls);
    let names = routes.flat_map(|route| route.names.iter().map(move |name| (route, name)));
    names
        .filter(|(_, name)| index.find(name).is_empty())
        .map(|(route, name)| {
            let text = format!("no certificate is for {name:?}, which it names; add one");
            said_of_route(Some(route), &text)
        })
        .collect()
}

/// Certificates for names that ask their clients for different things, where HTTP/2 is spoken.
fn shared_by_demands(listener: &config::Listener, index: &CertificateIndex) -> Vec<String> {
    let ends_tls = |route: &&Route| route.policy.is_some() && route.alpn.is_empty();
    let routes = listener.routes.iter().filter(ends_tls);
    let by_name: HashMap<&str, Option<&ClientTrust>> = routes
        .flat_map(|route| route.names.iter().map(|name| (&**name, route.clients.as_ref())))
        .collect();
    let of_routes = listener.routes.iter().flat_map(|route| &route.alpn);
    let speaks_h2 = listener.policy.alpn.iter().chain(of_routes).any(|protocol| protocol == b"h2");
    if !speaks_h2 || by_name.values().all(|asked| *asked == listener.clients.as_ref()) {
        return Vec::new();
    }
    let mut seen: HashMap<*const Certificate, (&str, Option<&ClientTrust>)> = HashMap::new();
    let own = index.iter().flat_map(|each| each.names().iter().map(move |name| (&**name, each)));
    let routed = by_name.keys().flat_map(|name| index.find(name).iter().map(|each| (*name, each)));
    let mut warnings = BTreeMap::new();
    for (name, certificate) in own.chain(routed) {
        let asked = by_name.get(name).copied().unwrap_or(listener.clients.as_ref());
        let (first, before) =
            *seen.entry(Arc::as_ptr(certificate)).or_insert_with(|| (name, asked));
        if asked != before {
            warnings.entry(certificate.label()).or_insert_with(|| {
                format!(
                    "{first} and {name} share a certificate but not their demand for client \
                     certificates; a browser may reuse one connection for both, so give them \
                     certificates of their own, or drop \"h2\""
                )
            });
        }
    }
    warnings.into_values().collect()
}

/// The certificate for names that nothing covers.
fn default_of(listener: &config::Listener) -> DefaultCertificate<'_> {
    match &listener.default_certificate {
        Some(name) => DefaultCertificate::Name(name),
        None if listener.certificates.is_empty() => DefaultCertificate::Absent,
        None => DefaultCertificate::First,
    }
}

/// Reads the certificates of `listener`; the time is Unix time, for warnings about validity.
fn load(
    listener: &config::Listener,
    limits: &Limits,
    (provider, now_s): (&CryptoProvider, i64),
    before: &[Arc<CertificateIndex>],
) -> LoadedCertificates {
    let (sources, bounds, default) = (&listener.certificates, bounds(limits), default_of(listener));
    let mut loaded =
        sealane_certificate_files::load(sources, default, bounds, provider, now_s, before);
    if listener.store.is_some() {
        // What is in no file may be in the store, now or later.
        loaded.faults.retain(|fault| match &fault.error {
            CertificateFileError::Certificate(CertificateError::DefaultMissing { .. }) => false,
            CertificateFileError::Certificate(CertificateError::NoneGiven) => {
                !listener.certificates.is_empty()
            }
            _ => true,
        });
    }
    loaded
}

const HOOK: &str = ", or, where an ACME client keeps its keys for root alone, let its hook import \
                    them (acme-hook)";

const WITHOUT: &str = "it is left out";

/// Bounds of the files of one listener, each with the setting that raises it.
pub fn bounds(limits: &Limits) -> Bounds {
    let certificates = Bound { max: limits.certificates_max, remedy: "raise limits.certificates" };
    Bounds { certificates, names: Bound { max: limits.names_max, remedy: "raise limits.names" } }
}

#[cfg(test)]
mod tests;
