//! Changes for reloads under load: each reload changes every key that a listener may have, in ways
//! that clients do not notice, or that the test informs them of.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rcgen::CertificateParams;
use sealane_traffic::proxy_header::decode;

use crate::client_certificates::authority::ClientAuthority;
use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::sealane::{ListenerSettings, Settings, replace};
use crate::harness::secured::SecuredBackend;

/// The listeners of a site, whose every key changes.
pub(super) struct Changing {
    folder: PathBuf,
    echo: [SocketAddr; 2],
    tls_echo: SecuredBackend,
    lists: [String; 2],
    /// What a client of [`ANNOUNCED`] shows.
    pub shown: String,
    last: BTreeMap<Place, String>,
}

/// A listener's number, a table of it, and a key there.
type Place = (usize, String, String);

/// Listeners by position. Clients of the first notice nothing of what changes about it.
pub(super) const SITE: usize = 0;
/// Clients are announced by PROXY headers, show certificates and go by routes.
pub(super) const ANNOUNCED: usize = 1;
/// Clients are those of PostgreSQL that begin with TLS at once, which is right without it too.
pub(super) const POSTGRES: usize = 2;
/// What clients begin with changes: see [`Manner::of_passing`].
pub(super) const PASSING: usize = 3;
/// What clients speak changes: see [`Manner::of_speaking`].
pub(super) const SPEAKING: usize = 4;
/// On a unix socket; clients are announced, and show certificates if they are asked.
pub(super) const LOCAL: usize = 5;
/// Challenges of ACME are answered.
pub(super) const CHALLENGED: usize = 6;
pub(super) const LISTENERS: usize = 7;
/// A challenge that lies in the folder of every reload.
pub(super) const CHALLENGE: (&str, &str) = ("token", "token.thumbprint");

/// How a client has to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Announced,
    Challenge,
    Plain,
    Request,
    Tls,
}

impl Manner {
    /// At the listener [`PASSING`], which is announced its clients or passes them on.
    pub(super) fn of_passing(number: usize) -> Self {
        if number.is_multiple_of(2) { Self::Tls } else { Self::Announced }
    }

    /// At the listener [`SPEAKING`].
    pub(super) fn of_speaking(number: usize) -> Self {
        [Self::Plain, Self::Request, Self::Tls][number % 3]
    }
}

impl Changing {
    pub(super) fn new(folder: &Path, servers: &Authority) -> Self {
        let clients = ClientAuthority::root(folder, "Clients CA");
        let others = Authority::named("Others CA");
        std::fs::write(folder.join("clients.pem"), clients.pem()).unwrap();
        std::fs::write(folder.join("others.pem"), others.pem()).unwrap();
        std::fs::create_dir(folder.join("crls")).unwrap();
        for challenges in CHALLENGES {
            std::fs::create_dir(folder.join(challenges)).unwrap();
            std::fs::write(folder.join(challenges).join(CHALLENGE.0), CHALLENGE.1).unwrap();
        }
        servers.write(folder);
        let echo = [announced_echo(), announced_echo()];
        let tls_echo = SecuredBackend::echo(&servers.leaf(KeyKind::P256, &NAMES), None);
        let lists = [&[7][..], &[8]].map(|revoked| clients.list(revoked));
        let shown = clients.issue(1, |_: &mut CertificateParams| ()).pem();
        let (folder, last) = (folder.into(), BTreeMap::new());
        Self { folder, echo, tls_echo, lists, shown, last }
    }

    /// The listeners, all of them with the certificates of `certificates`.
    pub(super) fn listeners(&self, certificates: &Path) -> Vec<ListenerSettings> {
        let names = ["site", "announced", "postgres", "passing", "speaking", "local", "challenged"];
        let mut listeners =
            names.map(|name| ListenerSettings::new(name, certificates, &self.echo[0]));
        listeners[LOCAL].socket = Some(self.folder.join("local.sock"));
        let challenged = &mut listeners[CHALLENGED];
        (challenged.certificates, challenged.backends) = (None, Vec::new());
        listeners.into()
    }

