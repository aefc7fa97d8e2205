//! The certificates of a listener that come from files.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use sealane_certificate_files::{Bound, Bounds, CertificateFileError, LoadedCertificates};
use sealane_engine::certificates::{
    Certificate, CertificateError, CertificateIndex, DefaultCertificate,
};

use super::{Material, Reading, Survey, said_of_route};
use crate::config::{self, CertificateSource, ClientTrust, Limits, Route};

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
    let loaded = load(survey.listener, limits, &provider.crypto, reading.now_s());
    survey.errors.extend(loaded.errors.iter().map(|error| match error {
        CertificateFileError::Denied { .. } => format!("{error}{HOOK}"),
        _ => error.to_string(),
    }));
    survey.warn(loaded.warnings.iter().map(ToString::to_string));
    let policy = &survey.listener.policy;
    let signs = |certificate: &Certificate| policy.signs_with(certificate.key_type());
    let is_useless = !loaded.index.is_empty() && !loaded.index.iter().any(|each| signs(each));
    for certificate in loaded.index.iter() {
        let (label, not_after_s) = (certificate.label(), certificate.not_after_s());
        survey.warn_if_soon(label, not_after_s, reading.around.now);
        if !signs(certificate) {
            let text = format!(
                "{label}: schemes has none that its key of type {} signs with, so nobody gets it; \
                 add one, or remove it",
                certificate.key_type()
            );
            match is_useless {
                true => survey.errors.push(text),
                false => survey.warn([text]),
            }
        }
    }
    survey.warn(uncovered(survey.listener, &loaded.index));
    survey.warn(shared_by_demands(survey.listener, &loaded.index));
    survey.certificates = Some(Arc::new(loaded.index));
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

/// Reads the certificates of `listener`; `now_s` is Unix time, for warnings about validity.
fn load(
    listener: &config::Listener,
    limits: &Limits,
    provider: &CryptoProvider,
    now_s: i64,
) -> LoadedCertificates {
    let default = match &listener.default_certificate {
        Some(name) => DefaultCertificate::Name(name),
        None if listener.certificates.is_empty() => DefaultCertificate::Absent,
        None => DefaultCertificate::First,
    };
    let (sources, bounds) = (&listener.certificates, bounds(limits));
    let mut loaded = sealane_certificate_files::load(sources, default, bounds, provider, now_s);
    if listener.store.is_some() {
        // What is in no file may be in the store, now or later.
        loaded.errors.retain(|error| match error {
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

/// Bounds of the files of one listener, each with the setting that raises it.
pub fn bounds(limits: &Limits) -> Bounds {
    let certificates = Bound { max: limits.certificates_max, remedy: "raise limits.certificates" };
    Bounds { certificates, names: Bound { max: limits.names_max, remedy: "raise limits.names" } }
}

#[cfg(test)]
mod tests;
