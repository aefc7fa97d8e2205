//! The certificates of a listener, read as its configuration says.

use rustls::crypto::CryptoProvider;
use sealane_certificate_files::{Bound, Bounds, CertificateFileError, LoadedCertificates};
use sealane_engine::certificates::{CertificateError, DefaultCertificate};

use crate::config::{Limits, Listener};

/// Reads the certificates of `listener`; `now_s` is Unix time, for warnings about validity.
pub fn load(
    listener: &Listener,
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

/// Of the files of one listener, each with the setting that raises it.
pub fn bounds(limits: &Limits) -> Bounds {
    let certificates = Bound { max: limits.certificates_max, remedy: "raise limits.certificates" };
    Bounds { certificates, names: Bound { max: limits.names_max, remedy: "raise limits.names" } }
}

#[cfg(test)]
mod tests;
