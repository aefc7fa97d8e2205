//! TLS to backends, against nginx, OpenSSL and servers of the test's own.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use rustix::process::Signal;
use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::{Client, Connector};
use crate::harness::process::Process;
use crate::harness::sealane::{BINARY, ListenerSettings, Metrics, Sealane, Settings, replace};
use crate::harness::secured::{SecuredBackend, finish};
use crate::harness::secured_nginx::SecuredNginx;
use crate::harness::tools::{self, required, without_extended_master_secret};
use crate::harness::{PATIENCE, noise, sha256, wait_for};

/// Who signs what backends show.
fn inner() -> Authority {
    Authority::named("Authority of the backends")
}

/// One lane before backends that speak TLS.
struct Site {
    sealane: Sealane,
    settings: Settings,
    authority: Authority,
    folder: TempDir,
}

impl Site {
    /// `table` is what [listener.backend_tls] says; `ca.pem` holds `roots`.
    fn start(backend: &str, roots: &Authority, table: &str) -> Self {
        Self::with(backend, roots, "", table)
    }

    fn with(backend: &str, roots: &Authority, lines: &str, table: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        roots.write(folder.path());
        let listener = ListenerSettings::new("site", &certificate, &backend)
            .with(&format!("{lines}\n[listener.backend_tls]\n{table}"));
        let mut settings = Settings::new(vec![listener]);
        settings.lanes = 1;
        let sealane = Sealane::start(folder.path(), &settings);
        Self { sealane, settings, authority, folder }
    }

    fn connect(&self) -> Client {
        let connector = Connector::new(self.authority.der(), &TLS13).with_own_tickets();
        connector.connect(self.settings.listeners[0].address).unwrap()
    }

    /// Sends `request` and its end, and reads to the clean end.
    fn exchange(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut client = self.connect();
        client.write_all(request)?;
        client.flush()?;
        client.end(true)?;
        client.read_rest()
    }

    /// What a GET of `path` answers.
    fn fetch(&self, path: &str) -> Vec<u8> {
        let mut client = self.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        client.flush().unwrap();
        let answer = client.read_rest().unwrap();
        let head = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        answer[head + 4..].to_vec()
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8(self.fetch(path)).unwrap()
    }

    fn write(&self, file: &str, text: &str) {
        replace(&self.folder.path().join(file), text);
    }

    /// Reloads by signal and returns whether the change was accepted.
    fn reload(&self) -> bool {
        let count = |m: &Metrics, outcome| m.sum("sealane_reloads_total", &[("outcome", outcome)]);
        let before = self.sealane.metrics();
        self.sealane.signal(Signal::HUP);
        let after = self.sealane.wait_for_metrics("the reload", |m| {
            m.sum("sealane_reloads_total", &[]) > before.sum("sealane_reloads_total", &[])
        });
        let is_accepted = count(&after, "accepted") > count(&before, "accepted");
        if is_accepted {
            self.sealane.wait_until_lanes_serve();
        }
        is_accepted
    }
}

/// Completed handshakes with backends: full, and resumed.
fn handshakes(metrics: &Metrics) -> (u64, u64) {
    let count = |resumed| metrics.sum("sealane_backend_handshakes_total", &[("resumed", resumed)]);
    (count("false"), count("true"))
}

fn failed(metrics: &Metrics, cause: &str) -> u64 {
    metrics.sum("sealane_backend_handshakes_failed_total", &[("cause", cause)])
}

#[test]
fn nginx_is_verified_and_lanes_resume_its_sessions() {
    for (written, version) in [("TLSv1.2", "1.2"), ("TLSv1.3", "1.3")] {
        let (folder, inner) = (tempfile::tempdir().unwrap(), inner());
        let Some(nginx) = SecuredNginx::start(folder.path(), &inner, written, "") else { return };
        let table = "roots = [\"ca.pem\"]\nserver_name = \"sealane.test\"\nalpn = [\"http/1.1\"]";
        let site = Site::start(&nginx.written(), &inner, table);
        assert_eq!(site.text("/facts"), format!("{written} http/1.1 sealane.test"));
        let reused: Vec<_> = (0..10).map(|_| site.text("/reused")).collect();
        assert!(reused.iter().all(|each| each == "r"), "{version}: {reused:?}");
        assert_eq!(handshakes(&site.sealane.metrics()), (1, 10), "{version}");
        assert_eq!(sha256(&site.fetch("/large")), sha256(&noise(1_000_000, 3)));
        // What does not touch TLS to backends leaves their sessions alone.
        assert!(site.reload());
        assert_eq!(site.text("/reused"), "r");
    }
}

