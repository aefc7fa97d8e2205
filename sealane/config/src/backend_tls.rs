//! The table `backend_tls`: how TLS is spoken to backends.

use std::path::PathBuf;

use rustls::pki_types::ServerName;
use sealane_certificate_files::CertificateSource;
use sealane_engine::policy::Versions;
use sealane_operator::key::{Bool, Choice, Either, Group, Key, Or, PathKind, Set, TableKind, Text};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::backend::BackendAddress;
use crate::certificates::{PAIR, certificate_source};
use crate::policy::{PROTOCOL, PROTOCOLS_MAX, VERSION_NAMES, alpn, versions};
use crate::value::{self, AlpnProtocol};

/// How a listener's backends are spoken to in TLS. What is the same for two listeners is built
/// once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendTls {
    /// Application protocols to offer, in order of preference; empty: ALPN is not spoken.
    pub alpn: Vec<Vec<u8>>,
    /// What is shown to a backend that asks who we are.
    pub client_certificate: Option<CertificateSource>,
    /// Whether backends that speak TLS 1.2 without extended master secret are refused.
    pub require_extended_master_secret: bool,
    /// The name that backends must prove, instead of the one in their address.
    pub server_name: Option<ServerName<'static>>,
    /// Whose certificates are believed.
    pub trust: Trust,
    /// Versions to offer.
    pub versions: Versions,
}

impl BackendTls {
    /// The name that the backend at `address` must prove to have.
    ///
    /// # Errors
    /// There is none: a unix socket has no name.
    pub fn server_name_of(&self, address: &BackendAddress) -> Result<ServerName<'static>, Problem> {
        if let Some(name) = &self.server_name {
            return Ok(name.clone());
        }
        match address {
            BackendAddress::Host { name, .. } => server_name(name),
            BackendAddress::Tcp(address) => Ok(ServerName::IpAddress(address.ip().into())),
            BackendAddress::Unix(_) => Err(Problem::new(
                "a unix socket has no name that its certificate could prove",
                "give server_name in [listener.backend_tls] of a configuration file",
            )),
        }
    }
}

impl Default for BackendTls {
    /// Verification against the system's roots, TLS 1.2 and 1.3, no ALPN, no client certificate.
    fn default() -> Self {
        Self {
            alpn: Vec::new(),
            client_certificate: None,
            require_extended_master_secret: false,
            server_name: None,
            trust: Trust::default(),
            versions: Versions::Tls12AndTls13,
        }
    }
}

/// Whose certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Anybody's, for any name: whoever sits between reads and changes everything.
    Anybody,
    /// Those that lead to one of these roots and are for the right name.
    Roots(Vec<RootSource>),
}

impl Default for Trust {
    fn default() -> Self {
        Self::Roots(vec![RootSource::System])
    }
}

/// Where roots are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootSource {
    /// A PEM file.
    File(PathBuf),
    /// The bundle that the system keeps.
    System,
}

/// Reads a name that a certificate can prove: a host name, or an address.
pub(crate) fn server_name(text: &str) -> Result<ServerName<'static>, Problem> {
    ServerName::try_from(text.to_ascii_lowercase()).map_err(|_| {
        Problem::new(
            format!("{text:?} is not a name that a certificate can prove"),
            "write a host name such as \"app.example.com\", or an address",
        )
    })
}

pub(crate) fn backend_tls(table: &Table<'_>) -> BackendTls {
    let default = BackendTls::default();
    let roots = table.value(&ROOTS);
    let anybody = table.value(&INSECURE_ACCEPT_ANY_CERTIFICATE);
    BackendTls {
        alpn: table.value(&ALPN).and_then(|v| alpn(&v, &ALPN)).unwrap_or_default(),
        client_certificate: table.value(&CLIENT_CERTIFICATE).and_then(|v| certificate_source(&v)),
        require_extended_master_secret: table.get(&REQUIRE_EXTENDED_MASTER_SECRET),
        server_name: table.read(&SERVER_NAME),
        trust: trust(roots.as_ref(), anybody.as_ref()),
        versions: table
            .value(&VERSIONS)
            .and_then(|v| versions(&v, &VERSIONS))
            .unwrap_or(default.versions),
    }
}

