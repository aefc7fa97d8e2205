//! The policy of a listener: TLS versions, suites, groups, signature schemes, ALPN, certificates of
//! clients, and unknown names.

use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use sha2::{Digest, Sha256};

use crate::certificates::KeyType;
use crate::client_certificates::ClientRoots;

mod scheme;
mod suite;

pub use scheme::Scheme;
pub(crate) use scheme::SchemeSet;
pub use suite::Suite;

/// The TLS settings of one listener: plain data, validated where it is read from a configuration.
///
/// Two listeners with equal policies share tickets; any difference keeps their tickets apart
/// (see [`Policy::digest`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Application protocols in the server's order of preference; empty: ALPN is not spoken.
    pub alpn: Vec<Vec<u8>>,
    /// The answer to a client that offers protocols of which none is among these.
    pub alpn_mismatch: AlpnMismatch,
    /// Whether the client's order of suites decides instead of the server's.
    pub client_order: bool,
    /// Whether clients are asked for a certificate.
    pub clients: ClientCertificates,
    /// Accepted key exchange groups; among them the client's order decides, as rustls has it.
    pub groups: Vec<Group>,
    /// Whether clients of TLS 1.2 without extended master secret (RFC 7627) are refused. Otherwise
    /// they get full handshakes alone, and are not asked for certificates; where certificates are
    /// required they are refused.
    pub require_extended_master_secret: bool,
    /// Signature schemes that the server may sign with; empty: all.
    pub schemes: Vec<Scheme>,
    /// Accepted suites in order of preference; empty: all, in the order of [`Suite::ALL`], from
    /// which a client that puts ChaCha20-Poly1305 first gets its own. In TLS 1.2 the certificate is
    /// chosen first, and the suite among those for its kind of key.
    pub suites: Vec<Suite>,
    /// The answer to a client that asks for a name without a certificate, or for none at all.
    pub unknown_names: UnknownNames,
    /// Accepted protocol versions.
    pub versions: Versions,
}

impl Policy {
    /// Whether its schemes leave one that keys of this type sign with.
    pub fn signs_with(&self, key_type: KeyType) -> bool {
        let allowed = SchemeSet::restricting(&self.schemes);
        allowed.is_none_or(|allowed| !allowed.allowed(key_type.schemes()).is_empty())
    }

    /// Application protocols that are agreed on: those of the policy, and with HTTP/1.1 its older
    /// versions, which every server of HTTP/1.1 speaks.
    pub fn spoken_protocols(&self) -> Vec<Vec<u8>> {
        let mut spoken = self.alpn.clone();
        if spoken.iter().any(|protocol| protocol == HTTP_11) {
            for older in OLDER_HTTP {
                if !spoken.iter().any(|protocol| protocol == older) {
                    spoken.push(older.to_vec());
                }
            }
        }
        spoken
    }

    /// Binds tickets to this policy: a ticket issued under one digest never resumes under another.
    ///
    /// Every field is part of it, each behind its length, so that no two policies share an
    /// encoding. Newer fields are added behind their number, and only if they differ from their
    /// default. So a process of an older version has the same digests for the fields that it knows.
    pub fn digest(&self) -> PolicyDigest {
        let mut hash = Sha256::new_with_prefix(b"sealane policy 1");
        hash.update([self.versions as u8, self.unknown_names as u8]);
        hash.update((self.groups.len() as u64).to_be_bytes());
        for group in &self.groups {
            hash.update([*group as u8]);
        }
        hash.update((self.alpn.len() as u64).to_be_bytes());
        for protocol in &self.alpn {
            hash.update((protocol.len() as u64).to_be_bytes());
            hash.update(protocol);
        }
        if !self.suites.is_empty() {
            hash.update([1]);
            hash.update((self.suites.len() as u64).to_be_bytes());
            for suite in &self.suites {
                hash.update([*suite as u8]);
            }
        }
        if self.client_order {
            hash.update([2]);
        }
        if !self.schemes.is_empty() {
            hash.update([3]);
            hash.update((self.schemes.len() as u64).to_be_bytes());
            for scheme in &self.schemes {
                hash.update([*scheme as u8]);
            }
        }
        match &self.clients {
            ClientCertificates::NotAsked => {}
            ClientCertificates::Asked(roots) => {
                hash.update([4, 0]);
                hash.update(roots.digest());
            }
            ClientCertificates::Required(roots) => {
                hash.update([4, 1]);
                hash.update(roots.digest());
            }
        }
        if self.alpn_mismatch != AlpnMismatch::default() {
            hash.update([5, self.alpn_mismatch as u8]);
        }
        if self.require_extended_master_secret {
            hash.update([6]);
        }
        PolicyDigest(hash.finalize().into())
    }
}

