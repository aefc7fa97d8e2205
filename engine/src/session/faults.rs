//! rustls' names for errors and for the phases in which they happen. Other releases of it have them
//! elsewhere.

pub(super) use rustls::pki_types::UnixTime;
pub(super) use rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible, PeerMisbehaved,
};
