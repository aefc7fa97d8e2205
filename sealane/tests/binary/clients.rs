//! Real clients through the real binary to a real nginx: HTTP/1.1 and HTTP/2, TLS 1.2 and 1.3,
//! every kind of key, resumption on another lane, with certificates verified and bytes hashed.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::harness;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::nginx::Nginx;
use crate::harness::process::Process;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::tools::{
    client_source, go_run, output, output_with_input, required, run, truststore,
};
use crate::harness::wait_for;

/// Sealane in front of nginx, with a listener for each protocol: a terminator does not look into
/// the plaintext, so each protocol has a port of nginx, and what a client may choose by ALPN
/// follows from that.
struct Site {
    sealane: Sealane,
    nginx: Nginx,
    http1: String,
    http2: String,
    /// The certificate that clients trust.
    authority: PathBuf,
    folder: TempDir,
}

impl Site {
    fn start(keys: &[KeyKind], sizes: &[usize]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let nginx = Nginx::start(folder.path(), sizes);
        let authority = Authority::new();
        let certificates = folder.path().join("certificates");
        std::fs::create_dir(&certificates).unwrap();
        for key in keys {
            let leaf = authority.leaf(*key, &NAMES);
            std::fs::write(certificates.join(format!("{key:?}.pem")), leaf).unwrap();
        }
        let listener = |name, port: u16, alpn: &str| {
            let backend = format!("127.0.0.1:{port}");
            ListenerSettings::new(name, &certificates, &backend).with(&format!("alpn = [{alpn:?}]"))
        };
        let listeners =
            vec![listener("http1", nginx.http1, "http/1.1"), listener("http2", nginx.http2, "h2")];
        let ports = [&listeners[0], &listeners[1]].map(|l| l.address.port().to_string());
        let sealane = Sealane::start(folder.path(), &Settings::new(listeners));
        let authority = authority.write(folder.path());
        let [http1, http2] = ports;
        Self { sealane, nginx, http1, http2, authority, folder }
    }

    /// Fails unless `said` holds each line; a trailing upload's answer is verified by hash.
    fn verify(&self, said: &str, expected: &[String]) {
        let mut lines = said.lines();
        for expected in expected {
            let line = lines.next().unwrap_or_else(|| panic!("{expected:?} is missing:\n{said}"));
            match expected.strip_suffix(" UPLOADED") {
                None => assert_eq!(line, expected, "in:\n{said}"),
                Some(start) => {
                    let rest = line.strip_prefix(start);
                    let rest = rest.unwrap_or_else(|| panic!("{line:?} is not {start:?}:\n{said}"));
                    let (hash, answer) = rest.trim().split_once(' ').unwrap();
                    assert_eq!(self.nginx.hash_of_upload(answer), hash, "nginx got other bytes");
                }
            }
        }
        assert_eq!(lines.next(), None, "in:\n{said}");
    }

    /// What must hold after every client: no connection failed by a fault of ours.
    fn stop(self) {
        let metrics = self.sealane.metrics();
        assert_eq!(metrics.ended("internal"), 0);
        assert_eq!(metrics.sum("sealane_panics_total", &[]), 0);
        assert_eq!(self.sealane.stop(), Some(0));
    }
}

/// What the client programs fetch.
const SIZE: usize = 10_000_000;

#[test]
fn curl_over_http1_and_http2_with_every_kind_of_key() {
    let Some(curl) = required("curl") else { return };
    for key in KeyKind::ALL {
        let site = Site::start(&[key], &[SIZE]);
        for (port, protocol, name) in
            [(&site.http1, "--http1.1", "1.1"), (&site.http2, "--http2", "2")]
        {
            for version in [["--tlsv1.2", "--tls-max", "1.2"], ["--tlsv1.3", "--tls-max", "1.3"]] {
                let curl = || {
                    let mut curl = Command::new(&curl);
                    curl.args(["--silent", "--show-error", "--fail", protocol]).args(version);
                    curl.arg("--cacert").arg(&site.authority);
                    curl
                };
                let file = site.folder.path().join("downloaded");
                let url = format!("https://localhost:{port}/{SIZE}");
                let wrote = "%{http_version} %{ssl_verify_result} %{http_code}";
                let said = output(curl().arg("-o").arg(&file).args(["-w", wrote, &url]));
                assert_eq!(said, format!("{name} 0 200"), "{key:?} {version:?}");
                let hash = harness::sha256(&std::fs::read(&file).unwrap());
                assert_eq!(hash, site.nginx.hash_of(SIZE));
                let sent = format!("@{}", file.display());
                let url = format!("https://localhost:{port}/upload");
                let answer = output(curl().args(["--data-binary", &sent, &url]));
                assert_eq!(site.nginx.hash_of_upload(&answer), hash);
            }
        }
        let stranger = run(Command::new(&curl).arg(format!("https://localhost:{}/1", site.http1)));
        assert_eq!(stranger.status.code(), Some(60), "an unknown authority must be refused");
        site.stop();
    }
}

