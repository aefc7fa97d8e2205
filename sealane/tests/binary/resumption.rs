//! Where tickets resume, with real clients: where their certificate is served, and nowhere else.
//! And what TLS 1.2 must bring along for that.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};
use rustls::{Error, SupportedProtocolVersion};
use tempfile::TempDir;

use crate::harness;
use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind};
use crate::harness::client::Connector;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings, replace};
use crate::harness::tools::{output, required, run_with_input, without_extended_master_secret};

/// Two sites behind listeners of equal policy, each with a backend of its own.
struct Sites {
    addresses: [SocketAddr; 2],
    authority: Authority,
    folder: TempDir,
    sealane: Sealane,
}

impl Sites {
    fn start() -> Self {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let listeners = ["a", "b"].map(|site| {
            let certificates = folder.path().join(site);
            std::fs::create_dir(&certificates).unwrap();
            let leaf = authority.leaf(KeyKind::P256, &[&format!("{site}.test")]);
            std::fs::write(certificates.join(format!("{site}.pem")), leaf).unwrap();
            ListenerSettings::new(site, &certificates, &answers(site).address)
        });
        let addresses = listeners.each_ref().map(|listener| listener.address);
        let sealane = Sealane::start(folder.path(), &Settings::new(listeners.into()));
        Self { addresses, authority, folder, sealane }
    }

    fn client(&self, version: &'static SupportedProtocolVersion, name: &str) -> Connector {
        Connector::new(self.authority.der(), version).with_name(name).with_own_tickets()
    }

    fn reload(&self) {
        let reloads = |metrics: &harness::sealane::Metrics| {
            metrics.sum("sealane_reloads_total", &[("outcome", "accepted")])
        };
        let before = reloads(&self.sealane.metrics());
        self.sealane.signal(Signal::HUP);
        self.sealane.wait_for_metrics("the reload", |metrics| reloads(metrics) > before);
    }
}

/// A backend that says which it is.
fn answers(site: &'static str) -> Backend {
    Backend::start(move |mut stream| {
        // A client that refuses the certificate has left.
        let _ = stream.write_all(site.as_bytes());
    })
}

/// Connects and reads the answer; whether it resumed, and whose answer it was.
fn visit(client: &Connector, address: SocketAddr) -> std::io::Result<(bool, String)> {
    let mut visit = client.connect(address)?;
    let resumed = visit.resumed();
    Ok((resumed, String::from_utf8(visit.read_rest()?).unwrap()))
}

/// Fails unless the client refused the certificate that it was shown.
#[track_caller]
fn must_refuse(visit: std::io::Result<(bool, String)>) {
    let error = visit.expect_err("the client took another's answer");
    let refusal = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    assert!(matches!(refusal, Some(Error::InvalidCertificate(_))), "{error}");
}

#[test]
fn a_ticket_of_one_site_gets_no_answer_of_another() {
    let sites = Sites::start();
    let [a, b] = sites.addresses;
    for version in [&TLS12, &TLS13] {
        let client = sites.client(version, "a.test");
        assert_eq!(visit(&client, a).unwrap(), (false, "a".into()));
        assert_eq!(visit(&client, a).unwrap(), (true, "a".into()), "{version:?}");
        must_refuse(visit(&client, b));
        assert_eq!(visit(&client, a).unwrap().1, "a");
    }
    assert_eq!(sites.sealane.stop(), Some(0));
}

#[test]
fn openssl_gets_a_full_handshake_at_the_other_site() {
    let Some(openssl) = required("openssl") else { return };
    let sites = Sites::start();
    for (option, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let session = sites.folder.path().join(version);
        let s_client = |address: SocketAddr, more: &str| {
            let mut command = Command::new(&openssl);
            command.args(["s_client", option, "-servername", "a.test", "-ign_eof"]);
            command.arg("-connect").arg(address.to_string()).arg(more).arg(&session);
            output(&mut command)
        };
        let [a, b] = sites.addresses;
        let said = s_client(a, "-sess_out");
        assert!(said.contains(&format!("New, {version}")), "{said}");
        let said = s_client(a, "-sess_in");
        assert!(said.contains(&format!("Reused, {version}")), "{said}");
        let said = s_client(b, "-sess_in");
        assert!(said.contains(&format!("New, {version}")), "{said}");
        assert!(said.contains("CN = b.test"), "{said}");
    }
    assert_eq!(sites.sealane.stop(), Some(0));
}

