//! The runner's arguments, parsed.

use std::fmt;
use std::str::FromStr;

use base64::prelude::{BASE64_STANDARD, Engine};
use sealane_engine::policy::{Group, Scheme, Versions};

use crate::Result;
use crate::end::End;

/// The server and the handshake that a test wants.
pub(crate) struct Wanted {
    pub(crate) asks_clients: bool,
    pub(crate) chain_file: String,
    pub(crate) checks_close_notify: bool,
    pub(crate) groups: Vec<Group>,
    pub(crate) has_tickets: bool,
    pub(crate) key_file: String,
    pub(crate) misses_session: bool,
    pub(crate) no_ticket_on_resume: bool,
    /// To be stapled; empty: none.
    pub(crate) ocsp_response: Vec<u8>,
    pub(crate) port: u16,
    pub(crate) protocols: Vec<Vec<u8>>,
    pub(crate) requires_clients: bool,
    pub(crate) resumes: usize,
    pub(crate) schemes: Vec<Scheme>,
    pub(crate) server_preference: bool,
    pub(crate) shim_id: u64,
    pub(crate) shuts_down: bool,
    /// The version to be negotiated, by its number.
    pub(crate) version: Option<u16>,
    pub(crate) versions: Versions,
    pub(crate) writes_first: bool,
}

/// A test wants a feature that does not exist here.
#[derive(Debug)]
pub(crate) struct Unsupported(String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not supported: {}", self.0)
    }
}

impl std::error::Error for Unsupported {}

impl Wanted {
    pub(crate) fn read(arguments: &mut impl Iterator<Item = String>) -> Result<Self> {
        let mut wanted = Self {
            asks_clients: false,
            chain_file: String::new(),
            checks_close_notify: false,
            groups: Vec::new(),
            has_tickets: true,
            key_file: String::new(),
            misses_session: false,
            no_ticket_on_resume: false,
            ocsp_response: Vec::new(),
            port: 0,
            protocols: Vec::new(),
            requires_clients: false,
            resumes: 0,
            schemes: Vec::new(),
            server_preference: false,
            shim_id: 0,
            shuts_down: false,
            version: None,
            versions: Versions::Tls12AndTls13,
            writes_first: false,
        };
        let (mut is_server, mut oldest, mut newest) = (false, TLS12, TLS13);
        while let Some(argument) = arguments.next() {
            match &*argument {
                "-server" => is_server = true,
                "-min-version" => oldest = oldest.max(value(arguments)?),
                "-max-version" => newest = newest.min(value(arguments)?),
                "-no-tls12" => oldest = oldest.max(TLS13),
                "-no-tls13" => newest = newest.min(TLS12),
                other => wanted.take(other, arguments)?,
            }
        }
        wanted.versions = match (oldest, newest) {
            (TLS12, TLS12) => Versions::Tls12,
            (TLS12, TLS13) => Versions::Tls12AndTls13,
            (TLS13, TLS13) => Versions::Tls13,
            _ => return Err(Unsupported(format!("versions {oldest:#x} to {newest:#x}")).into()),
        };
        if wanted.groups.is_empty() {
            wanted.groups = Group::ALL.to_vec();
        }
        // Only the server's end is tested here.
        if is_server && !wanted.chain_file.is_empty() {
            Ok(wanted)
        } else {
            Err(Unsupported("a client, or a server without a certificate".into()).into())
        }
    }

    fn take(&mut self, argument: &str, arguments: &mut impl Iterator<Item = String>) -> Result<()> {
        match argument {
            "-cert-file" => self.chain_file = value(arguments)?,
            "-check-close-notify" => self.checks_close_notify = true,
            "-curves" => self.groups.push(one_of(&GROUPS, value(arguments)?)?),
            "-expect-session-miss" => self.misses_session = true,
            "-expect-version" => self.version = Some(value(arguments)?),
            "-key-file" => self.key_file = value(arguments)?,
            "-no-ticket" => self.has_tickets = false,
            "-ocsp-response" => {
                self.ocsp_response = BASE64_STANDARD.decode(value::<String>(arguments)?)?;
            }
            "-on-resume-no-ticket" => self.no_ticket_on_resume = true,
            "-port" => self.port = value(arguments)?,
            "-reject-alpn" => self.protocols.push(b"nothing that a client speaks".into()),
            "-require-any-client-certificate" => self.requires_clients = true,
            "-resume-count" => self.resumes = value(arguments)?,
            "-select-alpn" => self.protocols.push(value::<String>(arguments)?.into()),
            "-server-preference" => self.server_preference = true,
            "-shim-id" => self.shim_id = value(arguments)?,
            "-shim-shuts-down" => self.shuts_down = true,
            "-shim-writes-first" => self.writes_first = true,
            "-signing-prefs" => self.schemes.push(one_of(&SCHEMES, value(arguments)?)?),
            "-verify-peer" => self.asks_clients = true,
            other if IGNORED.contains(&other) => {}
            other if IGNORED_WITH_VALUE.contains(&other) => {
                let _: String = value(arguments)?;
            }
            other => return Err(Unsupported(other.to_owned()).into()),
        }
        Ok(())
    }