impl Default for Policy {
    /// TLS 1.2 and 1.3, every suite and scheme, every group with the post-quantum hybrid first. No
    /// ALPN, clients without certificates, and the default certificate for names that no
    /// certificate covers.
    fn default() -> Self {
        Self {
            alpn: Vec::new(),
            alpn_mismatch: AlpnMismatch::Refuse,
            client_order: false,
            clients: ClientCertificates::NotAsked,
            groups: Group::ALL.to_vec(),
            require_extended_master_secret: false,
            schemes: Vec::new(),
            suites: Vec::new(),
            unknown_names: UnknownNames::ServeDefault,
            versions: Versions::Tls12AndTls13,
        }
    }
}

/// The application protocol by which a policy or a route names one that was agreed on: HTTP/1.1 for
/// the older versions of HTTP.
pub fn newest_version(protocol: &[u8]) -> &[u8] {
    if OLDER_HTTP.contains(&protocol) { HTTP_11 } else { protocol }
}

/// An application protocol (RFC 7301 section 6).
const HTTP_11: &[u8] = b"http/1.1";
const OLDER_HTTP: [&[u8]; 2] = [b"http/1.0", b"http/0.9"];

/// SHA-256 over a [`Policy`]; part of the key that seals a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PolicyDigest(pub [u8; 32]);

/// The answer to a client that offers application protocols of which the policy has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlpnMismatch {
    /// The alert no_application_protocol (RFC 7301 section 3.2).
    #[default]
    Refuse,
    /// A session without a protocol, as if it had offered none, as hitch and HAProxy do.
    Without,
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are asked. Any chain, or none, is let in if the client holds its key;
    /// [`LaneContext::standing`](crate::context::LaneContext::standing) judges it.
    Asked(Arc<ClientRoots>),
    /// They are not asked.
    #[default]
    NotAsked,
    /// They are asked, and the handshake fails without a chain that the roots verify.
    ///
    /// A session resumes only while that is true of the chain that it began with. For a later
    /// verdict see [`LaneContext::standing`](crate::context::LaneContext::standing).
    Required(Arc<ClientRoots>),
}

/// Protocol versions a listener accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Only TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.2 and TLS 1.3.
    Tls12AndTls13,
    /// Only TLS 1.3 (RFC 8446).
    Tls13,
}

impl Versions {
    /// The versions as rustls names them.
    pub(crate) fn supported(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls12 => const { &[&TLS12] },
            Self::Tls12AndTls13 => const { &[&TLS13, &TLS12] },
            Self::Tls13 => const { &[&TLS13] },
        }
    }
}

/// Key exchange groups, by their IANA names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// NIST P-256.
    Secp256r1,
    /// NIST P-384.
    Secp384r1,
    /// Curve25519 (RFC 7748).
    X25519,
    /// The hybrid of X25519 and ML-KEM-768, TLS 1.3 only.
    X25519MlKem768,
}

impl Group {
    /// All groups, in the default order of preference.
    pub const ALL: [Self; 4] =
        [Self::X25519MlKem768, Self::X25519, Self::Secp256r1, Self::Secp384r1];

    /// The IANA name, as written in a configuration and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secp256r1 => "secp256r1",
            Self::Secp384r1 => "secp384r1",
            Self::X25519 => "X25519",
            Self::X25519MlKem768 => "X25519MLKEM768",
        }
    }
}

/// The answer to a client that asks for a server name without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownNames {
    /// The handshake ends with the alert `unrecognized_name`, or `missing_extension` if the client
    /// sent no name.
    Refuse,
    /// The default certificate is served.
    ServeDefault,
}