#[test]
fn nginx_demands_a_certificate_and_gets_it() {
    let (folder, inner) = (tempfile::tempdir().unwrap(), inner());
    let more = "ssl_verify_client on; ssl_client_certificate FOLDER/ca.pem;"
        .replace("FOLDER", folder.path().to_str().unwrap());
    let Some(nginx) = SecuredNginx::start(folder.path(), &inner, "TLSv1.3", &more) else { return };
    let table = "roots = [\"ca.pem\"]\nclient_certificate = \"client.pem\"";
    let client = inner.leaf_with(KeyKind::P256, &["lane.test"], for_clients);
    let path = folder.path().join("client.pem");
    std::fs::write(&path, client).unwrap();
    let table = table.replace("client.pem", path.to_str().unwrap());
    let site = Site::start(&nginx.written(), &inner, &table);
    assert_eq!(site.text("/client"), "SUCCESS CN=lane.test");
    let expires = site.sealane.metrics();
    let metric = "sealane_backend_certificate_not_after_seconds";
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let days = (expires.sum(metric, &[("usage", "client")]) - now) / 86_400;
    assert!((88..=90).contains(&days), "{days}");
    assert!(expires.sum(metric, &[("usage", "root")]) > now);
}

fn for_clients(params: &mut rcgen::CertificateParams) {
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
}

/// openssl with a page about each connection; `place` says where it accepts.
fn openssl(folder: &TempDir, inner: &Authority, place: [&str; 2]) -> Option<Process> {
    openssl_with(folder, inner, &place, Path::new("/dev/null"))
}

/// The same with further arguments and a configuration file.
fn openssl_with(
    folder: &TempDir,
    inner: &Authority,
    place: &[&str],
    config: &Path,
) -> Option<Process> {
    let openssl = required("openssl")?;
    let leaf = folder.path().join("leaf.pem");
    std::fs::write(&leaf, inner.leaf(KeyKind::Rsa2048, &NAMES)).unwrap();
    let child = Command::new(openssl)
        .env("OPENSSL_CONF", config)
        .args(["s_server", "-www", "-quiet"])
        .args(place)
        .arg("-cert")
        .arg(&leaf)
        .arg("-key")
        .arg(&leaf)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Some(Process::new(child))
}

#[test]
fn openssl_sees_its_sessions_resumed() {
    let (folder, inner) = (tempfile::tempdir().unwrap(), inner());
    let reserved = ReservedPort::on_loopback().unwrap();
    let address = reserved.address().to_string();
    let Some(_process) = openssl(&folder, &inner, ["-accept", &address]) else { return };
    wait_for("s_server listens", || TcpStream::connect(&address).ok());
    let site = Site::start(&format!("tls://{address}"), &inner, "roots = [\"ca.pem\"]");
    let page = || String::from_utf8_lossy(&site.fetch("/")).into_owned();
    assert!(page().contains("New, TLSv1.3"));
    assert!(page().contains("Reused, TLSv1.3"));
    assert_eq!(handshakes(&site.sealane.metrics()), (1, 1));
}

/// A session is not resumed if its master secret is not bound to its handshake.
#[test]
fn backend_without_extended_master_secret() {
    let (folder, inner) = (tempfile::tempdir().unwrap(), inner());
    let config = without_extended_master_secret(folder.path());
    let reserved = ReservedPort::on_loopback().unwrap();
    let address = reserved.address().to_string();
    let place = ["-tls1_2", "-accept", &address];
    let Some(_process) = openssl_with(&folder, &inner, &place, &config) else { return };
    wait_for("s_server listens", || TcpStream::connect(&address).ok());
    let backend = format!("tls://{address}");
    let site = Site::start(&backend, &inner, "roots = [\"ca.pem\"]");
    for _ in 0..2 {
        let page = String::from_utf8_lossy(&site.fetch("/")).into_owned();
        assert!(page.contains("New, TLSv1.2"), "{page}");
    }
    assert_eq!(handshakes(&site.sealane.metrics()), (2, 0));
    let client = folder.path().join("client.pem");
    std::fs::write(&client, inner.leaf_with(KeyKind::P256, &["lane.test"], for_clients)).unwrap();
    // A certificate is shown only where nothing but this connection can use the proof.
    for more in
        ["require_extended_master_secret = true", &format!("client_certificate = {client:?}")]
    {
        let site = Site::start(&backend, &inner, &format!("roots = [\"ca.pem\"]\n{more}"));
        site.exchange(b"GET / HTTP/1.0\r\n\r\n").unwrap_err();
        assert_eq!(handshakes(&site.sealane.metrics()), (0, 0), "{more}");
    }
}

