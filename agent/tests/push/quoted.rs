//! A file that is not the configuration is never quoted: every key that takes a path, as the
//! example has them, is given a private key.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rcgen::KeyPair;
use rustix::process::Signal;

use super::harness::wait_for;
use super::site::{BINARY, Site};

/// The example with all that is commented out, on this machine; the paths in it are of files in
/// the site's folder.
fn example(site: &Site) -> String {
    let is_key = |line: &str| {
        let key = line.split_once(" = ").map(|(key, _)| key);
        key.is_some_and(|key| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
    };
    let lines = include_str!("../../../packaging/agent.toml").lines().filter_map(|line| {
        let text = line.strip_prefix("# ").unwrap_or(line);
        (text.starts_with('[') || is_key(text)).then_some(text)
    });
    let text = lines.collect::<Vec<_>>().join("\n") + "\n";
    text.replace("\"system\"", "\"etcd-ca.pem\"")
        .replace("10.0.0.5:8443", &site.address().to_string())
        .replace("https://10.0.0.", "https://127.0.0.")
        .replace(":2379", ":1")
        .replace("acme-v02.api.letsencrypt.org", "127.0.0.1:1")
        .replace("http://127.0.0.1:5555", "https://127.0.0.1:3")
        .replace("acme.example.net", "127.0.0.1:2")
        .replace("\"/etc/sealane/", "\"")
        .replace("\"/var/lib/sealane/", "\"")
        .replace("store/names.sock", "names.sock")
        .replace("\"dns-hook", &format!("\"{}", site.path("dns-hook").display()))
}

/// The files that the example names, with contents that are in order.
fn write_files(site: &Site) {
    for name in ["etcd", "push"] {
        site.issue(name, |_| {});
    }
    let copy = |from: &str, to: &str| {
        fs::copy(site.path(from), site.path(to)).unwrap();
    };
    copy("ca.pem", "etcd-ca.pem");
    copy("ca.pem", "deployers.pem");
    site.revoke(1);
    copy("revoked.pem", "deployers.crl");
    for (name, text, mode) in [
        ("eab.key", "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", 0o600),
        ("etcd.password", "a password\n", 0o600),
        ("names", "c.test\n", 0o600),
        ("dns-hook", "#!/bin/sh\n", 0o700),
    ] {
        fs::write(site.path(name), text).unwrap();
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn no_output_quotes_a_file() {
    let mut site = Site::new();
    write_files(&site);
    let pem = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
    let lines: Vec<_> = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let assert_absent = |text: &str, what: &str| {
        for line in &lines {
            assert!(!text.contains(&line[..16]), "{what} quotes the key:\n{text}");
        }
    };
    for (name, text) in [("secret.key", &pem), ("bare.key", &lines.join("\n"))] {
        fs::write(site.path(name), text).unwrap();
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let example = example(&site);
    let check = |text: &str| {
        fs::write(site.path("agent.toml"), text).unwrap();
        let mut command = Command::new(BINARY);
        let done = command.args(["check", "--config"]).arg(site.path("agent.toml")).output();
        let done = done.unwrap();
        assert!(done.stdout.is_empty());
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, told) = check(&example);
    assert_eq!(code, Some(0), "{told}\n{example}");
    // Paths are the values that name files here; a new key needs a file in `write_files`.
    let quotes: Vec<_> = example.match_indices('"').map(|(at, _)| at).collect();
    let paths: Vec<_> = quotes
        .chunks(2)
        .map(|pair| pair[0] + 1..pair[1])
        .filter(|range| {
            let value = &example[range.clone()];
            value == "names.sock" || site.path(value).exists()
        })
        .collect();
    assert!(paths.len() >= 16, "{paths:?}");
    assert!(!example.contains("\"/e") && !example.contains("\"/v"), "{example}");
    for path in &paths {
        for file in ["secret.key", "bare.key"] {
            let mut text = example.clone();
            text.replace_range(path.clone(), site.path(file).to_str().unwrap());
            let (code, told) = check(&text);
            assert_absent(&told, &text);
            let name = &example[path.clone()];
            // These are opened when they are needed.
            let is_later = ["etcd.password", "names.sock"].contains(&name);
            assert_eq!(code, Some(if is_later { 0 } else { 3 }), "{name}: {told}");
        }
    }
    fs::write(site.path("agent.toml"), &example).unwrap();
    site.run();
    for (number, path) in paths.iter().enumerate() {
        let file = site.path(&example[path.clone()]);
        if file.is_file() {
            let good = fs::read(&file).unwrap();
            fs::write(&file, &pem).unwrap();
            reload(&site);
            fs::write(&file, good).unwrap();
        }
        if number == paths.len() - 1 {
            reload(&site);
        }
    }
    let told = site.said();
    assert_absent(&told, "the log");
    assert!(told.contains("push: the key does not belong to the certificate"), "{told}");
    let last = told.lines().rfind(|line| line.contains("reloaded")).unwrap();
    assert!(last.contains(" reloaded: looks after"), "{told}");
}

fn reload(site: &Site) {
    let count = || site.said().matches("reloaded").count();
    let before = count();
    site.signal(Signal::HUP);
    wait_for("the end of a reload", || (count() > before).then_some(()));
}