#[test]
fn a_reload_that_removes_or_replaces_a_certificate_ends_its_tickets() {
    let sites = Sites::start();
    let at = sites.addresses[0];
    let folder = sites.folder.path().join("a");
    replace(&folder.join("other.pem"), &sites.authority.leaf(KeyKind::P256, &["other.test"]));
    sites.reload();
    for version in [&TLS12, &TLS13] {
        let [kept, other] = ["a.test", "other.test"].map(|name| sites.client(version, name));
        for client in [&kept, &other] {
            assert_eq!(visit(client, at).unwrap(), (false, "a".into()));
            assert_eq!(visit(client, at).unwrap(), (true, "a".into()), "{version:?}");
        }
        // Now a.test's is the certificate for names that nothing covers.
        std::fs::remove_file(folder.join("other.pem")).unwrap();
        sites.reload();
        must_refuse(visit(&other, at));
        assert_eq!(visit(&kept, at).unwrap(), (true, "a".into()), "{version:?}");
        replace(&folder.join("other.pem"), &sites.authority.leaf(KeyKind::P256, &["other.test"]));
        sites.reload();
        assert_eq!(visit(&other, at).unwrap(), (false, "a".into()), "{version:?}");
        assert_eq!(visit(&other, at).unwrap(), (true, "a".into()), "{version:?}");
    }
    assert_eq!(sites.sealane.stop(), Some(0));
}

#[test]
fn a_store_that_loses_a_certificate_ends_its_tickets_without_a_reload() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    let command = |words: &[&str]| {
        let mut command = Command::new(BINARY);
        command.arg("certificates").args(words).arg("--store").arg(path("store"));
        if words[0] == "import" {
            command.arg("--key-file").arg(path("key"));
        }
        output(&mut command);
    };
    let import = |names: &[&str], more: &[&str]| {
        let file = path("import.pem");
        std::fs::write(&file, authority.leaf(KeyKind::P256, names)).unwrap();
        command(&[&["import", file.to_str().unwrap()], more].concat());
    };
    import(&["*.shop.test"], &["--create"]);
    let store = PathBuf::from(format!("store:{}", path("store").display()));
    let listener = ListenerSettings::new("shop", &store, &answers("shop").address);
    let at = listener.address;
    let mut settings = Settings::new(vec![listener]);
    settings.more = "store_key = { file = \"key\" }".into();
    let sealane = Sealane::start(folder.path(), &settings);
    for version in [&TLS12, &TLS13] {
        let client = Connector::new(authority.der(), version);
        let client = client.with_name("www.shop.test").with_own_tickets();
        import(&["www.shop.test"], &[]);
        assert!(!visit(&client, at).unwrap().0);
        assert!(visit(&client, at).unwrap().0, "{version:?}");
        command(&["remove", "www.shop.test"]);
        assert!(!visit(&client, at).unwrap().0, "{version:?}: the wildcard's is another");
        assert!(visit(&client, at).unwrap().0, "{version:?}");
    }
    assert_eq!(sealane.metrics().sum("sealane_generation", &[]), 1);
    assert_eq!(sealane.stop(), Some(0));
}

/// A machine of its own, with a ticket root that it shares.
fn machine(folder: &Path, site: &'static str, root: &Path, leaf: &str) -> (Sealane, SocketAddr) {
    let folder = folder.join(site);
    std::fs::create_dir(&folder).unwrap();
    let certificate = folder.join("site.pem");
    std::fs::write(&certificate, leaf).unwrap();
    let listener = ListenerSettings::new("site", &certificate, &answers(site).address);
    let address = listener.address;
    let mut settings = Settings::new(vec![listener]);
    settings.more = format!("tickets.root = {root:?}");
    (Sealane::start(&folder, &settings), address)
}

#[test]
fn machines_that_share_a_root_resume_where_they_share_the_certificate() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let root = folder.path().join("root");
    let shared = authority.leaf(KeyKind::P256, &["a.test"]);
    let other = authority.leaf(KeyKind::P256, &["b.test"]);
    let machines = [("first", &shared), ("second", &shared), ("other", &other)];
    let machines = machines.map(|(name, leaf)| machine(folder.path(), name, &root, leaf));
    for version in [&TLS12, &TLS13] {
        let client = Connector::new(authority.der(), version).with_name("a.test");
        let client = client.with_own_tickets();
        assert_eq!(visit(&client, machines[0].1).unwrap(), (false, "first".into()));
        assert_eq!(visit(&client, machines[1].1).unwrap(), (true, "second".into()), "{version:?}");
        must_refuse(visit(&client, machines[2].1));
        assert_eq!(visit(&client, machines[0].1).unwrap().1, "first");
    }
    for (sealane, _) in machines {
        assert_eq!(sealane.stop(), Some(0));
    }
}

