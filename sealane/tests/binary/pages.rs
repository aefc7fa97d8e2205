//! What README and docs/install.md tell people to write and to type, as they stand there.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::peers::quiet;
use crate::harness::sealane::BINARY;
use crate::harness::wait_for;

const README: &str = include_str!("../../../README.md");
const INSTALL: &str = include_str!("../../../docs/install.md");

#[test]
fn the_configuration_of_the_readme_reaches_its_backends_and_redirects() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let leaf = authority.leaf(KeyKind::P256, &NAMES);
    std::fs::write(folder.path().join("site.pem"), leaf).unwrap();
    let backends = ["one", "two"].map(|name| {
        Backend::start(move |mut stream| stream.write_all(name.as_bytes()).unwrap()).address
    });
    let ports = [(); 3].map(|()| ReservedPort::on_loopback().unwrap());
    let [admin, secure, plain] = ports.each_ref().map(ReservedPort::address);
    let text = blocks(README, "toml").concat();
    let placed = [
        ("/etc/sealane/certificates", folder.path().display().to_string()),
        ("127.0.0.1:9180", admin.to_string()),
        ("/run/sealane/admin.sock", folder.path().join("admin.sock").display().to_string()),
        ("\":443\"", format!("\"{secure}\"")),
        ("\":80\"", format!("\"{plain}\"")),
        ("127.0.0.1:8080", backends[0].to_string()),
        ("127.0.0.1:8081", backends[1].to_string()),
    ];
    let text = placed.iter().fold(text, |text, (theirs, ours)| {
        assert!(text.contains(theirs), "README has no {theirs}:\n{text}");
        text.replace(theirs, ours)
    });
    let file = folder.path().join("sealane.toml");
    std::fs::write(&file, &text).unwrap();
    let check = Command::new(BINARY).args(["check", "--config"]).arg(&file).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));

    let _process = quiet(Command::new(BINARY).args(["serve", "--config"]).arg(&file));
    wait_for("Sealane listens", || TcpStream::connect(secure).ok());
    let connector = Connector::new(authority.der(), &TLS13).with_alpn(&["http/1.1"]);
    let mut reached = BTreeSet::new();
    wait_for("both backends are reached", || {
        reached.insert(connector.connect(secure).unwrap().read_rest().unwrap());
        (reached.len() == 2).then_some(())
    });
    assert!(reached.contains(&b"one"[..]) && reached.contains(&b"two"[..]), "{reached:?}");
    assert!(answer(plain).starts_with("HTTP/1.1 308 "), "{}", answer(plain));
    assert!(answer(admin).starts_with("HTTP/1.1 200 "), "{}", answer(admin));
}

/// What the package comes with is in order as soon as there is a certificate.
#[test]
fn the_six_lines_of_the_package_are_in_order() {
    let text = include_str!("../../../packaging/sealane.minimal.toml");
    assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 6, "{text}");
    let folder = tempfile::tempdir().unwrap();
    let leaf = Authority::new().leaf(KeyKind::P256, &NAMES);
    std::fs::write(folder.path().join("site.pem"), leaf).unwrap();
    let certificates = folder.path().display().to_string();
    let file = folder.path().join("sealane.toml");
    std::fs::write(&file, text.replace("/etc/sealane/certificates", &certificates)).unwrap();
    let check = Command::new(BINARY).args(["check", "--config"]).arg(&file).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
}

/// The unit starts what the lines install.
#[test]
fn the_lines_that_install_put_each_file_where_the_unit_looks() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().display();
    let text = blocks(README, "sh").concat() + &blocks(INSTALL, "sh").concat();
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("sudo install -D ")).collect();
    assert!(lines.len() > 3, "{text}");
    for line in lines {
        let line = line.strip_prefix("sudo ").unwrap().replace(" /", &format!(" {at}/"));
        let line = line.replace("target/release/sealane", BINARY);
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let status = Command::new("sh").args(["-c", &line]).current_dir(home).status().unwrap();
        assert!(status.success(), "{line}");
    }
    let installed = |path: &str| root.path().join(path.trim_start_matches('/'));
    assert!(installed("usr/lib/sysusers.d/sealane.conf").is_file());
    let unit = std::fs::read_to_string(installed("etc/systemd/system/sealane.service")).unwrap();
    let started = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let program = installed(started.split(' ').next().unwrap());
    let version = Command::new(&program).arg("--version").output().unwrap();
    assert!(version.status.success(), "{started}");
}

/// The fenced blocks of `kind` on a page.
fn blocks<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| block.strip_prefix(kind)?.strip_prefix('\n')).collect()
}

/// What is answered to a request for `/healthz`.
fn answer(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