#[test]
fn a_unix_socket_proves_the_name_that_is_given() {
    let (folder, inner) = (tempfile::tempdir().unwrap(), inner());
    let path = folder.path().join("socket");
    let written = path.to_str().unwrap();
    let Some(_process) = openssl(&folder, &inner, ["-unix", written]) else { return };
    wait_for("s_server listens", || path.exists().then_some(()));
    for (name, fetched) in [("sealane.test", true), ("other.test", false)] {
        let table = format!("roots = [\"ca.pem\"]\nserver_name = \"{name}\"");
        let site = Site::start(&format!("tls://unix:{written}"), &inner, &table);
        let answer = site.exchange(b"GET / HTTP/1.0\r\n\r\n");
        assert_eq!(
            answer.is_ok_and(|page| page.starts_with(b"HTTP/1.0 200 ok")),
            fetched,
            "{name}"
        );
        let refused = failed(&site.sealane.metrics(), "backend_certificate_name");
        assert_eq!(refused, u64::from(!fetched), "{name}");
    }
}

#[test]
fn large_streams_pass_whole_and_each_direction_ends_by_itself() {
    let inner = inner();
    // It answers when it has all, and ends its direction first in the second half.
    let (sender, got) = mpsc::channel();
    let backend = SecuredBackend::start(&inner.leaf(KeyKind::P256, &NAMES), None, move |shaken| {
        let mut secured = shaken.unwrap();
        let mut first = [0; 1];
        secured.read_exact(&mut first).unwrap();
        if first == *b"s" {
            secured.write_all(&noise(700_000, 1)).unwrap();
            finish(&mut secured).unwrap();
        }
        let mut rest = Vec::new();
        secured.read_to_end(&mut rest).unwrap();
        if first == *b"l" {
            secured.write_all(&noise(700_000, 1)).unwrap();
            finish(&mut secured).unwrap();
        }
        sender.send(sha256(&rest)).unwrap();
    });
    let site = Site::start(&backend.written(), &inner, "roots = [\"ca.pem\"]");
    let body = noise(900_000, 2);
    let request = [b"l", &body[..]].concat();
    assert_eq!(sha256(&site.exchange(&request).unwrap()), sha256(&noise(700_000, 1)));
    assert_eq!(got.recv_timeout(PATIENCE).unwrap(), sha256(&body));
    let mut client = site.connect();
    client.write_all(b"s").unwrap();
    assert_eq!(sha256(&client.read_rest().unwrap()), sha256(&noise(700_000, 1)));
    client.write_all(&body).unwrap();
    client.end(true).unwrap();
    assert_eq!(got.recv_timeout(PATIENCE).unwrap(), sha256(&body));
    site.sealane.wait_for_metrics("two clean ends", |m| m.ended("clean") == 2);
}

#[test]
fn a_backend_that_cannot_prove_its_name_gets_nothing() {
    let (inner, other) = (inner(), Authority::named("Somebody"));
    let yesterday = |params: &mut rcgen::CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    };
    for (leaf, cause) in [
        (other.leaf(KeyKind::P256, &NAMES), "backend_certificate_untrusted"),
        (inner.leaf(KeyKind::P256, &["other.test"]), "backend_certificate_name"),
        (inner.leaf_with(KeyKind::P256, &NAMES, yesterday), "backend_certificate_expired"),
    ] {
        let (sender, shaken) = mpsc::channel();
        let backend = SecuredBackend::start(&leaf, None, move |result| {
            let _ = sender.send(result.map(drop).map_err(|error| error.to_string()));
        });
        let site = Site::start(&backend.written(), &inner, "roots = [\"ca.pem\"]");
        assert!(site.exchange(b"secret").is_err(), "{cause}");
        let heard = shaken.recv_timeout(PATIENCE).unwrap().unwrap_err();
        assert!(heard.contains("received fatal alert"), "{cause}: {heard}");
        let metrics = site.sealane.wait_for_metrics(cause, |m| m.ended(cause) == 1);
        assert_eq!((failed(&metrics, cause), handshakes(&metrics)), (1, (0, 0)), "{cause}");
        assert_eq!(metrics.sum("sealane_backend_failed_total", &[]), 1);

        let site =
            Site::start(&backend.written(), &inner, "insecure_accept_any_certificate = true");
        assert_eq!(
            site.sealane.count_said("WARN  control: listener site: backend_tls: insecure"),
            1
        );
        let _ = site.exchange(b"anything");
        assert_eq!(shaken.recv_timeout(PATIENCE).unwrap(), Ok(()), "{cause}");
    }
}

