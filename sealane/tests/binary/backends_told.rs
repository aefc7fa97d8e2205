//! What real backends read in the PROXY headers that they get.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rcgen::DnType;

use crate::client_certificates::authority::ClientAuthority;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::header_reader::HeaderReader;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::tools::{output, run};
use crate::harness::wait_for;

/// What the backend answers behind Sealane, and the port from which it was asked.
fn ask(address: SocketAddr, ca: &Path, more: &[&str]) -> (String, String) {
    let port = address.port();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--http1.1", "--write-out", "\n%{local_port}"]);
    curl.args(["--connect-to", &format!("localhost:{port}:{address}"), "--cacert"]).arg(ca);
    curl.args(more).arg(format!("https://localhost:{port}/"));
    let said = output(&mut curl);
    let (body, from) = said.rsplit_once('\n').unwrap();
    (body.to_owned(), from.to_owned())
}

#[test]
fn haproxy_and_nginx_read_who_the_client_is() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (certificate, ca) = (folder.path().join("site.pem"), authority.write(folder.path()));
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let Some(haproxy) = HeaderReader::haproxy(folder.path()) else { return };
    let Some(nginx) = HeaderReader::nginx(folder.path()) else { return };
    let mut cases = Vec::new();
    for (reader, is_haproxy) in [(&haproxy, true), (&nginx, false)] {
        for said in ["\"v1\"", "\"v2\"", "true", "\"pass\""] {
            let settings =
                ListenerSettings::new(&cases.len().to_string(), &certificate, &reader.address());
            let settings = settings.with(&format!("proxy_header = {said}"));
            cases.push((settings, said, is_haproxy));
        }
    }
    let listeners = cases.iter().map(|(settings, ..)| settings.clone()).collect();
    let _sealane = Sealane::start(folder.path(), &Settings::new(listeners));
    for (settings, said, is_haproxy) in &cases {
        let (told, from) = ask(settings.address, &ca, &[]);
        let mut expected = format!("127.0.0.1 {from} {}", settings.address.port());
        if *is_haproxy {
            // Version 1 has no room for the name.
            expected += if *said == "\"v1\"" { " " } else { " localhost" };
        }
        assert_eq!(told, expected, "{said}");
    }
}

#[test]
fn varnish_reads_all_that_version_2_tells() {
    let folder = tempfile::tempdir().unwrap();
    let Some(varnish) = HeaderReader::varnish(folder.path()) else { return };
    let authority = Authority::new();
    let ca = authority.write(folder.path());
    let everything = "alpn = [\"http/1.1\"]\nproxy_header = \"v2\"\nproxy_tlvs = [\"alpn\", \
        \"authority\", \"cert\", \"cn\", \"crc32c\", \"key\", \"lane\", \"sig\", \"ssl\", \
        \"unique-id\"]";
    let listeners = [("p256", KeyKind::P256), ("rsa", KeyKind::Rsa2048)].map(|(name, kind)| {
        let certificate = folder.path().join(name).with_extension("pem");
        std::fs::write(&certificate, authority.leaf(kind, &NAMES)).unwrap();
        ListenerSettings::new(name, &certificate, &varnish.address()).with(everything)
    });
    let addresses = listeners.clone().map(|settings| settings.address);
    let _sealane = Sealane::start(folder.path(), &Settings::new(listeners.to_vec()));
    for (address, key, tls12) in [
        (addresses[0], "EC256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        (addresses[1], "RSA2048", "ECDHE-RSA-AES128-GCM-SHA256"),
    ] {
        for (more, version, cipher) in [
            (&["--tls-max", "1.2"][..], "TLSv1.2", tls12),
            (&["--tlsv1.3"], "TLSv1.3", "TLS_AES_128_GCM_SHA256"),
        ] {
            let (told, _) = ask(address, &ca, more);
            // Its authority's key is of P-256, whatever the server's own is.
            let expected = format!(
                "alpn=http/1.1 authority=localhost version={version} cipher={cipher} key={key} \
                 sign=ecdsa-with-SHA256 cn= conn=false sess=false verify=1"
            );
            assert_eq!(told, expected);
        }
    }
}

/// Dovecot's users are who their certificates say, which they show to Sealane.
#[test]
fn dovecot_reads_who_the_client_is_and_by_its_certificate_which_user() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let Some(dovecot) = HeaderReader::dovecot(at) else { return };
    let servers = Authority::new();
    let (certificate, ca) = (at.join("site.pem"), servers.write(at));
    std::fs::write(&certificate, servers.leaf(KeyKind::P256, &NAMES)).unwrap();
    let clients = ClientAuthority::root(at, "Clients CA");
    std::fs::write(at.join("clients.pem"), clients.pem()).unwrap();
    let shown = clients.issue(1, |leaf| leaf.distinguished_name.push(DnType::CommonName, "batch"));
    let [own, _, key] = shown.write(at, "client");
    let listener = ListenerSettings::new("imap", &certificate, &dovecot.address()).with(
        "proxy_header = \"v2\"\nproxy_tlvs = [\"cn\", \"ssl\"]\n\
         clients = { certificates = \"required\", roots = [\"clients.pem\"] }",
    );
    let address = listener.address;
    let _sealane = Sealane::start(at, &Settings::new(vec![listener]));
    for (user, is_admitted) in [("batch", true), ("other", false)] {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--interface", "127.0.0.38", "--write-out", "%{local_port}"]);
        curl.args(["--connect-to", &format!("localhost:993:{address}"), "--cacert"]).arg(&ca);
        curl.arg("--cert").arg(&own).arg("--key").arg(&key);
        curl.args(["--user", &format!("{user}:"), "--login-options", "AUTH=EXTERNAL"]);
        let said = run(curl.args(["imaps://localhost/", "--output"]).arg(at.join("folders")));
        assert_eq!(said.status.success(), is_admitted, "{user}: {said:?}");
        let from = String::from_utf8(said.stdout).unwrap();
        let line = wait_for("Dovecot's line", || {
            let log = std::fs::read_to_string(at.join("dovecot.log")).unwrap();
            let of_client = |line: &&str| line.contains(&format!(" 127.0.0.38:{from}, "));
            log.lines().find(of_client).map(ToOwned::to_owned)
        });
        assert_eq!(line.contains("imap-login: Info: Login: "), is_admitted, "{line}");
        let seen = format!(": batch, EXTERNAL, 127.0.0.38:{from}, {address}, secured");
        assert!(line.ends_with(&seen), "{seen} is not at the end of {line}");
    }
}