#[test]
fn openssl_s_client_full_and_resumed_on_another_lane() {
    let Some(openssl) = required("openssl") else { return };
    let site = Site::start(&[KeyKind::P256, KeyKind::Rsa2048], &[1]);
    for (option, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let ticket = site.folder.path().join(version);
        let s_client = |more: &[&str]| {
            let mut command = Command::new(&openssl);
            command.args(["s_client", option, "-connect", &format!("127.0.0.1:{}", site.http1)]);
            command.args(["-servername", "localhost", "-verify_hostname", "localhost"]);
            command.args(["-verify_return_error", "-alpn", "http/1.1", "-ign_eof"]).args(more);
            command.arg("-CAfile").arg(&site.authority);
            let request = b"GET /1 HTTP/1.0\r\n\r\n";
            let said = output_with_input(&mut command, request);
            assert!(said.contains("Verify return code: 0 (ok)"), "{said}");
            assert!(said.contains("HTTP/1.1 200 OK"), "{said}");
            said
        };
        let before = [0, 1].map(|lane| site.sealane.metrics().handshakes(lane));
        let path = ticket.to_str().unwrap();
        let said = s_client(&["-sess_out", path]);
        assert!(said.contains(&format!("New, {version}")), "{said}");
        let after = [0, 1].map(|lane| site.sealane.metrics().handshakes(lane));
        let other = usize::from(after[0] > before[0]);
        assert_ne!(before, after);
        // Source ports decide the lane: 64 attempts all miss one of two lanes never.
        let on_other = (0..64).any(|_| {
            // A session that is used once is still good for OpenSSL to offer.
            let said = s_client(&["-sess_in", path]);
            assert!(said.contains(&format!("Reused, {version}")), "{said}");
            site.sealane.metrics().resumed(other, version) > 0
        });
        assert!(on_other, "no resumption reached lane {other}");
    }
    for (algorithm, kind) in
        [("ECDSA+SHA256", "id-ecPublicKey"), ("RSA-PSS+SHA256", "rsaEncryption")]
    {
        let mut command = Command::new(&openssl);
        command.args(["s_client", "-connect", &format!("127.0.0.1:{}", site.http1)]);
        command.args(["-servername", "localhost", "-sigalgs", algorithm]);
        let said = output(&mut command);
        let pem = &said[said.find("-----BEGIN").unwrap()..];
        let text = output_with_input(
            Command::new(&openssl).args(["x509", "-noout", "-text"]),
            pem.as_bytes(),
        );
        assert!(text.contains(&format!("Public Key Algorithm: {kind}")), "{text}");
    }
    site.stop();
}

