//! Clients with certificates: who is let in, what a new revocation list does to tickets and to
//! connections, what is said of who came, and what an operator is told.

pub(crate) mod authority;
mod chains;
mod real_clients;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::SanType;
use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, Error};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::PATIENCE;
use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings, replace};
use crate::harness::tools::{output, required, run};

use authority::{ClientAuthority, Shown};

/// A Sealane that demands certificates, in front of an echo.
struct Site {
    address: SocketAddr,
    clients: ClientAuthority,
    folder: TempDir,
    sealane: Sealane,
    servers: Authority,
}

impl Site {
    /// With a folder of lists in which nobody is, and further keys.
    fn start(more: &str) -> Option<Self> {
        required("openssl")?;
        let (folder, servers) = (tempfile::tempdir().unwrap(), Authority::new());
        let at = folder.path();
        let clients = ClientAuthority::root(at, "Clients CA");
        std::fs::write(at.join("clients.pem"), clients.pem()).unwrap();
        std::fs::create_dir(at.join("crls")).unwrap();
        replace(&at.join("crls/root.crl"), &clients.list(&[]));
        std::fs::write(at.join("site.pem"), servers.leaf(KeyKind::P256, &NAMES)).unwrap();
        servers.write(at);
        let keys = format!(
            "[listener.clients]\ncertificates = \"required\"\nroots = [\"clients.pem\"]\n\
             crls = [\"crls\"]\n{more}"
        );
        let backend = Backend::start(answer);
        let listener = ListenerSettings::new("web", &at.join("site.pem"), &backend.address);
        let address = listener.address;
        let mut settings = Settings::new(vec![listener.with(&keys)]);
        settings.more = "access_log.path = \"log\"".into();
        let sealane = Sealane::start(at, &settings);
        Some(Self { address, clients, folder, sealane, servers })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn connector(
        &self,
        shown: &Shown,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> Connector {
        Connector::new(self.servers.der(), version).with_own_tickets().showing(&shown.pem())
    }

    /// Puts a list in place of the last, which is served when this returns.
    fn publish(&self, list: &str) {
        let accepted = || self.reloads("accepted");
        let before = accepted();
        replace(&self.path("crls/root.crl"), list);
        self.sealane.wait_for_metrics("the list is served", |_| accepted() > before);
        self.sealane.wait_until_lanes_serve();
    }

    fn reloads(&self, outcome: &str) -> u64 {
        self.sealane.metrics().sum("sealane_reloads_total", &[("outcome", outcome)])
    }

    /// What the admin address answers.
    fn admin(&self, path: &str) -> (String, String) {
        let mut stream = UnixStream::connect(self.path("admin.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    /// The log's lines, when there are as many.
    fn logged(&self, count: usize) -> Vec<Value> {
        let read = || std::fs::read_to_string(self.path("log")).unwrap_or_default();
        crate::harness::wait_for("the log", || (read().lines().count() >= count).then_some(()));
        read().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Sends back what comes, and to a request the shortest answer.
fn answer(mut stream: TcpStream) {
    let mut bytes = [0; 1 << 10];
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        let is_request = bytes.starts_with(b"GET ");
        let answer = if is_request { NO_CONTENT } else { &bytes[..len] };
        if stream.write_all(answer).is_err() || is_request {
            return;
        }
    }
}

const NO_CONTENT: &[u8] = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";

/// The alert that a client gets, in the handshake or as its first answer.
fn alert(connector: &Connector, address: SocketAddr) -> AlertDescription {
    let refused = connector.connect(address).and_then(|mut client| client.echo(b"x")).unwrap_err();
    match refused.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::AlertReceived(alert)) => *alert,
        _ => panic!("no alert, but {refused:?}"),
    }
}

#[test]
fn a_new_list_ends_the_sessions_of_who_is_on_it_and_keeps_those_of_others() {
    let Some(site) = Site::start("") else { return };
    for (serial, version) in [(1, &TLS12), (2, &TLS13)] {
        let [stays, leaves] = [serial, serial + 100]
            .map(|serial| site.connector(&site.clients.issue(serial, |_| ()), version));
        let resumes = |connector: &Connector| {
            let mut client = connector.connect(site.address).unwrap();
            client.echo(b"hello").unwrap();
            client.resumed()
        };
        for connector in [&stays, &leaves] {
            assert!(!resumes(connector) && resumes(connector), "{version:?}");
        }
        // Another list that says the same, as each hour brings one.
        site.publish(&site.clients.list_until(&[], "20980101000000Z"));
        assert!(resumes(&stays) && resumes(&leaves), "{version:?}");
        site.publish(&site.clients.list(&[serial + 100]));
        assert!(resumes(&stays), "{version:?}");
        assert_eq!(alert(&leaves, site.address), AlertDescription::CertificateRevoked);
        site.publish(&site.clients.list(&[]));
    }
    assert_eq!(site.sealane.metrics().ended("client_certificate"), 2);
}

/// The clock of an authority may be ahead.
#[test]
fn list_of_the_future_cuts_once_it_begins() {
    let Some(site) = Site::start("cut_revoked = true") else { return };
    let leaves = site.clients.issue(2, |_| ());
    let mut client = site.connector(&leaves, &TLS13).connect(site.address).unwrap();
    client.echo(b"hello").unwrap();
    let soon = Command::new("date").args(["-u", "-d", "+4 seconds", "+%Y%m%d%H%M%SZ"]).output();
    let soon = String::from_utf8(soon.unwrap().stdout).unwrap();
    let list = site.clients.list_between(&[2], soon.trim(), "20980101000000Z");
    replace(&site.path("crls/next.crl"), &list);
    site.sealane.wait_for_metrics("it to be cut", |metrics| metrics.ended("client_revoked") == 1);
    assert!(client.echo(b"again").is_err());
    assert_eq!(site.sealane.stop(), Some(0));
}

#[test]
fn a_list_cuts_connections_that_stand_where_that_is_said() {
    let Some(site) = Site::start("cut_revoked = true") else { return };
    let [stays, leaves] = [1, 2].map(|serial| site.clients.issue(serial, |_| ()));
    for version in [&TLS12, &TLS13] {
        let connect = |shown| site.connector(shown, version).connect(site.address).unwrap();
        let mut standing: Vec<_> = (0..4).map(|_| connect(&stays)).collect();
        let mut leaving: Vec<_> = (0..4).map(|_| connect(&leaves)).collect();
        for client in standing.iter_mut().chain(&mut leaving) {
            client.echo(b"hello").unwrap();
        }
        let before = site.sealane.metrics().ended("client_revoked");
        site.publish(&site.clients.list(&[2]));
        site.sealane.wait_for_metrics("all of them are cut", |metrics| {
            metrics.ended("client_revoked") == before + 4
        });
        for client in &mut leaving {
            assert!(client.echo(b"again").is_err());
        }
        for client in &mut standing {
            client.echo(b"again").unwrap();
        }
        drop(standing);
        site.publish(&site.clients.list(&[]));
    }
    let lines = site.logged(16);
    let cut = lines.iter().filter(|line| line["cause"] == "client_revoked");
    assert_eq!(cut.clone().count(), 8);
    for line in cut {
        assert_eq!(line["client_distrust"], "revoked");
        assert_eq!(line["client_subject"], "CN=client 2");
    }
}

#[test]
fn half_a_list_keeps_the_last_good_one() {
    let Some(site) = Site::start("") else { return };
    let revoked = site.connector(&site.clients.issue(7, |_| ()), &TLS13);
    let list = site.clients.list(&[7]);
    site.publish(&list);
    assert_eq!(site.admin("/healthz"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    let (half, _) = list.split_at(list.len() / 2);
    replace(&site.path("crls/root.crl"), half);
    site.sealane
        .wait_for_metrics("the fault", |metrics| metrics.sum("sealane_material_faults", &[]) == 1);
    assert_eq!(site.reloads("refused"), 0);
    let (status, health) = site.admin("/healthz");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(health.starts_with("degraded: a fault in /"), "{health}");
    assert_eq!(alert(&revoked, site.address), AlertDescription::CertificateRevoked);
    let labels = [("listener", "web"), ("issuer", "CN=Clients CA")];
    let ends = site.sealane.metrics().sum("sealane_crl_expires_seconds", &labels);
    assert_eq!(ends, 4_102_444_799, "2099-12-31T23:59:59Z");
    site.publish(&list);
    assert_eq!(site.admin("/healthz").1, "ok\n");
}

#[test]
fn who_came_and_who_did_not_is_in_the_log_and_what_was_asked_in_the_state() {
    let Some(site) = Site::start("names = [\"URI:spiffe://prod/*\"]") else { return };
    site.publish(&site.clients.list(&[3]));
    let named = |serial, uri: &str| {
        let uri = SanType::URI(uri.try_into().unwrap());
        site.clients.issue(serial, |leaf| leaf.subject_alt_names = vec![uri])
    };
    let strangers = ClientAuthority::root(site.folder.path(), "strangers");
    let expired = site.clients.issue(4, |leaf| leaf.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let refused = [
        (named(2, "spiffe://stage/db"), AlertDescription::AccessDenied, "name"),
        (named(3, "spiffe://prod/db"), AlertDescription::CertificateRevoked, "revoked"),
        (expired, AlertDescription::CertificateExpired, "expired"),
        (strangers.issue(5, |_| ()), AlertDescription::UnknownCA, "unknown_ca"),
    ];
    let connect = |shown: &Shown| site.connector(shown, &TLS13);
    let mut admitted = connect(&named(1, "spiffe://prod/db")).connect(site.address).unwrap();
    admitted.echo(b"hello").unwrap();
    admitted.end(true).unwrap();
    admitted.read_rest().unwrap();
    for (shown, expected, _) in &refused {
        assert_eq!(alert(&connect(shown), site.address), *expected);
    }
    let nobody = Connector::new(site.servers.der(), &TLS13);
    assert_eq!(alert(&nobody, site.address), AlertDescription::CertificateRequired);
    // Lines of two lanes may change places.
    let lines = site.logged(6);
    assert!(lines.iter().any(|line| line["client_distrust"] == "missing"), "{lines:?}");
    let of_client = |serial: usize| {
        let subject = format!("CN=client {serial}");
        lines.iter().find(|line| line["client_subject"] == subject).unwrap()
    };
    for (serial, (_, _, why)) in (2..).zip(&refused) {
        assert_eq!(of_client(serial)["client_distrust"], *why);
    }
    let line = of_client(1);
    assert_eq!(line["client_issuer"], "CN=Clients CA");
    assert_eq!(line["client_serial"], "01");
    assert_eq!(line["client_names"], "URI:spiffe://prod/db");
    assert_eq!(line["client_distrust"], Value::Null);
    let state: Value = serde_json::from_str(&site.admin("/state").1).unwrap();
    let clients = &state["listeners"][0]["clients"];
    assert_eq!(clients["certificates"], "required");
    assert_eq!(clients["roots"][0]["source"], site.path("clients.pem").to_str().unwrap());
    assert_eq!(clients["crls"][0]["issuer"], "CN=Clients CA");
    assert_eq!(clients["crls"][0]["next_update"], "2099-12-31T23:59:59.000Z");
}

#[test]
fn who_is_only_asked_is_let_in_and_the_log_says_what_its_certificate_is_worth() {
    let Some(site) = Site::start("") else { return };
    let settings = std::fs::read_to_string(site.path("sealane.toml")).unwrap();
    let before = site.reloads("accepted");
    replace(&site.path("sealane.toml"), &settings.replace("\"required\"", "\"asked\""));
    site.sealane.signal(Signal::HUP);
    site.sealane.wait_for_metrics("the reload", |_| site.reloads("accepted") > before);
    let strangers = ClientAuthority::root(site.folder.path(), "strangers");
    let echo = |connector: Connector| {
        connector.connect(site.address).unwrap().echo(b"hello").unwrap();
    };
    echo(site.connector(&site.clients.issue(1, |_| ()), &TLS13));
    assert_eq!(site.logged(1)[0]["client_distrust"], Value::Null);
    echo(site.connector(&strangers.issue(2, |_| ()), &TLS13));
    let lines = site.logged(2);
    assert_eq!(
        (&lines[1]["client_distrust"], &lines[1]["client_subject"]),
        (&"unknown_ca".into(), &"CN=client 2".into())
    );
    echo(Connector::new(site.servers.der(), &TLS13));
    let lines = site.logged(3);
    assert_eq!(
        (&lines[2]["client_distrust"], &lines[2]["client_subject"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn what_is_wrong_with_roots_and_lists_is_told_with_the_remedy() {
    if required("openssl").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let clients = ClientAuthority::root(at, "Clients CA");
    std::fs::write(at.join("site.pem"), Authority::new().leaf(KeyKind::P256, &NAMES)).unwrap();
    std::fs::write(at.join("clients.pem"), clients.pem()).unwrap();
    std::fs::write(at.join("none.pem"), "nothing\n").unwrap();
    std::fs::write(at.join("ended.pem"), clients.list_until(&[], "20211120000000Z")).unwrap();
    std::fs::write(at.join("older.pem"), clients.list(&[])).unwrap();
    std::fs::write(at.join("list.pem"), clients.list(&[])).unwrap();
    let mut der = Command::new("openssl");
    der.args(["crl", "-outform", "DER", "-in"]).arg(at.join("list.pem"));
    output(der.arg("-out").arg(at.join("list.crl")));
    std::fs::create_dir(at.join("empty")).unwrap();
    std::fs::write(at.join("empty/README"), "lists go here").unwrap();
    let other = ClientAuthority::root(at, "Other CA");
    std::fs::write(at.join("other.pem"), other.list(&[])).unwrap();
    std::fs::write(at.join("constrained.pem"), constrained()).unwrap();
    std::fs::create_dir(at.join("another")).unwrap();
    let stranger = ClientAuthority::root(&at.join("another"), "Clients CA");
    std::fs::write(at.join("strange.pem"), stranger.list(&[])).unwrap();
    for (kind, keys, said) in WRONG {
        let demand = "certificates = \"required\"";
        let text = format!(
            "tickets.root = \"root\"\n[[listener]]\nname = \"web\"\naddress = \"127.0.0.1:1\"\n\
             certificates = [\"site.pem\"]\nbackends = [\"127.0.0.1:1\"]\n\
             [listener.clients]\n{demand}\n{keys}\n"
        );
        std::fs::write(at.join("sealane.toml"), text).unwrap();
        let found = checked(at, kind);
        assert!(found.iter().any(|each| each.contains(said)), "{said}\nis not in\n{found:#?}");
    }
}

/// An authority for some URIs alone.
fn constrained() -> String {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    // permittedSubtrees with one uniformResourceIdentifier.
    let constraints = b"\x30\x0c\xa0\x0a\x30\x08\x86\x06a.test".to_vec();
    let extension = rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 30], constraints);
    params.custom_extensions.push(extension);
    params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
}

/// The keys of a listener that demands certificates, and what is said of them.
const WRONG: [(&str, &str, &str); 13] = [
    (
        "errors",
        "roots = [\"clients.pem\"]\ncrls = [\"list.pem\", \"strange.pem\"]",
        "clients: crls: strange.pem: no certificate in roots has the key that signed its list of \
         \"CN=Clients CA\", so it does not count",
    ),
    (
        "warnings",
        "roots = [\"constrained.pem\"]",
        "clients: roots: constrained.pem: a CA certificate in it has name constraints on URIs, \
         which are not judged here",
    ),
    (
        "warnings",
        "roots = [\"clients.pem\"]\ncrls = [\"list.pem\", \"older.pem\"]",
        "clients: crls: older.pem: it has a list of \"CN=Clients CA\" that a newer one supersedes; \
         remove it",
    ),
    (
        "errors",
        "roots = [\"none.pem\"]",
        "clients: roots: none.pem has no certificate; put the authority's certificate in PEM there",
    ),
    ("errors", "roots = [\"absent.pem\"]", "clients: roots: absent.pem"),
    (
        "errors",
        "roots = [\"system\"]",
        "clients.roots[0]: \"system\" would let in whoever has any web certificate; name the \
         authority of your clients",
    ),
    (
        "errors",
        "roots = [\"clients.pem\"]\ncrls = [\"ended.pem\"]",
        "clients: crls: ended.pem: its list of \"CN=Clients CA\" ended on 2021-11-20; fetch a \
         newer one, or say on_expired_crl = \"accept\"",
    ),
    (
        "warnings",
        "roots = [\"clients.pem\"]\ncrls = [\"ended.pem\"]\non_expired_crl = \"accept\"",
        "clients: crls: ended.pem: its list of \"CN=Clients CA\" ended on 2021-11-20; it counts \
         on: fetch a newer one",
    ),
    (
        "errors",
        "roots = [\"clients.pem\"]\ncrls = [\"list.crl\"]",
        "clients: crls: list.crl is in DER; write it in PEM: openssl crl -inform DER -in list.crl \
         -out FILE.pem",
    ),
    (
        "errors",
        "roots = [\"clients.pem\"]\ncrls = [\"empty\"]",
        "clients: crls: empty has no list (*.crl, *.pem); put those of your authorities there, or \
         remove it from crls if nothing is ever revoked",
    ),
    (
        "errors",
        "roots = [\"clients.pem\"]\ncrls = [\"clients.pem\"]",
        "clients: crls: clients.pem: no revocation list (PEM section X509 CRL) in it: its PEM \
         sections are of other types",
    ),
    (
        "warnings",
        "roots = [\"clients.pem\"]\ncrls = [\"other.pem\"]",
        "clients: crls: none is of \"CN=Clients CA\"; its clients are refused until its list is \
         there",
    ),
    (
        "warnings",
        "roots = [\"clients.pem\"]",
        "clients: whoever has the file of tickets.root can claim to be any of the clients",
    ),
];

/// What a check says under `kind`.
fn checked(at: &Path, kind: &str) -> Vec<String> {
    let mut check = Command::new(BINARY);
    let check = run(check.args(["check", "--json", "--config", "sealane.toml"]).current_dir(at));
    let report: Value = serde_json::from_slice(&check.stdout).unwrap();
    let messages = report[kind].as_array().unwrap().iter().map(|each| &each["message"]);
    messages.map(|message| message.as_str().unwrap().to_owned()).collect()
}

/// What is asked of clients of one name says nothing of another, and two that share a certificate
/// are told of.
#[test]
fn a_route_may_ask_its_clients_for_something_else() {
    let route = "allow_other_names = true\n\
                 [[listener.route]]\nnames = [\"localhost\"]\nalpn_mismatch = \"none\"\n\
                 clients.certificates = \"off\"\n\
                 [[listener.route]]\nnames = [\"localhost\"]\nalpn = [\"h2\"]\n";
    let Some(site) = Site::start(route) else { return };
    let nobody = Connector::new(site.servers.der(), &TLS13).with_own_tickets();
    let mut client = nobody.clone().with_name("localhost").connect(site.address).unwrap();
    client.echo(b"hello").unwrap();
    assert_eq!(alert(&nobody, site.address), AlertDescription::CertificateRequired);
    let told = site.sealane.said().iter().any(|line| {
        line.contains("share a certificate but not their demand for client certificates")
    });
    assert!(told, "{:?}", site.sealane.said());
    let shown = site.clients.issue(7, |_| ());
    let mut admitted = site.connector(&shown, &TLS13).connect(site.address).unwrap();
    admitted.echo(b"hello").unwrap();
    site.publish(&site.clients.list(&[7]));
    let revoked = site.connector(&shown, &TLS13);
    assert_eq!(alert(&revoked, site.address), AlertDescription::CertificateRevoked);
    client.echo(b"still here").unwrap();
}