#[test]
fn a_wrong_backend_is_passed_over_and_named() {
    let inner = inner();
    let wrong = SecuredBackend::echo(&inner.leaf(KeyKind::P256, &["other.test"]), None);
    let right = SecuredBackend::echo(&inner.leaf(KeyKind::P256, &NAMES), None);
    let mut site = Site::start(&right.written(), &inner, "roots = [\"ca.pem\"]");
    site.settings.listeners[0].backends = vec![wrong.written(), right.written()];
    site.settings.write(site.folder.path());
    assert!(site.reload());
    for _ in 0..4 {
        assert_eq!(site.exchange(b"hello").unwrap(), b"hello");
    }
    let metrics = site.sealane.wait_for_metrics("the ends", |m| m.ended("clean") == 4);
    let cause = [("cause", "backend_certificate_name"), ("backend", &wrong.written())];
    assert_eq!(metrics.sum("sealane_backend_handshakes_failed_total", &cause), 1, "then it rests");
}

#[test]
fn a_backend_that_refuses_us_is_told_apart_from_one_that_dies() {
    let inner = inner();
    let backend =
        SecuredBackend::echo(&inner.leaf(KeyKind::P256, &NAMES), Some(&Authority::named("Nobody")));
    let site = Site::start(&backend.written(), &inner, "roots = [\"ca.pem\"]");
    assert!(site.exchange(b"hello").is_err());
    let metrics =
        site.sealane.wait_for_metrics("the refusal", |m| m.ended("backend_handshake_failed") == 1);
    assert_eq!(failed(&metrics, "backend_handshake_failed"), 1);
}

#[test]
fn the_proxy_header_goes_before_tls_in_the_clear() {
    let inner = inner();
    let (sender, headers) = mpsc::channel();
    let backend = SecuredBackend::behind(
        &inner.leaf(KeyKind::P256, &NAMES),
        None,
        move |stream| {
            let mut header = [0; 16];
            stream.read_exact(&mut header)?;
            let mut rest = vec![0; usize::from(u16::from_be_bytes([header[14], header[15]]))];
            stream.read_exact(&mut rest)?;
            sender.send((header, rest)).map_err(io::Error::other)
        },
        |shaken| {
            let mut secured = shaken.unwrap();
            let mut got = Vec::new();
            secured.read_to_end(&mut got).unwrap();
            secured.write_all(&got).unwrap();
            finish(&mut secured).unwrap();
        },
    );
    let table = "roots = [\"ca.pem\"]";
    let site = Site::with(&backend.written(), &inner, "proxy_header = true", table);
    for body in [&b""[..], &noise(200_000, 9)] {
        assert!(site.exchange(body).unwrap() == body, "{} bytes", body.len());
        let (header, rest) = headers.recv_timeout(PATIENCE).unwrap();
        assert!(header.starts_with(b"\r\n\r\n\0\r\nQUIT\n"));
        assert!(rest.windows(7).any(|window| window == b"TLSv1.3"));
    }
}

/// How often the authority changes while clients connect without a pause.
const ROTATIONS: usize = 6;