/// Keys change while a connection lives: the client's alone, or ours too, each time once.
#[test]
fn openssl_s_client_renews_keys() {
    let Some(openssl) = required("openssl") else { return };
    let site = Site::start(&[KeyKind::P256], &[1]);
    let [out, err] = ["out", "err"].map(|name| site.folder.path().join(name));
    let mut command = Command::new(&openssl);
    command.args(["s_client", "-tls1_3", "-connect", &format!("127.0.0.1:{}", site.http1)]);
    command.args(["-servername", "localhost", "-verify_return_error", "-msg", "-CAfile"]);
    command.arg(&site.authority).stdin(Stdio::piped());
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut s_client = Process::new(child);
    let count = |words: &str| -> usize {
        let texts = [&out, &err].map(|path| std::fs::read(path).unwrap());
        texts.iter().map(|text| String::from_utf8_lossy(text).matches(words).count()).sum()
    };
    let await_count = |words: &str, expected: usize| {
        wait_for(words, || (count(words) == expected).then_some(()));
    };
    let mut say = |words: &str| input.write_all(words.as_bytes()).unwrap();
    await_count("Verify return code: 0 (ok)", 1);
    // A letter alone is an order to s_client: `K` asks the server for its next keys too.
    let mut answered = 0;
    for (index, order) in ["k", "K", "K", "k"].into_iter().enumerate() {
        say(&format!("{order}\n"));
        await_count("KEYUPDATE", index + 1);
        answered += usize::from(order == "K");
        for round in 1..=2 {
            say("GET /1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
            await_count("200 OK", index * 2 + round);
            assert_eq!(count("<<< TLS 1.3, Handshake [length 0005], KeyUpdate"), answered);
        }
    }
    assert_eq!(count(">>> TLS 1.3, Handshake [length 0005], KeyUpdate"), 4);
    say("Q\n");
    assert!(s_client.wait(harness::PATIENCE).success());
    site.stop();
}

#[test]
fn python_ssl() {
    let Some(python) = required("python3") else { return };
    let site = Site::start(&[KeyKind::P256], &[SIZE]);
    let mut command = Command::new(python);
    command.arg(client_source("client.py")).arg(&site.http1).arg(&site.authority);
    let said = output(command.arg(SIZE.to_string()));
    let hash = site.nginx.hash_of(SIZE);
    let mut expected = Vec::new();
    for version in ["TLSv1.2", "TLSv1.3"] {
        expected.push(format!("{version} download {hash} reused=False"));
        expected.push(format!("{version} download {hash} reused=True"));
        expected.push(format!("{version} upload UPLOADED"));
    }
    expected.push("refused a stranger".into());
    site.verify(&said, &expected);
    site.stop();
}

#[test]
fn go_crypto_tls_and_net_http() {
    let Some(go) = required("go") else { return };
    let site = Site::start(&[KeyKind::Ed25519], &[1, SIZE]);
    let mut command = go_run(&go, "client.go", site.folder.path());
    command.args([&site.http1, &site.http2]);
    let said = output(command.arg(&site.authority).arg(SIZE.to_string()));
    let hash = site.nginx.hash_of(SIZE);
    let mut expected = Vec::new();
    for version in ["TLS 1.2", "TLS 1.3"] {
        for (protocol, resumed) in [("HTTP/1.1", false), ("HTTP/1.1", true), ("HTTP/2.0", false)] {
            // Go keeps tickets by name, without the port, and a listener's ticket is no good for
            // another with a different policy.
            expected.push(format!("{version} {protocol} download {hash} resumed={resumed}"));
            expected.push(format!("{version} {protocol} upload UPLOADED"));
        }
        expected.push(format!("{version} half-closed HTTP/1.1 200 OK"));
    }
    expected.push("refused a stranger".into());
    site.verify(&said, &expected);
    site.stop();
}

#[test]
fn java_sockets_and_http_clients() {
    let (Some(java), Some(keytool)) = (required("java"), required("keytool")) else { return };
    let site = Site::start(&[KeyKind::Rsa2048], &[1, SIZE]);
    let store = truststore(&keytool, &site.authority);
    let mut command = Command::new(java);
    command.arg(client_source("Client.java")).args([&site.http1, &site.http2]);
    let said = output(command.arg(&store).arg(SIZE.to_string()));
    let hash = site.nginx.hash_of(SIZE);
    let mut expected = Vec::new();
    for version in ["TLSv1.2", "TLSv1.3"] {
        expected.push(format!("{version} socket download {hash}"));
        for protocol in ["HTTP_1_1", "HTTP_2"] {
            expected.push(format!("{version} {protocol} download {hash}"));
            expected.push(format!("{version} {protocol} upload UPLOADED"));
        }
    }
    expected.push(format!("HttpsURLConnection download {hash}"));
    expected.push("refused a stranger".into());
    site.verify(&said, &expected);
    site.stop();
}

#[test]
fn node_https_http2_and_tls() {
    let Some(node) = required("node") else { return };
    let site = Site::start(&[KeyKind::P256, KeyKind::Rsa2048], &[SIZE]);
    let mut command = Command::new(node);
    command.arg(client_source("client.mjs")).args([&site.http1, &site.http2]);
    let said = output(command.arg(&site.authority).arg(SIZE.to_string()));
    let hash = site.nginx.hash_of(SIZE);
    let mut expected = Vec::new();
    for version in ["TLSv1.2", "TLSv1.3"] {
        expected.push(format!("{version} http/1.1 download {hash} reused=false"));
        expected.push(format!("{version} http/1.1 download {hash} reused=true"));
        expected.push(format!("{version} http/1.1 upload UPLOADED"));
        expected.push(format!("{version} h2 download {hash}"));
        expected.push(format!("{version} h2 upload UPLOADED"));
    }
    expected.push("refused a stranger".into());
    site.verify(&said, &expected);
    site.stop();
}

#[test]
fn chromium_takes_a_page_over_http2() {
    let (Some(chromium), Some(certutil)) = (required("chromium"), required("certutil")) else {
        return;
    };
    let site = Site::start(&[KeyKind::P256], &[1]);
    let home = site.folder.path().join("home");
    let database = home.join(".pki/nssdb");
    std::fs::create_dir_all(&database).unwrap();
    let url = format!("https://localhost:{}/page.html", site.http2);
    let browse = || {
        let mut command = Command::new(&chromium);
        // Its sandbox wants a user other than root and namespaces that containers lack; it is the
        // page that is under test.
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.args(["--disable-background-networking", "--no-first-run", "--dump-dom"]);
        command.arg(format!("--user-data-dir={}", home.join("profile").display()));
        output(command.arg(&url).env("HOME", &home))
    };
    let database = format!("sql:{}", database.display());
    output(Command::new(&certutil).args(["-N", "--empty-password", "-d", &database]));
    let stranger = browse();
    assert!(!stranger.contains("protocol="), "an unknown authority must be refused: {stranger}");
    let mut command = Command::new(&certutil);
    command.args(["-A", "-d", &database, "-t", "C,,", "-n", "sealane-test", "-i"]);
    output(command.arg(&site.authority));
    let page = browse();
    assert!(page.contains("protocol=h2 secure=true scheme=https:"), "{page}");
    site.stop();
}

/// What `openssl x509 -req -signkey` of OpenSSL 3.0 makes: every client takes it whose user says
/// so, and `check` and `serve` agree.
#[test]
fn a_certificate_of_version_1_is_served_to_real_clients() {
    let (Some(openssl), Some(curl)) = (required("openssl"), required("curl")) else { return };
    for algorithm in [&["EC", "-pkeyopt", "ec_paramgen_curve:P-256"][..], &["RSA"]] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (key, request) = (at("key.pem"), at("request.pem"));
        let certificates = folder.path().join("certificates");
        std::fs::create_dir(&certificates).unwrap();
        let certificate = at("certificates/one.crt");
        let openssl = |arguments: &[&str]| run(Command::new(&openssl).args(arguments));
        openssl(&[&["genpkey", "-out", &key, "-algorithm"], algorithm].concat());
        openssl(&["req", "-new", "-key", &key, "-subj", "/CN=localhost", "-out", &request]);
        openssl(&["x509", "-req", "-in", &request, "-signkey", &key, "-out", &certificate]);
        std::fs::copy(&key, at("certificates/one.key")).unwrap();
        let text =
            output(Command::new("openssl").args(["x509", "-noout", "-text", "-in", &certificate]));
        assert!(text.contains("Version: 1 (0x0)"), "{text}");

        let nginx = Nginx::start(folder.path(), &[1]);
        let listener =
            ListenerSettings::new("web", &certificates, &format!("127.0.0.1:{}", nginx.http1));
        let port = listener.address.port();
        let sealane = Sealane::start(folder.path(), &Settings::new(vec![listener]));
        for (option, version) in [("-tls1_2", "1.2"), ("-tls1_3", "1.3")] {
            let mut s_client = Command::new("openssl");
            s_client.args(["s_client", option, "-connect", &format!("127.0.0.1:{port}")]);
            s_client.args(["-servername", "localhost", "-CAfile", &certificate]);
            s_client.args(["-verify_return_error", "-ign_eof"]);
            let said = output_with_input(&mut s_client, b"GET /1 HTTP/1.0\r\n\r\n");
            assert!(said.contains("HTTP/1.1 200 OK"), "{said}");
            let mut curl = Command::new(&curl);
            curl.args(["--silent", "--show-error", "--fail", "--insecure", "-o", "/dev/null"]);
            curl.args([&format!("--tlsv{version}"), "--tls-max", version, "-w", "%{http_code}"]);
            let said = output(curl.arg(format!("https://localhost:{port}/1")));
            assert_eq!(said, "200", "{version}");
        }
        assert_eq!(sealane.stop(), Some(0));
    }
}
