//! What a trial does: a [`Scenario`], the same for every stack, and what came out of it at both
//! ends, [`Negotiated`].

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Everything that two stacks must have in common before their figures may stand side by side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Scenario {
    /// How the handshake goes.
    pub kind: Kind,
    /// The only protocol version that both ends offer.
    pub version: Version,
    /// The only record protection that both ends offer.
    pub cipher: Cipher,
    /// The only group that both ends offer.
    pub group: Group,
    /// The key type of the server's certificate.
    pub key: Key,
    /// Whether the server demands a certificate of the client.
    pub client_certificate: bool,
    /// Certificates that the server sends: its own; with 2 its issuer's too; with 3 also the root.
    #[serde(default = "leaf_alone", skip_serializing_if = "is_leaf_alone")]
    pub chain: u8,
    /// TLS 1.3 tickets that the server sends after each handshake.
    pub tickets: u8,
    /// What the threads of a trial have in common.
    pub share: Share,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            kind: Kind::Full,
            version: Version::Tls13,
            cipher: Cipher::Aes128Gcm,
            group: Group::X25519,
            key: Key::P256,
            client_certificate: false,
            chain: leaf_alone(),
            tickets: 2,
            share: Share::Context,
        }
    }
}

/// How a handshake goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// With the server's certificate and signature.
    Full,
    /// TLS 1.2, resumed from the server's session cache.
    SessionId,
    /// Resumed from a ticket.
    Ticket,
}

/// A protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
pub enum Version {
    /// TLS 1.2, always with an ephemeral key exchange.
    #[serde(rename = "1.2")]
    #[value(name = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    #[value(name = "1.3")]
    Tls13,
}

/// Record protection; together with version and key it determines the cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Cipher {
    /// AES-128 in GCM.
    Aes128Gcm,
    /// AES-256 in GCM.
    Aes256Gcm,
    /// ChaCha20 with Poly1305.
    Chacha20Poly1305,
}

/// A key-exchange group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// X25519.
    X25519,
    /// X25519 with ML-KEM-768, TLS 1.3 only.
    #[value(name = "x25519mlkem768")]
    #[serde(rename = "x25519mlkem768")]
    X25519MlKem768,
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
}

/// The type of a certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Key {
    /// RSA with 2,048 bits.
    Rsa2048,
    /// RSA with 4,096 bits.
    Rsa4096,
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
    /// Ed25519.
    Ed25519,
}

/// What the threads of one trial share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// One server context and one client context for all threads.
    Context,
    /// The contexts, and what clients resume: one session for all threads, or where a client's
    /// sessions serve once, one store of them.
    Session,
    /// Nothing: each thread builds its own contexts.
    Thread,
}

/// What one end says of a finished handshake, in the same words for every stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiated {
    /// The agreed version.
    pub version: Version,
    /// The agreed suite by its IANA name.
    pub suite: String,
    /// The agreed group; `None` where the stack cannot tell, or did not agree on one (resumption
    /// in TLS 1.2).
    pub group: Option<Group>,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// Whether the peer showed a certificate that this end verified.
    pub peer_certificate: bool,
}

fn leaf_alone() -> u8 {
    1
}

// The signature is serde's.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_leaf_alone(chain: &u8) -> bool {
    *chain == leaf_alone()
}

impl Scenario {
    /// Refuses what no version of TLS has.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason.
    pub fn exists(&self) -> Result<(), Error> {
        let refused = match self {
            Self { kind: Kind::SessionId, version: Version::Tls13, .. } => {
                "session ids resume in TLS 1.2 only"
            }
            Self { kind: Kind::Ticket, version: Version::Tls13, tickets: 0, .. } => {
                "without tickets nothing resumes in TLS 1.3"
            }
            Self { group: Group::X25519MlKem768, version: Version::Tls12, .. } => {
                "the hybrid group is TLS 1.3's"
            }
            _ => return Ok(()),
        };
        Err(Error::Unsupported(refused.into()))
    }

    /// The IANA name of the one suite that both ends offer.
    #[must_use]
    pub fn suite(&self) -> String {
        let cipher = match (self.cipher, self.version) {
            (Cipher::Aes128Gcm, _) => "AES_128_GCM_SHA256",
            (Cipher::Aes256Gcm, _) => "AES_256_GCM_SHA384",
            (Cipher::Chacha20Poly1305, _) => "CHACHA20_POLY1305_SHA256",
        };
        match (self.version, self.key) {
            (Version::Tls13, _) => format!("TLS_{cipher}"),
            (Version::Tls12, Key::Rsa2048 | Key::Rsa4096) => format!("TLS_ECDHE_RSA_WITH_{cipher}"),
            (Version::Tls12, _) => format!("TLS_ECDHE_ECDSA_WITH_{cipher}"),
        }
    }

    /// Whether a finished handshake is what was to be measured, `client` and `server` telling the
    /// same. Resumption itself is judged by the caller too, who knows which handshake came first.
    ///
    /// # Errors
    /// The first difference, by name, with what was wanted and what came.
    pub fn check(
        &self,
        server: &Negotiated,
        client: &Negotiated,
        resumed: bool,
    ) -> Result<(), Error> {
        for (end, is) in [("server", server), ("client", client)] {
            let differs = |what: &str, wanted: String, came: String| {
                Err(Error::Check(format!("the {end} negotiated {what} {came}, wanted {wanted}")))
            };
            if is.version != self.version {
                let (wanted, came) = (format!("{:?}", self.version), format!("{:?}", is.version));
                return differs("version", wanted, came);
            }
            if is.suite != self.suite() {
                return differs("suite", self.suite(), is.suite.clone());
            }
            if is.group.is_some_and(|group| group != self.group) {
                let (wanted, came) = (format!("{:?}", self.group), format!("{:?}", is.group));
                return differs("group", wanted, came);
            }
            if is.resumed != resumed {
                let (wanted, came) = (resumed.to_string(), is.resumed.to_string());
                return differs("resumed", wanted, came);
            }
            let peer_certificate = end == "client" || self.client_certificate;
            if !resumed && is.peer_certificate != peer_certificate {
                let (wanted, came) =
                    (peer_certificate.to_string(), is.peer_certificate.to_string());
                return differs("peer certificate", wanted, came);
            }
        }
        let has_group = !resumed || self.version == Version::Tls13;
        if has_group && server.group.is_none() && client.group.is_none() {
            return Err(Error::Check("neither end tells the group".into()));
        }
        Ok(())
    }
}
