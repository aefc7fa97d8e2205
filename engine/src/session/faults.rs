//! rustls' names for what goes wrong, and when. Other releases of it have them elsewhere.

pub(super) use rustls::pki_types::UnixTime;
pub(super) use rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible, PeerMisbehaved,
};
