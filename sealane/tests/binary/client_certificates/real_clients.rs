//! Clients that people use, each with a certificate that is good and with one that is revoked.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::tools::{
    client_source, go_run, output, required, run, run_with_input, truststore,
};

use super::Site;

#[test]
fn openssl_curl_and_python_show_their_certificates() {
    let Some(site) = Site::start("") else { return };
    let [good, bad] = [site.clients.issue(1, |_| ()), site.clients.issue(2, |_| ())];
    site.publish(&site.clients.list(&[2]));
    let ca = site.path("ca.pem");
    for (shown, is_admitted) in [(good, true), (bad, false)] {
        let [own, _, key] = shown.write(site.folder.path(), "client");
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-connect", &site.address.to_string(), "-brief", "-tls1_2"]);
        openssl.arg("-CAfile").arg(&ca).arg("-cert").arg(&own).arg("-key").arg(&key);
        let said = run_with_input(&mut openssl, b"");
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.success(), is_admitted, "{text}");
        assert_eq!(text.contains("certificate revoked"), !is_admitted, "{text}");
        if required("curl").is_some() {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--fail", "--cacert"]);
            curl.arg(&ca).arg("--cert").arg(&own).arg("--key").arg(&key);
            let url = format!("https://localhost:{}/", site.address.port());
            let said = run(curl.args(["--connect-to", "localhost::127.0.0.1:", &url]));
            let text = String::from_utf8_lossy(&said.stderr).into_owned();
            assert_eq!(said.status.success(), is_admitted, "{text}");
            assert_eq!(text.contains("alert certificate revoked"), !is_admitted, "{text}");
        }
        if required("python3").is_some() {
            let said = run(Command::new("python3")
                .args(["-c", PYTHON])
                .args([&ca, &own, &key])
                .arg(site.address.port().to_string()));
            let text = String::from_utf8_lossy(&said.stderr).into_owned();
            assert_eq!(said.status.success(), is_admitted, "{text}");
            assert_eq!(text.contains("certificate revoked"), !is_admitted, "{text}");
        }
    }
}

const PYTHON: &str = "\
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
context.load_cert_chain(sys.argv[2], sys.argv[3])
tcp = socket.create_connection(('127.0.0.1', int(sys.argv[4])), 60)
tls = context.wrap_socket(tcp, server_hostname='localhost')
tls.sendall(b'hello')
assert tls.recv(5) == b'hello'
";

/// Go says what came of its handshakes, full and resumed, in its own words.
#[test]
fn go_shows_its_certificates_and_resumes() {
    let (Some(go), Some(site)) = (required("go"), Site::start("")) else { return };
    let [good, bad] = files(&site);
    let mut command = go_run(&go, "client_certificate.go", site.folder.path());
    command.arg(site.address.port().to_string()).arg(site.path("ca.pem"));
    for (name, [own, key]) in [("good", &good), ("bad", &bad)] {
        command.arg(name).arg(own).arg(key);
    }
    let alert = |what| format!("remote error: tls: {what}");
    let said = output(&mut command);
    assert_eq!(said, expected(&alert("certificate required"), &alert("revoked certificate")));
    assert_logged(&site);
}

/// The same of Java, which reads keys and certificates from keystores.
#[test]
fn java_shows_its_certificates_and_resumes() {
    let (Some(java), Some(keytool)) = (required("java"), required("keytool")) else { return };
    let Some(site) = Site::start("") else { return };
    let clients = files(&site);
    let trusted = truststore(&keytool, &site.path("ca.pem"));
    let mut command = Command::new(java);
    command.arg(client_source("ClientCertificate.java"));
    command.arg(site.address.port().to_string()).arg(trusted);
    for (name, [own, key]) in ["good", "bad"].into_iter().zip(&clients) {
        let store = own.with_extension("p12");
        let mut openssl = Command::new("openssl");
        openssl.args(["pkcs12", "-export", "-passout", "pass:changeit", "-in"]).arg(own);
        output(openssl.arg("-inkey").arg(key).arg("-out").arg(&store));
        command.arg(name).arg(store);
    }
    let alert = |what| format!("Received fatal alert: {what}");
    let said = output(&mut command);
    assert_eq!(said, expected(&alert("certificate_required"), &alert("certificate_revoked")));
    assert_logged(&site);
}

/// The certificates and keys of two clients, of which the second is revoked.
fn files(site: &Site) -> [[PathBuf; 2]; 2] {
    site.publish(&site.clients.list(&[2]));
    [1, 2].map(|serial| {
        let shown = site.clients.issue(serial, |_| ());
        let [own, _, key] = shown.write(site.folder.path(), &serial.to_string());
        [own, key]
    })
}

/// What a program says that comes without a certificate, and twice with each of two.
fn expected(required: &str, revoked: &str) -> String {
    let of_version = |version| {
        [
            format!("{version} nobody {required}\n"),
            format!("{version} good hello resumed=false\n"),
            format!("{version} good hello resumed=true\n"),
            format!("{version} bad {revoked}\n").repeat(2),
        ]
    };
    ["TLSv1.2", "TLSv1.3"].map(of_version).concat().concat()
}

/// The same as the access log has it.
fn assert_logged(site: &Site) {
    let lines = site.logged(10);
    let keys = ["tls_version", "client_subject", "client_distrust", "resumed"];
    let fact = |line: &Value| keys.map(|key| line[key].to_string()).join(" ");
    let mut facts: Vec<String> = lines.iter().map(fact).collect();
    // Lines of two lanes may change places.
    facts.sort_unstable();
    let of_version = |version| {
        [
            format!("{version:?} \"CN=client 1\" null false"),
            format!("{version:?} \"CN=client 1\" null true"),
            format!("{version:?} \"CN=client 2\" \"revoked\" null"),
            format!("{version:?} \"CN=client 2\" \"revoked\" null"),
            format!("{version:?} null \"missing\" null"),
        ]
    };
    assert_eq!(facts, ["TLSv1.2", "TLSv1.3"].map(of_version).concat());
}
