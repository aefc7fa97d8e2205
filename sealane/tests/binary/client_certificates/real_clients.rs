//! Clients that people use, each with a certificate that is good and with one that is revoked.

use std::process::Command;

use crate::harness::tools::{required, run, run_with_input};

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