fn trust(roots: Option<&Value<'_>>, anybody: Option<&Value<'_>>) -> Trust {
    let read = roots.and_then(|v| v.set(ROOTS.kind.1, root_source));
    if anybody.and_then(|v| INSECURE_ACCEPT_ANY_CERTIFICATE.read(v)) != Some(true) {
        return read.map_or_else(Trust::default, Trust::Roots);
    }
    if let Some(roots) = roots {
        roots.wrong(Problem::new(
            "roots mean nothing where any certificate is accepted",
            "remove insecure_accept_any_certificate",
        ));
    }
    Trust::Anybody
}

fn root_source(written: &Value<'_>) -> Option<RootSource> {
    match written.parsed(|text| Ok(text == SYSTEM))? {
        true => Some(RootSource::System),
        false => written.path().map(RootSource::File),
    }
}

/// Stands for the system's bundle among the roots; a file of that name is "./system".
const SYSTEM: &str = "system";

pub(crate) static BACKEND_TLS: Key<TableKind> = Key::new("backend_tls", TableKind(&GROUP), "");

pub(crate) static GROUP: Group = Group::new(
    "listener.backend_tls",
    "TLS to backends that are written with tls://. Without this table the defaults hold.",
    &[
        &ROOTS,
        &SERVER_NAME,
        &CLIENT_CERTIFICATE,
        &VERSIONS,
        &REQUIRE_EXTENDED_MASTER_SECRET,
        &ALPN,
        &INSECURE_ACCEPT_ANY_CERTIFICATE,
    ],
);

static ROOTS: Key<Set<PathKind>> = Key::new(
    "roots",
    Set(PathKind, 64),
    "Files with the CA certificates to trust, in PEM. \"system\" stands for those that this system \
     trusts.",
)
.examples(&["[\"system\"]"])
.without("[\"system\"]");

static SERVER_NAME: Key<Text<ServerName<'static>>> = Key::new(
    "server_name",
    Text("host name or address", server_name),
    "The name that backends must prove, instead of the one in their address.",
)
.examples(&["\"app.example.com\""])
.without("the name or address of the backend");

static CLIENT_CERTIFICATE: Key<Either<PathKind, TableKind>> = Key::new(
    "client_certificate",
    Either(PathKind, TableKind(&PAIR)),
    "The client certificate for backends that ask for one: a file with chain and key, or a pair.",
)
.examples(&["{ chain = \"/etc/sealane/client.crt\", key = \"/etc/sealane/client.key\" }"])
.without("no client certificate");

static VERSIONS: Key<Set<Choice<Versions>>> =
    Key::new("versions", Set(Choice(&VERSION_NAMES), 2), "TLS versions to offer.")
        .examples(&["[\"1.2\", \"1.3\"]"])
        .without("[\"1.2\", \"1.3\"]");

static REQUIRE_EXTENDED_MASTER_SECRET: Key<Or<Bool>> = Key::new(
    "require_extended_master_secret",
    Or(Bool, false),
    "Whether backends that speak TLS 1.2 without extended master secret (RFC 7627) are refused. \
     With client_certificate they are refused in any case.",
);

static ALPN: Key<Set<Text<AlpnProtocol>>> = Key::new(
    "alpn",
    Set(Text(PROTOCOL, value::alpn_protocol), PROTOCOLS_MAX),
    "Application protocols (ALPN) to offer, in order of preference.",
)
.examples(&["[\"http/1.1\"]"])
.without("no ALPN");

