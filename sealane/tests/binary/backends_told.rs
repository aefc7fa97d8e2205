//! What real backends read in the PROXY headers that they get.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::header_reader::HeaderReader;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::tools::output;

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
