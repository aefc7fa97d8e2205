//! rustls' names for what goes wrong.

pub(super) use rustls_next::error::{AlertDescription, CertificateError, Error};
pub(super) use rustls_next::pki_types::UnixTime;