static INSECURE_ACCEPT_ANY_CERTIFICATE: Key<Or<Bool>> = Key::new(
    "insecure_accept_any_certificate",
    Or(Bool, false),
    "Disables the verification of backends: everyone on the way can read and change everything.",
);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn listener(lines: &str) -> String {
        "[[listener]]\naddress = \"127.0.0.1:443\"\ncertificates = [\"certs\"]\n".to_owned() + lines
    }

    fn mistakes(lines: &str) -> String {
        Config::parse(Path::new("/etc/a.toml"), &listener(lines)).unwrap_err().to_string()
    }

    fn tls(lines: &str) -> Option<BackendTls> {
        let config = Config::parse(Path::new("/etc/sealane/a.toml"), &listener(lines)).unwrap();
        config.listeners.into_iter().next().unwrap().destination.backend_tls
    }

    #[test]
    fn the_scheme_alone_verifies_against_the_system() {
        assert_eq!(tls("backends = [\"app:1\"]"), None);
        let defaults = tls("backends = [\"tls://app:1\", \"tls://10.0.0.1:1\"]").unwrap();
        assert_eq!(defaults, BackendTls::default());
        assert_eq!(defaults.trust, Trust::Roots(vec![RootSource::System]));
        let name = |address: &str| {
            let address = value::backend(address).unwrap().address;
            defaults.server_name_of(&address).map(|name| name.to_str().into_owned())
        };
        assert_eq!(name("App.internal:1").unwrap(), "app.internal");
        assert_eq!(name("[::1]:1").unwrap(), "::1");
        assert!(name("unix:/run/app.sock").is_err());
    }

    #[test]
    fn every_key_has_an_effect() {
        let read = tls(r#"
            backends = ["tls://unix:/run/app.sock"]
            [listener.backend_tls]
            alpn = ["h2"]
            client_certificate = { chain = "x.crt", key = "/x.key" }
            roots = ["ca.pem", "system", "./system"]
            require_extended_master_secret = true
            server_name = "App.internal"
            versions = ["1.3"]"#);
        let expected = BackendTls {
            alpn: vec![b"h2".to_vec()],
            client_certificate: Some(CertificateSource::Pair {
                chain: "/etc/sealane/x.crt".into(),
                key: "/x.key".into(),
            }),
            require_extended_master_secret: true,
            server_name: Some(ServerName::try_from("app.internal").unwrap()),
            trust: Trust::Roots(vec![
                RootSource::File("/etc/sealane/ca.pem".into()),
                RootSource::System,
                RootSource::File("/etc/sealane/./system".into()),
            ]),
            versions: Versions::Tls13,
        };
        assert_eq!(read, Some(expected));
        let read = tls(r#"
            backends = ["tls://app:1"]
            [listener.backend_tls]
            client_certificate = "both.pem"
            insecure_accept_any_certificate = true"#)
        .unwrap();
        assert_eq!(read.trust, Trust::Anybody);
        let both = CertificateSource::Path("/etc/sealane/both.pem".into());
        assert_eq!(read.client_certificate, Some(both));
    }

    #[test]
    fn contradictions() {
        const TABLE: &str = "\n[listener.backend_tls]\n";
        for (lines, expected) in [
            (
                "backends = [\"tls://a:1\", \"b:1\"]".to_owned(),
                "a.toml:4:12: listener[0].backends: 1 of 2 backends are spoken to in TLS",
            ),
            (
                format!("backends = [\"a:1\"]{TABLE}roots = [\"ca.pem\"]"),
                "listener[0].backend_tls: no backend of this listener is spoken to in TLS",
            ),
            (
                "backends = [\"tls://unix:/run/a\"]".to_owned(),
                "listener[0].backends[0]: a unix socket has no name",
            ),
            (
                format!(
                    "backends = [\"tls://a:1\"]{TABLE}roots = [\"ca.pem\"]\n\
                     insecure_accept_any_certificate = true"
                ),
                "backend_tls.roots: roots mean nothing where any certificate is accepted; remove",
            ),
            (
                format!("backends = [\"tls://a:1\"]{TABLE}verify = false"),
                "backend_tls.verify: is not a known key; remove it; known here: roots, server_name",
            ),
            (
                format!("backends = [\"tls://a:1\"]{TABLE}server_name = \"*.a\""),
                "\"*.a\" is not a name that a certificate can prove",
            ),
            (
                format!("backends = [\"tls://a:1\"]{TABLE}roots = \"system\""),
                "expected a list, found a string",
            ),
            (
                format!("backends = [\"tls://a:1\"]{TABLE}alpn = [\"\"]\nversions = [\"1.1\"]"),
                "\"1.1\" is not a choice",
            ),
        ] {
            let said = mistakes(&lines);
            assert!(said.contains(expected), "{lines}\n{said}");
        }
    }
}
