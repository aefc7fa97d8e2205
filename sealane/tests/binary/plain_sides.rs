//! Listeners whose clients do not begin with TLS: requests that are sent to HTTPS, Redis through
//! client mode, and PostgreSQL with psql.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind};
use crate::harness::client::Connector;
use crate::harness::nginx::Nginx;
use crate::harness::process::Process;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::tools::{output, required, run};
use crate::harness::{PATIENCE, wait_for};

/// Certificates for `a.test` and `b.test` in a folder that others may enter.
struct Site {
    authority: PathBuf,
    certificate: PathBuf,
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        let leaf = authority.leaf(KeyKind::P256, &["a.test", "b.test", "localhost"]);
        std::fs::write(&certificate, leaf).unwrap();
        Self { authority: authority.write(folder.path()), certificate, folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A listener in the clear.
    fn plain(&self, name: &str, backend: &str, keys: &str) -> ListenerSettings {
        let mut settings = ListenerSettings::new(name, &self.certificate, &backend).with(keys);
        settings.certificates = None;
        settings
    }
}

#[test]
fn every_request_is_sent_to_https() {
    let Some(curl) = required("curl") else { return };
    let site = Site::new();
    let nginx = Nginx::start(site.path(), &[100]);
    let https =
        ListenerSettings::new("https", &site.certificate, &format!("127.0.0.1:{}", nginx.http1));
    let mut http = site.plain("http", "", "plain = \"redirect\"");
    http.backends.clear();
    let [port, secure] = [http.address.port(), https.address.port()];
    let sealane = Sealane::start(site.path(), &Settings::new(vec![http, https]));
    let curl = |more: &[&str]| {
        let mut command = Command::new(&curl);
        let resolve = |port| format!("a.test:{port}:127.0.0.1");
        command.args(["--silent", "--show-error", "--cacert"]).arg(&site.authority);
        command.args(["--resolve", &resolve(port), "--resolve", &resolve(secure)]).args(more);
        output(&mut command)
    };
    let url = format!("http://a.test:{port}/100?x=y");
    let body = curl(&[
        "--location",
        "--output",
        "/dev/null",
        "--write-out",
        "%{url_effective} %{size_download}",
        &url,
    ]);
    assert_eq!(body, format!("https://a.test:{secure}/100?x=y 100"));
    let posted =
        curl(&["--data", "some", "--write-out", "%{http_code}", "--output", "/dev/null", &url]);
    assert_eq!(posted, "308", "which keeps the method");
    sealane.wait_for_metrics("both are redirected", |metrics| metrics.ended("redirected") == 2);
    assert_eq!(sealane.stop(), Some(0));
}

/// Client mode: a client that knows no TLS reaches a server that speaks nothing else.
#[test]
fn redis_is_reached_in_tls_by_a_client_without_it() {
    let (Some(server), Some(cli)) = (required("redis-server"), required("redis-cli")) else {
        return;
    };
    let site = Site::new();
    let port = ReservedPort::on_loopback().unwrap();
    let number = port.address().port().to_string();
    let file = |path: &Path| path.to_str().unwrap().to_owned();
    let child = Command::new(server)
        .args(["--port", "0", "--tls-port", &number, "--save", "", "--dir", &file(site.path())])
        .args(["--tls-cert-file", &file(&site.certificate)])
        .args(["--tls-key-file", &file(&site.certificate)])
        .args(["--tls-ca-cert-file", &file(&site.authority), "--tls-auth-clients", "no"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _redis = Process::new(child);
    wait_for("Redis listens", || TcpStream::connect(port.address()).ok());
    let keys = format!(
        "plain = \"relay\"\nbackend_tls = {{ roots = [{:?}], server_name = \"a.test\" }}",
        site.authority
    );
    let listener = site.plain("redis", &format!("tls://127.0.0.1:{number}"), &keys);
    let here = listener.address.port().to_string();
    let sealane = Sealane::start(site.path(), &Settings::new(vec![listener]));
    let told = output(Command::new(&cli).args(["-p", &here, "set", "name", "value"]));
    assert_eq!(told, "OK\n");
    assert_eq!(output(Command::new(&cli).args(["-p", &here, "get", "name"])), "value\n");
    // Redis closes without close_notify, and is said to.
    sealane.wait_for_metrics("both have ended", |metrics| metrics.open() == 0);
    assert_eq!(sealane.stop(), Some(0));
}

/// A PostgreSQL server with a name of its own, in the clear or in TLS.
struct Postgres {
    port: ReservedPort,
    _process: Process,
}

/// Where Debian has the server's programs.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

impl Postgres {
    fn start(site: &Site, name: &str, tls: bool) -> Self {
        let folder = site.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let data = folder.join("data");
        let user = user();
        chown(&folder, user, None).unwrap();
        let command = |program: &str| {
            let mut command = Command::new(Path::new(PROGRAMS).join(program));
            command.current_dir(&folder).arg("-D").arg(&data);
            if let Some(user) = user {
                command.uid(user);
            }
            command
        };
        let options = ["-A", "trust", "-U", "postgres", "--no-locale", "-E", "UTF8", "--no-sync"];
        output(command("initdb").args(options));
        let key = data.join("key.pem");
        std::fs::copy(&site.certificate, &key).unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        chown(&key, user, None).unwrap();
        let port = ReservedPort::on_loopback().unwrap();
        let child = command("postgres")
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
            .args(["-c", &format!("port={}", port.address().port())])
            .args(["-c", &format!("cluster_name={name}"), "-c", "fsync=off"])
            .args(["-c", &format!("ssl={}", if tls { "on" } else { "off" })])
            .args(["-c", "ssl_cert_file=key.pem", "-c", "ssl_key_file=key.pem"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let process = Process::new(child);
        wait_for("PostgreSQL listens", || TcpStream::connect(port.address()).ok());
        Self { port, _process: process }
    }
}

/// Whom the server runs as, which refuses to be root; none if nobody else can be.
fn user() -> Option<u32> {
    let is_root = rustix::process::geteuid().is_root();
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.starts_with("postgres:")).filter(|_| is_root)?;
    line.split(':').nth(2).and_then(|id| id.parse().ok())
}

#[test]
fn psql_reaches_the_server_of_its_name_and_verifies_it() {
    if required("psql").is_none() || !Path::new(PROGRAMS).join("initdb").exists() {
        assert!(std::env::var_os("CI").is_none(), "postgresql-15 is missing");
        return;
    }
    let site = Site::new();
    let [a, b, sealed] = [("a", false), ("b", false), ("sealed", true)]
        .map(|(name, tls)| Postgres::start(&site, name, tls));
    let address = |server: &Postgres| server.port.address().to_string();
    let keys = format!(
        "starttls = \"postgres\"\n\
         [[listener.route]]\nnames = [\"b.test\"]\nbackends = [\"{}\"]\n\
         [[listener.route]]\nnames = [\"localhost\"]\nbackends = [\"tls://{}\"]\n\
         backend_tls = {{ roots = [{:?}], server_name = \"a.test\" }}\n",
        address(&b),
        address(&sealed),
        site.authority
    );
    let listener = ListenerSettings::new("db", &site.certificate, &address(&a)).with(&keys);
    let port = listener.address.port();
    let sealane = Sealane::start(site.path(), &Settings::new(vec![listener]));
    let psql = |name: &str, mode: &str| {
        let target = format!(
            "host={name} hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres \
             sslmode={mode} sslrootcert={}",
            site.authority.display()
        );
        run(Command::new("psql")
            .arg(target)
            .args(["-Atc", "select current_setting('cluster_name')"]))
    };
    for (name, expected) in [("a.test", "a\n"), ("b.test", "b\n"), ("localhost", "sealed\n")] {
        let told = psql(name, "verify-full");
        let error = String::from_utf8_lossy(&told.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&told.stdout), expected, "{name}: {error}");
    }
    for name in ["a.test", "b.test", "localhost"] {
        must_cancel(&format!(
            "host={name} hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres \
             sslmode=require"
        ));
    }
    let refused = psql("a.test", "disable");
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("SSL required"), "{error}");
    sealane.wait_for_metrics("its end", |metrics| metrics.ended("not_tls") == 1);
    assert_eq!(sealane.stop(), Some(0));
}

/// Each request costs a connection to each backend, and a client needs no certificate to send one.
#[test]
fn cancel_requests_of_a_second_are_bounded() {
    let site = Site::new();
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = backend.local_addr().unwrap();
    let authority = Authority::new();
    std::fs::write(&site.certificate, authority.leaf(KeyKind::P256, &["a.test"])).unwrap();
    let listener =
        ListenerSettings::new("db", &site.certificate, &address).with("starttls = \"postgres\"");
    let to = listener.address;
    let settings = Settings { lanes: 1, ..Settings::new(vec![listener]) };
    let sealane = Sealane::start(site.path(), &settings);
    let forwarded = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&forwarded);
    std::thread::spawn(move || {
        for stream in backend.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), [0; 16]);
            if stream.read_exact(&mut request).is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all(b"for no client");
            }
        }
    });
    let request = CANCEL_REQUEST;
    let connector = Connector::new(authority.der(), &TLS13).with_name("a.test");
    let in_the_clear = || {
        let mut client = TcpStream::connect(to).unwrap();
        client.write_all(request).unwrap();
        let mut told = Vec::new();
        client.read_to_end(&mut told).unwrap();
        assert!(told.is_empty());
    };
    let in_tls = || {
        let mut client = connector.connect(to).unwrap();
        client.write_all(request).unwrap();
        assert!(client.read_rest().unwrap().is_empty());
    };
    for send in [&in_the_clear as &dyn Fn(), &in_tls] {
        let (began, before) = (Instant::now(), forwarded.load(Ordering::Relaxed));
        (0..200).for_each(|_| send());
        let forwarded = forwarded.load(Ordering::Relaxed) - before;
        // The seconds of the lane's clock that these requests were in.
        let seconds = began.elapsed().as_secs() + 2;
        assert!(forwarded <= 20 * seconds, "{forwarded} in {seconds} s");
    }
    assert!(forwarded.load(Ordering::Relaxed) > 0);
    assert_eq!(sealane.stop(), Some(0));
}