    /// Changes all keys; of the last reload every one had another value.
    pub(super) fn apply(&mut self, number: usize, certificates: &Path, settings: &mut Settings) {
        replace(&self.folder.join("crls/root.crl"), &self.lists[number % 2]);
        let is_odd = !number.is_multiple_of(2);
        let steer = if is_odd { "connection" } else { "client" };
        let steer = format!("steer = \"{steer}\"\n");
        let site = [limits(number), told(number), steer.clone(), handshakes(number, true)].concat();
        let (postgres, echo) = (if is_odd { "postgres" } else { "off" }, self.echo[number % 2]);
        settings.listeners[SITE].more = site;
        settings.listeners[ANNOUNCED].more = self.announced(number);
        settings.listeners[POSTGRES].more =
            [limits(number), steer, format!("starttls = \"{postgres}\"\n")].concat();
        for listener in &mut settings.listeners[SITE..=POSTGRES] {
            listener.backends = vec![echo.to_string()];
        }
        self.pass(number, certificates, &mut settings.listeners[PASSING]);
        self.speak(number, certificates, &mut settings.listeners[SPEAKING]);
        settings.listeners[LOCAL].more = format!(
            "accept_proxy = \"required\"\nproxy_from = [\"unix\"]\nsocket_mode = \"{}\"\n{}",
            if is_odd { "0600" } else { "0660" },
            limits(number)
        );
        settings.listeners[CHALLENGED].more = format!(
            "plain = \"redirect\"\nacme_responder = {:?}\n{}",
            CHALLENGES[number % 2],
            limits(number)
        );
        settings.limits = process_limits(number);
        settings.more = format!("tickets.count = {}", 2 + number % 2);
    }

    /// How many connections the process may have then, by which a reload is known.
    pub(super) fn connections_max(number: usize) -> usize {
        50_000 + number
    }

    /// Asserts that of every key something is not as it was when this was last called, if it was.
    pub(super) fn assert_changed(&mut self) {
        let text = std::fs::read_to_string(self.folder.join("sealane.toml")).unwrap();
        let (now, last) = (keys(&text), &self.last);
        let places: BTreeSet<&Place> = now.keys().chain(last.keys()).collect();
        let changed = places.into_iter().filter(|place| now.get(place) != last.get(place));
        let changed: BTreeSet<&str> = changed.map(|(.., key)| key.as_str()).collect();
        for key in KEYS.into_iter().filter(|_| !last.is_empty()) {
            assert!(changed.contains(key), "{key} is as it was before:\n{text}");
        }
        self.last = now;
    }

    fn announced(&self, number: usize) -> String {
        let is_odd = !number.is_multiple_of(2);
        let (demand, crls) = if is_odd { ("required", "crls") } else { ("asked", "crls/root.crl") };
        let roots = if is_odd { "" } else { ", \"others.pem\"" };
        let names = format!("names = [\"CN:client 1\", \"DNS:n{number}.test\"]\n");
        let clients = format!(
            "certificates = \"{demand}\"\nroots = [\"clients.pem\"{roots}]\ncrls = [\"{crls}\"]\n\
             {}cut_revoked = {is_odd}\non_expired_crl = \"{}\"\nproof_age_max = \"{}m\"\n",
            if is_odd { &names } else { "" },
            if is_odd { "accept" } else { "refuse" },
            60 + number
        );
        format!(
            "accept_proxy = \"required\"\nproxy_from = [\"127.0.0.0/8\", \"192.0.2.{number}\"]\n\
             allow_anybody_to_claim_an_address = {is_odd}\nproxy_pass_tlvs = [{}]\n\
             alpn = [\"http/1.1\", \"n{number}\"]\nalpn_mismatch = \"{}\"\n\
             unknown_names = \"{}\"\n{}{}{}\
             [listener.clients]\n{clients}{}",
            0xF0 + number % 8,
            if is_odd { "none" } else { "refuse" },
            if is_odd { "refuse" } else { "default" },
            limits(number),
            told(number),
            handshakes(number, is_odd),
            self.routes(number, &clients)
        )
    }

