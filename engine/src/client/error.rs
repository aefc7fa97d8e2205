//! Errors in a client's options, with the remedy for each.

use super::options::{ALPN_PROTOCOLS_MAX, ROOTS_BYTES_MAX, ROOTS_MAX};
use super::table::CLIENT_CONTEXTS_MAX;
use crate::certificates::CertificateError;
use crate::pem::{Damage, Foreign};
use crate::provider::ProviderError;
use crate::session::SessionError;

/// An error because of which options make no context. The fault is the operator's unless a variant
/// names another party. No variant holds a byte of a key.
#[derive(Debug, thiserror::Error)]
pub enum ClientOptionsError {
    /// A protocol name that cannot be written down.
    #[error("ALPN: protocol {position} has {bytes} bytes; a name has 1 to 255")]
    AlpnName {
        /// In the list, counted from 1.
        position: usize,
        /// The length of the value.
        bytes: usize,
    },
    /// One of the roots is no certificate.
    #[error(
        "roots: {label}: certificate {position} is not a valid X.509 certificate ({reason}); \
         remove it or copy it again"
    )]
    BadRoot {
        /// The source.
        label: String,
        /// In the source, counted from 1.
        position: usize,
        /// The parser's error.
        reason: String,
    },
    /// A part of a PEM text with roots cannot be read.
    #[error("roots: {label}:{line}: {damage}")]
    BrokenRootPem {
        /// The source.
        label: String,
        /// The number of the line, counted from 1.
        line: usize,
        /// The kind of damage.
        damage: Damage,
    },
    /// Groups that only TLS 1.3 has, and TLS 1.2 alone.
    #[error(
        "groups: TLS 1.2 has none of them; offer TLS 1.3 too, or name X25519, secp256r1 or \
         secp384r1"
    )]
    GroupsNeedTls13,
    /// The client's own certificate or key.
    #[error("client certificate: {0}")]
    Identity(#[from] CertificateError),
    /// A source without a certificate.
    #[error("roots: {label}: no certificate in it: {found}")]
    NoRootInSource {
        /// The source.
        label: String,
        /// The format of the source.
        found: Foreign,
    },
    /// A revocation list where roots should be: nothing would be revoked by it.
    #[error(
        "roots: {label}:{line}: a revocation list; name it among the lists, and only certificates \
         here"
    )]
    ListAmongRoots {
        /// The source.
        label: String,
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// Verification without anybody to trust.
    #[error("roots: none are given, so no server could be trusted; name a bundle of certificates")]
    NoRoots,
    /// The provider cannot run on this machine, or no group is named.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// A source too large to be a bundle of roots.
    #[error(
        "roots: {label}: {bytes} bytes; a bundle has at most {ROOTS_BYTES_MAX}: is this the right \
         file?"
    )]
    RootsTooLarge {
        /// The source.
        label: String,
        /// The size of the value.
        bytes: usize,
    },
    /// Versions, suites and groups have nothing in common: a fault of ours.
    #[error("the client's TLS settings contradict each other: {0}")]
    Settings(#[from] rustls::Error),
    /// The table is full of contexts in use.
    #[error(
        "{CLIENT_CONTEXTS_MAX} client contexts with different options are in use already and that \
         is the limit; give clients equal options"
    )]
    TableFull,
    /// More protocols than any client offers.
    #[error("ALPN: {count} protocols; at most {ALPN_PROTOCOLS_MAX} are offered")]
    TooManyProtocols {
        /// Protocols named.
        count: usize,
    },
    /// More roots than the world has authorities.
    #[error("roots: {label}: {count} certificates; at most {ROOTS_MAX} are trusted: split it")]
    TooManyRoots {
        /// The source.
        label: String,
        /// Certificates found.
        count: usize,
    },
}

/// An error because of which a lane could not begin a session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// This lane cannot use the context that was published.
    #[error(transparent)]
    Context(#[from] ClientOptionsError),
    /// The session cannot begin: a fault of ours.
    #[error(transparent)]
    Session(#[from] SessionError),
}