/// A backend that counts requests to cancel a query, answers each, and keeps its connection if it
/// `stays`.
fn cancelled(stays: bool) -> (SocketAddr, Arc<AtomicU64>) {
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, count) = (backend.local_addr().unwrap(), Arc::<AtomicU64>::default());
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in backend.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), [0; 16]);
            stream.read_exact(&mut request).unwrap();
            assert_eq!(&request, CANCEL_REQUEST);
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(b"for no client");
            kept.extend(Some(stream).filter(|_| stays));
        }
    });
    (address, count)
}

/// For process 0x726f636b with the secret `ey!!`.
const CANCEL_REQUEST: &[u8; 16] = b"\0\0\0\x10\x04\xd2\x16\x2erockey!!";

#[test]
fn cancel_in_tls_reaches_backends_of_its_name() {
    let site = Site::new();
    let authority = Authority::new();
    std::fs::write(&site.certificate, authority.leaf(KeyKind::P256, &["a.test"])).unwrap();
    let [(own, of_own), (other, of_other)] = [cancelled(false), cancelled(false)];
    let keys = format!(
        "starttls = \"postgres\"\n\
         [[listener.route]]\nnames = [\"b.test\"]\nbackends = [\"{other}\"]\n"
    );
    let listener = ListenerSettings::new("db", &site.certificate, &own).with(&keys);
    let to = listener.address;
    let sealane = Sealane::start(site.path(), &Settings::new(vec![listener]));
    let counts = || [&of_own, &of_other].map(|count| count.load(Ordering::Relaxed));
    let connector = Connector::new(authority.der(), &TLS13).with_name("a.test");
    let mut client = connector.connect(to).unwrap();
    client.write_all(CANCEL_REQUEST).unwrap();
    assert!(client.read_rest().unwrap().is_empty());
    assert_eq!(counts(), [1, 0]);
    let mut client = TcpStream::connect(to).unwrap();
    client.write_all(CANCEL_REQUEST).unwrap();
    assert_eq!(client.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert_eq!(counts(), [2, 1]);
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn backend_that_stays_holds_up_no_cancel_request() {
    let site = Site::new();
    let [(one, of_one), (two, of_two)] = [cancelled(true), cancelled(true)];
    let mut listener =
        ListenerSettings::new("db", &site.certificate, &one).with("starttls = \"postgres\"");
    listener.backends.push(two.to_string());
    let to = listener.address;
    let limits = "connect_timeout = \"100ms\"".to_owned();
    let settings = Settings { limits, ..Settings::new(vec![listener]) };
    let sealane = Sealane::start(site.path(), &settings);
    let mut client = TcpStream::connect(to).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(CANCEL_REQUEST).unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert_eq!(String::from_utf8_lossy(&received), "");
    assert_eq!([of_one, of_two].map(|count| count.load(Ordering::Relaxed)), [1, 1]);
    assert_eq!(sealane.stop(), Some(0));
}

/// A query that psql cancels at an interrupt, as it does in the clear.
fn must_cancel(target: &str) {
    let psql = |query: &str| {
        let mut command = Command::new("psql");
        command.args([target, "-Atc", query]).stdin(Stdio::null());
        command
    };
    let mut sleeping = psql("select pg_sleep(600)");
    let child = sleeping.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let count = "select count(*) from pg_stat_activity \
                 where state = 'active' and query = 'select pg_sleep(600)'";
    wait_for("the query runs", || (output(&mut psql(count)) == "1\n").then_some(()));
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let error = child.wait_with_output().unwrap().stderr;
    let error = String::from_utf8_lossy(&error);
    assert!(error.contains("canceling statement due to user request"), "{error}");
}

/// What does not say that it wants TLS gets no byte of a backend, whatever it says.
#[test]
fn a_listener_in_the_clear_says_what_it_needs() {
    let site = Site::new();
    let backend = Backend::echo().address.to_string();
    for (keys, backend, expected) in [
        ("plain = \"relay\"", &*backend, "relays plain bytes to plain backends; write \"tls://"),
        ("plain = \"redirect\"\nversions = [\"1.3\"]", "", "versions: means nothing where clients"),
        ("plain = \"redirect\"", &*backend, "means nothing where every request is sent elsewhere"),
        (
            "starttls = \"postgres\"\nproxy_header = \"v2\"",
            &*backend,
            "starttls: PostgreSQL does not read PROXY headers; remove proxy_header",
        ),
        ("plain = \"relay\"\nstarttls = \"postgres\"", &*backend, "no TLS follows"),
    ] {
        let mut listener = site.plain("plain", backend, keys);
        if backend.is_empty() {
            listener.backends.clear();
        }
        Settings::new(vec![listener]).write(site.path());
        let check = Command::new(crate::harness::sealane::BINARY)
            .args(["check", "--config"])
            .arg(site.path().join("sealane.toml"))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&check.stdout).into_owned();
        assert!(told.contains(expected), "{keys}: {expected} is not in\n{told}");
    }
}