    /// Routes of a name that clients ask for: to a backend, to the listener's own, and past it.
    fn routes(&self, number: usize, clients: &str) -> String {
        let names =
            format!("[[listener.route]]\nnames = [\"sealane.test\", \"*.n{number}.test\"]\n");
        let balance = if number.is_multiple_of(2) { "round-robin" } else { "least-connections" };
        let [first, second] = self.echo;
        match number % 3 {
            0 => format!(
                "{names}passthrough = true\nproxy_header = false\nbackends = [\"{}\"]\n",
                self.tls_echo.address
            ),
            1 => format!(
                "{names}balance = \"{balance}\"\nbackends = [\"{second}\", \"{first}\"]\n{}{}\
                 [listener.route.clients]\n{clients}",
                told(number + 1),
                handshakes(number + 1, number.is_multiple_of(2)),
            ),
            _ => format!(
                "{names}{}[[listener.route]]\nnames = [\"sealane.test\"]\nalpn = [\"http/1.1\"]\n\
                 balance = \"{balance}\"\nbackends = [\"{second}\"]\n",
                handshakes(number + 1, number.is_multiple_of(2))
            ),
        }
    }

    /// [`PASSING`] is announced its clients, or passes their TLS on to who has a certificate.
    fn pass(&self, number: usize, certificates: &Path, listener: &mut ListenerSettings) {
        let (manner, mut more) = (Manner::of_passing(number), limits(number));
        if manner == Manner::Announced {
            more += "accept_proxy = \"required\"\nproxy_from = [\"127.0.0.0/8\"]\n";
            listener.certificates = Some(certificates.into());
            listener.backends = vec![self.echo[1].to_string()];
        } else {
            more += "accept_proxy = \"off\"\npassthrough = true\n";
            listener.certificates = None;
            listener.backends = vec![self.tls_echo.address.to_string()];
        }
        listener.more = more;
    }

    /// [`SPEAKING`] takes plain bytes to TLS, sends requests elsewhere, or ends TLS.
    fn speak(&self, number: usize, certificates: &Path, listener: &mut ListenerSettings) {
        let manner = Manner::of_speaking(number);
        listener.certificates = (manner == Manner::Tls).then(|| certificates.into());
        let (plain, backends) = match manner {
            Manner::Plain => ("relay", vec![self.tls_echo.written()]),
            Manner::Request => ("redirect", Vec::new()),
            _ => ("off", vec![self.echo[0].to_string()]),
        };
        listener.backends = backends;
        listener.more = format!("plain = \"{plain}\"\n{}", limits(number));
        if manner == Manner::Plain {
            listener.more += "[listener.backend_tls]\nroots = [\"ca.pem\"]\n\
                              server_name = \"sealane.test\"\n";
        }
    }
}

/// Sends back what a client says, and not what is said of it.
fn announced_echo() -> SocketAddr {
    let backend = Backend::start(|mut stream| {
        let (mut filled, mut bytes) = (0, vec![0; 32 << 10]);
        let mut is_announced = true;
        while let Ok(len @ 1..) = stream.read(&mut bytes[filled..]) {
            filled += len;
            let skipped = match decode(&bytes[..filled]).map(|header| header.map(|it| it.len)) {
                Ok(None) if is_announced => continue,
                Ok(Some(header)) if is_announced => header,
                _ => 0,
            };
            is_announced = false;
            if stream.write_all(&bytes[skipped..filled]).is_err() {
                return;
            }
            filled = 0;
        }
    });
    backend.address
}

/// Limits of a listener, none of which is reached.
fn limits(number: usize) -> String {
    let keep_alive = match number % 2 {
        0 => "\"off\"".to_owned(),
        _ => format!("{{ idle = \"{number}s\", every = \"10s\", count = 6 }}"),
    };
    let more = 1_000 + number;
    format!(
        "allow = [\"127.0.0.0/8\", \"192.0.2.{number}\"]\n\
         backend_timeout = \"{more}s\"\n\
         client_timeout = \"{more}s\"\n\
         connections = {more}0\n\
         connections_per_client = {more}\n\
         deny = [\"198.51.100.{number}\"]\n\
         half_closed_timeout = \"{more}s\"\n\
         handshake_timeout = \"{}s\"\n\
         handshakes_per_client = \"{more}00/s\"\n\
         idle_timeout = \"{more}s\"\n\
         keepalive = {keep_alive}\n\
         user_timeout = \"{more}s\"\n",
        60 + number
    )
}