    /// Checks that the handshake is the one that the test wants.
    pub(crate) fn check(&self, end: &End, number: usize) -> Result<()> {
        let is_tls13 = end.is_tls13();
        if self.version.is_some_and(|version| is_tls13 != (version == TLS13)) {
            return Err(format!("not version {:#x?}", self.version).into());
        }
        let wants_resumed = number > 0 && !self.misses_session;
        if end.is_resumed() != wants_resumed {
            return Err(format!("connection {number}: resumed: {}", !wants_resumed).into());
        }
        Ok(())
    }
}

fn value<T: FromStr>(arguments: &mut impl Iterator<Item = String>) -> Result<T> {
    let text = arguments.next().ok_or("an argument lacks its value")?;
    text.parse().map_err(|_| format!("{text} is no value").into())
}

fn one_of<T: Copy>(all: &[(u16, T)], number: u16) -> Result<T> {
    let found = all.iter().find(|(known, _)| *known == number);
    Ok(found.ok_or_else(|| Unsupported(format!("{number:#x}")))?.1)
}

const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;

const GROUPS: [(u16, Group); 4] = [
    (23, Group::Secp256r1),
    (24, Group::Secp384r1),
    (29, Group::X25519),
    (4588, Group::X25519MlKem768),
];
const SCHEMES: [(u16, Scheme); 10] = [
    (0x0401, Scheme::RsaPkcs1Sha256),
    (0x0403, Scheme::EcdsaSecp256r1Sha256),
    (0x0501, Scheme::RsaPkcs1Sha384),
    (0x0503, Scheme::EcdsaSecp384r1Sha384),
    (0x0601, Scheme::RsaPkcs1Sha512),
    (0x0603, Scheme::EcdsaSecp521r1Sha512),
    (0x0804, Scheme::RsaPssRsaeSha256),
    (0x0805, Scheme::RsaPssRsaeSha384),
    (0x0806, Scheme::RsaPssRsaeSha512),
    (0x0807, Scheme::Ed25519),
];

/// Flags about BoringSSL's own work, flags that only a client uses, and flags that change nothing
/// here.
const IGNORED: [&str; 19] = [
    "-async",
    "-decline-alpn",
    "-enable-all-curves",
    "-enable-ed25519",
    "-enable-ocsp-stapling",
    "-expect-hrr",
    "-expect-no-hrr",
    "-expect-no-session",
    "-expect-no-session-id",
    "-expect-secure-renegotiation",
    "-expect-session-id",
    "-expect-ticket-renewal",
    "-expect-extended-master-secret",
    "-forbid-renegotiation-after-handshake",
    "-implicit-handshake",
    "-ipv6",
    "-no-tls1",
    "-no-tls11",
    "-use-early-callback",
];
/// Flags with a value that is not used.
const IGNORED_WITH_VALUE: [&str; 19] = [
    "-expect-advertised-alpn",
    "-expect-alpn",
    "-expect-certificate-types",
    "-expect-client-ca-list",
    "-expect-curve-id",
    "-expect-msg-callback",
    "-expect-ocsp-response",
    "-expect-peer-signature-algorithm",
    "-expect-server-name",
    "-expect-ticket-age-skew",
    "-handshaker-path",
    "-max-cert-list",
    "-on-initial-expect-alpn",
    "-on-initial-expect-cipher",
    "-on-initial-expect-curve-id",
    "-on-resume-expect-alpn",
    "-on-resume-expect-cipher",
    "-on-resume-expect-curve-id",
    "-trust-cert",
];