#[test]
fn tls12_without_extended_master_secret() {
    let Some(openssl) = required("openssl") else { return };
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let config = without_extended_master_secret(folder.path());
    let leaf = folder.path().join("a.pem");
    std::fs::write(&leaf, authority.leaf(KeyKind::P256, &["a.test"])).unwrap();
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
    let clients =
        |demand| format!("[listener.clients]\ncertificates = \"{demand}\"\nroots = [\"ca.pem\"]\n");
    let listeners = [
        ("served", String::new()),
        ("asked", clients("asked")),
        ("strict", "require_extended_master_secret = true\n".to_owned()),
        ("required", clients("required")),
    ]
    .map(|(name, more)| ListenerSettings::new(name, &leaf, &answers(name).address).with(&more));
    let addresses = listeners.each_ref().map(|listener| listener.address);
    let log = folder.path().join("access.log");
    let more = format!("[access_log]\npath = {log:?}\n");
    let settings = Settings { more, ..Settings::new(listeners.into()) };
    let sealane = Sealane::start(folder.path(), &settings);
    let s_client = |version: &str, address: SocketAddr| {
        let mut command = Command::new(&openssl);
        command.env("OPENSSL_CONF", &config);
        command.args(["s_client", version, "-servername", "a.test", "-reconnect", "-cert"]);
        command.arg(&leaf).arg("-key").arg(&leaf).arg("-connect").arg(address.to_string());
        let said = run_with_input(&mut command, b"");
        String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned()
    };
    let [served, asked, strict, required] = addresses;
    for address in [served, asked] {
        let said = s_client("-tls1_2", address);
        assert!(said.contains("Extended master secret: no"), "{said}");
        assert!(said.contains("New, TLSv1.2") && !said.contains("Reused"), "{said}");
        assert!(said.contains("No client certificate CA names sent"), "{said}");
    }
    for address in [strict, required] {
        let said = s_client("-tls1_2", address);
        assert!(said.contains("alert handshake failure"), "{said}");
    }
    assert!(s_client("-tls1_3", strict).contains("New, TLSv1.3"));
    // A session that had it does not go on without it (RFC 7627 section 5.3). TLS 1.3 needs none.
    let (session, with) = (folder.path().join("session"), Path::new("/dev/null"));
    for (version, option, file, expected) in [
        ("-tls1_2", "-sess_out", with, "New, TLSv1.2"),
        ("-tls1_2", "-sess_in", with, "Reused, TLSv1.2"),
        ("-tls1_2", "-sess_in", config.as_path(), "alert illegal parameter"),
        ("-tls1_3", "-sess_out", config.as_path(), "New, TLSv1.3"),
        ("-tls1_3", "-sess_in", config.as_path(), "Reused, TLSv1.3"),
    ] {
        let mut command = Command::new(&openssl);
        command.env("OPENSSL_CONF", file);
        command.args(["s_client", version, "-servername", "a.test", "-ign_eof", option]);
        command.arg(&session).arg("-connect").arg(served.to_string());
        let said = run_with_input(&mut command, b"");
        let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        assert!(said.contains(expected), "{version} {option}: {said}");
    }
    let metrics = sealane.metrics();
    let counted = "sealane_handshakes_without_extended_master_secret_total";
    let all = metrics.sum("sealane_handshakes_total", &TLS12_LABEL);
    assert_eq!(metrics.sum(counted, &[]), all - 2);
    assert!(metrics.sum(counted, &[]) >= 2);
    assert_eq!(metrics.ended("nothing_in_common"), 2, "{}", metrics.ends());
    assert_eq!(sealane.stop(), Some(0));
    let lines = std::fs::read_to_string(log).unwrap();
    for (version, value) in [("TLSv1.2", "false"), ("TLSv1.2", "true"), ("TLSv1.3", "null")] {
        let fields = format!("\"tls_version\":\"{version}\",\"extended_master_secret\":{value},");
        assert!(lines.contains(&fields), "{fields} {lines}");
    }
}

const TLS12_LABEL: [(&str, &str); 1] = [("version", "TLSv1.2")];