#[test]
fn authorities_and_certificates_change_under_load() {
    let (old, new) = (inner(), Authority::named("The next authority"));
    let backend = SecuredBackend::echo(&old.leaf(KeyKind::P256, &NAMES), None);
    let site = Site::start(&backend.written(), &old, "roots = [\"ca.pem\"]");
    let mut kept = site.connect();
    kept.echo(b"before").unwrap();
    let (over, made, failures) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for seed in 0..3 {
            let (site, over, made, failures) = (&site, &over, &made, &failures);
            scope.spawn(move || {
                let body = noise(5_000, seed);
                while !over.load(Ordering::Relaxed) {
                    let outcome = site.exchange(&body);
                    if !outcome.as_ref().is_ok_and(|back| *back == body) {
                        println!("{:?}", outcome.map(|back| back.len()));
                        failures.fetch_add(1, Ordering::Relaxed);
                    }
                    made.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let progress = || {
            let target = made.load(Ordering::Relaxed) + 20;
            wait_for("connections", || (made.load(Ordering::Relaxed) >= target).then_some(()));
        };
        for turn in 0..ROTATIONS {
            let (from, to) = if turn.is_multiple_of(2) { (&old, &new) } else { (&new, &old) };
            site.write("ca.pem", &format!("{}{}", from.pem(), to.pem()));
            assert!(site.reload());
            progress();
            backend.show(&to.leaf(KeyKind::P256, &NAMES));
            progress();
            site.write("ca.pem", &to.pem());
            assert!(site.reload());
            progress();
            // A bad change changes nothing.
            site.write("ca.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
            assert!(site.reload());
            assert_eq!(site.sealane.metrics().sum("sealane_material_faults", &[]), 1);
            progress();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(failures.into_inner(), 0, "of {}", made.into_inner());
    kept.echo(b"after").unwrap();
    let said = site.sealane.said().join("\n");
    assert!(said.contains("listener site: backend_tls: roots: "), "{said}");
    // Now nobody believes the authority that the backend's certificate is from.
    site.write("ca.pem", &new.pem());
    assert!(site.reload());
    backend.show(&old.leaf(KeyKind::P256, &NAMES));
    assert!(site.exchange(b"secret").is_err());
    kept.echo(b"still").unwrap();
}

#[test]
fn a_changed_file_is_noticed_without_a_signal() {
    let (old, new) = (inner(), Authority::named("The next authority"));
    let backend = SecuredBackend::echo(&new.leaf(KeyKind::P256, &NAMES), None);
    let site = Site::start(&backend.written(), &old, "roots = [\"ca.pem\"]");
    assert!(site.exchange(b"hello").is_err());
    site.write("ca.pem", &new.pem());
    site.sealane.wait_for_metrics("the reload", |m| {
        m.sum("sealane_reloads_total", &[("outcome", "accepted")]) == 1
    });
    assert_eq!(site.exchange(b"hello").unwrap(), b"hello");
}

#[test]
fn equal_options_of_two_listeners_share_their_sessions() {
    let inner = inner();
    let backend = SecuredBackend::echo(&inner.leaf(KeyKind::P256, &NAMES), None);
    let mut site = Site::start(&backend.written(), &inner, "roots = [\"ca.pem\"]");
    let mut second = site.settings.listeners[0].clone();
    second.name = "second".into();
    second.move_to(Ipv4Addr::LOCALHOST.into());
    site.settings.listeners.push(second);
    site.settings.write(site.folder.path());
    assert!(site.reload());
    for _ in 0..2 {
        assert_eq!(site.exchange(b"hello").unwrap(), b"hello");
        site.settings.listeners.swap(0, 1);
    }
    assert_eq!(handshakes(&site.sealane.metrics()), (1, 1));
}

#[test]
fn check_finds_what_would_keep_backends_from_being_reached() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("site.pem", &authority.leaf(KeyKind::P256, &NAMES));
    write("empty.pem", "nothing");
    write("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(3 * 86_400 + 3_600);
    let leaf = authority.leaf_with(KeyKind::P256, &["lane.test"], |params| {
        for_clients(params);
        params.not_after = soon.into();
    });
    write("client.pem", &leaf);
    let listener = |port: u16, table: &str| {
        format!(
            "[[listener]]\naddress = \"127.0.0.1:{port}\"\ncertificates = [\"site.pem\"]\n\
             backends = [\"tls://127.0.0.1:1\"]\n[listener.backend_tls]\n{table}\n"
        )
    };
    let check = |text: &str| {
        write("sealane.toml", text);
        let mut command = Command::new(PathBuf::from(BINARY));
        command.args(["check", "--config"]).arg(folder.path().join("sealane.toml"));
        let output = tools::run(&mut command);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let wrong = listener(1, "roots = [\"empty.pem\", \"bad.pem\", \"absent.pem\"]")
        + &listener(2, "client_certificate = \"bad.pem\"");
    let (code, said) = check(&wrong);
    assert_eq!(code, Some(3), "{said}");
    for part in ["empty.pem: no certificate in it", "bad.pem: ", "absent.pem: cannot be read"] {
        assert!(said.contains("listener 127.0.0.1:1: backend_tls: "), "{said}");
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.contains("listener 127.0.0.1:2: backend_tls: client certificate: "), "{said}");
    let odd = "insecure_accept_any_certificate = true\nclient_certificate = \"client.pem\"";
    let (code, said) = check(&listener(1, odd));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("backend_tls: insecure_accept_any_certificate: whoever"), "{said}");
    assert!(said.contains("client.pem: expires in 3 days; renew it"), "{said}");
}