/// The same of the process.
fn process_limits(number: usize) -> String {
    let more = 1_000 + number;
    format!(
        "connection_age = \"{more}m\"\nconnections = {}\nconnect_timeout = \"{}s\"\n\
         drain_delay = \"{number}ms\"\ndrain_timeout = \"{more}s\"\n\
         handshakes_in_flight = {more}0\nhealth_delay = \"{number}ms\"\nproxy_timeout = \"{}ms\"",
        Changing::connections_max(number),
        20 + number % 20,
        30_000 + number
    )
}

/// What an echo that passes headers over is told of its clients.
fn told(number: usize) -> String {
    let header = [
        "\"v2\"\nproxy_tlvs = [\"ssl\", \"cn\", \"cert\", \"crc32c\"]",
        "\"v1\"",
        "\"pass\"\nproxy_tlvs = [\"alpn\", \"unique-id\"]",
        "false",
    ];
    format!("proxy_header = {}\n", header[number % header.len()])
}

/// Rules for handshakes that all clients of the test can keep, those of TLS 1.2 if `has_tls12`.
fn handshakes(number: usize, has_tls12: bool) -> String {
    let (groups, suite, schemes) = match number % 2 {
        0 => ("\"X25519\"", "TLS_CHACHA20_POLY1305_SHA256", ""),
        _ => ("\"X25519MLKEM768\"", "TLS_AES_256_GCM_SHA384", ", \"rsa_pss_rsae_sha256\""),
    };
    // One hash for all: a client whose ticket is of another, and whose key exchange is not allowed
    // any more, takes the ticket back, and rustls ends the handshake.
    let mut suites = format!("\"TLS_AES_128_GCM_SHA256\", \"{suite}\"");
    let mut versions = "\"1.3\"";
    if has_tls12 {
        versions = "\"1.2\", \"1.3\"";
        suites += ", \"ECDHE-ECDSA-AES128-GCM-SHA256\"";
    }
    format!(
        "groups = [\"secp256r1\", {groups}]\nsuites = [{suites}]\nversions = [{versions}]\n\
         schemes = [\"ecdsa_secp256r1_sha256\", \"ed25519\"{schemes}]\n"
    )
}

/// The values of all keys of a configuration that has one key in a line.
fn keys(text: &str) -> BTreeMap<Place, String> {
    let (mut listener, mut table) = (0, "");
    let mut keys = BTreeMap::new();
    for line in text.lines() {
        if line.starts_with('[') {
            listener += usize::from(line == "[[listener]]");
            table = line;
        } else if let Some((key, value)) = line.split_once(" = ") {
            let place = (listener, table.to_owned(), key.to_owned());
            // Of several routes of a listener all values together count.
            *keys.entry(place).or_default() += value;
        }
    }
    keys
}

/// Folders of challenges, by turns.
const CHALLENGES: [&str; 2] = ["challenges", "webroot"];

/// Every key that changes at each reload.
const KEYS: [&str; 48] = [
    "accept_proxy",
    "acme_responder",
    "allow",
    "allow_anybody_to_claim_an_address",
    "alpn",
    "alpn_mismatch",
    "backend_timeout",
    "backends",
    "balance",
    "certificates",
    "client_timeout",
    "connect_timeout",
    "connection_age",
    "connections",
    "connections_per_client",
    "crls",
    "cut_revoked",
    "deny",
    "drain_delay",
    "drain_timeout",
    "groups",
    "half_closed_timeout",
    "handshake_timeout",
    "handshakes_in_flight",
    "handshakes_per_client",
    "health_delay",
    "idle_timeout",
    "keepalive",
    "names",
    "on_expired_crl",
    "passthrough",
    "plain",
    "proof_age_max",
    "proxy_from",
    "proxy_header",
    "proxy_pass_tlvs",
    "proxy_timeout",
    "proxy_tlvs",
    "roots",
    "schemes",
    "socket_mode",
    "starttls",
    "steer",
    "suites",
    "tickets.count",
    "unknown_names",
    "user_timeout",
    "versions",
];
